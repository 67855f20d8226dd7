"""How strongly a model contradicts the gold labels of documents: the one formula, and kinds of contradiction."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence, Set
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from hgclr.taxonomy import Taxonomy

Kind = Literal["other path", "missing label", "extra label", "too shallow", "too deep"]
KINDS: tuple[Kind, ...] = get_args(Kind)
SMALLEST = 1e-4
"""No probability counts as less: of what happens once in 10,000 documents, no model knows how rare it is."""
SHRINKAGE = 10.0
"""Documents' worth of the level's mean in the mean of a label: one with a few documents has no mean of its own."""


class ContradictedDocument(NamedTuple):
    """A document whose gold labels are not those that the model predicts; every label comes with its parent.

    ``row`` is its place in the file; probabilities are those of its gold and its predicted labels, by index.
    """

    row: int
    probabilities: dict[int, float]
    gold: frozenset[int]
    predicted: frozenset[int]

    @property
    def extra(self) -> frozenset[int]:
        """Labels that are gold and not predicted."""
        return self.gold - self.predicted

    @property
    def missing(self) -> frozenset[int]:
        """Labels that are predicted and not gold."""
        return self.predicted - self.gold


class ContradictionLog(Sequence[ContradictedDocument]):
    """Remember the contradicted documents, batch by batch, by 10 bytes for each of their labels; no other is kept."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        """The place of each document in its file."""
        self._starts: list[tuple[int, int]] = []  # batch, and place in it, of the first label of each document
        self._batches: list[tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.bool_], NDArray[np.bool_]]] = []

    def update(
        self,
        rows: Sequence[int],
        probabilities: NDArray[np.float32],
        gold: NDArray[np.bool_],
        predicted: NDArray[np.bool_],
    ) -> None:
        """Add documents: places in the file, and probabilities, gold and predicted labels, each (N, K)."""
        differing = np.flatnonzero((gold != predicted).any(axis=1))
        documents, labels = np.nonzero(gold[differing] | predicted[differing])
        which = differing[documents], labels
        starts = np.searchsorted(documents, np.arange(len(differing))).tolist()
        self.rows += [rows[place] for place in differing.tolist()]
        self._starts += [(len(self._batches), start) for start in starts]
        self._batches.append((labels.astype(np.int32), probabilities[which], gold[which], predicted[which]))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> ContradictedDocument:  # type: ignore[override]
        batch, start = self._starts[index]
        following = self._starts[index + 1] if index + 1 < len(self) else (-1, -1)
        part = slice(start, following[1] if following[0] == batch else None)
        labels, probabilities, gold, predicted = (values[part] for values in self._batches[batch])
        return ContradictedDocument(
            self.rows[index],
            dict(zip(labels.tolist(), probabilities.tolist(), strict=True)),
            frozenset(labels[gold].tolist()),
            frozenset(labels[predicted].tolist()),
        )


class Agreement:
    """Average, for each label, the probability of what the annotation says; memory O(labels).

    The agreement with a decision of the annotation is a_ik = p_ik if label k is a gold label of document i, and
    1 - p_ik if not. Its mean over the documents with the same decision on the same label, g = 1 or 0, is the *usual*
    agreement

        m_k(g) = (∑_i a_ik + 10 M(g)) / (n_k(g) + 10)      M(g): mean over all labels of k's level

    For g = 1 this is the label's mean self-confidence, the threshold of confident learning (Northcutt et al., 2021).
    """

    def __init__(self, taxonomy: Taxonomy) -> None:
        self.taxonomy = taxonomy
        self.documents = 0
        self.gold = np.zeros(len(taxonomy), dtype=np.int64)
        """Gold documents of each label, (K,)."""
        self._all = np.zeros(len(taxonomy))
        self._of_gold = np.zeros(len(taxonomy))

    def update(self, probabilities: NDArray[np.float32], gold: NDArray[np.bool_]) -> None:
        """Add documents: probabilities and gold labels, both (N, K)."""
        self.documents += len(gold)
        self.gold += np.count_nonzero(gold, axis=0)
        self._all += probabilities.sum(axis=0, dtype=np.float64)
        self._of_gold += probabilities.sum(axis=0, dtype=np.float64, where=gold)

    def usual(self) -> NDArray[np.float64]:
        """Return m_k(g) for g = 0, labels that are not gold, and g = 1, (2, K)."""
        without = self.documents - self.gold
        counts = np.stack([without, self.gold]).astype(np.float64)
        sums = np.stack([without - (self._all - self._of_gold), self._of_gold])
        means = np.empty_like(sums)
        for level in self.taxonomy.levels:
            whole = sums[:, level].sum(axis=1) / np.maximum(counts[:, level].sum(axis=1), 1)
            means[:, level] = (sums[:, level] + SHRINKAGE * whole[:, None]) / (counts[:, level] + SHRINKAGE)
        return means


class Scorer:
    """Score contradicted documents by the usual agreement, m_k(g) of :class:`Agreement`, (2, K).

    A *branch* is a label that is extra, or missing, whose parent is not, and all such labels below it.
    """

    def __init__(self, taxonomy: Taxonomy, usual: NDArray[np.float64]) -> None:
        self.taxonomy = taxonomy
        self.usual: list[list[float]] = usual.tolist()
        self._parents: list[int] = taxonomy.parents.tolist()
        self._depths: list[int] = taxonomy.depths.tolist()

    def strengths(self, document: ContradictedDocument) -> dict[int, float]:
        """Return how strongly each label is contradicted about which annotation and model differ.

            c_ik = w_k max(0, log10 m_k(g) / max(a_ik, 0.0001))      w_k = (2 + 1 / depth_k) / 3

        with the agreement a_ik and its mean m_k(g) of :class:`Agreement`. A contradiction of 2 at a top label says: the
        model finds this decision of the annotation 100 times less probable than such decisions about this label usually
        are. A label of which the model is never sure is contradicted only where it is even less sure than usual.
        """
        strengths = {}
        for label in sorted(document.gold ^ document.predicted):
            gold, probability = label in document.gold, document.probabilities[label]
            agreement = probability if gold else 1 - probability
            orders = math.log10(max(self.usual[gold][label], SMALLEST) / max(agreement, SMALLEST))
            strengths[label] = (2 + 1 / self._depths[label]) / 3 * max(orders, 0.0)
        return strengths

    def score(self, document: ContradictedDocument) -> float:
        """Return the score of a document.

            score_i = max over extra branches b of mean_{k in b} c_ik  +  the same over missing branches

        The labels of a branch say the same thing, so that their mean counts; of several branches the worst counts, so
        that one sure error among many labels is not lost.
        """
        strengths = self.strengths(document)
        return sum(
            max((sum(map(strengths.__getitem__, branch)) / len(branch) for branch in branches.values()), default=0.0)
            for branches in (self._branches(document.extra), self._branches(document.missing))
        )

    def kind(self, document: ContradictedDocument) -> Kind:
        """Return in which way a document is contradicted.

        - ``other path``: some labels are extra and others missing;
        - ``too shallow``: labels are missing, all of them below the end of a gold path;
        - ``missing label``: labels are missing, and some begin a path of their own;
        - ``too deep``: labels are extra, all of them below the end of a predicted path;
        - ``extra label``: labels are extra, and some begin a path of their own.
        """
        if document.extra and document.missing:
            return "other path"
        if document.missing:
            return "missing label" if self._own_path(document.missing, document.gold) else "too shallow"
        return "extra label" if self._own_path(document.extra, document.predicted) else "too deep"

    def parting(self, document: ContradictedDocument) -> int:
        """Return the label after which gold and predicted path part, the nearest to their ends; -1 for the top.

        Of pairs of an extra and a missing label that part at the same depth, the strongest decides.
        """
        strengths = self.strengths(document)
        extra, missing = self._branches(document.extra), self._branches(document.missing)
        pairs = [(one, other) for one in extra for other in missing]
        common = self.taxonomy.lca([one for one, _ in pairs], [other for _, other in pairs]).tolist()
        closeness = [
            (self._depths[last] if last >= 0 else 0, strengths[one] + strengths[other])
            for last, (one, other) in zip(common, pairs, strict=True)
        ]
        return int(common[closeness.index(max(closeness))])

    def confused_pairs(self, document: ContradictedDocument) -> Iterator[tuple[int, int]]:
        """Yield pairs of a gold and a predicted label that a document confuses.

        These are the two siblings at which its paths part and, where these go on further, the two ends. The top labels
        are siblings, too.
        """
        missing = self._branches(document.missing)
        for one, extra_branch in self._branches(document.extra).items():
            for other, missing_branch in missing.items():
                if self._parents[one] != self._parents[other]:
                    continue
                yield one, other
                ends = self._ends(extra_branch), self._ends(missing_branch)
                if len(ends[0]) == len(ends[1]) == 1 and (ends[0][0], ends[1][0]) != (one, other):
                    yield ends[0][0], ends[1][0]

    def _branches(self, side: Set[int]) -> dict[int, list[int]]:
        """Return the branches of extra or missing labels by their top-most labels, in the order of these."""
        tops: dict[int, int] = {}
        for label in sorted(side, key=self._depths.__getitem__):
            tops[label] = tops.get(self._parents[label], label)
        branches: dict[int, list[int]] = {top: [] for top in sorted(set(tops.values()))}
        for label, top in tops.items():
            branches[top].append(label)
        return branches

    def _ends(self, branch: Sequence[int]) -> list[int]:
        inner = {self._parents[label] for label in branch}
        return [label for label in branch if label not in inner]

    def _own_path(self, side: Set[int], others: Set[int]) -> bool:
        """Tell whether a branch of one side does not go on from the end of a path of the others."""
        inner = {self._parents[label] for label in others}
        above = [self._parents[top] for top in self._branches(side)]
        return any(parent < 0 or parent in inner for parent in above)
