"""Rows as they come out of a file: good ones, bad ones with the reason and their record, and how cells are read."""

from __future__ import annotations

import hashlib
import json
import logging
import unicodedata
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, TypedDict

from hgclr.errors import InputError
from hgclr.files import atomic_file
from hgclr.taxonomy import Taxonomy
from hgclr.urls import as_written

__all__ = [
    "BadRow",
    "BadRowLog",
    "LabelReader",
    "Reading",
    "Row",
    "RowForm",
    "RowProblem",
    "check_text",
    "check_unicode",
    "is_blank",
    "is_unicode",
    "read_text",
    "require_columns",
    "stable_hash",
    "text_hash",
]

logger = logging.getLogger(__name__)
SHOWN = 3
"""How many bad rows the warning spells out; the side file has all of them."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row with its cells by column, of which it has all that were asked for.

    Its number is the line it starts on in a text file (a table's header is line 1), its place from 1 otherwise.
    """

    number: int
    values: dict[str, object]


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that cannot be used: what is wrong with it, and the row as far as it can be read.

    The remedy is what the user can do about it, apart from skipping it.
    """

    path: Path
    number: int
    reason: str
    content: object
    remedy: str | None = None

    def error(self) -> InputError:
        """Return the error that stops a reader which must not skip rows."""
        skip = "--skip-bad-rows (skip_bad_rows=True) drops such rows and records them"
        remedy = f"{self.remedy}; {skip}" if self.remedy else f"mend the row; {skip}"
        return InputError(self.reason, path=self.path, line=self.number, remedy=remedy)

    def to_json(self) -> str:
        """Return the row as one line of the side file."""
        record = {
            "file": as_written(self.path),
            "row": self.number,
            "reason": self.reason,
            "content": self.content,
            "remedy": self.remedy,
        }
        # ASCII output can hold everything, lone surrogates included; ``str`` covers dates, bytes and the like.
        return json.dumps(record, default=str)


class BadRowLog(AbstractContextManager["BadRowLog"]):
    """Record bad rows, one JSON line each, in a side file if there is a target; count them, and warn of the first.

    The side file appears when the block ends, whole. If no row was bad there is none, and one of an older run is
    removed; a block that fails leaves it as it was.
    """

    def __init__(self, target: Path | None) -> None:
        self.target = target
        self.count = 0
        self._first: list[BadRow] = []
        self._stream: IO[str] | None = None
        self._stack = ExitStack()

    def add(self, row: BadRow) -> None:
        self.count += 1
        if len(self._first) < SHOWN:
            self._first.append(row)
        if self.target is not None:
            if self._stream is None:
                temporary = self._stack.enter_context(atomic_file(self.target))
                self._stream = self._stack.enter_context(temporary.open("w", encoding="utf-8"))
            self._stream.write(row.to_json() + "\n")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)
        if self.target is not None and not self.count and kind is None:
            self.target.unlink(missing_ok=True)

    def warn(self) -> None:
        """Log how many rows were skipped and what was wrong with the first."""
        if self.count:
            shown = "; ".join(f"{as_written(row.path)}:{row.number}: {row.reason}" for row in self._first)
            more = f" and {self.count - SHOWN} more" if self.count > SHOWN else ""
            kept = f"; all of them are in {self.target}" if self.target is not None else ""
            logger.warning("skipped %d bad row%s: %s%s%s", self.count, "s"[: self.count > 1], shown, more, kept)


def require_columns(found: Sequence[str], wanted: Sequence[str], *, path: Path, line: int | None = None) -> None:
    """Refuse a table in which a wanted column is absent or stands twice; ``line`` is that of the header, if any."""
    for column in wanted:
        times = found.count(column)
        if times == 1:
            continue
        what = f"column {column!r} stands {times} times in the header" if times else f"missing column {column!r}"
        raise InputError(
            f"{what} (the table has: {', '.join(map(repr, found)) or 'none'})",
            path=path,
            line=line,
            remedy="rename one of them" if times else "name the right column with --text-column or --label-column",
        )


class RowProblem(Exception):  # noqa: N818 - never leaves this package: it becomes a BadRow or an InputError
    """What is wrong with one row, naming the offending value, and what the user can do about it."""

    def __init__(self, reason: str, remedy: str | None = None) -> None:
        super().__init__(reason)
        self.reason, self.remedy = reason, remedy


def is_blank(text: str) -> bool:
    """Tell whether nothing of a text can be seen: it is no document, and is given no label, wherever it comes from.

    Zero-width and control characters, which a tokenizer drops, are no more of a text than spaces.
    """
    return not any(character.isprintable() and not character.isspace() for character in text)


def check_text(text: object) -> None:
    """Refuse a text that cannot be tokenised and stored everywhere.

    Raises:
        InputError: if it is not a string, or has a lone surrogate, which UTF-8 cannot hold, or a NUL character.
    """
    if not isinstance(text, str):
        raise InputError(f"expected a text, got {type(text).__name__} {text!r:.80}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"not UTF-8: the text has a lone surrogate at character {error.start + 1}") from None
    if (place := text.find("\0")) >= 0:
        raise InputError(f"the text has a NUL at character {place + 1}")


def check_unicode(text: str, what: str) -> str:
    """Return a text, or raise a `RowProblem` over half of a surrogate pair: JSON can spell it, UTF-8 cannot hold it."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise RowProblem(f"not UTF-8: {what} has a lone surrogate at character {error.start + 1}") from None
    return text


