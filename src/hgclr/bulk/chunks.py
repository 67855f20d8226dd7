"""Rows of a file, some at a time, with everything that their results are to keep."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hgclr.bulk.formats import format_of
from hgclr.data.columns import require_columns
from hgclr.data.readers import read_rows
from hgclr.data.rows import BadRow, Row
from hgclr.errors import InputError, require_extra
from hgclr.inference.classifier import check_text

if TYPE_CHECKING:
    import pyarrow

__all__ = ["ROWS", "Chunk", "read_chunks"]

ROWS = 1024
"""Rows in a chunk: enough for batches of similar length, few enough to be dealt out evenly."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive rows of a file.

    Args:
        numbers: the line each row starts on in a text file, its place from 1 in a Parquet file.
        texts: what to label; None in a row that has no usable text.
        problems: why a row has none.
        rows: cells by column, empty in a row that cannot be read at all; none of a Parquet file.
        table: the rows of a Parquet file as they are there.
    """

    numbers: list[int]
    texts: list[str | None]
    problems: list[BadRow | None]
    rows: list[dict[str, object]]
    table: pyarrow.RecordBatch | None = None

    def values(self) -> list[dict[str, Any]]:
        """Return the cells of each row by column.

        Raises:
            InputError: if a cell of a Parquet file claims to be a text and is not.
        """
        if self.table is None:
            return self.rows
        try:
            rows: list[dict[str, Any]] = self.table.to_pylist()
        except UnicodeDecodeError as error:
            raise InputError(
                f"not UTF-8 somewhere in rows {self.numbers[0]} to {self.numbers[-1]}: {error.reason}",
                remedy="write the result as Parquet, which keeps such cells as they are",
            ) from None
        return rows

    def errors(self) -> list[str | None]:
        """Return what results say of each row that could not be labelled."""
        return [None if problem is None else f"row {problem.number}: {problem.reason}" for problem in self.problems]


def read_chunks(path: Path, text_column: str) -> Iterator[Chunk]:
    """Yield all rows of a file in order, in flat memory; a row that cannot be labelled says why.

    Raises:
        InputError: if the file itself cannot be used: missing, damaged, or without the text column.
        MissingExtraError: if it is a Parquet file and pyarrow is not installed.
    """
    if format_of(path).name == "parquet":
        yield from _parquet_chunks(path, text_column)
        return
    rows = iter(read_rows(path, (text_column,)))
    while some := list(islice(rows, ROWS)):
        yield _chunk(some, path, text_column)


def _chunk(rows: list[Row | BadRow], path: Path, text_column: str) -> Chunk:
    chunk = Chunk([], [], [], [])
    for row in rows:
        if isinstance(row, Row):
            text, problem = _checked(row.values[text_column], path, row.number, text_column)
            values = row.values
        else:
            text, problem = None, row
            values = row.content if isinstance(row.content, dict) else {}
        chunk.numbers.append(row.number)
        chunk.texts.append(text)
        chunk.problems.append(problem)
        chunk.rows.append(values)
    return chunk


def _checked(cell: object, path: Path, number: int, text_column: str) -> tuple[str | None, BadRow | None]:
    """Return a text, or else what is wrong with it."""
    try:
        check_text(cell)
    except InputError as error:
        return None, BadRow(path, number, f"column {text_column!r}: {error.what}", None)
    return str(cell), None


def _parquet_chunks(path: Path, text_column: str) -> Iterator[Chunk]:
    require_extra("pyarrow", extra="parquet", capability="Reading Parquet")
    import pyarrow
    import pyarrow.parquet

    first = 1
    try:
        # Without these two, Arrow keeps every column chunk it has read until the file is closed.
        with pyarrow.parquet.ParquetFile(path, pre_buffer=False, buffer_size=2**20) as file:
            require_columns(file.schema_arrow.names, (text_column,), path=path)
            for batch in file.iter_batches(batch_size=ROWS):
                yield _parquet_chunk(batch, path, first, text_column)
                first += batch.num_rows
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(
            f"damaged, or no Parquet file: {error}", path=path, line=first, remedy="write it again"
        ) from None


def _parquet_chunk(batch: pyarrow.RecordBatch, path: Path, first: int, text_column: str) -> Chunk:
    chunk = Chunk(list(range(first, first + batch.num_rows)), [], [], [], batch)
    column = batch.column(text_column)
    for place, number in enumerate(chunk.numbers):
        text: str | None
        problem: BadRow | None
        try:
            cell = column[place].as_py()
        except UnicodeDecodeError as error:  # Arrow does not check its strings when it reads them
            text, problem = None, BadRow(path, number, f"column {text_column!r}: not UTF-8: {error.reason}", None)
        else:
            text, problem = _checked(cell, path, number, text_column)
        chunk.texts.append(text)
        chunk.problems.append(problem)
    return chunk
