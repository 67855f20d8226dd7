"""Write rows with their labels: JSON lines, CSV and TSV, gzipped or not."""

from __future__ import annotations

import csv
import datetime
import decimal
import gzip
import io
import json
import uuid
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Protocol, cast

from hgclr.bulk.chunks import Answer, Chunk, format_of
from hgclr.bulk.inputs import Survey
from hgclr.errors import InputError
from hgclr.files import atomic_file

if TYPE_CHECKING:
    import pyarrow

__all__ = ["SEPARATOR", "Added", "open_writer"]

SEPARATOR = ";"
"""Between labels in one cell of a table: what reading documents takes for it too, unless told otherwise."""


@dataclass(frozen=True)
class Added:
    """Which columns results have beside predictions.

    Args:
        doubtful: labels that were left out for doubt.
        error: why a row has no labels.
    """

    abstained: bool
    error: bool

    def names(self, columns: Sequence[str], *, table: bool) -> dict[str, str]:
        """Return the names of the added columns: their own, or with a number behind where the input has such a column.

        Args:
            columns: what the input has.
            table: whether cells hold plain text only.
        """
        own = ["labels", "probabilities"] if table else ["predictions"]
        own += ["abstained"] * self.abstained + ["error"] * self.error
        names: dict[str, str] = {}
        for name in own:
            fresh, number = name, 2
            while fresh in columns:
                fresh, number = f"{name}_{number}", number + 1
            names[name] = fresh
        return names


class Writer(Protocol):
    """Anything that writes rows."""

    def write(self, chunk: Chunk, answers: Sequence[Answer]) -> None:
        """Write the rows of a chunk, each with its answer."""


@contextmanager
def open_writer(target: Path, survey: Survey, added: Added) -> Iterator[Writer]:
    """Yield a writer to a file that is there, whole, when the block succeeds, and as it was before when it fails.

    Args:
        target: the file, whose name tells its format.
        survey: what is known of the input.
        added: the columns of the results.
    """
    kind = format_of(target)
    with ExitStack() as stack:
        path = stack.enter_context(atomic_file(target))
        if kind.name == "parquet":
            yield stack.enter_context(ParquetWriter(path, survey, added))
            return
        raw: IO[bytes] = stack.enter_context(path.open("wb"))
        if kind.gzipped:  # without name and time, so that equal content makes equal files
            packed = gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=6, mtime=0)
            raw = cast(IO[bytes], stack.enter_context(packed))
        stream = stack.enter_context(io.TextIOWrapper(raw, encoding="utf-8", newline=""))
        if kind.name == "jsonl":
            yield _JsonLinesWriter(stream, survey, added)
        else:
            yield _TableWriter(stream, survey, added, "," if kind.name == "csv" else "\t")


class _JsonLinesWriter:
    def __init__(self, stream: IO[str], survey: Survey, added: Added) -> None:
        self._stream, self._names = stream, added.names(survey.columns, table=False)

    def write(self, chunk: Chunk, answers: Sequence[Answer]) -> None:
        for values, answer, error in zip(chunk.values(), answers, chunk.errors(), strict=True):
            row = values | {self._names[name]: labels for name, labels in answer.items()}
            if error is not None:
                row[self._names["error"]] = error
            self._stream.write(_json(row) + "\n")


class _TableWriter:
    def __init__(self, stream: IO[str], survey: Survey, added: Added, delimiter: str) -> None:
        self._columns, self._added = survey.columns, added
        self._table = csv.writer(stream, delimiter=delimiter, lineterminator="\n")
        self._table.writerow([*survey.columns, *added.names(survey.columns, table=True).values()])

    def write(self, chunk: Chunk, answers: Sequence[Answer]) -> None:
        for values, answer, error in zip(chunk.values(), answers, chunk.errors(), strict=True):
            cells = [_cell(values.get(column)) for column in self._columns]
            cells.append(_joined(answer["predictions"], "id"))
            cells.append(_joined(answer["predictions"], "probability"))
            if self._added.abstained:
                cells.append(_joined(answer.get("abstained", []), "id"))
            if self._added.error:
                cells.append(error or "")
            self._table.writerow(cells)


