"""Stream rows from JSON lines, CSV, TSV (gzipped or not), Parquet, and Hugging Face ``datasets`` folders."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from hgclr.data.rows import BadRow, Row, require_columns
from hgclr.errors import InputError, require_extra

if TYPE_CHECKING:
    import pyarrow

__all__ = ["SUFFIXES", "is_dataset_folder", "json_rows", "read_rows", "table_rows"]

BATCH = 1000
"""Rows in memory at a time."""
Decoder = Callable[[object], object]


def parquet_rows(path: Path, columns: Sequence[str]) -> Iterator[Row | BadRow]:
    """Yield the rows of a Parquet file, of which only the named columns are read."""
    require_extra("pyarrow", extra="parquet", capability="reading Parquet")
    import pyarrow
    import pyarrow.parquet

    first = 1
    try:
        # Without these two, Arrow keeps every column chunk it has read until the file is closed.
        with pyarrow.parquet.ParquetFile(path, pre_buffer=False, buffer_size=2**20) as file:
            require_columns(file.schema_arrow.names, columns, path=path)
            for batch in file.iter_batches(batch_size=BATCH, columns=list(columns)):
                yield from _rows(batch, path, first, {})
                first += batch.num_rows
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(
            f"damaged, or no Parquet file: {error}", path=path, line=first, remedy="write it again"
        ) from None


def dataset_rows(path: Path, columns: Sequence[str]) -> Iterator[Row | BadRow]:
    """Yield the rows of one split saved with ``datasets``; class labels come as their names."""
    require_extra("datasets", extra="train", capability="reading a datasets folder")
    import datasets
    import pyarrow

    remedy = "write it again with save_to_disk"
    bars = not datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        dataset = datasets.load_from_disk(str(path))
    except (pyarrow.ArrowException, OSError, ValueError, KeyError) as error:
        raise InputError(f"damaged, or no datasets folder: {error}", path=path, remedy=remedy) from None
    finally:
        if bars:
            datasets.enable_progress_bars()
    require_columns(dataset.column_names, columns, path=path)
    decoders = _class_label_decoders(dataset.features, columns)
    first = 1
    try:
        for table in dataset.select_columns(list(columns)).with_format("arrow").iter(batch_size=BATCH):
            yield from _rows(table, path, first, decoders)
            first += table.num_rows
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(f"damaged datasets folder: {error}", path=path, line=first, remedy=remedy) from None


def _rows(
    table: pyarrow.RecordBatch | pyarrow.Table, path: Path, first: int, decoders: Mapping[str, Decoder]
) -> Iterator[Row | BadRow]:
    """Yield the rows of a batch whose first row has the number ``first``."""
    names = table.schema.names
    try:
        cells = [table.column(name).to_pylist() for name in names]
    except UnicodeDecodeError:
        # Arrow does not check its strings when it reads them: find the rows at fault one by one.
        yield from _rows_one_by_one(table, path, first, decoders)
        return
    for number, values in enumerate(zip(*cells, strict=True), first):
        yield Row(number, _decoded(dict(zip(names, values, strict=True)), decoders))


def _rows_one_by_one(
    table: pyarrow.RecordBatch | pyarrow.Table, path: Path, first: int, decoders: Mapping[str, Decoder]
) -> Iterator[Row | BadRow]:
    """Do as `_rows`, telling rows that are not UTF-8 from the others."""
    for place in range(table.num_rows):
        scalars = {name: table.column(name)[place] for name in table.schema.names}
        try:
            values = {name: scalar.as_py() for name, scalar in scalars.items()}
        except UnicodeDecodeError as error:
            content = {name: _readable(scalar) for name, scalar in scalars.items()}
            yield BadRow(path, first + place, f"not UTF-8: {error.reason}", content, "store the text as UTF-8")
        else:
            yield Row(first + place, _decoded(values, decoders))


def _readable(scalar: Any) -> object:
    """Return a cell with the bytes that are not UTF-8 written as ``\\xNN``."""
    try:
        return scalar.as_py()
    except UnicodeDecodeError:
        if hasattr(scalar, "as_buffer"):
            return scalar.as_buffer().to_pybytes().decode(errors="backslashreplace")
        return [_readable(part) for part in scalar.values]


def _class_label_decoders(features: Mapping[str, Any], columns: Sequence[str]) -> dict[str, Decoder]:
    """Return, for each column of class labels, what turns its numbers into names."""
    import datasets

    decoders: dict[str, Decoder] = {}
    for column in columns:
        feature = features[column]
        inner = getattr(feature, "feature", feature)
        if isinstance(inner, datasets.ClassLabel):
            decoders[column] = _class_label_decoder(inner.names)
    return decoders


def _class_label_decoder(names: Sequence[str]) -> Decoder:
    """Map the numbers of class labels to names; a number without a name (-1 is usual) stays as it is."""

    def decode(cell: object) -> object:
        if isinstance(cell, list):
            return [decode(part) for part in cell]
        return names[cell] if isinstance(cell, int) and 0 <= cell < len(names) else cell

    return decode


def _decoded(values: dict[str, object], decoders: Mapping[str, Decoder]) -> dict[str, object]:
    """Apply the decoders of the columns that have one."""
    for column, decode in decoders.items():
        values[column] = decode(values[column])
    return values


SUFFIXES = (".jsonl", ".jsonl.gz", ".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet")
LONGEST_CELL = 2**24
"""Characters a table cell may have. Python's own limit, 131,072, is less than a long document has; with no
limit, a quote that is never closed would pull the rest of the file into memory."""


def is_dataset_folder(path: Path) -> bool:
    """Tell whether ``path`` is one split as ``datasets.Dataset.save_to_disk`` writes it."""
    return (path / "state.json").is_file()


def read_rows(path: str | Path, columns: Sequence[str]) -> Iterator[Row | BadRow]:
    """Yield the rows of a file in order, in flat memory.

    A row that is broken while the next one can still be found comes as a `BadRow`.

    Args:
        path: a file whose name ends as in `SUFFIXES`, or the folder of a ``datasets`` split.
        columns: the columns every row must have.

    Raises:
        InputError: if the file itself cannot be used: missing, damaged, unknown format, or a table without
            one of the columns.
        MissingExtraError: if Parquet or ``datasets`` support is not installed.
    """
    path = Path(path)
    if path.is_dir():
        if not is_dataset_folder(path):
            raise InputError(
                "not a split written by datasets' save_to_disk (no state.json)",
                path=path,
                remedy="name the folder of one split",
            )
        return dataset_rows(path, columns)
    if not path.is_file():
        raise InputError("no such file", path=path)
    name = path.name.lower()
    kind = name.removesuffix(".gz").rpartition(".")[2]
    if name.endswith(".parquet"):
        return parquet_rows(path, columns)
    if not name.endswith(SUFFIXES):
        raise InputError("unknown format", path=path, remedy="its name must end in " + ", ".join(SUFFIXES))
    if kind == "jsonl":
        return json_rows(_byte_lines(path), path, columns)
    return table_rows(_text_lines(path), path, columns, delimiter="," if kind == "csv" else "\t")


def json_rows(lines: Iterable[bytes], path: Path, columns: Sequence[str]) -> Iterator[Row | BadRow]:
    """Yield one row per JSON line, skipping blank lines."""
    for number, line in enumerate(lines, 1):
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        if not line.strip():
            continue
        try:
            text = line.decode()
        except UnicodeDecodeError as error:
            reason = f"not UTF-8: byte 0x{line[error.start]:02x} at byte {error.start + 1} of the line"
            content = line.rstrip(b"\r\n").decode(errors="backslashreplace")
            yield BadRow(path, number, reason, content, "save the file as UTF-8")
            continue
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            yield BadRow(path, number, f"broken JSON: {error}", text.rstrip("\r\n"))
            continue
        if not isinstance(values, dict):
            wanted = f" with {', '.join(columns)}" if columns else ""
            reason = f"wrong type: the row is a {type(values).__name__}, not an object{wanted}"
            yield BadRow(path, number, reason, values)
            continue
        missing = [column for column in columns if column not in values]
        if missing:
            found = ", ".join(map(repr, values)) or "none"
            reason = f"missing column {missing[0]!r} (the row has: {found})"
            yield BadRow(path, number, reason, values, "name the right column with --text-column or --label-column")
            continue
        yield Row(number, values)


def table_rows(lines: Iterable[str], path: Path, columns: Sequence[str], *, delimiter: str) -> Iterator[Row | BadRow]:
    """Yield one row per record of a table with a header; cells in double quotes may span lines.

    Args:
        lines: decoded with ``surrogateescape``, so that a record that is not UTF-8 can be told from its
            neighbours.
        path: the file, for messages.
        columns: the columns the header must have.
        delimiter: what separates cells.

    Raises:
        InputError: if the header lacks a column, or quoting is broken: where the next record starts cannot be
            known then, so this is not one bad row.
    """
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST_CELL))
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    header: list[str] | None = None
    while True:
        number = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise InputError(
                f"broken quoting: {error}",
                path=path,
                line=number,
                remedy='write a quote inside a quoted cell twice (""), close every quote, or use JSON lines',
            ) from None
        if not cells:
            continue
        if reason := _encoding_problem(cells):
            if header is None:
                raise InputError(reason, path=path, line=number, remedy="save the file as UTF-8")
            content = [cell.encode(errors="surrogateescape").decode(errors="backslashreplace") for cell in cells]
            yield BadRow(path, number, reason, content, "save the file as UTF-8")
        elif header is None:
            header = [cell.strip() for cell in cells]
            require_columns(header, columns, path=path, line=number)
        elif len(cells) != len(header):
            reason = f"missing column: the row has {len(cells)} cells, the header {len(header)}"
            if len(cells) > len(header):
                reason = f"too many columns: the row has {len(cells)} cells, the header {len(header)}"
            yield BadRow(path, number, reason, cells, "quote cells that contain the delimiter")
        else:
            yield Row(number, dict(zip(header, cells, strict=True)))


def _encoding_problem(cells: Sequence[str]) -> str | None:
    """Name the first byte that was not UTF-8, if any."""
    for place, cell in enumerate(cells, 1):
        try:
            cell.encode()
        except UnicodeEncodeError as error:
            return f"not UTF-8: byte 0x{ord(cell[error.start]) & 0xFF:02x} in cell {place}"
    return None


def _byte_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file, unpacked if it is gzipped."""
    number = 0
    with _open(path) as stream:
        lines = iter(stream)
        while True:
            with _damage_reported(path, number + 1):
                line = next(lines, None)
            if line is None:
                return
            number += 1
            yield line


def _text_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a file as text, line ends kept for the table parser."""
    number = 0
    with _open(path) as stream:
        lines = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="surrogateescape", newline="")
        while True:
            with _damage_reported(path, number + 1):
                line = lines.readline()
            if not line:
                return
            number += 1
            yield line


@contextmanager
def _open(path: Path) -> Iterator[BinaryIO]:
    """Open a file for reading bytes, unpacking gzip."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", path=path) from None
    with file:
        if not path.name.lower().endswith(".gz"):
            yield file
            return
        with io.BufferedReader(cast(io.RawIOBase, gzip.GzipFile(fileobj=file)), 2**18) as stream:
            yield stream


@contextmanager
def _damage_reported(path: Path, number: int) -> Iterator[None]:
    """Turn what gzip raises into an error that names the row."""
    try:
        yield
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(
            f"damaged or truncated gzip file: {error}",
            path=path,
            line=number,
            remedy="copy it again from its source",
        ) from None
