"""Label trees in text: the literature's lines, lists of paths, and tables."""

from __future__ import annotations

import csv
import io
import os.path
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from hgclr.errors import InputError
from hgclr.taxonomy.entries import LabelEntry, Labels, Source, empty_tree, link

__all__ = [
    "ROOT",
    "find_columns",
    "read_literature",
    "read_paths",
    "read_rows",
    "read_table",
    "write_literature",
    "write_table",
]

ROOT = "Root"
"""What stands for the virtual root; it is no label."""
LABEL_COLUMNS = ("child", "id", "code")
NAME_COLUMNS = ("name", "description")
LONGEST_CELL = 131_072  # what any reader of the csv module takes
REMEDY = "the first row must have a column 'parent' and a column 'child' (or 'id', or 'code')"


def read_literature(source: Source) -> Labels:
    """Read ``parent<TAB>child...`` lines in any order; a label's index follows the order of the children.

    Cells are taken as they are, spaces included. The name of a label is its id, with one exception: where
    every label below the top has its parent's id and a slash at the beginning of its own (``Top/News/Health``
    under ``Top/News``), ids are paths. A name is then what follows the parent's id and slash (``Health``); of
    a top label, what follows the folder that all top labels share (``News``).
    """
    entries: list[LabelEntry] = []
    lines_of_root = 0
    for number, line in source.lines():
        parent, *children = line.split("\t")
        if not parent.strip():
            raise source.error("the line has no parent", number, f"begin it with a label or with {ROOT!r}")
        if not children and parent != ROOT:
            raise source.error(f"{parent!r} has no children", number, "put a tab before each child, or delete the line")
        lines_of_root += parent == ROOT
        if ROOT in children:
            raise source.error(
                f"{ROOT!r} is a child", number, f"rename it: {ROOT!r} stands for what is above the top labels"
            )
        entries += [LabelEntry(child, child, None if parent == ROOT else parent, number) for child in children]
    if entries and not lines_of_root:
        raise source.error(
            f"no line begins with {ROOT!r}", remedy=f"add a line '{ROOT}<TAB>top label<TAB>top label...'"
        )
    if not entries:
        raise empty_tree(source)
    return link(_named_by_path(entries), source)


def _named_by_path(entries: list[LabelEntry]) -> list[LabelEntry]:
    """Give every label the last part of its id as name, if the ids are paths."""
    below = [entry for entry in entries if entry.parent is not None]
    if not below or not all(_continues(entry.id, entry.parent) for entry in below):
        return entries
    tops = [entry.id for entry in entries if entry.parent is None]
    folder = os.path.commonprefix(tops).rpartition("/")[0]  # noqa: RUF071 (ids are no paths of this system)
    return [
        entry._replace(name=entry.id.removeprefix(f"{folder if entry.parent is None else entry.parent}/"))
        for entry in entries
    ]


def _continues(identifier: str, parent: str | None) -> bool:
    return identifier.startswith(f"{parent}/") and len(identifier) > len(f"{parent}/")


def write_literature(ids: Sequence[str], families: Sequence[tuple[int, Sequence[int]]]) -> str:
    """Return the text for a tree; the names are not part of this format.

    Args:
        ids: the label ids.
        families: pairs of a parent (-1: the virtual root, which comes first) and its children.
    """
    for identifier in ids:
        if identifier == ROOT or any(character in identifier for character in "\t\n\r"):
            raise InputError(
                f"the id {identifier!r} cannot be written in the tab format",
                remedy="choose an output file that ends in .json, or change the id",
            )
    return "".join(
        "\t".join([ROOT if parent < 0 else ids[parent], *(ids[child] for child in children)]) + "\n"
        for parent, children in families
    )


def read_paths(source: Source, separator: str) -> Labels:
    """Read one path per line; the labels on the way to it are made where they are missing.

    A label's id is its path; its index follows the order in which the labels first occur. Spaces around a
    name are dropped.
    """
    entries: dict[str, LabelEntry] = {}
    listed: dict[str, int] = {}
    for number, line in source.lines():
        names = [name.strip() for name in line.split(separator)]
        _check_names(source, names, separator, number)
        path = separator.join(names)
        if (first := listed.setdefault(path, number)) != number:
            raise source.error(
                f"the path {path!r} is listed twice, first (line {first})", number, "delete or rename one of the two"
            )
        # Most paths are new below a known one; joining all above each time would cost the depth squared.
        known = separator.join(names[:-1]) in entries
        for depth in range(len(names) if known else 1, len(names) + 1):
            above, here = separator.join(names[: depth - 1]), separator.join(names[:depth])
            entries.setdefault(here, LabelEntry(here, names[depth - 1], above or None, number))
    return link(list(entries.values()), source)


def _check_names(source: Source, names: list[str], separator: str, line: int) -> None:
    """Refuse empty names, and ``A >B`` where the separator is ``" > "``: the sign would become part of a name."""
    sign = separator.strip()
    for name in names:
        if sign and sign != separator and (name.startswith(sign) or name.endswith(sign)):
            raise source.error(
                f"a name begins or ends with {sign!r}: {name!r}",
                line,
                f"write the separator as {separator!r}, with nothing missing on either side",
            )
        if not name:
            raise source.error("empty label name", line, "fill in the name or delete the entry")


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
    """
    first, header = next(source.lines())
    columns = find_columns(header)
    if columns is None:
        raise source.error(f"the header {header!r} does not say which column is which", first, REMEDY)
    _, *rows = read_rows(source, columns.delimiter)
    return link([_entry(source, row, columns, line) for line, row in rows], source)


def write_table(labels: Sequence[Mapping[str, str | None]]) -> str:
    """Return a comma-separated table of labels given by ``id``, ``name``, ``parent`` and perhaps ``description``."""
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
    """Yield the rows that are not blank, spaces around the cells dropped, with the line on which each begins."""
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


def _entry(source: Source, row: Sequence[str], columns: Columns, line: int) -> LabelEntry:
    """Return the label of one row."""
    label, parent = row[columns.label], row[columns.parent]
    if label == ROOT:
        raise source.error(
            f"{ROOT!r} is a label", line, f"delete the row: {ROOT!r} stands for what is above the top labels"
        )
    name = label if columns.name is None else row[columns.name]
    description = "" if columns.description is None else row[columns.description]
    return LabelEntry(label, name, None if parent in ("", ROOT) else parent, line, description)
