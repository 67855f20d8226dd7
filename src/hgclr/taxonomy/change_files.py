"""Files that say what two trees cannot show: which old labels became which new ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from hgclr.errors import InputError
from hgclr.files import atomic_file
from hgclr.taxonomy.json_text import parse_json
from hgclr.taxonomy.source import Source
from hgclr.taxonomy.tree import Taxonomy

__all__ = ["read_changes", "write_changes"]

HEADER = "old\tnew"
REMEDY = f'begin with the line {HEADER.replace(chr(9), "<TAB>")}, or write JSON: {{"old id": ["new id"]}}'


def read_changes(path: str | Path, old: Taxonomy, new: Taxonomy) -> dict[str, list[str]]:
    """Read what became of labels, for :func:`~hgclr.taxonomy.changes.compare`.

    The file is UTF-8 text with the line ``old<TAB>new`` and then one old and one new label a line, or a JSON object of
    old labels, each with a new one or a list of them. Several lines with one old label split it, several with one new
    label merge into it. Labels are given by id, name or path.

    Args:
        path: the file.
        old: the tree as it was.
        new: the tree as it is.

    Returns:
        The ids of the new labels by the id of the old one.

    Raises:
        InputError: with file, line and remedy, if it cannot be read or names a label that is in no tree.
    """
    source = Source.load(path)
    changes: dict[str, list[str]] = {}
    pairs = _json_pairs(source) if source.text.lstrip().startswith("{") else _table_pairs(source)
    for before, after, line in pairs:
        became = changes.setdefault(_id(old, before, "old", source, line), [])
        target = _id(new, after, "new", source, line)
        if target in became:
            raise source.error(f"{before!r} with {after!r} is given twice", line, "delete one of the two")
        became.append(target)
    if not changes:
        raise source.error("there are no changes in it", remedy="add some, or leave the file out")
    return changes


def write_changes(path: str | Path, changes: Mapping[str, Sequence[str]]) -> None:
    """Write a table that :func:`read_changes` reads, whole or not at all.

    Raises:
        InputError: if an id holds a tab or a line end, which a table cannot hold, or the file cannot be written.
    """
    rows = [(old, target) for old, became in changes.items() for target in became]
    for label in (label for row in rows for label in row):
        if any(character in label for character in "\t\r\n"):
            raise InputError(f"the id {label!r} holds a tab or a line end", path=path, remedy="write JSON by hand")
    try:
        with atomic_file(path) as temporary:
            text = "".join(f"{line}\n" for line in (HEADER, *("\t".join(row) for row in rows)))
            temporary.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", path=path) from error


def _table_pairs(source: Source) -> Iterator[tuple[str, str, int]]:
    lines = source.lines()
    number, first = next(lines, (1, ""))
    if [cell.strip() for cell in first.split("\t")] != HEADER.split("\t"):
        raise source.error(f"the first line is {first[:60]!r}", number, REMEDY)
    for number, line in lines:
        cells = [cell.strip() for cell in line.split("\t")]
        if len(cells) != 2 or not all(cells):
            raise source.error(f"expected an old and a new label, got {line[:60]!r}", number, "put one tab between two")
        yield cells[0], cells[1], number


def _json_pairs(source: Source) -> Iterator[tuple[str, str, int]]:
    whole = parse_json(source).content
    if not isinstance(whole, dict):  # it begins with a brace
        raise source.error("expected an object", 1, REMEDY)
    for old, value in whole.items():
        listed = value.content if isinstance(value.content, list) else [value]
        if not listed:
            raise source.error(
                f"{old!r} became nothing", value.line, "leave a label out that is in the old tree only: it was removed"
            )
        for one in listed:
            if not isinstance(one.content, str):
                raise source.error(f"{old!r} became something that is no label", one.line, REMEDY)
            yield old, one.content, one.line


def _id(tree: Taxonomy, label: str, which: str, source: Source, line: int) -> str:
    try:
        return tree.ids[tree.resolve(label)]
    except InputError as error:
        raise source.error(f"{error.what} in the {which} tree", line, error.remedy) from None
