"""Read the rows that are to be split: once for their texts and labels, once more to write them as they are."""

from __future__ import annotations

import datetime
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hgclr.data.folder import empty_split
from hgclr.data.readers import is_dataset_folder, read_rows
from hgclr.data.rows import BadRow, LabelReader, RowProblem, read_text
from hgclr.data.texts import text_hash
from hgclr.errors import require_extra

__all__ = ["Survey", "read_split_rows", "survey_rows"]


@dataclass(frozen=True, slots=True)
class SplitRow:
    """A row that can be written.

    Args:
        text: its text, never empty.
        labels: indices into the taxonomy.
        values: all its cells, as JSON has them.
    """

    text: str
    labels: tuple[int, ...]
    values: dict[str, object]


@dataclass(slots=True)
class Survey:
    """The texts and labels of all good rows of a file, in their order."""

    hashes: array[int] = field(default_factory=lambda: array("Q"))
    counts: array[int] = field(default_factory=lambda: array("q"))
    flat: array[int] = field(default_factory=lambda: array("q"))

    @property
    def texts(self) -> NDArray[np.uint64]:
        """The hash of each row's text; shape (N,)."""
        return np.frombuffer(self.hashes, dtype=np.uint64)

    @property
    def pairs(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The row and the label of each label that a row has; two of shape (P,)."""
        rows = np.repeat(np.arange(len(self.counts)), np.frombuffer(self.counts, dtype=np.int64))
        return rows, np.frombuffer(self.flat, dtype=np.int64)


def read_split_rows(
    path: Path, labels: LabelReader, *, text_column: str, label_column: str
) -> Iterator[SplitRow | BadRow]:
    """Yield every row of a file, with all its columns, or what is wrong with it.

    Args:
        path: a file or a ``datasets`` folder.
        labels: reads label cells.
        text_column: the column with the text.
        label_column: the column with the labels.

    Raises:
        InputError: if the file as a whole cannot be read.
    """
    for row in read_rows(path, _columns(path, (text_column, label_column))):
        if isinstance(row, BadRow):
            yield row
            continue
        try:
            text = read_text(row.values[text_column])
            found = labels.read(row.values[label_column])
            values = {column: _plain(value, column) for column, value in row.values.items()}
        except RowProblem as problem:
            yield BadRow(path, row.number, problem.reason, row.values, problem.remedy)
        else:
            yield SplitRow(text, found, values)


def survey_rows(path: Path, rows: Iterator[SplitRow | BadRow], *, skip_bad_rows: bool) -> Survey:
    """Return the texts and labels of the good rows of a file.

    Args:
        path: the file, for the message.
        rows: as `read_split_rows` yields them.
        skip_bad_rows: go on after a bad row.

    Raises:
        InputError: at a bad row, unless it may be skipped; if there is no good row.
    """
    survey = Survey()
    bad = 0
    for row in rows:
        if isinstance(row, SplitRow):
            survey.hashes.append(text_hash(row.text))
            survey.counts.append(len(row.labels))
            survey.flat.extend(row.labels)
        elif skip_bad_rows:
            bad += 1
        else:
            raise row.error()
    if not survey.hashes:
        raise empty_split(path, bad)
    return survey


def _columns(path: Path, wanted: Sequence[str]) -> list[str]:
    """Return the columns to ask for: all of them, where only those that are asked for are read."""
    found: Sequence[str] = ()
    if is_dataset_folder(path):
        found = _or_nothing(lambda: _dataset_columns(path))
    elif path.name.lower().endswith(".parquet"):
        found = _or_nothing(lambda: _parquet_columns(path))
    return list(dict.fromkeys([*wanted, *found]))


def _or_nothing(columns: Callable[[], list[str]]) -> list[str]:
    """Return the columns, or none of a damaged file, of which the reader will say what is wrong with it."""
    try:
        return columns()
    except (OSError, ValueError, KeyError):  # Arrow's own errors are among these
        return []


def _parquet_columns(path: Path) -> list[str]:
    require_extra("pyarrow", extra="parquet", capability="reading Parquet")
    import pyarrow.parquet

    return list(pyarrow.parquet.read_schema(path).names)


def _dataset_columns(path: Path) -> list[str]:
    require_extra("datasets", extra="train", capability="reading a datasets folder")
    import datasets

    return list(datasets.load_from_disk(str(path)).column_names)


def _plain(value: object, column: str) -> object:
    """Return a cell as JSON has it; dates become text.

    Raises:
        RowProblem: if JSON cannot hold it.
    """
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            place = f"column {column!r} has a lone surrogate at character {error.start + 1}"
            raise RowProblem(f"not UTF-8: {place}") from None
        return value
    if isinstance(value, list):
        return [_plain(part, column) for part in value]
    if isinstance(value, dict):
        return {_plain(key, column): _plain(part, column) for key, part in value.items()}
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    raise RowProblem(
        f"wrong type: column {column!r} holds a {type(value).__name__}, which JSON lines cannot",
        "turn the column into text or numbers, or drop it",
    )
