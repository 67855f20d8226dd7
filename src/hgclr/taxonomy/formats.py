"""File formats of label trees: the literature's tab format, tables, JSON, lists of paths, and outlines."""

from __future__ import annotations

import csv
import io
import json
import os.path
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from hgclr.errors import InputError, require_extra
from hgclr.taxonomy.concepts import Choices, ImportSummary, Vocabulary, arrange
from hgclr.taxonomy.entries import LabelEntry, Labels, Source, link, read_rows
from hgclr.taxonomy.vocabularies import (
    from_labels,
    is_esco,
    is_id_list,
    is_xml,
    lines_of,
    read_esco,
    read_ids,
    read_iptc,
)

FileFormat = Literal["auto", "literature", "table", "json", "paths", "outline", "ids", "skos", "esco"]
TURTLE = re.compile(r"\s*((@?prefix|@?base)\s[^<]*<|<[^<> ]*>\s*($|[<;]|a\s|[\w-]*:)|_:\S+\s)", re.IGNORECASE)
"""The first line of Turtle and N-Triples."""
ROOT = "Root"
"""The name of the virtual root in files; no label may have it."""
LABEL_COLUMNS = ("child", "id", "code")
DESCRIPTION = "description"
NAME_COLUMNS = ("name", "description")
LONGEST_CELL = 131_072  # the default limit of the csv module
TABLE_REMEDY = "name a column 'parent' and a column 'child' (or 'id', or 'code') in the first row"
JSON_REMEDY = "correct the JSON, or name the format: hgclr taxonomy convert FILE tree.json --format FORMAT"
EXTRA_KEYS = ("parents", "description", "alt_labels", "code")
NODE_KEYS = ("name", "id", "children", *EXTRA_KEYS)
FLAT_KEYS = ("id", "name", "parent", *EXTRA_KEYS)
RECURSION = 5_000
"""Recursion limit while parsing JSON: a tree of a thousand levels has two thousand nested brackets."""


def read_labels(
    paths: Sequence[Path], file_format: FileFormat, separator: str, choices: Choices | None = None
) -> tuple[Labels, ImportSummary | None]:
    """Read the labels of a tree, and the summary if the files are a vocabulary, which may need repairs.

    Args:
        paths: the file; several files, or a folder of CSV, only for SKOS and ESCO.
        file_format: the format, as in :meth:`Taxonomy.read`.
        separator: the string between the names of a path.
        choices: what to take, for files of any format.
    """
    formats = get_args(FileFormat)
    if file_format not in formats:
        raise InputError(f"unknown format {file_format!r}", remedy=f"choose one of {', '.join(formats)}")
    if not separator:
        raise InputError("the path separator is empty", remedy="use for example ' > '")
    files = [file for path in paths for file in (sorted(path.glob("*.csv*")) if path.is_dir() else [path])]
    sources = [Source.load(file) for file in files]
    if not all(source.text.strip() for source in sources) or not sources:
        return link([], next((source for source in sources if not source.text.strip()), Source("", paths[0]))), None
    first = sources[0]
    chosen = _detect(first, separator) if file_format == "auto" else file_format
    if len(sources) > 1 and chosen not in ("skos", "esco"):
        what = f"several files in the format {chosen}"
        raise InputError(what, path=sources[1].path, remedy="give one file; only SKOS and ESCO may have several")
    found: Labels | Vocabulary
    if chosen == "skos":
        found = _read_skos(sources)
    elif chosen == "esco":
        found = read_esco(sources)
    elif chosen in ("literature", "table"):
        found = read_table(first) if chosen == "table" else read_literature(first)
    else:
        readers = {"json": read_json, "paths": read_paths, "outline": read_outline, "ids": read_ids}
        found = readers[chosen](first, separator)
    if isinstance(found, Labels):
        if choices is None:
            return found, None
        found = from_labels(found, chosen)
    entries, summary = arrange(found, choices or Choices(), Source("", first.path))
    return link(entries, first), summary


