"""Descriptions of labels from a table of their own, joined to a tree."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from hgclr.errors import InputError
from hgclr.taxonomy.entries import Source
from hgclr.taxonomy.formats import read_rows
from hgclr.taxonomy.tree import Taxonomy

__all__ = ["Described", "join_descriptions"]

DESCRIPTION = "description"
"""The title of the column that is taken if none is told."""

Row = tuple[int, list[str]]


class Described(NamedTuple):
    """What came of joining a table to a tree: the tree, with other descriptions as they were, and what was counted.

    Counted are rows with a label or a description, those of them that name a label, and labels that got a description;
    cells that name no label, or may mean several, are listed with their lines.
    """

    taxonomy: Taxonomy
    rows: int
    matched: int
    labels: int
    unknown: list[tuple[str, int]]
    ambiguous: list[tuple[str, int]]


def join_descriptions(
    taxonomy: Taxonomy,
    path: str | Path,
    *,
    label_column: str | None = None,
    description_column: str | None = None,
    separator: str = " > ",
) -> Described:
    """Give the labels of a tree the descriptions in a CSV or TSV table.

    The first row is a header if it has a cell ``description``, capitals aside, or one that a column is told by. Labels
    are given by id, name or path; rows with an empty description only count as matched.

    Args:
        taxonomy: the tree.
        path: a UTF-8 table with a tab, a comma or a semicolon between the cells; a label may have several rows, if
            these say the same.
        label_column: title or number (from 1) of the column of labels; by default the one that names most labels.
        description_column: title or number of the column of descriptions; by default the one called ``description``
            or, in a table of two columns without header, the one that is not the labels'.
        separator: stands between the names of a path.
    """
    source = Source.load(path)
    rows = _read(source)
    titles = [cell.casefold() for cell in rows[0][1]]
    told = [column.casefold() for column in (label_column, description_column) if column is not None]
    if DESCRIPTION in titles or any(column in titles for column in told):
        rows = rows[1:]
    else:
        titles = []
    width = len(titles) or len(rows[0][1])
    texts = None if description_column is None else _column(source, description_column, titles, width)
    if texts is None and DESCRIPTION in titles:
        texts = titles.index(DESCRIPTION)
    if label_column is None:  # the one that names most labels, the first of several
        others = [column for column in range(width) if column != texts]
        labels = max(others, key=lambda column: len(_named(taxonomy, {row[column] for _, row in rows}, separator)))
    else:
        labels = _column(source, label_column, titles, width)
    if texts is None and width == 2:
        texts = 1 - labels
    if texts is None or texts == labels:
        remedy = f"call it {DESCRIPTION!r} or give --description-column"
        raise source.error("which column holds the descriptions?", 1, remedy)
    filled = [(line, row[labels], row[texts]) for line, row in rows if row[labels] or row[texts]]
    return _join(taxonomy, source, filled, separator)


def _read(source: Source) -> list[Row]:
    """Return the rows as the first delimiter gives them that cuts all alike; a tab in the first line is the one."""
    _, first = next(source.lines(), (1, ""))
    error = None
    for delimiter in "\t" if "\t" in first else ",;":
        if delimiter in first:
            try:
                rows = list(read_rows(source, delimiter))
            except InputError as found:
                error = error or found
                continue
            if rows and len(rows[0][1]) > 1:
                return rows
    raise error or source.error(
        "no table of labels and descriptions", remedy="put a tab, a comma or a semicolon between label and description"
    )


def _column(source: Source, told: str, titles: Sequence[str], width: int) -> int:
    """Return the column with a title or a number."""
    if told.casefold() in titles:
        return titles.index(told.casefold())
    if told.isdecimal() and 1 <= int(told) <= width:
        return int(told) - 1
    columns = ", ".join(map(repr, titles)) if titles else "numbers, for there is no header with this title"
    raise source.error(f"there is no column {told!r}", 1, f"there are {width} columns: {columns}")


def _named(taxonomy: Taxonomy, cells: set[str], separator: str) -> set[int]:
    found = (taxonomy.candidates(cell, separator) for cell in cells)
    return {candidates[0] for candidates in found if len(candidates) == 1}


def _join(taxonomy: Taxonomy, source: Source, rows: Sequence[tuple[int, str, str]], separator: str) -> Described:
    given: dict[int, tuple[str, int]] = {}
    unknown: list[tuple[str, int]] = []
    ambiguous: list[tuple[str, int]] = []
    for line, cell, description in rows:
        found = taxonomy.candidates(cell, separator)
        if len(found) != 1:
            (ambiguous if found else unknown).append((cell, line))
            continue
        text = " ".join(description.split())
        if not text:
            continue
        first, first_line = given.setdefault(found[0], (text, line))
        if first != text:
            remedy = "delete one of the two"
            raise source.error(f"{cell!r} has two descriptions, the first (line {first_line})", line, remedy)
    if not given:
        remedy = "check that the file belongs to this tree, or give --label-column and --description-column"
        raise source.error("no row has both a label of the tree and a description", remedy=remedy)
    descriptions = [given[index][0] if index in given else text for index, text in enumerate(taxonomy.descriptions)]
    return Described(
        taxonomy=Taxonomy(taxonomy.ids, taxonomy.parents, taxonomy.names, descriptions),
        rows=len(rows),
        matched=len(rows) - len(unknown) - len(ambiguous),
        labels=len(given),
        unknown=unknown,
        ambiguous=ambiguous,
    )
