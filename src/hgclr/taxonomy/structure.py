"""What a tree is made of: children, levels and ancestors by a parent array, checks, and labels found by name."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from hgclr.errors import InputError

__all__ = [
    "Children",
    "LabelIndex",
    "LowestCommonAncestor",
    "check_labels",
    "checked_descriptions",
    "checked_parents",
    "close_matches",
    "find_cycle",
    "levels_from_top",
    "read_only",
]


SHOWN = 5
"""How many candidates an error message lists."""
SUGGESTED = 200
"""For how many unknown labels near misses are looked up: a file full of bad rows must not take hours."""
LONGEST_COMPARED = 80
"""Longer strings are left out of the search for near misses: its cost is the product of two lengths."""


def read_only(array: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return ``array`` after forbidding writes to it."""
    array.flags.writeable = False
    return array


class Children:
    """The children of every node, in index order, as slices of one sorted array; (K,) parents, -1 for a top node."""

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


def find_cycle(parents: NDArray[np.int64], levels: Sequence[NDArray[np.int64]]) -> list[int]:
    """Return nodes of which each is followed by its parent, the last by the first; none if all are on a level."""
    lost = np.ones(len(parents), dtype=np.bool_)
    for level in levels:
        lost[level] = False
    if not lost.any():
        return []
    seen: dict[int, int] = {}
    node = int(np.argmax(lost))
    while node not in seen:
        seen[node] = len(seen)
        node = int(parents[node])
    return list(seen)[seen[node] :]


class LowestCommonAncestor:
    """Lowest common ancestors by binary lifting: O(K log depth) memory, O(log depth) steps for any batch.

    Row j of the table holds every node's ancestor 2^j steps up. The virtual root is -1, which as an index is
    the last column, so that lifting past the top stays there.
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


def checked_parents(parents: Sequence[int] | NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Return the parents of ``count`` labels as a read-only copy."""
    if count == 0:
        raise InputError("the label tree is empty", remedy="add at least one label")
    array = np.array(parents)
    if array.shape != (count,) or array.dtype.kind not in "iu":
        raise InputError(f"{count} labels need {count} whole numbers as parents, got {array.dtype} {array.shape}")
    outside = np.flatnonzero((array < -1) | (array >= count))
    if outside.size:
        remedy = f"use -1 for a top label or an index from 0 to {count - 1}"
        raise InputError(f"label {outside[0]} has the parent {array[outside[0]]}, which is no label", remedy=remedy)
    return read_only(array.astype(np.int64, copy=False))


def check_labels(ids: Sequence[str], names: Sequence[str], parents: NDArray[np.int64]) -> None:
    """Refuse empty or repeated ids, empty names, siblings of one name, and text that no file can hold."""
    if len(names) != len(ids):
        raise InputError(f"{len(ids)} ids but {len(names)} names", remedy="give one name for each id")
    seen: set[str] = set()
    siblings: set[tuple[int, str]] = set()
    for index, (identifier, name, parent) in enumerate(zip(ids, names, parents.tolist(), strict=True)):
        if not identifier.strip():
            raise InputError(f"label {index} has an empty id", remedy="give it an id")
        if not name.strip():
            raise InputError(f"label {identifier!r} has an empty name", remedy="give it a name, or use its id")
        if identifier in seen:
            raise InputError(f"the id {identifier!r} is used twice", remedy="give each label an id of its own")
        if (parent, name) in siblings:
            place = "at the top" if parent < 0 else f"under {ids[parent]!r}"
            raise InputError(f"the name {name!r} is used twice {place}", remedy="rename one of the two")
        seen.add(identifier)
        siblings.add((parent, name))
    _check_text(ids)
    _check_text(names)


def checked_descriptions(descriptions: Sequence[str | None] | None, ids: Sequence[str]) -> tuple[str, ...]:
    """Return one description for each label with white space made single, "" for a label without one."""
    if descriptions is None:
        return ("",) * len(ids)
    if len(descriptions) != len(ids):
        remedy = "give one for each id; None for none"
        raise InputError(f"{len(ids)} ids but {len(descriptions)} descriptions", remedy=remedy)
    for identifier, text in zip(ids, descriptions, strict=True):
        if text is not None and not isinstance(text, str):
            raise InputError(f"the description of {identifier!r} is not a string", remedy="give a string, or None")
    normalised = tuple("" if text is None else " ".join(text.split()) for text in descriptions)
    _check_text(normalised)
    return normalised


