"""The text of a label file, its labels, and the checks that they form a tree."""

from __future__ import annotations

import csv
import difflib
import gzip
import io
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hgclr.errors import InputError
from hgclr.files import LARGEST, read_bytes
from hgclr.taxonomy.order import find_cycle, find_depths, find_ranks

MAX_LABELS = 2**22
SHOWN_LABELS = 8
"""Maximum number of labels of a cycle in an error message."""
LONGEST_COMPARED = 80
"""Longer strings are left out of the search for near misses: its cost is the product of two lengths."""


@dataclass(frozen=True)
class Source:
    """The text of a label file, with ``\\n`` as line ends, and its path; None for text from no file."""

    text: str
    path: Path | None = None

    @classmethod
    def load(cls, path: str | Path) -> Source:
        """Read a UTF-8 file, perhaps gzipped, with or without byte order mark, with LF or CRLF line ends."""
        path = Path(path)
        try:
            data = read_bytes(path)
        except FileNotFoundError:
            raise InputError("there is no such file", path=path, remedy="check the path of the label file") from None
        except OSError as error:
            raise InputError(f"the label file cannot be read: {error.strerror}", path=path) from error
        if data.startswith(b"\x1f\x8b"):
            try:
                data = gzip.GzipFile(fileobj=io.BytesIO(data)).read(LARGEST + 1)
            except (EOFError, gzip.BadGzipFile, zlib.error) as error:
                what = f"damaged or truncated gzip file: {error}"
                raise InputError(what, path=path, remedy="copy the file again") from None
            if len(data) > LARGEST:
                raise InputError(f"more than {LARGEST:,} bytes when unpacked", path=path, remedy="give a smaller file")
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            # error.object is the data after the byte order mark, which has no line end.
            line = error.object.count(b"\n", 0, error.start) + 1
            what = f"not UTF-8: byte 0x{error.object[error.start]:02x}"
            raise InputError(what, path=path, line=line, remedy="save the file as UTF-8") from None
        return cls(text.replace("\r\n", "\n"), path)

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yield the number and the text of each line that is not blank."""
        for number, line in enumerate(self.text.split("\n"), start=1):
            if line.strip():
                yield number, line

    def error(self, what: str, line: int | None = None, remedy: str | None = None) -> InputError:
        """Return an error that names this file."""
        return InputError(what, path=self.path, line=line, remedy=remedy)


def read_rows(source: Source, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows that are not blank, spaces around the cells dropped, with the line on which each begins."""
    reader = csv.reader(io.StringIO(source.text, newline=""), delimiter=delimiter, strict=True)
    begins, width = 1, 0
    try:
        for row in reader:
            cells = [cell.strip() for cell in row]
            if any(cells):
                width = width or len(cells)
                if len(cells) != width:
                    remedy = "quote cells that contain the delimiter, and write all cells of the row"
                    raise source.error(f"{len(cells)} cells in a table of {width} columns", begins, remedy)
                yield begins, cells
            begins = reader.line_num + 1
    except csv.Error as error:
        raise source.error(f"broken table: {error}", begins, "check the quotes in this row") from None


class Labels(NamedTuple):
    """The arguments of a taxonomy, by name: ``Taxonomy(**labels._asdict())``."""

    ids: list[str]
    parents: list[int]
    names: list[str]
    descriptions: list[str]
    alternatives: list[tuple[str, ...]]
    codes: list[str]
    more_parents: list[tuple[int, ...]]


class LabelEntry(NamedTuple):
    """One label of a file that gives parents by id; a top label's parent is None.

    ``parent`` is the main parent, ``more_parents`` are the others.
    """

    id: str
    name: str
    parent: str | None
    line: int | None
    description: str = ""
    more_parents: tuple[str, ...] = ()
    alternatives: tuple[str, ...] = ()
    code: str = ""


def link(entries: Sequence[LabelEntry], source: Source) -> Labels:
    """Return the labels of the entries in the same order, with the parents' ids replaced by indices."""
    if len(entries) > MAX_LABELS:
        what = f"{len(entries):,} labels are over the limit of {MAX_LABELS:,}"
        raise source.error(what, remedy="remove labels from the tree")
    by_id: dict[str, int] = {}
    for index, entry in enumerate(entries):
        if (first := by_id.setdefault(entry.id, index)) != index and entry.id.strip():
            raise _listed_twice(source, entries[first], entry)

    def index_of(parent: str, entry: LabelEntry) -> int:
        if parent not in by_id:
            near = [other.id for other in entries if other.name == parent]  # the parent is given by name
            near = near or close_matches(parent, list(by_id))
            hint = f"did you mean {near[0]!r}? Otherwise " if near else ""
            what = f"the parent {parent!r} of {entry.id!r} is not listed as a label"
            raise source.error(what, entry.line, f"{hint}add {parent!r} as a label")
        return by_id[parent]

    parents = [-1 if entry.parent is None else index_of(entry.parent, entry) for entry in entries]
    more = [tuple(index_of(parent, entry) for parent in entry.more_parents) for entry in entries]
    ids, names, lines = ([getattr(entry, name) for entry in entries] for name in ("id", "name", "line"))
    check_labels(ids, names, np.array(parents, dtype=np.int64), source, lines, more)
    descriptions, alternatives, codes = (
        [getattr(entry, name) for entry in entries] for name in ("description", "alternatives", "code")
    )
    return Labels(ids, parents, names, descriptions, alternatives, codes, more)


