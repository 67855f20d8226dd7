"""Write rows with their labels: JSON lines, CSV and TSV, gzipped or not, and Parquet."""

from __future__ import annotations

import datetime
import decimal
import gzip
import io
import json
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from hgclr.bulk.engine import Answer
from hgclr.bulk.inputs import Chunk, Survey, TextFormat, format_of
from hgclr.errors import InputError
from hgclr.files import TableWriter, json_text
from hgclr.remote import new_file

if TYPE_CHECKING:
    import pyarrow

__all__ = ["SEPARATOR", "TABLES", "AddedColumns", "open_writer"]

SEPARATOR = ";"
"""Between labels in one cell of a table: what reading documents takes for it too, unless told otherwise."""
PATH_SEPARATOR = " > "
"""Between the names of a path, likewise."""
TABLES = ("csv", "tsv")
GROUP_ROWS, GROUP_BYTES = 2**14, 2**26
"""A row group ends when it has so many rows or bytes: small ones cost every reader time, large ones us memory."""
Write = Callable[[Chunk, Sequence[Answer]], None]
"""Writes the rows of a chunk, each with its answer."""


@dataclass(frozen=True)
class AddedColumns:
    """Which columns results have beside predictions.

    Args:
        abstained: labels that were left out because they are not probable enough.
        error: why a row has no labels.
        raw: see :func:`~hgclr.bulk.predict_files`.
        leaf_paths: see there.
    """

    abstained: bool
    error: bool
    raw: bool = False
    leaf_paths: bool = False

    def names(self, columns: Sequence[str], kind: str) -> dict[str, str]:
        """Return the names of the added columns, with a number behind where the input has a column of that name."""
        if kind == "jsonl":
            return {name: _fresh(name, columns) for name in ["prediction"] + ["error"] * self.error}
        own = ["predictions"]
        if kind in TABLES:
            own = ["labels", *["paths"] * self.leaf_paths, "probabilities"]
        own += ["abstained"] * self.abstained + ["error"] * self.error
        return {name: _fresh(name, columns) for name in own}


def _fresh(name: str, columns: Sequence[str]) -> str:
    variants = chain([name], (f"{name}_{number}" for number in count(2)))
    return next(variant for variant in variants if variant not in columns)


@contextmanager
def open_writer(
    target: Path | None, survey: Survey, added: AddedColumns, kind: TextFormat | None = None
) -> Iterator[Write]:
    """Yield what writes to a file that is there, whole, when the block succeeds, and as it was before when it fails.

    ``target`` is None for standard output; ``kind`` is by default what the name of the file says.
    """
    kind = kind or (format_of(target) if target is not None else TextFormat("jsonl", False))
    names = added.names(survey.columns, kind.name)
    with ExitStack() as stack:
        stream: IO[str] = sys.stdout
        if target is not None:
            path = stack.enter_context(new_file(target))
            if kind.name == "parquet":
                yield stack.enter_context(_parquet_writer(path, survey, names))
                return
            raw: IO[bytes] = stack.enter_context(path.open("wb"))
            if kind.gzipped:  # without name and time, so that equal content makes equal files
                packed = gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=6, mtime=0)
                raw = cast(IO[bytes], stack.enter_context(packed))
            stream = stack.enter_context(io.TextIOWrapper(raw, encoding="utf-8", newline=""))
        if kind.name == "jsonl":
            yield _json_writer(stream, names)
        else:
            delimiter = "," if kind.name == "csv" else "\t"
            yield _table_writer(stream, survey.columns, names, delimiter, raw=added.raw)


def _json_writer(stream: IO[str], names: Mapping[str, str]) -> Write:
    def write(chunk: Chunk, answers: Sequence[Answer]) -> None:
        for values, answer, error in zip(chunk.values(), answers, chunk.errors(), strict=True):
            row = values | {names["prediction"]: answer}
            if error is not None:
                row[names["error"]] = error
            stream.write(_json(row) + "\n")

    return write


def _table_writer(
    stream: IO[str], columns: Sequence[str], names: Mapping[str, str], delimiter: str, *, raw: bool
) -> Write:
    table = TableWriter(stream, raw=raw, delimiter=delimiter, lineterminator="\n")
    table.writerow([*columns, *names.values()])

    def write(chunk: Chunk, answers: Sequence[Answer]) -> None:
        for values, answer, error in zip(chunk.values(), answers, chunk.errors(), strict=True):
            cells = {
                "labels": _joined(answer["labels"], "id"),
                "paths": SEPARATOR.join(_leaf_paths(answer["labels"])) if "paths" in names else "",
                "probabilities": _joined(answer["labels"], "probability"),
                "abstained": _joined(answer.get("abstained", []), "id"),
                "error": error or answer.get("note", ""),
            }
            table.writerow([*(_cell(values.get(column)) for column in columns), *(cells[name] for name in names)])

    return write


def _joined(labels: Sequence[dict[str, Any]], field: str) -> str:
    return SEPARATOR.join(str(label[field]) for label in labels)


def _leaf_paths(labels: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield the path of each label that no other one's path goes on from."""
    inside = {tuple(label["path"][:-1]) for label in labels}
    return (PATH_SEPARATOR.join(label["path"]) for label in labels if tuple(label["path"]) not in inside)


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
    text = json_text(value, default=_plain)
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


@contextmanager
def _parquet_writer(path: Path, survey: Survey, names: Mapping[str, str]) -> Iterator[Write]:
    import pyarrow
    import pyarrow.parquet

    text = pyarrow.string()
    fields = [("id", text), ("path", pyarrow.list_(text)), ("probability", pyarrow.float64())]
    labels = pyarrow.list_(pyarrow.struct(fields))
    schema: Any = survey.schema
    for name, fresh in names.items():
        schema = schema.append(pyarrow.field(fresh, text if name == "error" else labels))
    waiting: list[pyarrow.RecordBatch] = []
    with _unfit_reported():
        file = pyarrow.parquet.ParquetWriter(path, schema)

    def write(chunk: Chunk, answers: Sequence[Answer]) -> None:
        cells: dict[str, list[Any]] = {
            "predictions": [answer["labels"] for answer in answers],
            "abstained": [answer.get("abstained", []) for answer in answers],
            "error": [error or answer.get("note") for error, answer in zip(chunk.errors(), answers, strict=True)],
        }
        with _unfit_reported():
            batch = chunk.table
            if batch is None:
                batch = pyarrow.RecordBatch.from_pylist(chunk.rows, schema=survey.schema)
            arrays = [pyarrow.array(cells[name], schema.field(fresh).type) for name, fresh in names.items()]
            waiting.append(pyarrow.RecordBatch.from_arrays([*batch.columns, *arrays], schema=schema))
        rows, size = sum(batch.num_rows for batch in waiting), sum(batch.nbytes for batch in waiting)
        if rows >= GROUP_ROWS or size >= GROUP_BYTES:
            flush()

    def flush() -> None:
        if waiting:
            with _unfit_reported():
                file.write_table(pyarrow.Table.from_batches(waiting, schema))
            waiting.clear()

    with file:
        yield write
        flush()


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
