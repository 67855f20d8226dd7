"""The literature's format: a line ``parent<TAB>child<TAB>child...`` per parent, with ``Root`` above all."""

from __future__ import annotations

import os.path
from collections.abc import Sequence

from hgclr.errors import InputError
from hgclr.taxonomy.drafting import Entry, Labels, empty_tree, link
from hgclr.taxonomy.source import Source

__all__ = ["ROOT", "read_literature", "write_literature"]

ROOT = "Root"
"""What stands for the virtual root; it is no label."""


def read_literature(source: Source) -> Labels:
    """Read ``parent<TAB>child...`` lines in any order; a label's index follows the order of the children.

    Cells are taken as they are, spaces included. The name of a label is its id, with one exception: where
    every label below the top has its parent's id and a slash at the beginning of its own (``Top/News/Health``
    under ``Top/News``), ids are paths. A name is then what follows the parent's id and slash (``Health``); of
    a top label, what follows the folder that all top labels share (``News``).

    Raises:
        InputError: with the line, for anything that makes no tree.
    """
    entries: list[Entry] = []
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
        entries += [Entry(child, child, None if parent == ROOT else parent, number) for child in children]
    if entries and not lines_of_root:
        raise source.error(
            f"no line begins with {ROOT!r}", remedy=f"add a line '{ROOT}<TAB>top label<TAB>top label...'"
        )
    if not entries:
        raise empty_tree(source)
    return link(_named_by_path(entries), source)


def _named_by_path(entries: list[Entry]) -> list[Entry]:
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

    Raises:
        InputError: if an id cannot be written in this format.
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
