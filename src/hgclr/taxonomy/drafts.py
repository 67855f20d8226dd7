"""Put labels together while a file is read, and refuse what makes no tree, with the lines concerned."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hgclr.errors import InputError
from hgclr.taxonomy.structure import Children, find_cycle, levels_from_top

__all__ = ["Draft", "Entry", "LabelIndex", "Labels", "Source", "link"]


def at_line(line: int | None) -> str:
    """Return ``" (line 3)"``, or nothing where there are no lines."""
    return "" if line is None else f" (line {line})"


@dataclass(frozen=True)
class Source:
    """The text of a label file.

    Attributes:
        text: all of it, with ``\\n`` as the end of a line.
        path: the file, or None for text that is in no file.
    """

    text: str
    path: Path | None = None

    @classmethod
    def load(cls, path: str | Path) -> Source:
        """Read a UTF-8 file, with or without byte order mark, with either kind of line end.

        Raises:
            InputError: if the file cannot be read or is not UTF-8.
        """
        path = Path(path)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise InputError("there is no such file", path=path, remedy="check the path of the label file") from None
        except OSError as error:
            raise InputError(f"the label file cannot be read: {error.strerror}", path=path) from error
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            # error.object is what was decoded: the data after the byte order mark, which holds no line end.
            line = error.object.count(b"\n", 0, error.start) + 1
            byte = error.object[error.start]
            raise InputError(
                f"not UTF-8: byte 0x{byte:02x}", path=path, line=line, remedy="save the file as UTF-8"
            ) from None
        return cls(text.replace("\r\n", "\n"), path)

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yield the number and the text of each line that is not blank."""
        for number, line in enumerate(self.text.split("\n"), start=1):
            if line.strip():
                yield number, line

    def error(self, what: str, line: int | None = None, remedy: str | None = None) -> InputError:
        """Return an error that names this file."""
        return InputError(what, path=self.path, line=line, remedy=remedy)


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
    """An index from names and paths to labels, for one separator.

    Args:
        ids: K label ids.
        names: K label names.
        parents: index of each label's parent, -1 for a top label.
        separator: what stands between the names of a path.

    Raises:
        InputError: if the separator is empty.
    """

    def __init__(self, ids: Sequence[str], names: Sequence[str], parents: Sequence[int], separator: str) -> None:
        if not separator:
            raise InputError("the separator of paths is empty", remedy="use for example ' > '")
        self._ids, self._names, self._parents, self._separator = ids, names, parents, separator
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
        """Return the labels whose path of names, joined by the separator, is ``label``."""
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
            names, node = [], index
            while node != -1:
                names.append(self._names[node])
                node = self._parents[node]
            path = self._separator.join(reversed(names))
            shown.append(repr(path) if path == self._ids[index] else f"{self._ids[index]!r} ({path})")
        left_out = f" and {len(candidates) - SHOWN} more" if len(candidates) > SHOWN else ""
        return ", ".join(shown) + left_out

    def _suggestion(self, label: str) -> str:
        """Return a remedy for an unknown label; only the first ones get the slow search for near misses."""
        if label not in self._near and len(self._near) < SUGGESTED:
            known = list(dict.fromkeys([*self._ids, *self._by_name]))
            self._near[label] = close_matches(label, known)
        near = [repr(other) for other in self._near.get(label, [])]
        return f"did you mean {' or '.join(near)}?" if near else "correct it, or add it to the label tree"


SHOWN_LABELS = 8
"""How many labels of a cycle an error message lists."""


class Labels(NamedTuple):
    """What makes a taxonomy, by index."""

    ids: list[str]
    parents: list[int]
    names: list[str]
    descriptions: list[str]


class Entry(NamedTuple):
    """One label of a file that gives parents by id; a top label's parent is None."""

    id: str
    name: str
    parent: str | None
    line: int | None
    description: str = ""


class Draft:
    """Labels that are added one by one, each under a parent that is already there.

    Args:
        source: the file, for error messages.
        separator: joins the names of a path to the id of a label that has no id of its own.
    """

    def __init__(self, source: Source, separator: str) -> None:
        self._source, self._separator = source, separator
        self._labels = Labels([], [], [], [])
        self._lines: list[int] = []
        self._paths: list[str] = []
        self._by_id: dict[str, int] = {}
        self._by_parent: dict[tuple[int, str], int] = {}

    def find(self, path: str) -> int | None:
        """Return the label with this id."""
        return self._by_id.get(path)

    def child(self, parent: int, name: str) -> int | None:
        """Return the child of ``parent`` (-1: the top) with this name."""
        return self._by_parent.get((parent, name))

    def add(self, name: str, parent: int, line: int, identifier: str | None = None, description: str = "") -> int:
        """Add a label and return its index.

        Raises:
            InputError: if the name is empty, or a sibling has this name, or another label this id.
        """
        if not name.strip():
            raise self._source.error("empty label name", line, "fill in the name or delete the entry")
        path = name if parent < 0 else self._paths[parent] + self._separator + name
        label = path if identifier is None else identifier
        if not label.strip():
            raise self._source.error(f"label {name!r} has an empty id", line, "fill in the id or leave it out")
        if (twin := self.child(parent, name)) is not None:
            raise duplicate_sibling(self._source, name, self._place(parent), line, self._lines[twin])
        if (twin := self.find(label)) is not None:
            raise self._source.error(
                f"two labels have the id {label!r}, the first{at_line(self._lines[twin])}",
                line,
                "give one an id of its own, or choose a separator that occurs in no name",
            )
        index = len(self._paths)
        self._labels.ids.append(label)
        self._labels.parents.append(parent)
        self._labels.names.append(name)
        self._labels.descriptions.append(description)
        self._lines.append(line)
        self._paths.append(path)
        self._by_id[label] = self._by_parent[parent, name] = index
        return index

    def labels(self) -> Labels:
        """Return all labels; refuse an empty tree."""
        if not self._paths:
            raise empty_tree(self._source)
        return self._labels

    def _place(self, parent: int) -> str | None:
        return None if parent < 0 else self._labels.ids[parent]


