"""A table with one label per row: its id, its parent and perhaps its name and its description."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from hgclr.errors import InputError
from hgclr.taxonomy.drafting import Entry, Labels, link
from hgclr.taxonomy.literature import ROOT
from hgclr.taxonomy.source import Source

__all__ = ["find_columns", "read_rows", "read_table", "write_table"]

LABEL_COLUMNS = ("child", "id", "code")
NAME_COLUMNS = ("name", "description")
LONGEST_CELL = 131_072  # what any reader of the csv module takes
REMEDY = "the first row must have a column 'parent' and a column 'child' (or 'id', or 'code')"


class Columns(NamedTuple):
    """Where things are in a row; ``name`` is None where the id is the name, ``description`` where there are none."""

    delimiter: str
    label: int
    parent: int
    name: int | None
    description: int | None


def find_columns(header: str) -> Columns | None:
    """Return the columns that a header line names, or None if it names no label column and no parent column.

    Capitals do not matter. The delimiter is a tab, a comma or a semicolon.
    """
    for delimiter in "\t,;":
        try:
            cells = [cell.strip().casefold() for cell in next(csv.reader([header], delimiter=delimiter))]
        except csv.Error:  # a line too long for a cell is no header
            return None
        labels = [cell for cell in cells if cell in LABEL_COLUMNS]
        if len(labels) == 1 and cells.count("parent") == 1:
            name = next((name for name in NAME_COLUMNS if name in cells), None)
            return Columns(
                delimiter,
                label=cells.index(labels[0]),
                parent=cells.index("parent"),
                name=None if name is None else cells.index(name),
                description=cells.index("description") if name == "name" and "description" in cells else None,
            )
    return None


def read_table(source: Source) -> Labels:
    """Read a CSV or TSV table; a label's index is its row.

    The column ``child`` (or ``id``, or ``code``) holds the id, ``parent`` the parent's id. ``name`` and ``description``
    are optional; a ``description`` without a ``name`` beside it is the name. A top label's parent is empty or
    ``Root``. Spaces around a cell are dropped, other columns ignored.

    Raises:
        InputError: with the line, for a bad header or row, or anything that makes no tree.
    """
    first, header = next(source.lines())
    columns = find_columns(header)
    if columns is None:
        raise source.error(f"the header {header!r} does not say which column is which", first, REMEDY)
    _, *rows = read_rows(source, columns.delimiter)
    return link([_entry(source, row, columns, line) for line, row in rows], source)


def write_table(labels: Sequence[Mapping[str, str | None]]) -> str:
    """Return a comma-separated table of labels given by ``id``, ``name``, ``parent`` and perhaps ``description``.

    Raises:
        InputError: if an id, name or description could not be read again as it is.
    """
    for label in labels:
        for what in ("id", "name", "description"):
            text = label.get(what) or ""
            too_long = len(text) > LONGEST_CELL
            if text != text.strip() or "\r" in text or too_long or (what, text) == ("id", ROOT):
                raise InputError(
                    f"the {what} {text[:80]!r} cannot be written in a table",
                    remedy=f"choose an output file that ends in .json, or change the {what}",
                )
    columns = {"child": "id", "parent": "parent", "name": "name"}
    if any(label.get("description") for label in labels):
        columns["description"] = "description"
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([label.get(key) or "" for key in columns.values()] for label in labels)
    return table.getvalue()


def read_rows(source: Source, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows that are not blank, spaces around the cells dropped, with the line on which each begins.

    Raises:
        InputError: with the line, for broken quotes, or a row with more or fewer cells than the first.
    """
    reader = csv.reader(io.StringIO(source.text, newline=""), delimiter=delimiter, strict=True)
    begins, width = 1, 0
    try:
        for row in reader:
            cells = [cell.strip() for cell in row]
            if any(cells):
                width = width or len(cells)
                if len(cells) != width:
                    raise source.error(
                        f"{len(cells)} cells in a table of {width} columns",
                        begins,
                        "quote a cell that holds the delimiter, and leave no cell out",
                    )
                yield begins, cells
            begins = reader.line_num + 1
    except csv.Error as error:
        raise source.error(f"broken table: {error}", begins, "check the quotes in this row") from None


def _entry(source: Source, row: Sequence[str], columns: Columns, line: int) -> Entry:
    """Return the label of one row."""
    label, parent = row[columns.label], row[columns.parent]
    if label == ROOT:
        raise source.error(
            f"{ROOT!r} is a label", line, f"delete the row: {ROOT!r} stands for what is above the top labels"
        )
    name = label if columns.name is None else row[columns.name]
    description = "" if columns.description is None else row[columns.description]
    return Entry(label, name, None if parent in ("", ROOT) else parent, line, description)
