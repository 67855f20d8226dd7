"""Contradictions between a model and the gold labels of documents: their score and their kinds."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Sequence, Set
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from hgclr.taxonomy import Taxonomy

Kind = Literal["other path", "missing label", "extra label", "too shallow", "too deep"]
KINDS: tuple[Kind, ...] = get_args(Kind)
SMALLEST = 1e-4
"""Lower limit of a probability in a ratio; models cannot estimate smaller ones."""
SHRINKAGE = 10.0
"""Weight of the level's mean in the mean of a label, in documents; it matters for labels with few documents."""


class ContradictedDocument(NamedTuple):
    """A document whose gold labels differ from the predicted ones; both include all ancestors.

    ``row`` is its place in the file; ``probabilities`` has its gold and predicted labels, by index.
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
    """The contradicted documents, in 9 bytes per label; other documents are not kept."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self._starts = array("q", [0])
        self._labels, self._probabilities = array("i"), array("f")
        self._sides = array("b")  # 1: gold, 2: predicted, 3: both

    def update(
        self,
        rows: Sequence[int],
        probabilities: NDArray[np.float32],
        gold: NDArray[np.bool_],
        predicted: NDArray[np.bool_],
    ) -> None:
        """Add documents: places in the file, and probabilities, gold and predicted labels, each (N, K)."""
        for place in np.flatnonzero((gold != predicted).any(axis=1)).tolist():
            sides = gold[place] + 2 * predicted[place].astype(np.int8)
            labels = np.flatnonzero(sides)
            self.rows.append(rows[place])
            self._labels.extend(labels.tolist())
            self._probabilities.extend(probabilities[place, labels].tolist())
            self._sides.extend(sides[labels].tolist())
            self._starts.append(len(self._labels))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> ContradictedDocument:  # type: ignore[override]
        part = slice(self._starts[index], self._starts[index + 1])
        labels, sides = self._labels[part], self._sides[part]
        return ContradictedDocument(
            self.rows[index],
            dict(zip(labels, self._probabilities[part], strict=True)),
            frozenset(label for label, side in zip(labels, sides, strict=True) if side & 1),
            frozenset(label for label, side in zip(labels, sides, strict=True) if side & 2),
        )

    def __iter__(self) -> Iterator[ContradictedDocument]:
        return map(self.__getitem__, range(len(self)))


class Agreement:
    """The model's mean agreement with the annotation, for each label; memory O(labels).

    The agreement is a_ik = p_ik if label k is a gold label of document i (g = 1), and 1 - p_ik if not (g = 0). The
    *usual* agreement is its mean over the documents with the same g, shrunk towards the mean of the level:

        m_k(g) = (∑_i a_ik + 10 M(g)) / (n_k(g) + 10)      M(g): mean over all labels of k's level

    For g = 1 this is the label's mean self-confidence, the threshold of confident learning (Northcutt et al., 2021).
    """

    def __init__(self, taxonomy: Taxonomy) -> None:
        self.taxonomy = taxonomy
        self.documents = 0
        self.gold = np.zeros(len(taxonomy), dtype=np.int64)  # gold documents of each label, (K,)
        self._all = np.zeros(len(taxonomy))
        self._of_gold = np.zeros(len(taxonomy))

    def update(self, probabilities: NDArray[np.float32], gold: NDArray[np.bool_]) -> None:
        """Add documents: probabilities and gold labels, both (N, K)."""
        self.documents += len(gold)
        self.gold += np.count_nonzero(gold, axis=0)
        self._all += probabilities.sum(axis=0, dtype=np.float64)
        self._of_gold += probabilities.sum(axis=0, dtype=np.float64, where=gold)

    def usual(self) -> NDArray[np.float64]:
        """Return m_k(g) for g = 0 and g = 1, (2, K)."""
        without = self.documents - self.gold
        counts = np.stack([without, self.gold]).astype(np.float64)
        sums = np.stack([without - (self._all - self._of_gold), self._of_gold])
        means = np.empty_like(sums)
        for level in self.taxonomy.levels:
            whole = sums[:, level].sum(axis=1) / np.maximum(counts[:, level].sum(axis=1), 1)
            means[:, level] = (sums[:, level] + SHRINKAGE * whole[:, None]) / (counts[:, level] + SHRINKAGE)
        return means