def check_labels(
    ids: Sequence[str],
    names: Sequence[str],
    parents: NDArray[np.int64],
    source: Source,
    lines: Sequence[int | None] | None = None,
    more_parents: Sequence[Sequence[int]] = (),
) -> NDArray[np.int64]:
    """Return the depth of each label, (K,), by main parents, after checking ids, names and all parents.

    Raises:
        InputError: with the file of ``source`` and the label's line if known, for an empty or repeated id, an empty
            name, siblings with the same name, a parent given twice, more parents for a top label, or a cycle.
    """
    if not ids:
        raise source.error("the label tree is empty", remedy="list at least one label")
    lines = [None] * len(ids) if lines is None else lines
    seen: set[str] = set()
    for index, (identifier, name) in enumerate(zip(ids, names, strict=True)):
        if not identifier.strip():
            what = f"label {index + 1} has an empty id"
            raise source.error(what, lines[index], "fill in the label or delete the extra separator")
        if not name.strip():
            raise source.error(f"label {identifier!r} has an empty name", lines[index], "fill in the name")
        if identifier in seen:
            raise source.error(f"the id {identifier!r} is used twice", lines[index], "give each label a different id")
        seen.add(identifier)
    further = [(index, others) for index, others in enumerate(more_parents) if others]
    for index, others in further:
        if parents[index] < 0:
            what = f"label {ids[index]!r} is a top label and has parents"
            raise source.error(what, lines[index], "make one of them its main parent")
        if len({*others, int(parents[index])}) <= len(others):
            raise source.error(f"a parent of {ids[index]!r} is given twice", lines[index], "delete one of the two")
    edges = [*enumerate(parents.tolist()), *((index, parent) for index, others in further for parent in others)]
    children = [(parent, names[index]) for index, parent in edges]
    if len(set(children)) < len(children):
        siblings: dict[tuple[int, str], int] = {}
        for (index, parent), child in zip(edges, children, strict=True):
            if (first := siblings.setdefault(child, index)) != index:
                place = "at the top" if parent < 0 else f"under {ids[parent]!r}"
                what = f"the name {names[index]!r} is used twice {place}{_at_line(lines[first])}"
                raise source.error(what, lines[index], "delete or rename one of the two")
    ranks = find_ranks(parents, more_parents)
    if cycle := find_cycle(parents, more_parents, ranks):
        shown = [f"{ids[node]!r}{_at_line(lines[node])}" for node in cycle[:SHOWN_LABELS]]
        left_out = [f"... {len(cycle) - SHOWN_LABELS} more ..."] if len(cycle) > SHOWN_LABELS else []
        what = f"labels form a cycle, each below the next: {' < '.join([*shown, *left_out, repr(ids[cycle[0]])])}"
        raise source.error(what, lines[cycle[0]], "give one of them a parent outside the cycle")
    return find_depths(parents) if further else ranks


def _at_line(line: int | None) -> str:
    """Return ``" (line 3)"``, or ``""`` if the line is unknown."""
    return "" if line is None else f" (line {line})"


def _listed_twice(source: Source, first: LabelEntry, second: LabelEntry) -> InputError:
    if first.name != second.name:
        what = f"two labels have the id {second.id!r}, {first.name!r}{_at_line(first.line)} and {second.name!r}"
        remedy = "give one of them a different id, or choose a separator that occurs in no name"
    elif first.parent == second.parent:
        what = f"the label {second.id!r} is listed twice, first{_at_line(first.line)}"
        remedy = "delete or rename one of the two"
    else:
        one, other = ("the top" if entry.parent is None else repr(entry.parent) for entry in (first, second))
        what = f"the label {second.id!r} has two parents, {one}{_at_line(first.line)} and {other}"
        parents = f'{{"id": {json.dumps(second.id)}, "parents": [...]}}'
        remedy = f"give two labels different ids; write one label with several parents as JSON, {parents}"
    return source.error(what, second.line, remedy)


def close_matches(label: str, known: Sequence[str]) -> list[str]:
    """Return up to three similar labels; those that differ only in case or spacing, if there are any."""
    folded = " ".join(label.casefold().split())
    same = [other for other in known if other.casefold() == folded or other.strip() == label.strip()]
    if same or len(label) > LONGEST_COMPARED:
        return same[:3]
    return difflib.get_close_matches(label, [other for other in known if len(other) <= LONGEST_COMPARED])
