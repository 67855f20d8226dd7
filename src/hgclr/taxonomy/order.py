"""Traversals of the label tree: depths, children, common ancestors, and label matrices level by level.

A tree is given as the array of its main parents, -1 for a top label, and the further parents of each label.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

BLOCK = 2**17
"""Cells (documents times labels) in a block: half a megabyte of probabilities fits into a CPU cache."""


def read_only(array: NDArray[np.int64]) -> NDArray[np.int64]:
    """Make an array read-only and return it."""
    array.flags.writeable = False
    return array


def find_depths(parents: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the depth of each node, (K,), 1 for a top node, and 0 for nodes in or below a cycle.

    Pointer doubling takes O(K log depth) for any shape of the tree.
    """
    above, depths = np.append(parents, -1), np.append(np.ones(len(parents), dtype=np.int64), 0)
    for _ in range(len(parents).bit_length() + 1):
        if (above == -1).all():
            break
        depths += depths[above]
        above = above[above]
    return np.where(above[:-1] == -1, depths[:-1], 0)


def find_ranks(parents: NDArray[np.int64], more: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    """Return the labels on the longest path to each node, (K,), and 0 for nodes in or below a cycle.

    ``more`` are further parents of each node. Without any, ranks are depths.
    """
    if not any(more):
        return find_depths(parents)
    children: list[list[int]] = [[] for _ in range(len(parents) + 1)]  # the last entry, at -1, has the top nodes
    for node, parent in enumerate(parents.tolist()):
        for above in (parent, *more[node]):
            children[above].append(node)
    waiting = [1 + len(others) for others in more]  # parents without a rank
    ranks, rank, reached = np.zeros(len(parents), dtype=np.int64), 0, [-1]
    while reached:
        rank += 1
        following = []
        for above in reached:
            for node in children[above]:
                waiting[node] -= 1
                if not waiting[node]:
                    following.append(node)
        ranks[following] = rank
        reached = following
    return ranks


def find_cycle(parents: NDArray[np.int64], more: Sequence[Sequence[int]], ranks: NDArray[np.int64]) -> list[int]:
    """Return the nodes of a cycle, each followed by one of its parents; none if there is no cycle."""
    if (ranks > 0).all():
        return []
    seen: dict[int, int] = {}
    node = int(np.argmin(ranks))
    while node not in seen:
        seen[node] = len(seen)
        others = more[node] if more else ()
        node = next(above for above in (int(parents[node]), *others) if not ranks[above])
    return list(seen)[seen[node] :]


class Children:
    """The children of every node, in index order, as slices of one sorted array.

    ``edges`` are nodes and their parents, sorted by node, (2, E).
    """

    def __init__(self, edges: NDArray[np.int64]) -> None:
        nodes, parents = edges
        by_parent = np.argsort(parents, kind="stable")
        self._nodes = read_only(nodes[by_parent])
        # starts[i + 1] is where the children of i begin; the top nodes (parent -1) come first.
        self._starts = np.searchsorted(parents[by_parent], np.arange(-1, nodes[-1] + 2))

    def of(self, node: int) -> NDArray[np.int64]:
        """Return the children of one node; -1 is the virtual root."""
        return self._nodes[self._starts[node + 1] : self._starts[node + 2]]


class LowestCommonAncestor:
    """Lowest common ancestors by binary lifting: O(K log depth) memory, O(log depth) steps for any batch.

    Row j of the table holds every node's ancestor 2^j steps up. The virtual root is -1, which as an index is
    the last column, so that lifting past the top stays there.
    """

    def __init__(self, parents: NDArray[np.int64], depths: NDArray[np.int64]) -> None:
        self.depths: NDArray[np.int64] = np.append(depths, 0)
        self._steps = [np.append(parents, -1)]
        while (1 << len(self._steps)) <= int(depths.max()):
            self._steps.append(self._steps[-1][self._steps[-1]])

    def __call__(self, first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the lowest common ancestor of each pair; the two arrays have the same shape."""
        deeper = self.depths[first] >= self.depths[second]
        low, high = np.where(deeper, first, second), np.where(deeper, second, first)
        gap = self.depths[low] - self.depths[high]
        for power, step in enumerate(self._steps):
            low = np.where((gap >> power) & 1, step[low], low)
        for step in reversed(self._steps):
            apart = step[low] != step[high]
            low, high = np.where(apart, step[low], low), np.where(apart, step[high], high)
        return np.where(low == high, low, self._steps[0][low])


class Edges(NamedTuple):
    """The edges to the labels of one level, if labels of it have several parents, by places.

    ``parents`` are sorted by child, and ``firsts`` has the first edge of each child; ``children`` are sorted by parent.
    """

    parents: NDArray[np.int64]
    firsts: NDArray[np.int64]
    children: NDArray[np.int64]


class Level(NamedTuple):
    """The labels of one level below the top; a place is a column in level order.

    ``parents`` are the places of their main parents, ``families`` those of all parents without repeats, ``starts`` the
    first child of each of these, counted from the start of the level or in ``edges.children``.
    """

    places: slice
    parents: NDArray[np.int64]
    families: NDArray[np.int64]
    starts: NDArray[np.int64]
    edges: Edges | None = None


class LevelOrder:
    """Labels level by level from the top, siblings side by side, so that operations work on slices.

    With several parents, a label's level here is the number of labels on its longest path, so that all its parents are
    above it.

    Args:
        parents: the main parent of each label, (K,), -1 for a top label.
        levels: the labels of each level.
        edges: labels and their further parents, (2, E).

    Attributes:
        labels: the label at each place, (K,).
        places: the place of each label, (K,).
        parents: the place of the parent of the label at each place, -1 for a top label, (K,).
        sizes: in a tree, the labels in the branch of the label at each place, itself included, (K,).
        steps: in a tree, the position of the label at each place in a depth-first walk, (K,).
        spans: the places of each level, from the top.
    """

    def __init__(
        self, parents: NDArray[np.int64], levels: Sequence[NDArray[np.int64]], edges: NDArray[np.int64] | None = None
    ) -> None:
        count = len(parents)
        further = np.zeros((2, 0), dtype=np.int64) if edges is None else edges
        at_level = np.zeros(count, dtype=np.int64)
        if further.size:
            at_level[np.concatenate(levels)] = np.repeat(np.arange(len(levels)), [len(level) for level in levels])
        self.places, self.parents = np.full((2, count), -1, dtype=np.int64)
        self.spans: list[slice] = []
        self._below: list[Level] = []
        end = 0
        for level in levels:
            above = self.places[parents[level]] if end else np.full(len(level), -1, dtype=np.int64)
            by_parent = np.argsort(above, kind="stable")
            span = slice(end, end + len(level))
            self.places[level[by_parent]] = np.arange(span.start, span.stop)
            self.parents[span] = above[by_parent]
            self.spans.append(span)
            if end:
                here = further[:, at_level[further[0]] == len(self.spans) - 1] if further.size else further
                self._below.append(_level(span, self.parents[span], self.places[here] if here.size else here))
            end = span.stop
        self.labels = np.argsort(self.places)
        if further.size:
            return  # branches and a walk are those of main parents
        self.sizes = np.ones(count, dtype=np.int32)
        self.carry_up(self.sizes[None], np.add)
        self.steps = np.cumsum(self.sizes, dtype=np.int32) - self.sizes  # final for the top labels only
        for span, above, _, starts, _ in self._below:
            before = np.cumsum(self.sizes[span]) - self.sizes[span]  # labels in the branches to the left
            first = np.repeat(before[starts], np.diff(np.append(starts, len(above))))
            self.steps[span] = self.steps[above] + 1 + before - first

    def arrange(self, matrix: NDArray[Any]) -> NDArray[Any]:
        """Return a copy of a label matrix, (N, K), with its columns in level order."""
        return np.take(matrix, self.labels, axis=1)

    def restore(self, arranged: NDArray[Any]) -> NDArray[Any]:
        """Return a copy of an arranged matrix with its columns in the taxonomy's order."""
        return np.take(arranged, self.places, axis=1)

    def carry_down(self, arranged: NDArray[Any], combine: np.ufunc, among: np.ufunc | None = None) -> None:
        """Replace each label's column by ``combine(label, its parent)``, from the top, in place.

        Several parents of a label are first combined by ``among``, which is ``combine`` if left out.
        """
        for level in self._below:
            own = arranged[:, level.places]
            if level.edges is None:
                above = np.take(arranged, level.parents, axis=1)
            else:
                above = np.take(arranged, level.edges.parents, axis=1)
                above = (among or combine).reduceat(above, level.edges.firsts, axis=1)
            combine(own, above, out=own)

    def carry_up(self, arranged: NDArray[Any], combine: np.ufunc) -> None:
        """Replace each label's column by ``combine`` of itself and its children, from the bottom, in place.

        A label with several parents counts for each of them; ``np.add`` sums over paths, not over labels.
        """
        for level in reversed(self._below):
            below = arranged[:, level.places] if level.edges is None else arranged[:, level.edges.children]
            children = combine.reduceat(below, level.starts, axis=1)
            arranged[:, level.families] = combine(arranged[:, level.families], children)

    def carried_up(self, matrix: NDArray[Any], combine: np.ufunc) -> NDArray[Any]:
        """Return a copy of a label matrix, (N, K), after :meth:`carry_up`."""
        carried = np.empty_like(matrix)
        for rows in blocks(matrix):
            arranged = self.arrange(matrix[rows])
            self.carry_up(arranged, combine)
            carried[rows] = self.restore(arranged)
        return carried


def _level(span: slice, parents: NDArray[np.int64], further: NDArray[np.int64]) -> Level:
    """Return a level from the places of its main parents and of its further edges, (2, E)."""
    if not further.size:
        families, starts = np.unique(parents, return_index=True)
        return Level(span, parents, families, starts)
    children = np.append(np.arange(span.start, span.stop), further[0])
    above = np.append(parents, further[1])
    by_child, by_parent = np.argsort(children, kind="stable"), np.argsort(above, kind="stable")
    families, starts = np.unique(above[by_parent], return_index=True)
    firsts = np.searchsorted(children[by_child], np.arange(span.start, span.stop))
    return Level(span, parents, families, starts, Edges(above[by_child], firsts, children[by_parent]))


class Ordered(Protocol):
    """A taxonomy; importing the class here would be circular."""

    @property
    def order(self) -> LevelOrder: ...


def monotone(probabilities: NDArray[np.float32], taxonomy: Ordered) -> NDArray[np.float32]:
    """Return p'_k = min(p_k, p'_parent(k)), (N, K): no label is more probable than its parent."""
    carried = np.empty_like(probabilities)
    for rows in blocks(probabilities):
        arranged = taxonomy.order.arrange(probabilities[rows])
        taxonomy.order.carry_down(arranged, np.minimum)
        carried[rows] = taxonomy.order.restore(arranged)
    return carried


def raised(probabilities: NDArray[np.float32], taxonomy: Ordered) -> NDArray[np.float32]:
    """Return p'_k = max(p_k, p'_child(k), …), (N, K): no label is less probable than one below it."""
    return taxonomy.order.carried_up(probabilities, np.maximum)


def blocks(matrix: NDArray[Any]) -> Iterator[slice]:
    """Return the rows of a label matrix, (N, K), block by block."""
    size = max(1, BLOCK // max(1, matrix.shape[1]))
    return (slice(start, start + size) for start in range(0, len(matrix), size))