def _read_skos(sources: Sequence[Source], data: Any = None) -> Vocabulary:
    require_extra("rdflib", extra="skos", capability="Reading SKOS")
    from hgclr.taxonomy.rdf import read_skos

    return read_skos(sources, data)


def _detect(source: Source, separator: str) -> FileFormat:
    """Return the format, detected from the content."""
    number, first = next(source.lines())
    if first.lstrip()[0] in "{[":
        return "json"
    said = lines_of(source)
    if is_xml(source.text) or (said and TURTLE.match(said[0][1])):
        return "skos"
    if is_esco(first):
        return "esco"
    if is_id_list(said):
        return "ids"
    if first.split("\t")[0] == ROOT:
        return "literature"
    if find_columns(first) is not None:
        return "table"
    # In an outline, a name may contain the separator; in a list of paths, an indented line has several names.
    if "\t" not in first.strip() and any(line[0] in " \t" and separator not in line for _, line in source.lines()):
        return "outline"
    if any(separator in line for _, line in source.lines()):
        return "paths"
    raise source.error(
        f"cannot tell the format from the line {first[:60]!r}",
        number,
        "write the tree as an outline (each label indented below its parent), as paths (lines"
        f" 'A{separator}B') or as a table (a header with 'child' and 'parent'); or name its format: hgclr taxonomy"
        " convert FILE tree.json --format FORMAT (for paths also --separator)",
    )


