"""Label trees in JSON: nested objects, nested lists of nodes, and the flat list of labels that we write."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from json import JSONDecodeError
from json.decoder import scanstring  # type: ignore[attr-defined]  # public, but typeshed omits it
from typing import NamedTuple, TypeAlias

from hgclr.errors import InputError
from hgclr.taxonomy.drafts import Draft, Entry, Labels, Source, link

__all__ = ["link_flat", "parse_json", "read_json", "write_json"]

Content: TypeAlias = "str | float | bool | list[Value] | dict[str, Value] | None"
SPACES = frozenset(" \t\n\r")
SPACE = re.compile(r"[ \t\n\r]*")
NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
WORDS: dict[str, bool | None] = {"true": True, "false": False, "null": None}
REMEDY = "correct the JSON there, or name another format with --format"


class Value(NamedTuple):
    """A JSON value and its line; the value of an object's key has the line of the key."""

    content: Content
    line: int


def parse_json(source: Source) -> Value:
    """Return the one value that the text holds.

    Raises:
        InputError: with the line, if the text is not JSON or an object has the same key twice.
    """
    return _Parser(source).parse()


class _Parser:
    """A cursor over the text."""

    def __init__(self, source: Source) -> None:
        self._source, self._text = source, source.text
        self._position = 0
        self._line, self._counted = 1, 0

    def parse(self) -> Value:
        """Read a value and see that nothing follows it."""
        self._skip_space()
        whole = value = self._value(self._line_here())
        open_values: list[list[Value] | dict[str, Value]] = []
        while True:
            if isinstance(value.content, list | dict):
                open_values.append(value.content)
            while open_values and not self._goes_on(open_values[-1]):
                open_values.pop()
            if not open_values:
                break
            inside = open_values[-1]
            if isinstance(inside, dict):
                key, line = self._key(inside)
                value = inside[key] = self._value(line)
            else:
                value = self._value(self._line_here())
                inside.append(value)
        self._skip_space()
        if self._position < len(self._text):
            raise self._error("there is more text after the end of the JSON value")
        return whole

    def _goes_on(self, inside: list[Value] | dict[str, Value]) -> bool:
        """Move to the next member of an open value, or behind its closing bracket."""
        self._skip_space()
        closing = "}" if isinstance(inside, dict) else "]"
        if self._text.startswith(closing, self._position):
            self._position += 1
            return False
        if inside:
            self._expect(",", f"',' or {closing!r}")
        return True

    def _key(self, members: dict[str, Value]) -> tuple[str, int]:
        """Read a key and its colon; return the key and its line."""
        line = self._line_here()
        if not self._text.startswith('"', self._position):
            raise self._error("expected a key in double quotes")
        key = self._string()
        if key in members:
            raise self._source.error(
                f"the key {key!r} occurs twice in one object, first (line {members[key].line})",
                line,
                "delete or rename one of the two",
            )
        self._skip_space()
        self._expect(":", "':'")
        return key, line

    def _value(self, line: int) -> Value:
        """Read a string, number or word, or the opening bracket of a list or object."""
        first = self._text[self._position : self._position + 1]
        if first == '"':
            return Value(self._string(), line)
        if first and first in "{[":
            self._position += 1
            return Value({} if first == "{" else [], line)
        if number := NUMBER.match(self._text, self._position):
            self._position = number.end()
            return Value(float(number[0]), line)
        for word, content in WORDS.items():
            if self._text.startswith(word, self._position):
                self._position += len(word)
                return Value(content, line)
        raise self._error("expected a value")

    def _string(self) -> str:
        """Read the string whose opening quote is here."""
        try:
            text, self._position = scanstring(self._text, self._position + 1, True)
        except JSONDecodeError as error:
            raise self._source.error(f"broken JSON: {error.msg}", error.lineno, REMEDY) from None
        if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
            raise self._error(f"half a surrogate pair in {text!a}")
        return str(text)

    def _expect(self, sign: str, described: str) -> None:
        """Move behind ``sign`` and the space after it."""
        if not self._text.startswith(sign, self._position):
            raise self._error(f"expected {described}")
        self._position += 1
        self._skip_space()

    def _skip_space(self) -> None:
        if self._text[self._position : self._position + 1] in SPACES and (
            space := SPACE.match(self._text, self._position)
        ):
            self._position = space.end()

    def _line_here(self) -> int:
        """Return the line of the cursor, counting on from where it was last asked."""
        self._line += self._text.count("\n", self._counted, self._position)
        self._counted = self._position
        return self._line

    def _error(self, what: str) -> InputError:
        found = self._text[self._position : self._position + 1]
        return self._source.error(
            f"broken JSON: {what}, found {found!r}" if found else f"broken JSON: {what}, but the text ends",
            self._line_here(),
            REMEDY,
        )


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
