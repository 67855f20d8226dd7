"""The shape of a tree given as a parent array: children, levels, cycles, lowest common ancestors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["Children", "LowestCommonAncestor", "depth_first", "find_cycle", "levels_from_top", "read_only"]


def read_only(array: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return ``array`` after forbidding writes to it."""
    array.flags.writeable = False
    return array


class Children:
    """The children of every node, in index order, as slices of one sorted array.

    Args:
        parents: (K,) index of each node's parent, -1 for a top node.
    """

    def __init__(self, parents: NDArray[np.int64]) -> None:
        self._nodes = read_only(np.argsort(parents, kind="stable").astype(np.int64, copy=False))
        # starts[i + 1] is where the children of i begin; the top nodes (parent -1) come first.
        self._starts = np.searchsorted(parents[self._nodes], np.arange(-1, len(parents) + 1))

    def of(self, node: int) -> NDArray[np.int64]:
        """Return the children of one node; -1 stands for the virtual root."""
        return self._nodes[self._starts[node + 1] : self._starts[node + 2]]

    def counts(self) -> NDArray[np.int64]:
        """Return the number of children of every node, shape (K,)."""
        return np.diff(self._starts)[1:].astype(np.int64, copy=False)

    def of_all(self, nodes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the children of all ``nodes``, parent by parent."""
        starts = self._starts[nodes + 1]
        counts = self._starts[nodes + 2] - starts
        ends = np.cumsum(counts)
        # Within one parent the positions count up by one; each parent begins at its own start.
        offsets: NDArray[np.int64] = np.repeat(starts - ends + counts, counts)
        found: NDArray[np.int64] = self._nodes[np.arange(len(offsets)) + offsets]
        return found


def levels_from_top(children: Children) -> list[NDArray[np.int64]]:
    """Return the nodes of each level in index order, top nodes first; nodes under a cycle are in none."""
    levels = []
    level = children.of(-1)
    while level.size:
        levels.append(read_only(np.sort(level)))
        level = children.of_all(level)
    return levels


def depth_first(parents: NDArray[np.int64], levels: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Return all nodes in the order of a depth-first walk: each followed by its whole subtree, children by index.

    Args:
        parents: (K,) index of each node's parent, -1 for a top node.
        levels: the nodes of each level, top nodes first.
    """
    sizes = np.ones(len(parents) + 1, dtype=np.int64)  # of the subtrees; the last entry is the virtual root
    for level in reversed(levels):
        np.add.at(sizes, parents[level], sizes[level])
    place = np.empty(len(parents) + 1, dtype=np.int64)
    place[-1] = -1
    for level in levels:
        family = level[np.argsort(parents[level], kind="stable")]
        before = np.cumsum(sizes[family]) - sizes[family]  # in the subtrees of all nodes further left in the level
        first = np.searchsorted(parents[family], parents[family])  # where each node's siblings begin
        place[family] = place[parents[family]] + 1 + before - before[first]
    walk = np.empty(len(parents), dtype=np.int64)
    walk[place[:-1]] = np.arange(len(parents))
    return read_only(walk)


def find_cycle(parents: Sequence[int], start: int) -> list[int]:
    """Return the cycle that the parents of ``start`` lead into, each node followed by its parent.

    Args:
        parents: index of each node's parent, -1 for a top node.
        start: a node from which no top node can be reached.
    """
    seen: dict[int, int] = {}
    node = start
    while node not in seen:
        seen[node] = len(seen)
        node = parents[node]
    return list(seen)[seen[node] :]


class LowestCommonAncestor:
    """Lowest common ancestors by binary lifting: O(K log depth) memory, O(log depth) steps for any batch.

    Row j of the table holds every node's ancestor 2^j steps up. The virtual root is -1, which as an index is
    the last column, so that lifting past the top stays there.

    Args:
        parents: (K,) index of each node's parent, -1 for a top node.
        depths: (K,) depth of each node, 1 for a top node.
    """

    def __init__(self, parents: NDArray[np.int64], depths: NDArray[np.int64]) -> None:
        self._depths = np.append(depths, 0)
        steps = [np.append(parents, -1)]
        while (1 << len(steps)) <= int(depths.max()):
            steps.append(steps[-1][steps[-1]])
        self._steps = steps

    def __call__(self, first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the lowest common ancestor of each pair; the two arrays have one shape."""
        deeper = self._depths[first] >= self._depths[second]
        low, high = np.where(deeper, first, second), np.where(deeper, second, first)
        gap = self._depths[low] - self._depths[high]
        for power, step in enumerate(self._steps):
            low = np.where((gap >> power) & 1, step[low], low)
        for step in reversed(self._steps):
            apart = step[low] != step[high]
            low, high = np.where(apart, step[low], low), np.where(apart, step[high], high)
        return np.where(low == high, low, self._steps[0][low])

    def depth(self, nodes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the depth of each node, 0 for the virtual root."""
        return self._depths[nodes]