def is_unicode(text: str) -> bool:
    """Tell whether UTF-8 can hold a text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def read_text(cell: object) -> str:
    """Return the text in a cell, or raise a `RowProblem`."""
    if cell is not None and not isinstance(cell, str):
        raise RowProblem(f"wrong type: the text is {cell!r}, not a string")
    if cell is None or is_blank(cell):
        raise RowProblem("empty text")
    return check_unicode(cell, "the text")


def text_hash(text: str) -> int:
    """Return an 8-byte hash of a text that ignores case, white space and character composition."""
    normal = " ".join(unicodedata.normalize("NFC", text.casefold()).split())
    return int.from_bytes(hashlib.blake2b(normal.encode(), digest_size=8).digest(), "little")


def stable_hash(*parts: object) -> int:
    """Return a 64-bit hash of the parts that is the same in every run."""
    digest = hashlib.blake2b("\n".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")


@dataclass(frozen=True)
class RowForm:
    """How the rows of a data folder are read; a folder that was imported or split remembers it in ``corpus.json``.

    Args:
        text_column: the column with the text.
        label_column: the column with the labels: a list of strings, or one string.
        label_separator: what stands between labels where they are one string, as in CSV.
        path_separator: what stands between the names of a label given as a path.
        add_ancestors: add the ancestors of every label; without it, a label whose parent is not given is an
            error.
    """

    text_column: str = "text"
    label_column: str = "labels"
    label_separator: str = ";"
    path_separator: str = " > "
    add_ancestors: bool = False


class Reading(TypedDict, total=False):
    """What may be told about how rows are read, see `RowForm`; None is the same as nothing."""

    text_column: str | None
    label_column: str | None
    label_separator: str | None
    path_separator: str | None
    add_ancestors: bool | None


class LabelReader:
    """Read label cells: lists of labels, or one string with labels between separators.

    Each label is a node id, an unambiguous name, or a path of names; a path of two or more names stands for
    its node and all the node's ancestors.
    """

    def __init__(self, taxonomy: Taxonomy, form: RowForm) -> None:
        self._taxonomy, self._form = taxonomy, form
        self._parents: list[int] = taxonomy.parents.tolist()
        self._known: dict[str, tuple[int, ...]] = {}

    def read_row(self, values: Mapping[str, object]) -> tuple[str, tuple[int, ...]]:
        """Return the text and the labels of a row, or raise a `RowProblem`."""
        return read_text(values[self._form.text_column]), self.read(values[self._form.label_column])

    def read(self, cell: object) -> tuple[int, ...]:
        """Return the sorted indices of the labels in a cell."""
        found: set[int] = set()
        for label in self._labels(cell):
            indices = self._known.get(label)
            if indices is None:
                indices = self._known[label] = self._resolve(label)
            found.update(indices)
        labels = tuple(sorted(found))
        for index in labels:
            parent = self._parents[index]
            if parent != -1 and parent not in found:
                names = self._taxonomy.names
                raise RowProblem(
                    f"label without its parent: {names[index]!r} is given, {names[parent]!r} is not",
                    "add the parent to the row, or pass --add-ancestors if rows name only the deepest labels",
                )
        return labels

    def _labels(self, cell: object) -> list[str]:
        if isinstance(cell, str):
            cell = [part for part in map(str.strip, cell.split(self._form.label_separator)) if part]
        if cell is None or cell == []:
            raise RowProblem("no labels", "give the row at least one label")
        if not isinstance(cell, list):
            raise RowProblem(f"wrong type: the labels are {cell!r}, neither a list nor a string")
        for label in cell:
            if not isinstance(label, str):
                raise RowProblem(f"wrong type: the label {label!r} is not a string", "write ids and names as strings")
        return cell

    def _resolve(self, label: str) -> tuple[int, ...]:
        try:
            index = self._taxonomy.resolve(label, self._form.path_separator)
        except InputError as error:
            raise RowProblem(error.what, error.remedy) from None
        if self._form.add_ancestors or self._is_path(label, index):
            return tuple(self._taxonomy.closure([index]).tolist())
        return (index,)

    def _is_path(self, label: str, index: int) -> bool:
        """Tell whether ``label`` spells out the path to a node, of at least two names."""
        return self._parents[index] != -1 and label == self._taxonomy.path_name(index, self._form.path_separator)
