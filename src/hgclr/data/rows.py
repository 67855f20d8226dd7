"""Rows of files: good ones, bad ones with the reason, and how texts and labels are read from their cells."""

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

logger = logging.getLogger(__name__)
SHOWN = 3
"""Bad rows that the warning shows; the side file has all of them."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row with its cells by column.

    Its number is the line on which it starts in a text file (a table's header is line 1), its place from 1 otherwise.
    """

    number: int
    values: dict[str, object]


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that cannot be used: the reason, the row as far as it can be read, and a remedy other than skipping it."""

    path: Path
    number: int
    reason: str
    content: object
    remedy: str | None = None

    def error(self) -> InputError:
        """Return the error that stops a reader which must not skip rows."""
        remedy = f"{self.remedy or 'correct the row'}; or skip such rows with --skip-bad-rows (skip_bad_rows=True)"
        return InputError(self.reason, path=self.path, line=self.number, remedy=remedy)

    def to_json(self) -> str:
        """Return the row as one line of the side file."""
        record = {"file": as_written(self.path), "row": self.number, "reason": self.reason}
        record |= {"content": self.content, "remedy": self.remedy}
        # ASCII output can hold everything, lone surrogates included; ``str`` covers dates, bytes and the like.
        return json.dumps(record, default=str)


class BadRowLog(AbstractContextManager["BadRowLog"]):
    """Count bad rows, and record them as JSON lines in a side file if there is a target.

    The side file appears, whole, when the block succeeds. Without a bad row, an older side file is deleted.
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


def require_columns(
    found: Sequence[str], wanted: Sequence[str], *, path: Path, line: int | None = None, all_columns: bool = False
) -> None:
    """Refuse a table that lacks a wanted column or has two of that name; ``line`` is that of the header, if any.

    With ``all_columns``, all names but the empty one must be different.
    """
    for column in [*wanted, *filter(None, found if all_columns else ())]:
        times = found.count(column)
        if times == 1:
            continue
        what = f"column {column!r} is {times} times in the header" if times else f"missing column {column!r}"
        raise InputError(
            f"{what} (the table has: {', '.join(map(repr, found)) or 'none'})",
            path=path,
            line=line,
            remedy="rename one of them" if times else "name the right column with --text-column or --label-column",
        )


class RowProblem(Exception):  # noqa: N818 - never leaves this package: it becomes a BadRow or an InputError
    """The fault of one row, naming the offending value, and a remedy."""

    def __init__(self, reason: str, remedy: str | None = None) -> None:
        super().__init__(reason)
        self.reason, self.remedy = reason, remedy


def is_blank(text: str) -> bool:
    """Tell whether a text has no visible character; zero-width and control characters count as spaces."""
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


def is_unicode(text: str) -> bool:
    """Tell whether UTF-8 can hold a text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def read_text(cell: object) -> str:
    """Return the text in a cell, or raise a `RowProblem`."""
    if cell is None or (isinstance(cell, str) and is_blank(cell)):
        raise RowProblem("empty text")
    try:
        check_text(cell)
    except InputError as error:
        raise RowProblem(error.what) from None
    return str(cell)


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
        label_separator: separates labels where they are one string, as in CSV.
        path_separator: separates the names of a label given as a path.
        add_ancestors: add the ancestors of every label; without it, a label without its parent is an error.
    """

    text_column: str = "text"
    label_column: str = "labels"
    label_separator: str = ";"
    path_separator: str = " > "
    add_ancestors: bool = False


class Reading(TypedDict, total=False):
    """Choices for `RowForm`; None is the default."""

    text_column: str | None
    label_column: str | None
    label_separator: str | None
    path_separator: str | None
    add_ancestors: bool | None


class LabelReader:
    """Read label cells: lists of labels, or one string with labels between separators.

    Each label is an id, an unambiguous name, or a path of names; a path means its last label and all above it.
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
        is_path = self._parents[index] != -1 and label == self._taxonomy.path_name(index, self._form.path_separator)
        return tuple(self._taxonomy.closure([index]).tolist()) if self._form.add_ancestors or is_path else (index,)
