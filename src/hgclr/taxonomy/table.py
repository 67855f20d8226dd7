"""A table with one label per row: its id, its parent and perhaps its name."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from hgclr.taxonomy.drafting import Entry, Labels, link
from hgclr.taxonomy.literature import ROOT
from hgclr.taxonomy.source import Source

__all__ = ["find_columns", "read_table"]

LABEL_COLUMNS = ("child", "id", "code")
NAME_COLUMNS = ("name", "description")
REMEDY = "the first row must have a column 'parent' and a column 'child' (or 'id', or 'code')"


class Columns(NamedTuple):
    """Where things are in a row; ``name`` is None where the id is the name."""

    delimiter: str
    label: int
    parent: int
    name: int | None


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
            name = next((cells.index(name) for name in NAME_COLUMNS if name in cells), None)
            return Columns(delimiter, cells.index(labels[0]), cells.index("parent"), name)
    return None


def read_table(source: Source) -> Labels:
    """Read a CSV or TSV table; a label's index is its row.

    The column ``child`` (or ``id``, or ``code``) holds the id, ``parent`` the parent's id, and the optional
    ``name`` (or ``description``) the name. A top label's parent is empty or ``Root``. Spaces around a cell
    are dropped, other columns ignored.

    Raises:
        InputError: with the line, for a bad header or row, or anything that makes no tree.
    """
    first, header = next(source.lines())
    columns = find_columns(header)
    if columns is None:
        raise source.error(f"the header {header!r} does not say which column is which", first, REMEDY)
    (_, titles), *rows = _rows(source, columns.delimiter)
    entries = []
    for line, row in rows:
        if len(row) != len(titles):
            raise source.error(
                f"{len(row)} cells in a table of {len(titles)} columns",
                line,
                "quote a cell that holds the delimiter, and leave no cell out",
            )
        entries.append(_entry(source, [cell.strip() for cell in row], columns, line))
    return link(entries, source)


def _rows(source: Source, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows that are not blank with the line on which each begins."""
    reader = csv.reader(io.StringIO(source.text, newline=""), delimiter=delimiter, strict=True)
    begins = 1
    try:
        for row in reader:
            if any(cell.strip() for cell in row):
                yield begins, row
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
    return Entry(label, name, None if parent in ("", ROOT) else parent, line)
