"""Count which label a document is given in the place of a sibling of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hgclr.taxonomy import Taxonomy

__all__ = ["Confusion", "SiblingConfusions"]

PAIRS = 2**20
"""Different pairs of labels that are kept."""
PIECE = 2**20
"""Pairs that are counted at once."""

Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Confusion:
    """Two siblings, by index, and the documents that should have the first and were given the second instead."""

    gold: int
    predicted: int
    documents: int


class SiblingConfusions:
    """Count, for siblings A and B, the documents with A gold and not predicted, and B predicted and not gold.

    The top labels are siblings, too. Only pairs that occur take memory. There are never more than :data:`PAIRS` of
    them: when there are, the rarer half is forgotten, and a pair that comes back is counted from 0.

    Args:
        taxonomy: the label tree; column ``k`` of every batch is its label ``k``.
    """

    def __init__(self, taxonomy: Taxonomy) -> None:
        self.taxonomy = taxonomy
        self._pairs: Indices = np.zeros(0, dtype=np.int64)  # gold * labels + predicted, sorted
        self._counts: Indices = np.zeros(0, dtype=np.int64)

    def update(self, predicted: NDArray[np.bool_], gold: NDArray[np.bool_]) -> None:
        """Count one batch of decisions, both of the shape (documents, labels)."""
        for pairs in self._confused(predicted, gold):
            found, counts = np.unique(pairs, return_counts=True)
            self._pairs, places = np.unique(np.concatenate([self._pairs, found]), return_inverse=True)
            weights = np.concatenate([self._counts, counts])
            self._counts = np.bincount(places, weights=weights, minlength=len(self._pairs)).astype(np.int64)
            if len(self._pairs) > PAIRS:
                kept = np.sort(np.argsort(-self._counts, kind="stable")[: PAIRS // 2])
                self._pairs, self._counts = self._pairs[kept], self._counts[kept]

    def most(self, number: int) -> list[Confusion]:
        """Return the ``number`` most frequent confusions, equal ones in the order of the taxonomy."""
        order = np.argsort(-self._counts, kind="stable")[:number]
        gold, predicted = np.divmod(self._pairs[order], len(self.taxonomy))
        columns = zip(gold.tolist(), predicted.tolist(), self._counts[order].tolist(), strict=True)
        return [Confusion(*column) for column in columns]

    def documents(self, gold: int, predicted: int) -> int:
        """Return how many documents should have one label and were given another, its sibling, instead."""
        pair = gold * len(self.taxonomy) + predicted
        place = int(np.searchsorted(self._pairs, pair))
        return int(self._counts[place]) if place < len(self._pairs) and self._pairs[place] == pair else 0

    def _confused(self, predicted: NDArray[np.bool_], gold: NDArray[np.bool_]) -> Iterator[Indices]:
        """Yield the pairs of all documents in pieces."""
        missed_families, missed = self._by_family(gold & ~predicted)
        false_families, false = self._by_family(predicted & ~gold)
        order = np.argsort(false_families, kind="stable")
        false_families, false = false_families[order], false[order]
        starts = np.searchsorted(false_families, missed_families, side="left")
        lengths = np.searchsorted(false_families, missed_families, side="right") - starts
        ends = np.cumsum(lengths)
        first = 0
        while first < len(missed):
            done = int(ends[first - 1]) if first else 0
            last = max(first + 1, int(np.searchsorted(ends, done + PIECE, side="right")))
            rows = slice(first, last)
            total = int(ends[last - 1]) - done
            # The places in `false` that belong to each missed label, one run after the other.
            runs = np.repeat(starts[rows] - (ends[rows] - lengths[rows] - done), lengths[rows]) + np.arange(total)
            if total:
                yield np.repeat(missed[rows], lengths[rows]) * len(self.taxonomy) + false[runs]
            first = last

    def _by_family(self, wrong: NDArray[np.bool_]) -> tuple[Indices, Indices]:
        """Return a number for document and parent of every wrong decision, and its label."""
        documents, labels = np.nonzero(wrong)
        return documents * (len(self.taxonomy) + 1) + self.taxonomy.parents[labels] + 1, labels
