"""Keep a few documents for each label that the model got wrong, however many there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hgclr.taxonomy import Taxonomy

__all__ = ["Example", "Examples"]

KEPT = 2
"""Documents of each label that are kept, of those that lack it and of those that have it wrongly."""
EXCERPT = 200
"""Characters of a text that are kept."""
PATHS = 8
"""Paths of a document that are kept."""


@dataclass(frozen=True, slots=True)
class Example:
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
    """

    def __init__(self, taxonomy: Taxonomy) -> None:
        self.taxonomy = taxonomy
        self._missed: dict[int, list[Example]] = {}
        self._false: dict[int, list[Example]] = {}
        self._room = np.full((2, len(taxonomy)), KEPT)

    def update(self, texts: Sequence[str], predicted: NDArray[np.bool_], gold: NDArray[np.bool_]) -> None:
        """Look at one batch: texts, and decisions of the shape (documents, labels)."""
        made: dict[int, Example] = {}
        for kept, room, wrong in (
            (self._missed, self._room[0], gold & ~predicted),
            (self._false, self._room[1], predicted & ~gold),
        ):
            for label, row in zip(*_first(wrong, room), strict=True):
                if row not in made:
                    made[row] = Example(shortened(texts[row]), self._ends(gold[row]), self._ends(predicted[row]))
                kept.setdefault(label, []).append(made[row])
                room[label] -= 1

    def missed(self, label: int) -> list[Example]:
        """Return documents that have a label and were not given it."""
        return self._missed.get(label, [])

    def false(self, label: int) -> list[Example]:
        """Return documents that were given a label and do not have it."""
        return self._false.get(label, [])

    def _ends(self, chosen: NDArray[np.bool_]) -> tuple[int, ...]:
        """Return the labels of a document that none of its other labels is below of."""
        labels = np.flatnonzero(chosen)
        return tuple(np.setdiff1d(labels, self.taxonomy.parents[labels])[:PATHS].tolist())


def shortened(text: str) -> str:
    """Return the beginning of a text on one line."""
    line = " ".join(text[: 4 * EXCERPT].split())
    whole = len(line) <= EXCERPT and len(text) <= 4 * EXCERPT
    return line if whole else line[: EXCERPT - 1].rstrip() + "…"


def _first(wrong: NDArray[np.bool_], room: NDArray[np.int64]) -> tuple[list[int], list[int]]:
    """Return labels and documents of the first wrong decisions about each label, as many as there is room for."""
    labels, rows = np.nonzero((wrong & (room > 0)).T)  # in the order of the labels
    rank = np.arange(len(labels)) - np.searchsorted(labels, labels, side="left")
    chosen = rank < room[labels]
    return labels[chosen].tolist(), rows[chosen].tolist()
