"""The columns of a label matrix level by level, so that what goes down or up the tree is done in slices.

Work is done on blocks of documents that fit the cache of the CPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hgclr.taxonomy import Taxonomy

__all__ = ["blocks", "level_order", "monotone", "raised"]

BLOCK = 2**17
"""Decisions, documents times labels, in a block: half a megabyte of probabilities."""


class Level(NamedTuple):
    """The labels of one level below the top; a place is a column in level order."""

    places: slice
    parents: NDArray[np.int64]
    """The place of each label's parent."""
    families: NDArray[np.int64]
    """The places of those labels above that have children."""
    starts: NDArray[np.int64]
    """Where the children of each of them begin, counted from the level's first."""


class LevelOrder:
    """Labels level by level from the top, the children of one label side by side.

    Args:
        taxonomy: the label tree.

    Attributes:
        labels: the label at each place, (K,).
        parents: the place of the parent of the label at each place, -1 for a top label, (K,).
        sizes: the labels in the subtree of the label at each place, itself included, (K,).
        steps: when the label at each place is met on a depth-first walk: right before all that is below it, (K,).
        spans: the places of each level, from the top.
    """

    def __init__(self, taxonomy: Taxonomy) -> None:
        count = len(taxonomy)
        self._places = np.full(count, -1, dtype=np.int64)
        self.parents = np.full(count, -1, dtype=np.int64)
        self._below: list[Level] = []
        self.spans: list[slice] = []
        end = 0
        for level in taxonomy.levels:
            parents = self._places[taxonomy.parents[level]] if end else np.full(len(level), -1, dtype=np.int64)
            by_parent = np.argsort(parents, kind="stable")
            places = slice(end, end + len(level))
            self._places[level[by_parent]] = np.arange(places.start, places.stop)
            self.parents[places] = parents[by_parent]
            self.spans.append(places)
            if end:
                families, starts = np.unique(self.parents[places], return_index=True)
                self._below.append(Level(places, self.parents[places], families, starts))
            end = places.stop
        self.labels = np.argsort(self._places)
        self.sizes = np.ones(count, dtype=np.int32)
        for below in reversed(self._below):
            self.sizes[below.families] += np.add.reduceat(self.sizes[below.places], below.starts)
        self.steps = np.empty(count, dtype=np.int32)
        self.steps[self._places[taxonomy.walk]] = np.arange(count)

    def arrange(self, matrix: NDArray[Any]) -> NDArray[Any]:
        """Return a copy of a label matrix, (N, K), with its columns in level order."""
        return np.take(matrix, self.labels, axis=1)

    def restore(self, arranged: NDArray[Any]) -> NDArray[Any]:
        """Return a copy of an arranged matrix with its columns in the taxonomy's order."""
        return np.take(arranged, self._places, axis=1)

    def carry_down(self, arranged: NDArray[Any], combine: np.ufunc) -> None:
        """Put ``combine(label, its parent)`` in the place of every label, from the top, in place."""
        for level in self._below:
            own = arranged[:, level.places]
            combine(own, np.take(arranged, level.parents, axis=1), out=own)

    def carry_up(self, arranged: NDArray[Any], combine: np.ufunc) -> None:
        """Put ``combine`` of a label and its children in the place of every label, from the bottom, in place."""
        for level in reversed(self._below):
            children = combine.reduceat(arranged[:, level.places], level.starts, axis=1)
            arranged[:, level.families] = combine(arranged[:, level.families], children)


@lru_cache(maxsize=8)
def level_order(taxonomy: Taxonomy) -> LevelOrder:
    """Return the level order of a tree, made once for as long as the tree is in use."""
    return LevelOrder(taxonomy)


def monotone(probabilities: NDArray[np.float32], taxonomy: Taxonomy) -> NDArray[np.float32]:
    """Return p'_k = min(p_k, p'_parent(k)), (N, K): no label is more probable than its parent."""
    tree = level_order(taxonomy)
    lowered = np.empty_like(probabilities)
    for rows in blocks(probabilities):
        arranged = tree.arrange(probabilities[rows])
        tree.carry_down(arranged, np.minimum)
        lowered[rows] = tree.restore(arranged)
    return lowered


def raised(probabilities: NDArray[np.float32], taxonomy: Taxonomy) -> NDArray[np.float32]:
    """Return p'_k = max(p_k, p'_child(k), …), (N, K): no label is less probable than one below it."""
    tree = level_order(taxonomy)
    highest = np.empty_like(probabilities)
    for rows in blocks(probabilities):
        arranged = tree.arrange(probabilities[rows])
        tree.carry_up(arranged, np.maximum)
        highest[rows] = tree.restore(arranged)
    return highest


def blocks(matrix: NDArray[Any]) -> Iterator[slice]:
    """Return the rows of a label matrix, (N, K), block by block."""
    size = max(1, BLOCK // max(1, matrix.shape[1]))
    return (slice(start, start + size) for start in range(0, len(matrix), size))
