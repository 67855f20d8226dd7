"""Label trees in JSON: nested objects, nested lists of nodes, and the flat list of labels that we write."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from hgclr.taxonomy.drafting import Draft, Entry, Labels, link
from hgclr.taxonomy.json_text import Value, parse_json
from hgclr.taxonomy.source import Source

__all__ = ["link_flat", "read_json", "write_json"]

NODE_KEYS = ("name", "id", "description", "children")
FLAT_KEYS = ("id", "name", "parent", "description")


class _Node(NamedTuple):
    """A label whose children are still to be read."""

    name: str
    id: str | None
    children: Value | None
    line: int
    description: str = ""


def read_json(source: Source, separator: str) -> Labels:
    """Read a tree in one of three forms; indices follow the order in the text, a parent before its children.

    - nested objects, ``{"A": {"B": {}, "C": null, "D": ["E", "F"]}}``;
    - lists of nodes, ``[{"name": "A", "id": "a", "children": [{"name": "B"}]}]``, where ``id`` and
      ``children`` may be left out and a leaf may be a plain string;
    - the flat form that we write, ``{"labels": [{"id": "a", "name": "A", "parent": null}, ...]}``.

    In the last two a label may have a ``description``. In the nested forms a label's id is its path, the names joined
    by ``separator``, unless it is given.

    Raises:
        InputError: with the line, for broken JSON or anything that makes no tree.
    """
    whole = parse_json(source)
    labels = _flat_labels(whole)
    if labels is not None:
        return link_flat(((_members(source, label), label.line) for label in labels), source)
    draft = Draft(source, separator)
    pending = [(node, -1) for node in reversed(_nodes(source, whole))]
    while pending:
        node, parent = pending.pop()
        index = draft.add(node.name, parent, node.line, node.id, node.description)
        if node.children is not None:
            pending += [(child, index) for child in reversed(_nodes(source, node.children))]
    return draft.labels()


def link_flat(labels: Iterable[tuple[Mapping[str, object], int | None]], source: Source) -> Labels:
    """Link the labels of the flat form, each given as its members and its line."""
    entries = []
    for members, line in labels:
        _refuse_other_keys(source, members, FLAT_KEYS, line)
        identifier = _text(source, members, "id", line)
        name = _text(source, members, "name", line) if "name" in members else identifier
        parent = _optional_text(source, members, "parent", line)
        description = _optional_text(source, members, "description", line) or ""
        entries.append(Entry(identifier, name, parent, line, description))
    return link(entries, source)


def write_json(labels: Sequence[Mapping[str, object]]) -> str:
    """Return the text of the flat form, one label per line."""
    lines = ",\n".join(json.dumps(label, ensure_ascii=False) for label in labels)
    return f'{{"labels": [\n{lines}\n]}}\n'


def _flat_labels(whole: Value) -> list[Value] | None:
    """Return the labels of the flat form, or None if this is a nested form.

    A list of plain strings under ``"labels"`` is a top label of that name with its leaves.
    """
    if not isinstance(whole.content, dict) or list(whole.content) != ["labels"]:
        return None
    labels = whole.content["labels"].content
    if not isinstance(labels, list) or (labels and all(isinstance(label.content, str) for label in labels)):
        return None
    return labels


def _nodes(source: Source, children: Value) -> list[_Node]:
    """Return the nodes that a value describes: of an object its keys, of a list its members, of null none."""
    if children.content is None:
        return []
    if isinstance(children.content, dict):
        return [_Node(name, None, value, value.line) for name, value in children.content.items()]
    if isinstance(children.content, list):
        return [_node(source, member) for member in children.content]
    raise source.error(
        f"expected the children of a label, found {children.content!r}",
        children.line,
        "give an object, a list or null; a tree that is a single node goes into a list: [{...}]",
    )


def _node(source: Source, member: Value) -> _Node:
    """Return the node that a list's member describes."""
    if isinstance(member.content, str):
        return _Node(member.content, None, None, member.line)
    members = _members(source, member)
    _refuse_other_keys(source, members, NODE_KEYS, member.line)
    identifier = _optional_text(source, members, "id", member.line)
    description = _optional_text(source, members, "description", member.line) or ""
    children = member.content.get("children") if isinstance(member.content, dict) else None
    return _Node(_text(source, members, "name", member.line), identifier, children, member.line, description)


def _members(source: Source, value: Value) -> Mapping[str, object]:
    """Return the plain members of an object."""
    if not isinstance(value.content, dict):
        raise source.error("expected a label", value.line, 'write it as an object, {"name": ...}')
    return {key: member.content for key, member in value.content.items()}


def _refuse_other_keys(source: Source, members: Mapping[str, object], known: Sequence[str], line: int | None) -> None:
    """Refuse a key we do not know: a misspelt one would drop part of the tree without a word."""
    for key in members:
        if key not in known:
            raise source.error(f"a label has the unknown key {key!r}", line, f"the keys are {', '.join(known)}")


def _text(source: Source, members: Mapping[str, object], key: str, line: int | None) -> str:
    """Return a member that must be a string."""
    value = members.get(key)
    if not isinstance(value, str):
        found = "is missing" if key not in members else "is not a string"
        raise source.error(f"the {key} of a label {found}", line, f'write it as "{key}": "..."')
    return value


def _optional_text(source: Source, members: Mapping[str, object], key: str, line: int | None) -> str | None:
    """Return a member that must be a string where it is there and not null."""
    return None if members.get(key) is None else _text(source, members, key, line)
