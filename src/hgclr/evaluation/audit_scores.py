"""How strongly a model contradicts the gold labels of documents: the one formula, and what errors have in common."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from hgclr.taxonomy import Taxonomy

__all__ = [
    "KINDS",
    "Agreement",
    "DifferenceLog",
    "Differences",
    "Kind",
    "confused_pairs",
    "contradictions",
    "document_scores",
    "kinds",
    "parting",
    "suspect_labels",
]

Kind = Literal["other path", "missing label", "extra label", "too shallow", "too deep"]
KINDS: tuple[Kind, ...] = get_args(Kind)
SMALLEST = 1e-4
"""No probability counts as less: of what happens once in 10,000 documents, no model knows how rare it is."""
SHRINKAGE = 10.0
"""Documents' worth of the level's mean in the mean of a label: one with a few documents has no mean of its own."""
SURE = 1.0
"""A contradiction from which on an error is counted: the decision is ten times less probable than usual, or more."""
EXAMPLES = 2
"""Documents that are shown for a pair of labels."""
PAIRS_OF_DOCUMENT = 100
"""Pairs that one document may count for; only documents with dozens of wrong labels have more."""
Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
Marks = NDArray[np.bool_]


@dataclass(frozen=True)
class Differences:
    """Documents whose gold labels are not those that the model predicts, with all labels of either.

    An *entry* is a gold or predicted label of a document. Entries are in the order of the documents, and those of a
    document in the order of the labels.

    Args:
        taxonomy: the label tree.
        rows: the place of each document in its file, (D,).
        documents: the document of each entry, counted from 0, (E,).
        labels: the label of each entry, (E,).
        probabilities: what the model thinks of it, (E,).
        gold: the annotation has it, (E,).
        predicted: the model would give it, (E,).
    """

    taxonomy: Taxonomy
    rows: Indices
    documents: Indices
    labels: Indices
    probabilities: Floats
    gold: Marks
    predicted: Marks

    @cached_property
    def extra(self) -> Marks:
        """Entries that are gold and not predicted, (E,)."""
        return self.gold & ~self.predicted

    @cached_property
    def missing(self) -> Marks:
        """Entries that are predicted and not gold, (E,)."""
        return self.predicted & ~self.gold

    @cached_property
    def starts(self) -> Indices:
        """Where the entries of each document begin, and where all end, (D + 1,)."""
        return np.searchsorted(self.documents, np.arange(len(self.rows) + 1))

    @cached_property
    def parents(self) -> Indices:
        """The entry of the parent of each entry's label in the same document; -1 for a top label, (E,)."""
        if not len(self.labels):
            return np.zeros(0, dtype=np.int64)
        keys = self.documents * len(self.taxonomy) + self.labels  # ascending
        above = self.taxonomy.parents[self.labels]
        # Every label of a document comes with its parent, whether gold or predicted.
        places = np.searchsorted(keys, self.documents * len(self.taxonomy) + above)
        return np.where(above < 0, -1, places)

    @cached_property
    def branches(self) -> Indices:
        """The top-most entry of the extra or the missing branch that each entry is in; itself for all others, (E,)."""
        side = self.extra * 1 + self.missing * 2
        above = self.parents
        joined = (side > 0) & (above >= 0) & (side[above] == side)
        tops = np.where(joined, above, np.arange(len(side)))
        while not np.array_equal(tops, further := tops[tops]):
            tops = further
        return tops

    def entries(self, document: int) -> range:
        """Return the entries of a document."""
        return range(int(self.starts[document]), int(self.starts[document + 1]))

    def tops(self, document: int) -> tuple[list[int], list[int]]:
        """Return the top-most entries of the extra and of the missing branches of a document."""
        tops = [entry for entry in self.entries(document) if self.branches[entry] == entry]
        return [entry for entry in tops if self.extra[entry]], [entry for entry in tops if self.missing[entry]]