def _check_text(texts: Sequence[str]) -> None:
    """Refuse half a surrogate pair (JSON can escape one), which UTF-8 cannot hold."""
    try:
        "".join(texts).encode()
    except UnicodeEncodeError:
        bad = next(text for text in texts if any("\ud800" <= character <= "\udfff" for character in text))
        raise InputError(f"{bad!a} is not valid Unicode text", remedy="correct its \\u escapes") from None


def close_matches(label: str, known: Sequence[str]) -> list[str]:
    """Return up to three known labels that look like ``label``, the same in other case or spacing first."""
    folded = " ".join(label.casefold().split())
    same = [other for other in known if other.casefold() == folded or other.strip() == label.strip()]
    if same or len(label) > LONGEST_COMPARED:
        return same[:3]
    return difflib.get_close_matches(label, [other for other in known if len(other) <= LONGEST_COMPARED])


class LabelIndex:
    """An index from names and paths to labels, for one separator; ``path_name`` gives paths for messages."""

    def __init__(
        self,
        ids: Sequence[str],
        names: Sequence[str],
        parents: Sequence[int],
        separator: str,
        path_name: Callable[[int, str], str],
    ) -> None:
        if not separator:
            raise InputError("the separator of paths is empty", remedy="use for example ' > '")
        self._ids, self._separator, self._path_name = ids, separator, path_name
        self._by_name: dict[str, list[int]] = {}
        for index, name in enumerate(names):
            self._by_name.setdefault(name, []).append(index)
        self._by_parent = {pair: index for index, pair in enumerate(zip(parents, names, strict=True))}
        # A name may hold the separator, and then takes up several segments of a path.
        self._longest = 1 + max(name.count(separator) for name in names)
        self._near: dict[str, list[str]] = {}

    def resolve(self, label: str) -> int:
        """Return the one label with this name or this path of names."""
        candidates = self.candidates(label)
        if len(candidates) == 1:
            return candidates[0]
        if candidates:
            remedy = "give the id or the whole path"
            raise InputError(f"the label {label!r} is ambiguous: {self._listed(candidates)}", remedy=remedy)
        raise InputError(f"unknown label {label!r}", remedy=self._suggestion(label))

    def candidates(self, label: str) -> list[int]:
        """Return all labels with this name or this path of names."""
        candidates = self._by_name.get(label, [])
        if self._separator in label:
            candidates = sorted({*candidates, *self._by_path(label)})
        return list(candidates)

    def _by_path(self, label: str) -> list[int]:
        segments = label.split(self._separator)
        reached: list[list[int]] = [[-1], *([] for _ in segments)]
        for start in range(len(segments)):
            for node in reached[start]:
                for stop in range(start + 1, min(start + self._longest, len(segments)) + 1):
                    child = self._by_parent.get((node, self._separator.join(segments[start:stop])))
                    if child is not None:
                        reached[stop].append(child)
        return reached[-1]

    def _listed(self, candidates: Sequence[int]) -> str:
        """Return the candidates' ids and paths for an error message."""
        shown = []
        for index in candidates[:SHOWN]:
            path, identifier = self._path_name(index, self._separator), self._ids[index]
            shown.append(repr(path) if path == identifier else f"{identifier!r} ({path})")
        left_out = f" and {len(candidates) - SHOWN} more" if len(candidates) > SHOWN else ""
        return ", ".join(shown) + left_out

    def _suggestion(self, label: str) -> str:
        """Return a remedy for an unknown label; only the first ones get the slow search for near misses."""
        if label not in self._near and len(self._near) < SUGGESTED:
            self._near[label] = close_matches(label, list(dict.fromkeys([*self._ids, *self._by_name])))
        near = [repr(other) for other in self._near.get(label, [])]
        return f"did you mean {' or '.join(near)}?" if near else "correct it, or add it to the label tree"