def link(entries: Sequence[Entry], source: Source) -> Labels:
    """Turn entries, in any order, into labels in the order of the entries.

    Raises:
        InputError: for an empty id or name, two parents, a duplicate sibling, an unknown parent, a cycle, or
            no entry at all.
    """
    if not entries:
        raise empty_tree(source)
    by_id: dict[str, int] = {}
    by_name: dict[tuple[str | None, str], Entry] = {}
    for index, entry in enumerate(entries):
        if not entry.id.strip():
            raise source.error("empty label name", entry.line, "fill in the label or delete the extra separator")
        if not entry.name.strip():
            raise source.error(f"label {entry.id!r} has an empty name", entry.line, "fill in the name")
        if (twin := by_id.setdefault(entry.id, index)) != index:
            raise _listed_twice(source, entries[twin], entry)
        if (other := by_name.setdefault((entry.parent, entry.name), entry)) is not entry:
            raise duplicate_sibling(source, entry.name, entry.parent, entry.line, other.line)
    parents = []
    for entry in entries:
        if entry.parent is not None and entry.parent not in by_id:
            raise _unknown_parent(source, entry, list(by_id))
        parents.append(-1 if entry.parent is None else by_id[entry.parent])
    _refuse_cycle(source, entries, parents)
    return Labels(
        [entry.id for entry in entries],
        parents,
        [entry.name for entry in entries],
        [entry.description for entry in entries],
    )


def empty_tree(source: Source) -> InputError:
    """Return the error for a file without labels."""
    return source.error("the label tree is empty", remedy="list at least one label under the root")


def duplicate_sibling(source: Source, name: str, parent: str | None, line: int | None, first: int | None) -> InputError:
    """Return the error for two children of one parent with the same name."""
    place = "at the top" if parent is None else f"under {parent!r}"
    return source.error(
        f"the label {name!r} is listed twice {place}, first{at_line(first) or ' above'}",
        line,
        "delete or rename one of the two",
    )


def _listed_twice(source: Source, first: Entry, second: Entry) -> InputError:
    """Return the error for an id that occurs twice, under one parent or under two."""
    if first.parent == second.parent:
        return duplicate_sibling(source, second.id, second.parent, second.line, first.line)
    one, other = (
        ("the top" if entry.parent is None else repr(entry.parent)) + at_line(entry.line) for entry in (first, second)
    )
    return source.error(
        f"the label {second.id!r} has two parents, {one} and {other}",
        second.line,
        "choose one parent and delete the other entry, or duplicate the label: list it under the second"
        f" parent with an id of its own, such as {f'{second.id} ({second.parent or 2})'!r}",
    )


def _unknown_parent(source: Source, entry: Entry, known: list[str]) -> InputError:
    """Return the error for a parent that is listed nowhere as a label."""
    parent = str(entry.parent)
    near = close_matches(parent, known)
    hint = f"did you mean {near[0]!r}? Otherwise " if near else ""
    return source.error(
        f"the parent {parent!r} of {entry.id!r} is not listed as a label",
        entry.line,
        f"{hint}list {parent!r} under a parent of its own or at the top",
    )


def _refuse_cycle(source: Source, entries: Sequence[Entry], parents: list[int]) -> None:
    """Raise an error that names a cycle's labels and lines, if there is a cycle."""
    reached = np.zeros(len(parents), dtype=bool)
    for level in levels_from_top(Children(np.array(parents, dtype=np.int64))):
        reached[level] = True
    if reached.all():
        return
    cycle = [entries[node] for node in find_cycle(parents, int(np.argmin(reached)))]
    shown = [f"{entry.id!r}{at_line(entry.line)}" for entry in cycle[:SHOWN_LABELS]]
    left_out = [f"... {len(cycle) - SHOWN_LABELS} more ..."] if len(cycle) > SHOWN_LABELS else []
    raise source.error(
        f"labels form a cycle, each below the next: {' < '.join([*shown, *left_out, repr(cycle[0].id)])}",
        cycle[0].line,
        "give one of them a parent outside the cycle",
    )