class DifferenceLog:
    """Remember the documents that differ, batch by batch, by 14 bytes for each of their labels; no other is kept.

    Args:
        taxonomy: the label tree; column k of every array is its label k.
    """

    def __init__(self, taxonomy: Taxonomy) -> None:
        self.taxonomy = taxonomy
        self._differing = 0
        nothing = np.zeros(0, dtype=np.int32)
        self._rows: list[Indices] = [nothing.astype(np.int64)]
        self._entries: list[tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float32], Marks, Marks]] = [
            (nothing, nothing, nothing.astype(np.float32), nothing.astype(np.bool_), nothing.astype(np.bool_))
        ]

    def update(self, rows: Sequence[int], probabilities: NDArray[np.float32], gold: Marks, predicted: Marks) -> None:
        """Add documents: places in the file, and probabilities, gold and predicted labels, each (N, K)."""
        differing = np.flatnonzero((gold != predicted).any(axis=1))
        documents, labels = np.nonzero(gold[differing] | predicted[differing])
        which = differing[documents], labels
        self._rows.append(np.array(rows, dtype=np.int64)[differing])
        places = (documents + self._differing).astype(np.int32)
        self._entries.append(
            (places, labels.astype(np.int32), probabilities[which], gold[which], predicted[which]),
        )
        self._differing += len(differing)

    def differences(self) -> Differences:
        """Return what was remembered."""
        documents, labels, probabilities, gold, predicted = map(np.concatenate, zip(*self._entries, strict=True))
        return Differences(
            self.taxonomy,
            np.concatenate(self._rows),
            documents.astype(np.int64),
            labels.astype(np.int64),
            probabilities.astype(np.float64),
            gold,
            predicted,
        )


class Agreement:
    """Average, for each label, the probability of what the annotation says; memory O(labels).

    The agreement with a decision of the annotation is a_ik = p_ik if label k is a gold label of document i, and
    1 - p_ik if not. Its mean over the documents with the same decision on the same label, g = 1 or 0, is the *usual*
    agreement

        m_k(g) = (∑_i a_ik + 10 M(g)) / (n_k(g) + 10)      M(g): mean over all labels of k's level

    For g = 1 this is the label's mean self-confidence, the threshold of confident learning (Northcutt et al., 2021).

    Args:
        taxonomy: the label tree; column k of every array is its label k.
    """

    def __init__(self, taxonomy: Taxonomy) -> None:
        self.taxonomy = taxonomy
        self.documents = 0
        self.gold = np.zeros(len(taxonomy), dtype=np.int64)
        """Gold documents of each label, (K,)."""
        self._all = np.zeros(len(taxonomy))
        self._of_gold = np.zeros(len(taxonomy))

    def update(self, probabilities: NDArray[np.float32], gold: Marks) -> None:
        """Add documents: probabilities and gold labels, both (N, K)."""
        self.documents += len(gold)
        self.gold += np.count_nonzero(gold, axis=0)
        self._all += probabilities.sum(axis=0, dtype=np.float64)
        self._of_gold += probabilities.sum(axis=0, dtype=np.float64, where=gold)

    def usual(self) -> Floats:
        """Return m_k(g) for g = 0, labels that are not gold, and g = 1, (2, K)."""
        without = self.documents - self.gold
        counts = np.stack([without, self.gold]).astype(np.float64)
        sums = np.stack([without - (self._all - self._of_gold), self._of_gold])
        means = np.empty_like(sums)
        for level in self.taxonomy.levels:
            whole = sums[:, level].sum(axis=1) / np.maximum(counts[:, level].sum(axis=1), 1)
            means[:, level] = (sums[:, level] + SHRINKAGE * whole[:, None]) / (counts[:, level] + SHRINKAGE)
        return means


