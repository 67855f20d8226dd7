"""What many contradictions have in common: labels that are taken for each other, labels with many errors."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from hgclr.auditing.agreement import Agreement
from hgclr.auditing.differences import Differences

__all__ = ["SURE", "LabelCounts", "PairCounts", "confused_pairs", "doubtful_labels", "parting"]

SURE = 1.0
"""A contradiction from which on an error is counted: the decision is ten times less probable than usual, or more."""
EXAMPLES = 2
"""Documents that are shown for a pair of labels."""
PAIRS_OF_DOCUMENT = 100
"""Pairs that one document may count for; only documents with dozens of wrong labels have more."""


@dataclass(slots=True)
class PairCounts:
    """Two labels that are taken for each other.

    Args:
        first, second: the labels, by index.
        first_given: documents that are given the first, and the second is suggested.
        second_given: documents the other way round.
        examples: the documents of these that are contradicted most.
    """

    first: int
    second: int
    first_given: int = 0
    second_given: int = 0
    examples: list[int] = field(default_factory=list)

    @property
    def documents(self) -> int:
        """Documents in all."""
        return self.first_given + self.second_given


@dataclass(frozen=True, slots=True)
class LabelCounts:
    """A label by index, documents that should surely not be given it, and those that should."""

    label: int
    wrong: int
    missing: int


def confused_pairs(differences: Differences, order: NDArray[np.int64], number: int) -> list[PairCounts]:
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
        for given, suggested in sorted(pairs):
            first, second = min(given, suggested), max(given, suggested)
            counts = found.setdefault((first, second), PairCounts(first, second))
            counts.first_given += given == first
            counts.second_given += given == second
            if len(counts.examples) < EXAMPLES:
                counts.examples.append(document)
    return sorted(found.values(), key=lambda pair: (-pair.documents, pair.first, pair.second))[:number]


def parting(differences: Differences, document: int, strengths: NDArray[np.float64]) -> int:
    """Return the label after which the given and the suggested path part, the nearest to their ends; -1 for the top.

    Args:
        differences: the documents.
        document: one with extra and missing labels.
        strengths: of the contradiction of each entry, (E,); decides between pairs that part at the same depth.
    """
    extra, missing = _tops(differences, document)
    depths = differences.taxonomy.depths
    pairs = [(one, other) for one in extra for other in missing]
    labels = differences.labels
    common = differences.taxonomy.lca([labels[one] for one, _ in pairs], [labels[other] for _, other in pairs]).tolist()

    def closeness(place: int) -> tuple[int, float]:
        one, other = pairs[place]
        depth = 0 if common[place] < 0 else int(depths[common[place]])
        return depth, float(strengths[one] + strengths[other])

    return int(common[max(range(len(pairs)), key=closeness)])


def doubtful_labels(
    differences: Differences, strengths: NDArray[np.float64], agreement: Agreement, number: int
) -> list[LabelCounts]:
    """Return the labels with the highest estimated error rate among their documents.

    The rate is the share of the documents given a label that are contradicted by at least :data:`SURE` there. Labels
    are in the order of the lower end of the rate's 95 % interval (Wilson), so that 1 of 2 does not stand above 40 of
    100.
    """
    labels = len(differences.taxonomy)
    sure = strengths >= SURE
    wrong = np.bincount(differences.labels[sure & differences.extra], minlength=labels)
    missing = np.bincount(differences.labels[sure & differences.missing], minlength=labels)
    low = np.array([_wilson(int(part), int(whole)) for part, whole in zip(wrong, agreement.given, strict=True)])
    order = np.lexsort((np.arange(labels), -wrong, -low))[:number]
    return [LabelCounts(label, int(wrong[label]), int(missing[label])) for label in order.tolist() if wrong[label]]


def _pairs(differences: Differences, document: int) -> Iterator[tuple[int, int]]:
    """Yield pairs of a given and a suggested label that a document confuses."""
    labels, parents = differences.labels, differences.parents
    extra, missing = _tops(differences, document)
    for one in extra:
        for other in missing:
            if parents[one] != parents[other]:
                continue
            yield int(labels[one]), int(labels[other])
            ends = [_ends(differences, document, top) for top in (one, other)]
            if len(ends[0]) == len(ends[1]) == 1 and [one, other] != [ends[0][0], ends[1][0]]:
                yield int(labels[ends[0][0]]), int(labels[ends[1][0]])


def _tops(differences: Differences, document: int) -> tuple[list[int], list[int]]:
    """Return the top-most entries of the extra and of the missing branches of a document."""
    tops = [entry for entry in differences.entries(document) if differences.branches[entry] == entry]
    given, suggested = differences.given, differences.suggested
    extra = [entry for entry in tops if given[entry] and not suggested[entry]]
    return extra, [entry for entry in tops if suggested[entry] and not given[entry]]


def _ends(differences: Differences, document: int, top: int) -> list[int]:
    """Return the entries of a branch that no other one of it is below of."""
    branch = [entry for entry in differences.entries(document) if differences.branches[entry] == top]
    inner = {int(differences.parents[entry]) for entry in branch}
    return [entry for entry in branch if entry not in inner]


def _wilson(part: int, whole: int, normal: float = 1.96) -> float:
    """Return the lower end of the 95 % interval of a share."""
    if not whole:
        return 0.0
    share, square = part / whole, normal**2
    spread = normal * math.sqrt(share * (1 - share) / whole + square / (4 * whole**2))
    return (share + square / (2 * whole) - spread) / (1 + square / whole)