def read_literature(source: Source) -> Labels:
    """Read ``parent<TAB>child...`` lines in any order; a label's index follows the order of the children.

    Spaces in cells are kept. The name of a label is its id, with one exception: ids are paths if every id below the
    top begins with the parent's id and a slash (``Top/News/Health`` under ``Top/News``). The name is then the rest
    of the id (``Health``); of a top label, the rest after the folder that all top labels share (``News``).
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
            remedy = f"rename it: {ROOT!r} is reserved for the node above the top labels"
            raise source.error(f"{ROOT!r} is listed as a child", number, remedy)
        entries += [LabelEntry(child, child, None if parent == ROOT else parent, number) for child in children]
    if entries and not lines_of_root:
        remedy = f"add a line '{ROOT}<TAB>top label<TAB>top label...'"
        raise source.error(f"no line begins with {ROOT!r}", remedy=remedy)
    return link(_named_by_path(entries), source)


def _named_by_path(entries: list[LabelEntry]) -> list[LabelEntry]:
    """Return the entries with the last part of each id as name, if the ids are paths."""
    below = [entry for entry in entries if entry.parent is not None]
    if not below or not all(
        entry.id.startswith(f"{entry.parent}/") and len(entry.id) > len(f"{entry.parent}/") for entry in below
    ):
        return entries
    tops = [entry.id for entry in entries if entry.parent is None]
    folder = os.path.commonprefix(tops).rpartition("/")[0]  # noqa: RUF071 (ids are not file paths)
    return [
        entry._replace(name=entry.id.removeprefix(f"{folder if entry.parent is None else entry.parent}/"))
        for entry in entries
    ]


def write_literature(ids: Sequence[str], families: Sequence[tuple[int, Sequence[int]]]) -> str:
    """Return the text for parents (-1: the virtual root, which comes first), each with its children."""
    for identifier in ids:
        if identifier == ROOT or any(character in identifier for character in "\t\n\r"):
            remedy = "choose an output file that ends in .json, or change the id"
            raise InputError(f"the id {identifier!r} cannot be written in the tab format", remedy=remedy)
    return "".join(
        "\t".join([ROOT if parent < 0 else ids[parent], *(ids[child] for child in children)]) + "\n"
        for parent, children in families
        if children
    )


def read_paths(source: Source, separator: str) -> Labels:
    """Read one path per line and add missing ancestors.

    A label's id is its path; labels are indexed in the order of their first occurrence. Spaces around a name are
    dropped.
    """
    entries: dict[str, LabelEntry] = {}
    listed: dict[str, int] = {}
    sign = separator.strip()
    for number, line in source.lines():
        names = [name.strip() for name in line.split(separator)]
        for name in names:
            # ``A >B`` where the separator is ``" > "``: the sign would become part of a name.
            if sign and sign != separator and (name.startswith(sign) or name.endswith(sign)):
                remedy = f"write the separator as {separator!r}, with its spaces"
                raise source.error(f"a name begins or ends with {sign!r}: {name!r}", number, remedy)
            if not name:
                raise source.error("empty label name", number, "fill in the name or delete the entry")
        path = separator.join(names)
        if (first := listed.setdefault(path, number)) != number:
            remedy = "delete or rename one of the two"
            raise source.error(f"the path {path!r} is listed twice, first (line {first})", number, remedy)
        # Most paths extend a known one; joining all ancestors each time would cost the depth squared.
        known = separator.join(names[:-1]) in entries
        for depth in range(len(names) if known else 1, len(names) + 1):
            above, here = separator.join(names[: depth - 1]), separator.join(names[:depth])
            entries.setdefault(here, LabelEntry(here, names[depth - 1], above or None, number))
    return link(list(entries.values()), source)


def read_outline(source: Source, separator: str) -> Labels:
    """Read one label per line, indented below its parent by one more tab, or by a constant number of spaces.

    A label's id is its path, the names joined by ``separator``; a label's index is its line.
    """
    entries: list[LabelEntry] = []
    above: list[str] = []
    unit = ""
    for number, line in source.lines():
        name = line.strip()
        indent = line[: len(line) - len(line.lstrip())]
        unit = unit or ("\t" if indent.startswith("\t") else indent)
        depth = len(indent) // max(len(unit), 1)
        if indent != unit * depth:
            remedy = f"indent each level by one more {'tab' if unit == chr(9) else f'{len(unit)} spaces'}"
            raise source.error(f"the indentation of {name!r} is not a multiple of the first one", number, remedy)
        if depth > len(above):
            what = f"{name!r} has no parent: it is indented {'too far' if above else 'but comes first'}"
            raise source.error(what, number, "indent a label by one level more than its parent")
        parent = above[depth - 1] if depth else None
        above[depth:] = [name if parent is None else parent + separator + name]
        entries.append(LabelEntry(above[depth], name, parent, number))
    return link(entries, source)


class Columns(NamedTuple):
    """The columns of a table by number; ``name`` is None if the id is the name, ``description`` if there is none."""

    delimiter: str
    label: int
    parent: int
    name: int | None
    description: int | None


def find_columns(header: str) -> Columns | None:
    """Return the columns of a header line, or None if it does not name a label column and a parent column.

    Case is ignored. The delimiter is a tab, a comma or a semicolon.
    """
    for delimiter in "\t,;":
        try:
            cells = [cell.strip().casefold() for cell in next(csv.reader([header], delimiter=delimiter))]
        except csv.Error:  # the line is too long to be a header
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
        raise source.error(f"the header {header!r} does not name the label and parent columns", first, TABLE_REMEDY)
    _, *rows = read_rows(source, columns.delimiter)
    entries = []
    for line, row in rows:
        label, parent = row[columns.label], row[columns.parent]
        if label == ROOT:
            remedy = f"delete the row: {ROOT!r} is reserved for the node above the top labels"
            raise source.error(f"{ROOT!r} is listed as a label", line, remedy)
        name = label if columns.name is None else row[columns.name]
        description = "" if columns.description is None else row[columns.description]
        entries.append(LabelEntry(label, name, None if parent in ("", ROOT) else parent, line, description))
    return link(entries, source)


def write_table(labels: Sequence[Mapping[str, str | None]]) -> str:
    """Return a comma-separated table of labels given by ``id``, ``name``, ``parent`` and perhaps ``description``."""
    for label in labels:
        for what in ("id", "name", "description"):
            text = label.get(what) or ""
            too_long = len(text) > LONGEST_CELL
            if text != text.strip() or "\r" in text or too_long or (what, text) == ("id", ROOT):
                remedy = f"choose an output file that ends in .json, or change the {what}"
                raise InputError(f"the {what} {text[:80]!r} cannot be written in a table", remedy=remedy)
    columns = {"child": "id", "parent": "parent", "name": "name"}
    if any(label.get("description") for label in labels):
        columns["description"] = "description"
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([label.get(key) or "" for key in columns.values()] for label in labels)
    return table.getvalue()


class Descriptions(NamedTuple):
    """The descriptions in a table, by label, and counts of its rows.

    ``rows`` counts the rows with a label or a description, ``matched`` those that name exactly one label of the tree.
    ``unknown`` and ``ambiguous`` list the other label cells with their lines.
    """

    texts: dict[int, str]
    rows: int
    matched: int
    unknown: list[tuple[str, int]]
    ambiguous: list[tuple[str, int]]


def read_descriptions(
    path: str | Path, candidates: Callable[[str], list[int]], label_column: str | None, description_column: str | None
) -> Descriptions:
    """Read descriptions of labels from a table; ``candidates`` returns the labels that a cell may mean.

    The arguments are those of :meth:`Taxonomy.with_descriptions`.
    """
    source = Source.load(path)
    titles, rows = _read_described(source, label_column, description_column)
    width = len(rows[0][1]) if rows else 0
    texts = titles.index(DESCRIPTION) if DESCRIPTION in titles else None
    if description_column is not None:
        texts = titles.index(description_column.casefold())
    if label_column is not None:
        labels = titles.index(label_column.casefold())
    else:  # the column that matches most labels, the first of several
        named = {
            column: len({found[0] for _, row in rows if len(found := candidates(row[column])) == 1})
            for column in range(width)
            if column != texts
        }
        labels = max(named, key=lambda column: named[column], default=0)
    if texts is None and width == 2:
        texts = 1 - labels
    if texts is None or texts == labels:
        remedy = f"name a column {DESCRIPTION!r} or give --description-column"
        raise source.error("the description column is unknown", 1, remedy)
    filled = [(line, row[labels], " ".join(row[texts].split())) for line, row in rows if row[labels] or row[texts]]
    given: dict[int, tuple[str, int]] = {}
    unknown: list[tuple[str, int]] = []
    ambiguous: list[tuple[str, int]] = []
    for line, cell, text in filled:
        found = candidates(cell)
        if len(found) != 1:
            (ambiguous if found else unknown).append((cell, line))
        elif text and given.setdefault(found[0], (text, line))[0] != text:
            what = f"{cell!r} has two descriptions, the first (line {given[found[0]][1]})"
            raise source.error(what, line, "delete one of the two")
    if not given:
        remedy = "check that the file belongs to this tree, or give --label-column and --description-column"
        raise source.error("no row has both a label of the tree and a description", remedy=remedy)
    matched = len(filled) - len(unknown) - len(ambiguous)
    return Descriptions({label: text for label, (text, _) in given.items()}, len(filled), matched, unknown, ambiguous)


def _read_described(source: Source, *columns: str | None) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """Return the column titles of a table, if the first row is a header, and its rows.

    The delimiter is the first that gives all rows the same number of cells. A header has a title ``description`` or
    those in ``columns``.
    """
    _, first = next(source.lines(), (1, ""))
    error, rows = None, []
    for delimiter in "\t" if "\t" in first else ",;":
        try:
            rows = list(read_rows(source, delimiter)) if delimiter in first else []
        except InputError as found:
            error = error or found
        if rows and len(rows[0][1]) > 1:
            break
    else:
        remedy = "put a tab, a comma or a semicolon between label and description"
        raise error or source.error("no table of labels and descriptions", remedy=remedy)
    titles = [cell.casefold() for cell in rows[0][1]]
    wanted = [column.casefold() for column in columns if column is not None]
    for column in wanted:
        if column not in titles:
            raise source.error(f"there is no column {column!r}", 1, f"choose one of {', '.join(map(repr, titles))}")
    return (titles, rows[1:]) if wanted or DESCRIPTION in titles else ([], rows)


class _Node(NamedTuple):
    """A label of nested JSON; its children are not parsed yet. ``extra`` are arguments of :func:`_entry`."""

    name: str
    children: object
    id: str | None = None
    extra: Mapping[str, Any] = {}


def parse_json(source: Source) -> Any:
    """Return the parsed JSON; a repeated key is an error."""

    def unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
        members: dict[str, object] = {}
        for key, value in pairs:
            if key in members:
                raise source.error(f"the key {key!r} occurs twice in one object", None, "delete or rename one of them")
            members[key] = value
        return members

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, RECURSION))
    try:
        return json.loads(source.text, object_pairs_hook=unique_keys)
    except json.JSONDecodeError as error:
        raise source.error(f"broken JSON: {error.msg}", error.lineno, JSON_REMEDY) from None
    except ValueError as error:  # a number with thousands of digits
        raise source.error(f"broken JSON: {error}", None, JSON_REMEDY) from None
    except RecursionError:
        raise source.error("the JSON is nested too deep", None, "list the labels with their parents instead") from None
    finally:
        sys.setrecursionlimit(limit)


def read_json(source: Source, separator: str) -> Labels | Vocabulary:
    """Read a tree in one of three forms; indices follow the order in the text, a parent before its children.

    JSON-LD and IPTC's JSON are vocabularies.

    - nested objects, ``{"A": {"B": {}, "C": null, "D": ["E", "F"]}}``;
    - lists of nodes, ``[{"name": "A", "id": "a", "children": [{"name": "B"}]}]``, where ``id`` and
      ``children`` may be left out and a leaf may be a plain string;
    - the flat form that hgclr writes, ``{"labels": [{"id": "a", "name": "A", "parent": null}, ...]}``.

    In the last two a label may have a ``description``, a ``code`` and a list ``alt_labels`` of alternative names, and
    one with several parents has the ids of all in ``parents``, the main one first. In the first two, a label without an
    id gets its path as id, the names joined by ``separator``.
    """
    whole = parse_json(source)
    if isinstance(whole, dict) and isinstance(whole.get("conceptSet"), list):
        return read_iptc(source, whole)
    beginning = whole[0] if isinstance(whole, list) and whole else whole
    if isinstance(beginning, dict) and not {"@context", "@graph", "@id", "@type"}.isdisjoint(beginning):
        return _read_skos([source], whole)
    if isinstance(whole, dict) and list(whole) == ["labels"]:
        labels = whole["labels"]
        # A list of plain strings is the nested form: a top label called "labels" with its leaves.
        if isinstance(labels, list) and not (labels and all(isinstance(label, str) for label in labels)):
            return link_flat(labels, source)
    entries: list[LabelEntry] = []
    pending: list[tuple[_Node, str | None, str]] = [(node, None, "") for node in reversed(_nodes(source, whole, None))]
    while pending:
        node, parent, above = pending.pop()
        if not node.name.strip():
            what = f"empty label name {'at the top' if parent is None else f'under {parent!r}'}"
            raise source.error(what, None, "fill in the name or delete the entry")
        path = node.name if parent is None else above + separator + node.name
        identifier = path if node.id is None else node.id
        entries.append(_entry(source, f"label {path!r}", identifier, node.name, parent, **node.extra))
        pending += [(child, identifier, path) for child in reversed(_nodes(source, node.children, identifier))]
    return link(entries, source)


def link_flat(labels: Iterable[object], source: Source) -> Labels:
    """Link the labels of the flat form."""
    entries = []
    for number, label in enumerate(labels, 1):
        where = f"label {number}"
        members = _members(source, label, FLAT_KEYS, where)
        identifier = _text(source, members, "id", where)
        name = _text(source, members, "name", where) if "name" in members else identifier
        extra = _extra(source, members, where)
        parent = _optional_text(source, members, "parent", where)
        if "parent" not in members and extra["parents"]:
            parent = extra["parents"][0]
        entries.append(_entry(source, where, identifier, name, parent, **extra))
    return link(entries, source)


def _entry(
    source: Source,
    where: str,
    identifier: str,
    name: str,
    parent: str | None,
    parents: Sequence[str] = (),
    **extra: Any,
) -> LabelEntry:
    """Return the entry of a label; the first of ``parents``, if there are any, must be ``parent``."""
    if parents and parents[0] != parent:
        what = f"the first of the parents of {where} is {parents[0]!r}, but its parent is {parent!r}"
        raise source.error(what, None, "list its parent first: it is the main parent")
    return LabelEntry(identifier, name, parent, None, more_parents=tuple(parents[1:]), **extra)


def write_json(labels: Sequence[Mapping[str, object]]) -> str:
    """Return the text of the flat form, one label per line."""
    lines = ",\n".join(json.dumps(label, ensure_ascii=False) for label in labels)
    return f'{{"labels": [\n{lines}\n]}}\n'


def _nodes(source: Source, children: object, parent: str | None) -> list[_Node]:
    """Return the nodes in a value: the keys of an object, the members of a list, none for null."""
    if children is None:
        return []
    if isinstance(children, dict):
        return [_Node(name, value) for name, value in children.items()]
    if isinstance(children, list):
        place = "at the top" if parent is None else f"under {parent!r}"
        return [_node(source, member, f"label {number} {place}") for number, member in enumerate(children, 1)]
    raise source.error(
        f"expected {'labels' if parent is None else f'the children of {parent!r}'}, found {children!r}",
        None,
        "give an object, a list or null; write a single node as a list: [{...}]",
    )


def _node(source: Source, member: object, where: str) -> _Node:
    if isinstance(member, str):
        return _Node(member, None)
    members = _members(source, member, NODE_KEYS, where)
    identifier = _optional_text(source, members, "id", where)
    extra = _extra(source, members, where)
    return _Node(_text(source, members, "name", where), members.get("children"), identifier, extra)


def _extra(source: Source, members: Mapping[str, object], where: str) -> dict[str, Any]:
    """Return the arguments of :func:`_entry` from a label's :data:`EXTRA_KEYS`."""
    texts = {key: _optional_text(source, members, key, where) or "" for key in ("description", "code")}
    parents, alternatives = (_texts(source, members, key, where) for key in ("parents", "alt_labels"))
    return {**texts, "parents": parents, "alternatives": tuple(alternatives)}


def _members(source: Source, value: object, known: Sequence[str], where: str) -> Mapping[str, object]:
    """Return the members of an object; raise on unknown keys, as a misspelt key would drop part of the tree."""
    if not isinstance(value, Mapping):
        raise source.error(f"{where} is {value!r}, not an object", None, 'write it as {"name": ...}')
    for key in value:
        if key not in known:
            raise source.error(f"{where} has the unknown key {key!r}", None, f"use only {', '.join(known)}")
    return value


def _text(source: Source, members: Mapping[str, object], key: str, where: str) -> str:
    value = members.get(key)
    if not isinstance(value, str):
        found = "is missing" if key not in members else "is not a string"
        raise source.error(f"the {key} of {where} {found}", None, f'write it as "{key}": "..."')
    return value


def _texts(source: Source, members: Mapping[str, object], key: str, where: str) -> list[str]:
    value = members.get(key) or []
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise source.error(f"the {key} of {where} are not a list of strings", None, f'write them as "{key}": ["..."]')
    return value


def _optional_text(source: Source, members: Mapping[str, object], key: str, where: str) -> str | None:
    return None if members.get(key) is None else _text(source, members, key, where)
