"""Read the literature's lists for the New York Times corpus: which documents, in which split, and which labels."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from hgclr.errors import InputError
from hgclr.taxonomy import Taxonomy
from hgclr.taxonomy.source import Source

__all__ = ["TOP", "Entry", "read_id_lists", "read_label_list"]

LISTS = {"train": "idnewnyt_train.json", "dev": "idnewnyt_val.json", "test": "idnewnyt_test.json"}
"""The lists by split; they are plain text, whatever their names say."""

TOP, ROOTS = "Top", {"Top", "Root"}
"""What every label path starts with, and what the label list calls the root, which is no label."""

YEAR_AND_FILE = re.compile(r"(?:^|/)(\d{4}/[^/]+\.xml)$")


@dataclass(frozen=True, slots=True)
class Entry:
    """A document that a list names.

    Args:
        split: ``train``, ``dev`` or ``test``.
        key: year and file name, as ``2006/1815754.xml``, by which the document is found.
        written: the path as it stands in the list.
        path: the list.
        line: the line in it.
    """

    split: str
    key: str
    written: str
    path: Path
    line: int


def read_id_lists(folder: Path) -> tuple[list[Entry], list[Entry]]:
    """Return the documents in the order of the lists, train first, and what a list names once more.

    Raises:
        InputError: if a list is missing or empty, a line is no path of an XML file, or two lists name one document.
    """
    first: dict[str, Entry] = {}
    repeated: list[Entry] = []
    for split, name in LISTS.items():
        path = folder / name
        if not path.is_file():
            raise InputError(
                "no such file", path=path, remedy=f"--ids takes the folder with {', '.join(LISTS.values())}"
            )
        entries = _read_ids(split, path)
        if not entries:
            raise InputError("the list names no document", path=path)
        for entry in entries:
            known = first.setdefault(entry.key, entry)
            if known.split != split:
                raise InputError(
                    f"{entry.written!r} is also in {known.path.name} (line {known.line})",
                    path=path,
                    line=entry.line,
                    remedy="a document may be in one split only; delete one of the lines",
                )
            if known is not entry:
                repeated.append(entry)
    return list(first.values()), repeated


def _read_ids(split: str, path: Path) -> list[Entry]:
    """Return the documents of one list."""
    entries = []
    for line, text in Source.load(path).lines():
        written = text.strip()
        found = YEAR_AND_FILE.search(written)
        if found is None:
            raise InputError(
                f"expected a path such as 'Nytimes/2006/1815754.xml', found {written[:60]!r}", path=path, line=line
            )
        entries.append(Entry(split, found.group(1), written, path, line))
    return entries


def read_label_list(path: Path) -> Taxonomy:
    """Return the tree of the label paths in a list, in its order.

    Each line is a path below ``Top``, such as ``Top/News/Sports``; it is the label's id, its last segment the name, and
    the path without that segment the parent. Lines ``Top`` and ``Root`` stand for the root and are passed over, as are
    repeated labels.

    Raises:
        InputError: if the file cannot be read, a line is no such path, a label's parent is not in the list, or there is
            no label.
    """
    lines: dict[str, int] = {}
    for line, text in Source.load(path).lines():
        label = text.strip()
        if label in ROOTS:
            continue
        top, *segments = label.split("/")
        if top != TOP or not all(segments) or not segments:
            raise InputError(
                f"expected a label path such as 'Top/News/Sports', found {label[:60]!r}", path=path, line=line
            )
        lines.setdefault(label, line)
    if not lines:
        raise InputError("the list names no label", path=path)
    index = {label: position for position, label in enumerate(lines)} | {TOP: -1}
    parents, names = [], []
    for label, line in lines.items():
        parent, _, name = label.rpartition("/")
        if parent not in index:
            raise InputError(
                f"the parent of {label!r} is not in the list", path=path, line=line, remedy=f"add a line {parent!r}"
            )
        parents.append(index[parent])
        names.append(name)
    return Taxonomy(list(lines), parents, names)
