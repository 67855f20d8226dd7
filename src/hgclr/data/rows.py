"""Rows as they come out of a file: good ones, bad ones with the reason, and the record of the bad."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO

from hgclr.errors import InputError
from hgclr.files import atomic_file

__all__ = ["BadRow", "BadRowLog", "Row", "read_bad_rows"]

logger = logging.getLogger(__name__)

SHOWN = 3
"""How many bad rows the warning spells out; the side file has all of them."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row that holds every column asked for.

    Args:
        number: the line it starts on in a text file (a table's header is line 1), its place from 1 otherwise.
        values: its cells by column.
    """

    number: int
    values: dict[str, object]


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that cannot be used.

    Args:
        path: the file it is in.
        number: as in `Row`.
        reason: what is wrong with it.
        content: the row as far as it can be read.
        remedy: what the user can do about it, apart from skipping it.
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
            "file": str(self.path),
            "row": self.number,
            "reason": self.reason,
            "content": self.content,
            "remedy": self.remedy,
        }
        # ASCII output can hold everything, lone surrogates included; ``str`` covers dates, bytes and the
        # like.
        return json.dumps(record, default=str)


class BadRowLog(AbstractContextManager["BadRowLog"]):
    """Record bad rows, one JSON line each, in a side file; count them, and keep the first for a warning.

    The side file appears when the block ends, whole, also when no row was bad (so that no older file is
    mistaken for this run's); a block that fails leaves it as it was.

    Args:
        target: the side file, or none to count only.
    """

    def __init__(self, target: Path | None) -> None:
        self.target = target
        self.count = 0
        self._first: list[BadRow] = []
        self._stream: IO[str] | None = None
        self._stack = ExitStack()

    def __enter__(self) -> BadRowLog:
        if self.target is not None:
            temporary = self._stack.enter_context(atomic_file(self.target))
            self._stream = self._stack.enter_context(temporary.open("w", encoding="utf-8"))
        return self

    def add(self, row: BadRow) -> None:
        """Record one row."""
        self.count += 1
        if len(self._first) < SHOWN:
            self._first.append(row)
        if self._stream is not None:
            self._stream.write(row.to_json() + "\n")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def warn(self) -> None:
        """Log how many rows were skipped and what was wrong with the first."""
        if self.count:
            shown = "; ".join(f"{row.path}:{row.number}: {row.reason}" for row in self._first)
            more = f" and {self.count - SHOWN} more" if self.count > SHOWN else ""
            kept = f"; all of them are in {self.target}" if self.target is not None else ""
            logger.warning("skipped %d bad row%s: %s%s%s", self.count, "s"[: self.count > 1], shown, more, kept)


def read_bad_rows(source: Path, path: Path) -> Iterator[BadRow]:
    """Yield the rows of a side file.

    Args:
        source: the side file.
        path: the data file the rows are in now; it may have moved since.
    """
    with source.open(encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            yield BadRow(path, record["row"], record["reason"], record["content"], record["remedy"])
