"""Texts without labels: the files that contain them, and their distinct usable texts."""

from __future__ import annotations

import glob
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path

from hgclr.data.layout import Column, find_text_column
from hgclr.data.readers import SUFFIXES, BadRow, Row, RowProblem, read_rows, read_text, text_hash
from hgclr.data.table_import import SAMPLE
from hgclr.errors import InputError, url_of
from hgclr.remote import find_files, kind_of


@dataclass(slots=True)
class Texts:
    """Distinct usable texts.

    Args:
        texts: in the order of the files, without repeats.
        sources: the cell in the column ``id`` of each text, or the number of its row.
        left_out: the number of other rows, by reason.
        columns: the text column of each file.
    """

    texts: list[str] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    columns: dict[Path, str] = field(default_factory=dict)


def read_texts(
    names: Sequence[str | Path], *, text_columns: Sequence[str] = (), known: Mapping[int, str] | None = None
) -> Texts:
    """Return the distinct usable texts of files; other columns than text and id are ignored.

    Args:
        names: files, folders, patterns or URLs, see :func:`find_inputs`.
        text_columns: the text is in the first of these columns that a file has, else in the column that reads like
            texts.
        known: texts to leave out, by their hash (:func:`~hgclr.data.readers.text_hash`), with the reason.

    Raises:
        InputError: if there is no input file, a file cannot be read, or its text column is unclear.
    """
    found, seen = Texts(), dict(known or {})
    for path in find_inputs(names):
        rows = read_rows(path, (), all_columns=True)
        head = list(islice(rows, SAMPLE))
        good = [row.values for row in head if isinstance(row, Row)]
        columns = dict.fromkeys(name for values in good for name in values)
        if not columns:
            found.left_out["unreadable"] += len(head)
            continue
        own = next((name for name in text_columns if name in columns), None)
        column = own or find_text_column([Column(name, good) for name in columns], path, labelled=False)
        id_column = next((name for name in columns if name.casefold() == "id"), None)
        found.columns[path] = column
        for row in chain(head, rows):
            if isinstance(row, BadRow):
                found.left_out["unreadable"] += 1
                continue
            try:
                text = read_text(row.values.get(column))
            except RowProblem as problem:
                found.left_out[problem.reason] += 1
                continue
            digest = text_hash(text)
            if digest in seen:
                found.left_out[seen[digest]] += 1
                continue
            seen[digest] = "repeated"
            cell = row.values.get(id_column) if id_column else None
            found.texts.append(text)
            found.sources.append(str(row.number if cell in (None, "") else cell))
    return found


def is_pattern(name: str | Path) -> bool:
    """Return whether a name is a pattern such as ``part-*.parquet``, and not the name of an existing file."""
    return glob.has_magic(str(name)) and kind_of(name) is None


def find_inputs(names: Sequence[str | Path]) -> list[Path]:
    """Return the input files without repeats, in the order of the names; those of one name are sorted.

    A name is a file, a folder (all readable files in it, not in subfolders), or a pattern with ``*``, ``?``, ``[…]`` or
    ``**``; each may be a URL.
    """
    found: list[Path] = []
    for name in names:
        files, kind, text = [Path(name)], kind_of(name), (url_of(name) or str(name)).rstrip("/")
        if kind != "file":
            files = find_files(f"{glob.escape(text)}/*" if kind == "folder" else text)
            # Excel keeps a file ~$posts.xlsx while posts.xlsx is open.
            files = [file for file in files if file.name.lower().endswith(SUFFIXES)]
            files = [file for file in files if not file.name.startswith((".", "~$"))]
        if not files:
            raise InputError("no input files", path=name, remedy=f"give files that end in {', '.join(SUFFIXES)}")
        found += files
    return list(dict.fromkeys(map(absolute, found)))


def absolute(path: Path) -> Path:
    """Return the absolute path of a file or folder; a URL is one already."""
    return path.resolve() if url_of(path) is None else path
