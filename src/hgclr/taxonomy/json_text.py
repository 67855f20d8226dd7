"""Read JSON of any depth, with the line of every value and without losing duplicate keys.

The standard library's reader recurses, so a deep tree overflows its stack, and it forgets where values stood.
"""

from __future__ import annotations

import re
from json import JSONDecodeError
from json.decoder import scanstring  # type: ignore[attr-defined]  # public, but typeshed omits it
from typing import NamedTuple, TypeAlias

from hgclr.errors import InputError
from hgclr.taxonomy.source import Source

__all__ = ["Content", "Value", "parse_json"]

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