def _joined(labels: Sequence[dict[str, Any]], field: str) -> str:
    return SEPARATOR.join(str(label[field]) for label in labels)


def _cell(value: object) -> str:
    """Return a cell of a table: texts as they are, nothing for nothing, all else as JSON has it."""
    if value is None:
        return ""
    if not isinstance(value, str | int | float | list | dict):
        value = _plain(value)
    text = value if isinstance(value, str) else _json(value)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"not UTF-8: a cell has a lone surrogate at character {error.start + 1}: {text!r:.80}",
            remedy="write the results with --format jsonl",
        ) from None
    return text


def _json(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=_plain)
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which UTF-8 cannot hold and an escape can
        return json.dumps(value, default=_plain)
    return text


def _plain(value: object) -> object:
    """Return what Parquet holds and JSON has no word for as text, where that loses nothing."""
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, decimal.Decimal | uuid.UUID):
        return str(value)
    raise InputError(
        f"JSON and tables cannot hold the {type(value).__name__} {value!r:.80}",
        remedy="write the results with --format parquet, or turn the column into text",
    )


GROUP_ROWS, GROUP_BYTES = 2**14, 2**26
"""A row group ends when it has so many rows or bytes: small ones cost every reader time, large ones us memory."""


class ParquetWriter(AbstractContextManager["ParquetWriter"]):
    """Write a Parquet file.

    Args:
        path: the file.
        survey: the columns and types of the input.
        added: the columns of the results.

    Raises:
        InputError: if Parquet cannot hold a column.
    """

    def __init__(self, path: Path, survey: Survey, added: Added) -> None:
        import pyarrow
        import pyarrow.parquet

        self._names = added.names(survey.columns, table=False)
        fields = [
            ("id", pyarrow.string()),
            ("path", pyarrow.list_(pyarrow.string())),
            ("probability", pyarrow.float64()),
        ]
        labels = pyarrow.list_(pyarrow.struct(fields))
        types = {"error": pyarrow.string(), "predictions": labels, "abstained": labels}
        self._input = survey.schema
        schema: Any = survey.schema
        for name, fresh in self._names.items():
            schema = schema.append(pyarrow.field(fresh, types[name]))
        self._schema = schema
        self._waiting: list[pyarrow.RecordBatch] = []
        with _unfit_reported():
            self._file = pyarrow.parquet.ParquetWriter(path, self._schema)

    def write(self, chunk: Chunk, answers: Sequence[Answer]) -> None:
        """Write the rows of a chunk, each with its answer."""
        import pyarrow

        with _unfit_reported():
            batch = chunk.table
            if batch is None:
                batch = pyarrow.RecordBatch.from_pylist(chunk.rows, schema=self._input)
            cells: dict[str, list[object]] = {
                "predictions": [answer["predictions"] for answer in answers],
                "abstained": [answer.get("abstained", []) for answer in answers],
                "error": list(chunk.errors()),
            }
            arrays = [pyarrow.array(cells[name], self._schema.field(fresh).type) for name, fresh in self._names.items()]
            self._waiting.append(pyarrow.RecordBatch.from_arrays([*batch.columns, *arrays], schema=self._schema))
        rows = sum(batch.num_rows for batch in self._waiting)
        if rows >= GROUP_ROWS or sum(batch.nbytes for batch in self._waiting) >= GROUP_BYTES:
            self._flush()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._flush()
        finally:
            self._file.close()

    def _flush(self) -> None:
        import pyarrow

        if self._waiting:
            with _unfit_reported():
                self._file.write_table(pyarrow.Table.from_batches(self._waiting, self._schema))
            self._waiting = []


@contextmanager
def _unfit_reported() -> Iterator[None]:
    """Turn what Arrow raises over values that Parquet cannot hold into an error that says what to do."""
    import pyarrow

    try:
        yield
    except (pyarrow.ArrowException, OverflowError) as error:
        raise InputError(
            f"Parquet cannot hold a column: {str(error).splitlines()[0]}",
            remedy="write the results with --format jsonl",
        ) from None
