"""The text of a label file, the labels listed in it, and the tree that they make or do not make."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hgclr.errors import InputError
from hgclr.files import read_bytes
from hgclr.taxonomy.structure import Children, close_matches, find_cycle, levels_from_top

__all__ = ["LabelEntry", "Labels", "Source", "empty_tree", "link"]

MOST = 2**22
"""Labels that a tree may have."""
SHOWN_LABELS = 8
"""How many labels of a cycle an error message lists."""


@dataclass(frozen=True)
class Source:
    """The text of a label file, with ``\\n`` as the end of a line, and its path, None for text that is in no file."""

    text: str
    path: Path | None = None

    @classmethod
    def load(cls, path: str | Path) -> Source:
        """Read a UTF-8 file, with or without byte order mark, with either kind of line end."""
        path = Path(path)
        try:
            data = read_bytes(path)
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
            remedy = "save the file as UTF-8"
            raise InputError(f"not UTF-8: byte 0x{byte:02x}", path=path, line=line, remedy=remedy) from None
        return cls(text.replace("\r\n", "\n"), path)

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yield the number and the text of each line that is not blank."""
        for number, line in enumerate(self.text.split("\n"), start=1):
            if line.strip():
                yield number, line

    def error(self, what: str, line: int | None = None, remedy: str | None = None) -> InputError:
        """Return an error that names this file."""
        return InputError(what, path=self.path, line=line, remedy=remedy)


class Labels(NamedTuple):
    """What makes a taxonomy, by index."""

    ids: list[str]
    parents: list[int]
    names: list[str]
    descriptions: list[str]


class LabelEntry(NamedTuple):
    """One label of a file that gives parents by id; a top label's parent is None."""

    id: str
    name: str
    parent: str | None
    line: int | None
    description: str = ""


def link(entries: Sequence[LabelEntry], source: Source) -> Labels:
    """Turn entries, in any order, into labels in the order of the entries."""
    if not entries:
        raise empty_tree(source)
    if len(entries) > MOST:
        raise source.error(f"{len(entries):,} labels are more than {MOST:,}", remedy="cut the tree down")
    by_id: dict[str, int] = {}
    by_name: dict[tuple[str | None, str], LabelEntry] = {}
    for index, entry in enumerate(entries):
        if not entry.id.strip():
            what = "empty label name" if entry.line is not None else f"label {index + 1} has an empty id"
            raise source.error(what, entry.line, "fill in the label or delete the extra separator")
        if not entry.name.strip():
            raise source.error(f"label {entry.id!r} has an empty name", entry.line, "fill in the name")
        if (twin := by_id.setdefault(entry.id, index)) != index:
            raise _listed_twice(source, entries[twin], entry)
        if (other := by_name.setdefault((entry.parent, entry.name), entry)) is not entry:
            raise _duplicate_sibling(source, entry, other)
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


def _at_line(line: int | None) -> str:
    """Return ``" (line 3)"``, or nothing where there are no lines."""
    return "" if line is None else f" (line {line})"


def _duplicate_sibling(source: Source, entry: LabelEntry, first: LabelEntry) -> InputError:
    place = "at the top" if entry.parent is None else f"under {entry.parent!r}"
    where = "" if first.line is None else f", first{_at_line(first.line)}"
    remedy = "delete or rename one of the two"
    return source.error(f"the label {entry.name!r} is listed twice {place}{where}", entry.line, remedy)


def _listed_twice(source: Source, first: LabelEntry, second: LabelEntry) -> InputError:
    if first.name != second.name:
        return source.error(
            f"two labels have the id {second.id!r}, {first.name!r}{_at_line(first.line)} and {second.name!r}",
            second.line,
            "give one an id of its own, or choose a separator that occurs in no name",
        )
    if first.parent == second.parent:
        return _duplicate_sibling(source, second, first)
    one, other = (
        ("the top" if entry.parent is None else repr(entry.parent)) + _at_line(entry.line) for entry in (first, second)
    )
    return source.error(
        f"the label {second.id!r} has two parents, {one} and {other}",
        second.line,
        "choose one parent and delete the other entry, or duplicate the label: list it under the second"
        f" parent with an id of its own, such as {f'{second.id} ({second.parent or 2})'!r}",
    )


def _unknown_parent(source: Source, entry: LabelEntry, known: list[str]) -> InputError:
    parent = str(entry.parent)
    near = close_matches(parent, known)
    hint = f"did you mean {near[0]!r}? Otherwise " if near else ""
    remedy = f"{hint}list {parent!r} under a parent of its own or at the top"
    return source.error(f"the parent {parent!r} of {entry.id!r} is not listed as a label", entry.line, remedy)


def _refuse_cycle(source: Source, entries: Sequence[LabelEntry], parents: list[int]) -> None:
    """Raise an error that names a cycle's labels and lines, if there is a cycle."""
    array = np.array(parents, dtype=np.int64)
    cycle = [entries[node] for node in find_cycle(array, levels_from_top(Children(array)))]
    if not cycle:
        return
    shown = [f"{entry.id!r}{_at_line(entry.line)}" for entry in cycle[:SHOWN_LABELS]]
    left_out = [f"... {len(cycle) - SHOWN_LABELS} more ..."] if len(cycle) > SHOWN_LABELS else []
    raise source.error(
        f"labels form a cycle, each below the next: {' < '.join([*shown, *left_out, repr(cycle[0].id)])}",
        cycle[0].line,
        "give one of them a parent outside the cycle",
    )