class Scorer:
    """Scores contradicted documents, given the usual agreement, m_k(g) of :class:`Agreement`, (2, K).

    A *branch* is an extra label whose parent is not extra, with all extra labels below it; the same for missing labels.
    """

    def __init__(self, taxonomy: Taxonomy, usual: NDArray[np.float64]) -> None:
        self.taxonomy = taxonomy
        self.usual: list[list[float]] = usual.tolist()
        self._parents: list[int] = taxonomy.parents.tolist()
        self._depths: list[int] = taxonomy.depths.tolist()

    def strengths(self, document: ContradictedDocument) -> dict[int, float]:
        """Return the strength of the contradiction at each extra or missing label.

            c_ik = w_k max(0, log10 m_k(g) / max(a_ik, 0.0001))      w_k = (2 + 1 / depth_k) / 3

        with the agreement a_ik and its mean m_k(g) of :class:`Agreement`. Example: a strength of 2 at a top label means
        that the model finds this annotation 100 times less probable than the same annotation in other documents. A
        label that the model is usually unsure of counts only where the model is even less sure.
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

        The labels of a branch depend on each other, so their mean counts; of several branches the strongest counts, so
        that one clear error among many labels is not averaged out.
        """
        strengths = self.strengths(document)
        return sum(
            max((sum(map(strengths.__getitem__, branch)) / len(branch) for branch in branches.values()), default=0.0)
            for branches in (self._branches(document.extra), self._branches(document.missing))
        )

    def kind(self, document: ContradictedDocument) -> Kind:
        """Return the kind of contradiction.

        - ``other path``: some labels are extra and others missing;
        - ``too shallow``: labels are missing, all of them below the end of a gold path;
        - ``missing label``: labels are missing, and some begin another path;
        - ``too deep``: labels are extra, all of them below the end of a predicted path;
        - ``extra label``: labels are extra, and some begin another path.
        """
        if document.extra and document.missing:
            return "other path"
        side, others = (document.missing, document.gold) if document.missing else (document.extra, document.predicted)
        inner = {self._parents[label] for label in others}
        above = [self._parents[top] for top in self._branches(side)]
        other_path = any(parent < 0 or parent in inner for parent in above)
        if document.missing:
            return "missing label" if other_path else "too shallow"
        return "extra label" if other_path else "too deep"

    def confused_pairs(self, document: ContradictedDocument) -> Iterator[tuple[int, int]]:
        """Yield pairs of a gold and a predicted label that are confused in a document.

        These are the two siblings at which its paths diverge and, if the paths continue, their two ends. Top labels
        count as siblings.
        """

        def ends(branch: Sequence[int]) -> list[int]:
            inner = {self._parents[label] for label in branch}
            return [label for label in branch if label not in inner]

        missing = self._branches(document.missing)
        for one, extra_branch in self._branches(document.extra).items():
            for other, missing_branch in missing.items():
                if self._parents[one] != self._parents[other]:
                    continue
                yield one, other
                last = ends(extra_branch), ends(missing_branch)
                if len(last[0]) == len(last[1]) == 1 and (last[0][0], last[1][0]) != (one, other):
                    yield last[0][0], last[1][0]

    def _branches(self, side: Set[int]) -> dict[int, list[int]]:
        """Return the branches of extra or missing labels by their topmost label, sorted."""
        tops: dict[int, int] = {}
        for label in sorted(side, key=self._depths.__getitem__):
            tops[label] = tops.get(self._parents[label], label)
        branches: dict[int, list[int]] = {top: [] for top in sorted(set(tops.values()))}
        for label, top in tops.items():
            branches[top].append(label)
        return branches