def contradictions(differences: Differences, usual: Floats) -> Floats:
    """Return how strongly each entry is contradicted, (E,).

        c_ik = w_k max(0, log10 m_k(g) / max(a_ik, 0.0001))      w_k = (2 + 1 / depth_k) / 3

    with the agreement a_ik and its mean m_k(g) of :class:`Agreement`. A contradiction of 2 at a top label says: the
    model finds this decision of the annotation 100 times less probable than such decisions about this label usually
    are. A label of which the model is never sure is contradicted only where it is even less sure than usual.

    Args:
        differences: the entries; those that annotation and model agree on are not contradicted, 0.
        usual: m_k(g), (2, K).
    """
    agreement = np.where(differences.gold, differences.probabilities, 1 - differences.probabilities)
    usually = usual[differences.gold.astype(np.int64), differences.labels]
    orders = np.log10(np.maximum(usually, SMALLEST) / np.maximum(agreement, SMALLEST))
    weights = (2 + 1 / differences.taxonomy.depths[differences.labels]) / 3
    differ = differences.gold != differences.predicted
    strength: Floats = np.where(differ, weights * np.maximum(orders, 0), 0.0)
    return strength


def document_scores(differences: Differences, strengths: Floats) -> Floats:
    """Return the score of each document, (D,).

        score_i = max over extra branches b of mean_{k in b} c_ik  +  the same over missing branches

    A branch is a label that is gold and not predicted (extra), or predicted and not gold (missing), whose parent is
    not, and all such labels below it. The labels of a branch say the same thing, so that their mean counts; of several
    branches the worst counts, so that one sure error among many labels is not lost.

    Args:
        differences: the documents.
        strengths: of the contradiction of each entry, from :func:`contradictions`, (E,).
    """
    scores = np.zeros(len(differences.rows))
    tops, count = differences.branches, len(strengths)
    sizes = np.maximum(np.bincount(tops, minlength=count), 1)
    means = np.bincount(tops, weights=strengths, minlength=count) / sizes
    for side in (differences.extra, differences.missing):
        worst = np.zeros(len(differences.rows))
        np.maximum.at(worst, differences.documents[side], means[tops[side]])
        scores += worst
    return scores


def kinds(differences: Differences) -> list[Kind]:
    """Return in which way each document is contradicted, D of them.

    - ``other path``: some labels are extra and others missing;
    - ``too shallow``: labels are missing, all of them below the end of a gold path;
    - ``missing label``: labels are missing, and some begin a path of their own;
    - ``too deep``: labels are extra, all of them below the end of a predicted path;
    - ``extra label``: labels are extra, and some begin a path of their own.
    """

    def occurs(entries: Marks) -> Marks:
        return np.bincount(differences.documents[entries], minlength=len(differences.rows)) > 0

    extra, missing = occurs(differences.extra), occurs(differences.missing)
    shallow = ~occurs(_own_path(differences, differences.missing, differences.gold))
    deep = ~occurs(_own_path(differences, differences.extra, differences.predicted))
    found = np.select(
        [extra & missing, missing & shallow, missing, deep],
        [KINDS.index("other path"), KINDS.index("too shallow"), KINDS.index("missing label"), KINDS.index("too deep")],
        KINDS.index("extra label"),
    )
    return [KINDS[number] for number in found.tolist()]


def _own_path(differences: Differences, side: Marks, others: Marks) -> Marks:
    """Mark the top-most entries of a side that do not go on from the end of a path of the others, (E,)."""
    above, count = differences.parents, len(side)
    goes_on = np.bincount(above[others & (above >= 0)], minlength=count) > 0  # an entry with a child among the others
    tops = side & (differences.branches == np.arange(count))
    own: Marks = tops & ((above < 0) | goes_on[above])
    return own


def parting(differences: Differences, document: int, strengths: Floats) -> int:
    """Return the label after which the gold and the predicted path part, the nearest to their ends; -1 for the top.

    Args:
        differences: the documents.
        document: one with extra and missing labels.
        strengths: of the contradiction of each entry, (E,); decides between pairs that part at the same depth.
    """
    extra, missing = differences.tops(document)
    pairs = [(one, other) for one in extra for other in missing]
    labels, taxonomy = differences.labels, differences.taxonomy
    common = taxonomy.lca([labels[one] for one, _ in pairs], [labels[other] for _, other in pairs]).tolist()

    def closeness(place: int) -> tuple[int, float]:
        one, other = pairs[place]
        depth = 0 if common[place] < 0 else int(taxonomy.depths[common[place]])
        return depth, float(strengths[one] + strengths[other])

    return int(common[max(range(len(pairs)), key=closeness)])


