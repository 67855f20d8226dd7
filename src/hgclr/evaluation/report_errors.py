"""What went wrong, for a report: siblings taken for each other, and documents that show it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hgclr.taxonomy import Taxonomy

__all__ = ["Confusion", "Example", "Examples", "SiblingConfusions"]

PAIRS = 2**20
"""Different pairs of labels that are kept."""
PIECE = 2**20
"""Pairs that are counted at once."""
KEPT = 2
"""Documents of each label that are kept, of those that lack it and of those that have it wrongly."""
EXCERPT = 200
"""Characters of a text that are kept."""
PATHS = 8
"""Paths of a document that are kept."""
Indices = NDArray[np.int64]


class Confusion(NamedTuple):
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
        return list(map(Confusion, gold.tolist(), predicted.tolist(), self._counts[order].tolist()))

    def documents(self, gold: int, predicted: int) -> int:
        """Return how many documents should have one label and were given another, its sibling, instead."""
        return int(self._counts[self._pairs == gold * len(self.taxonomy) + predicted].sum())

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


class Example(NamedTuple):
    """A document about which something is wrong.

    Args:
        text: its beginning.
        gold: the ends of its paths, as indices of labels; no more than :data:`PATHS`.
        predicted: the ends of the paths that it was given, likewise.
    """

    text: str
    gold: tuple[int, ...]
    predicted: tuple[int, ...]


class Examples:
    """Keep the first :data:`KEPT` documents that lack a label and the first that have it wrongly, for each label.

    Memory O(labels): a document is kept once, whatever number of labels it is an example of.

    Args:
        taxonomy: the label tree; column ``k`` of every batch is its label ``k``.

    Attributes:
        missed: by label, documents that should have it and were not given it.
        false: by label, documents that were given it and should not have it.
    """

    def __init__(self, taxonomy: Taxonomy) -> None:
        self.taxonomy = taxonomy
        self.missed: dict[int, list[Example]] = defaultdict(list)
        self.false: dict[int, list[Example]] = defaultdict(list)
        self._room = np.full((2, len(taxonomy)), KEPT)

    def update(self, texts: Sequence[str], predicted: NDArray[np.bool_], gold: NDArray[np.bool_]) -> None:
        """Look at one batch: texts, and decisions of the shape (documents, labels)."""
        made: dict[int, Example] = {}
        for kept, room, wrong in (
            (self.missed, self._room[0], gold & ~predicted),
            (self.false, self._room[1], predicted & ~gold),
        ):
            labels, rows = np.nonzero((wrong & (room > 0)).T)  # in the order of the labels
            rank = np.arange(len(labels)) - np.searchsorted(labels, labels, side="left")
            first = rank < room[labels]
            for label, row in zip(labels[first].tolist(), rows[first].tolist(), strict=True):
                if row not in made:
                    made[row] = Example(_shortened(texts[row]), self._ends(gold[row]), self._ends(predicted[row]))
                kept[label].append(made[row])
                room[label] -= 1

    def _ends(self, chosen: NDArray[np.bool_]) -> tuple[int, ...]:
        """Return the labels of a document that none of its other labels is below of."""
        labels = np.flatnonzero(chosen)
        return tuple(np.setdiff1d(labels, self.taxonomy.parents[labels])[:PATHS].tolist())


def _shortened(text: str) -> str:
    """Return the beginning of a text on one line."""
    line = " ".join(text[: 4 * EXCERPT].split())
    whole = len(line) <= EXCERPT and len(text) <= 4 * EXCERPT
    return line if whole else line[: EXCERPT - 1].rstrip() + "…"
