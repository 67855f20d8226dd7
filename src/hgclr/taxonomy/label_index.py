"""Find labels by name or by path, and near misses for those that are not there."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence

from hgclr.errors import InputError

__all__ = ["LabelIndex", "close_matches"]

SHOWN = 5
"""How many candidates an error message lists."""
SUGGESTED = 200
"""For how many unknown labels near misses are looked up: a file full of bad rows must not take hours."""
LONGEST_COMPARED = 80
"""Longer strings are left out of the search for near misses: its cost is the product of two lengths."""


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
            raise InputError(
                f"the label {label!r} is ambiguous: {self._listed(candidates)}",
                remedy="give the id or the whole path",
            )
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