@dataclass(slots=True)
class PairCounts:
    """Two labels, by index, that are taken for each other.

    Args:
        first, second: the labels.
        first_gold: documents of which the first is gold and the second predicted.
        second_gold: documents the other way round.
        examples: the documents of these that are contradicted most.
    """

    first: int
    second: int
    first_gold: int = 0
    second_gold: int = 0
    examples: list[int] = field(default_factory=list)


def confused_pairs(differences: Differences, order: Indices, number: int) -> list[PairCounts]:
    """Return the pairs of labels that most documents confuse.

    A document with another path confuses the two siblings at which its paths part and, where these go on further, the
    two ends. The top labels are siblings, too.

    Args:
        differences: the documents.
        order: the documents, those that are contradicted most first, (D,).
        number: how many pairs to return.
    """
    found: dict[tuple[int, int], PairCounts] = {}
    for document in order.tolist():
        pairs = set(islice(_pairs(differences, document), PAIRS_OF_DOCUMENT))
        for gold, predicted in sorted(pairs):
            first, second = min(gold, predicted), max(gold, predicted)
            counts = found.setdefault((first, second), PairCounts(first, second))
            counts.first_gold += gold == first
            counts.second_gold += gold == second
            if len(counts.examples) < EXAMPLES:
                counts.examples.append(document)
    ranked = sorted(found.values(), key=lambda pair: (-pair.first_gold - pair.second_gold, pair.first, pair.second))
    return ranked[:number]


def _pairs(differences: Differences, document: int) -> Iterator[tuple[int, int]]:
    """Yield pairs of a gold and a predicted label that a document confuses."""
    labels, parents = differences.labels, differences.parents
    extra, missing = differences.tops(document)
    for one in extra:
        for other in missing:
            if parents[one] != parents[other]:
                continue
            yield int(labels[one]), int(labels[other])
            ends = [_ends(differences, document, top) for top in (one, other)]
            if len(ends[0]) == len(ends[1]) == 1 and [one, other] != [ends[0][0], ends[1][0]]:
                yield int(labels[ends[0][0]]), int(labels[ends[1][0]])


def _ends(differences: Differences, document: int, top: int) -> list[int]:
    """Return the entries of a branch that no other one of it is below of."""
    branch = [entry for entry in differences.entries(document) if differences.branches[entry] == top]
    inner = {int(differences.parents[entry]) for entry in branch}
    return [entry for entry in branch if entry not in inner]


def suspect_labels(
    differences: Differences, strengths: Floats, agreement: Agreement, number: int
) -> list[tuple[int, int, int]]:
    """Return the labels with the highest estimated error rate among their gold documents.

    The rate is the share of a label's gold documents that are contradicted by at least :data:`SURE` there. Labels are
    in the order of the lower end of the rate's 95 % interval (Wilson), so that 1 of 2 does not stand above 40 of 100.

    Returns:
        Labels, by index, each with the documents that surely should not have it, and those that surely should.
    """
    labels = len(differences.taxonomy)
    sure = strengths >= SURE
    wrong = np.bincount(differences.labels[sure & differences.extra], minlength=labels)
    missing = np.bincount(differences.labels[sure & differences.missing], minlength=labels)
    low = np.array([_wilson(int(part), int(whole)) for part, whole in zip(wrong, agreement.gold, strict=True)])
    order = np.lexsort((np.arange(labels), -wrong, -low))[:number]
    return [(label, int(wrong[label]), int(missing[label])) for label in order.tolist() if wrong[label]]


def _wilson(part: int, whole: int, normal: float = 1.96) -> float:
    """Return the lower end of the 95 % interval of a share."""
    if not whole:
        return 0.0
    share, square = part / whole, normal**2
    spread = normal * math.sqrt(share * (1 - share) / whole + square / (4 * whole**2))
    return (share + square / (2 * whole) - spread) / (1 + square / whole)
