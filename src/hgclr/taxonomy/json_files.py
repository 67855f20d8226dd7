"""Label trees in JSON: nested objects, nested lists of nodes, and the flat list of labels that we write."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from hgclr.taxonomy.entries import LabelEntry, Labels, Source, link

__all__ = ["link_flat", "parse_json", "read_json", "write_json"]

REMEDY = "correct the JSON there, or name another format with --format"
NODE_KEYS = ("name", "id", "description", "children")
FLAT_KEYS = ("id", "name", "parent", "description")
RECURSION = 5_000
"""How deep Python may call itself while it reads JSON: a tree of a thousand levels takes two thousand brackets."""


class _Node(NamedTuple):
    """A label whose children are still to be read."""

    name: str
    children: object
    id: str | None = None
    description: str = ""


def parse_json(source: Source) -> Any:
    """Return the one value that the text holds."""

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
        raise source.error(f"broken JSON: {error.msg}", error.lineno, REMEDY) from None
    except ValueError as error:  # a number of thousands of digits
        raise source.error(f"broken JSON: {error}", None, REMEDY) from None
    except RecursionError:
        raise source.error("the JSON is nested too deep", None, "list the labels with their parents instead") from None
    finally:
        sys.setrecursionlimit(limit)


def read_json(source: Source, separator: str) -> Labels:
    """Read a tree in one of three forms; indices follow the order in the text, a parent before its children.

    - nested objects, ``{"A": {"B": {}, "C": null, "D": ["E", "F"]}}``;
    - lists of nodes, ``[{"name": "A", "id": "a", "children": [{"name": "B"}]}]``, where ``id`` and
      ``children`` may be left out and a leaf may be a plain string;
    - the flat form that we write, ``{"labels": [{"id": "a", "name": "A", "parent": null}, ...]}``.

    In the last two a label may have a ``description``. In the nested forms a label's id is its path, the names joined
    by ``separator``, unless it is given.
    """
    whole = parse_json(source)
    if isinstance(whole, dict) and list(whole) == ["labels"]:
        labels = whole["labels"]
        # A list of plain strings here is a top label called "labels" with its leaves.
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
        entries.append(LabelEntry(identifier, node.name, parent, None, node.description))
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
        parent, description = (_optional_text(source, members, key, where) for key in ("parent", "description"))
        entries.append(LabelEntry(identifier, name, parent, None, description or ""))
    return link(entries, source)


def write_json(labels: Sequence[Mapping[str, object]]) -> str:
    """Return the text of the flat form, one label per line."""
    lines = ",\n".join(json.dumps(label, ensure_ascii=False) for label in labels)
    return f'{{"labels": [\n{lines}\n]}}\n'


def _nodes(source: Source, children: object, parent: str | None) -> list[_Node]:
    """Return the nodes that a value describes: of an object its keys, of a list its members, of null none."""
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
        "give an object, a list or null; a tree that is a single node goes into a list: [{...}]",
    )


def _node(source: Source, member: object, where: str) -> _Node:
    if isinstance(member, str):
        return _Node(member, None)
    members = _members(source, member, NODE_KEYS, where)
    identifier, description = (_optional_text(source, members, key, where) for key in ("id", "description"))
    return _Node(_text(source, members, "name", where), members.get("children"), identifier, description or "")


def _members(source: Source, value: object, known: Sequence[str], where: str) -> Mapping[str, object]:
    """Return the members of an object; refuse unknown keys, for a misspelt one would drop part of the tree."""
    if not isinstance(value, Mapping):
        raise source.error(f"{where} is {value!r}", None, 'write it as an object, {"name": ...}')
    for key in value:
        if key not in known:
            raise source.error(f"{where} has the unknown key {key!r}", None, f"the keys are {', '.join(known)}")
    return value


def _text(source: Source, members: Mapping[str, object], key: str, where: str) -> str:
    value = members.get(key)
    if not isinstance(value, str):
        found = "is missing" if key not in members else "is not a string"
        raise source.error(f"the {key} of {where} {found}", None, f'write it as "{key}": "..."')
    return value


def _optional_text(source: Source, members: Mapping[str, object], key: str, where: str) -> str | None:
    return None if members.get(key) is None else _text(source, members, key, where)
