"""Read rows, in flat memory, from JSON lines, CSV, TSV (also gzipped), Parquet, Excel and ``datasets`` folders.

Data folders, imports and bulk prediction all read their rows here. A row that cannot be read, while the next one can,
is a :class:`~hgclr.data.rows.BadRow` with its file and line.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from itertools import chain, count, islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, AnyStr, BinaryIO, cast

from hgclr.data.rows import BadRow, Row, RowProblem, require_columns
from hgclr.errors import InputError, first_line, refuse_broken, require_extra
from hgclr.files import check_archive, open_regular, read_json
from hgclr.remote import open_file
from hgclr.urls import url_of

if TYPE_CHECKING:
    import pyarrow

SUFFIXES = (".jsonl", ".jsonl.gz", ".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet")
EXCEL = ".xlsx"
DELIMITERS = {"csv": ",;\t|", "tsv": "\t,;|"}
"""Possible delimiters of a table; the first one, unless the header has more cells with another one."""
HEADER_LINES = 20
"""Lines that a header may span."""
LONGEST_CELL = 2**24
"""Most characters of a cell. Python's default, 131,072, is less than a long document has; without a limit, a quote that
is never closed would pull the rest of the file into memory."""
LONGEST_LINE = 2**26
"""Most bytes, or characters, of a line."""
DEEPEST = 100
"""Most levels of lists and objects in a row of JSON."""
LARGEST_WORKBOOK = 2**29
"""Most bytes that a workbook may unpack to; openpyxl holds all of its texts in memory."""
BATCH = 1000
"""Rows of Parquet and ``datasets`` in memory at a time."""
ENCODING = "save the file as UTF-8"


def is_dataset_folder(path: Path) -> bool:
    """Tell whether ``path`` is one split as ``datasets.Dataset.save_to_disk`` writes it."""
    return (path / "state.json").is_file()


def read_rows(path: str | Path, columns: Sequence[str], *, all_columns: bool = False) -> Iterator[Row | BadRow]:
    """Yield the rows of a file in order.

    Args:
        path: a file whose name ends as in `SUFFIXES` or in `EXCEL`, of which the first sheet is read; the folder of a
            ``datasets`` split; or the URL of a file in an object store, which is read block by block.
        columns: the columns that every row must have.
        all_columns: also read the other columns of formats that can leave them out.
    """
    path = Path(path)
    if path.is_dir():
        if not is_dataset_folder(path):
            what = "not a split written by datasets' save_to_disk (no state.json)"
            raise InputError(what, path=path, remedy="name the folder of one split")
        return _dataset_rows(path, columns, all_columns)
    if url_of(path) is None and not path.is_file():
        raise InputError("no such file", path=path)
    name = path.name.lower()
    if not name.endswith((*SUFFIXES, EXCEL)):
        raise InputError("unknown format", path=path, remedy=f"its name must end in {', '.join((*SUFFIXES, EXCEL))}")
    if name.endswith(".parquet"):
        return _parquet_rows(path, columns, all_columns)
    if name.endswith(EXCEL):
        return _excel_rows(path, columns)
    if name.removesuffix(".gz").endswith(".jsonl"):
        return json_rows(byte_lines(path), path, columns)
    return _table_rows(path, columns, all_columns)


def json_rows(lines: Iterable[bytes], path: Path, columns: Sequence[str] = ()) -> Iterator[Row | BadRow]:
    """Yield one row per JSON line, skipping blank lines."""
    for number, line in enumerate(lines, 1):
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        if not line.strip():
            continue
        text = line.rstrip(b"\r\n").decode(errors="backslashreplace")
        try:
            values = json.loads(decoded(line))
        except RowProblem as problem:
            yield BadRow(path, number, problem.reason, text, problem.remedy)
            continue
        except (ValueError, RecursionError) as error:
            yield BadRow(path, number, f"broken JSON: {error}", text)
            continue
        if line.count(b"[") + line.count(b"{") > DEEPEST and _is_deep(values):
            yield BadRow(path, number, f"values are nested more than {DEEPEST} deep", text)
        elif not isinstance(values, dict):
            yield BadRow(path, number, f"wrong type: the row is a {type(values).__name__}, not an object", values)
        elif missing := [column for column in columns if column not in values]:
            found = ", ".join(map(repr, values)) or "none"
            reason = f"missing column {missing[0]!r} (the row has: {found})"
            yield BadRow(path, number, reason, values, "name the right column with --text-column or --label-column")
        else:
            yield Row(number, values)


def decoded(line: bytes) -> str:
    """Return a line as text, or raise a `RowProblem`."""
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        reason = f"not UTF-8: byte 0x{line[error.start]:02x} at byte {error.start + 1} of the line"
        raise RowProblem(reason, ENCODING) from None


def _is_deep(values: object) -> bool:
    """Tell whether lists and objects are nested too deeply; without recursion, which Python would stop."""
    level = [values]
    for _ in range(DEEPEST):
        holders = [value for value in level if isinstance(value, dict | list)]
        if not holders:
            return False
        level = [part for holder in holders for part in (holder.values() if isinstance(holder, dict) else holder)]
    return True


def good_json_rows(path: Path, columns: Sequence[str] = ()) -> Iterator[Row]:
    """Yield the rows of a file of JSON lines, whatever its name; a bad row is an error."""
    for row in json_rows(byte_lines(path), path, columns):
        if isinstance(row, BadRow):
            raise InputError(row.reason, path=path, line=row.number, remedy=row.remedy or "correct the line")
        yield row


def _table_rows(path: Path, columns: Sequence[str], all_columns: bool) -> Iterator[Row | BadRow]:
    """Yield one row per record of a CSV or TSV file with a header; cells in double quotes may span lines.

    The delimiter is the one with which the header has all ``columns``, and then most cells. Lines are decoded with
    ``surrogateescape``, so that a record that is not UTF-8 does not affect the others.
    """
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST_CELL))
    lines = _text_lines(path)
    head = list(islice(lines, HEADER_LINES))
    fits = []
    for delimiter in DELIMITERS[path.name.lower().removesuffix(".gz").rpartition(".")[2]]:
        try:
            cells = next((cells for cells in csv.reader(head, delimiter=delimiter, strict=True) if cells), [])
        except csv.Error:
            cells = []
        names = [cell.strip() for cell in cells]
        fits.append((set(columns) <= set(names), len(names), delimiter))
    best = max(fits, key=lambda fit: fit[:2])[2]
    reader = csv.reader(chain(head, lines), delimiter=best, strict=True)
    header: list[str] | None = None
    while True:
        number = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            remedy = 'write a quote inside a quoted cell twice (""), close every quote, or use JSON lines'
            raise InputError(f"broken quoting: {error}", path=path, line=number, remedy=remedy) from None
        if not cells:
            continue
        if reason := _encoding_problem(cells):
            if header is None:
                raise InputError(reason, path=path, line=number, remedy=ENCODING)
            content = [cell.encode(errors="surrogateescape").decode(errors="backslashreplace") for cell in cells]
            yield BadRow(path, number, reason, content, ENCODING)
        elif header is None:
            header = [cell.strip() for cell in cells]
            require_columns(header, columns, path=path, line=number, all_columns=all_columns)
        elif len(cells) != len(header):
            kind = "too many columns" if len(cells) > len(header) else "missing column"
            reason = f"{kind}: the row has {len(cells)} cells, the header {len(header)}"
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


def byte_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file, unpacked if its name ends in ``.gz``."""
    with _opened(path) as stream:
        yield from limited_lines(stream, path)


def _text_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a file as text, line ends kept for the table parser."""
    with _opened(path) as stream:
        text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="surrogateescape", newline="")
        yield from limited_lines(text, path)


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    with ExitStack() as stack:
        try:
            stream: BinaryIO = stack.enter_context(open_file(path))
        except FileNotFoundError:
            raise InputError("no such file", path=path) from None
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", path=path) from None
        if path.name.lower().endswith(".gz"):
            unpacked = cast(io.RawIOBase, gzip.GzipFile(fileobj=stream))
            stream = stack.enter_context(io.BufferedReader(unpacked, 2**18))
        yield stream


def limited_lines(stream: IO[AnyStr], path: Path) -> Iterator[AnyStr]:
    """Yield the lines of a stream; refuse a line that never ends, which a small gzip file can hold."""
    for number in count(1):
        try:
            line = stream.readline(LONGEST_LINE + 1)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            what = f"damaged or truncated gzip file: {error}"
            raise InputError(what, path=path, line=number, remedy="copy it again from its source") from None
        if not line:
            return
        if len(line) > LONGEST_LINE:
            what = f"no line end in {LONGEST_LINE:,} characters"
            raise InputError(what, path=path, line=number, remedy="put one document on a line")
        yield line


def _parquet_rows(path: Path, columns: Sequence[str], all_columns: bool) -> Iterator[Row | BadRow]:
    for first, batch in parquet_batches(path, columns, all_columns=all_columns, size=BATCH):
        yield from arrow_rows(batch, path, first)


def parquet_batches(
    path: Path, columns: Sequence[str], *, all_columns: bool, size: int
) -> Iterator[tuple[int, pyarrow.RecordBatch]]:
    """Yield the rows of a Parquet file, ``size`` at a time, with the number of the first of them.

    Of a file without rows, one empty batch shows the columns.
    """
    require_extra("pyarrow", extra="parquet", capability="reading Parquet")
    import pyarrow
    import pyarrow.parquet

    def refusal(error: BaseException) -> InputError:
        what = f"damaged, or no Parquet file: {first_line(error)}"
        return InputError(what, path=path, line=first, remedy="write it again")

    first = 1
    with refuse_broken(refusal), ExitStack() as stack:
        source = path if url_of(path) is None else stack.enter_context(open_file(path))
        # With pre_buffer and without buffer_size, Arrow keeps every column chunk it has read until the file is closed.
        file = stack.enter_context(pyarrow.parquet.ParquetFile(source, pre_buffer=False, buffer_size=2**20))
        require_columns(file.schema_arrow.names, columns, path=path, all_columns=all_columns)
        for batch in file.iter_batches(batch_size=size, columns=None if all_columns else list(columns)):
            yield first, batch
            first += batch.num_rows
        if first == 1:
            yield first, pyarrow.RecordBatch.from_pylist([], schema=file.schema_arrow)


def arrow_rows(batch: pyarrow.RecordBatch, path: Path, first: int) -> Iterator[Row | BadRow]:
    """Yield the rows of a batch whose first row has the number ``first``."""
    try:
        rows = batch.to_pylist()
    except UnicodeDecodeError:  # Arrow does not check its strings when it reads them: find the row at fault
        if batch.num_rows == 1:
            yield BadRow(path, first, "not UTF-8", None, "store the text as UTF-8")
            return
        for place in range(batch.num_rows):
            yield from arrow_rows(batch.slice(place, 1), path, first + place)
        return
    for number, row in enumerate(rows, first):
        yield Row(number, row)


def _excel_rows(path: Path, columns: Sequence[str]) -> Iterator[Row | BadRow]:
    """Yield the rows of the first sheet, below a header; empty rows are no rows."""
    header: list[str] | None = None
    for number, (cells, _) in enumerate(sheet_rows(path), 1):
        if not cells:
            continue
        if header is None:
            header = [cell.strip() for cell in cells]
            require_columns(header, columns, path=path, line=number)
        elif len(cells) > len(header):
            reason = f"too many columns: the row has {len(cells)} cells, the header {len(header)}"
            yield BadRow(path, number, reason, cells, "give the column a heading")
        else:
            yield Row(number, dict(zip(header, cells + [""] * (len(header) - len(cells)), strict=True)))


def sheet_rows(path: Path) -> Iterator[tuple[list[str], int | None]]:
    """Yield the cells of the first sheet's rows as texts, without empty ones at the end, and the sheet's row count."""
    require_extra("openpyxl", extra="data", capability=f"Reading {path.name}")
    from openpyxl import load_workbook

    number = 0

    def refusal(error: BaseException) -> InputError:
        # The parser reads ahead of the rows that it yields, so the place is not exact.
        place = f" somewhere after row {number}" if number else ""
        what = f"damaged, truncated or no XLSX file{place}: {first_line(error)}"
        return InputError(what, path=path, remedy="copy it again from its source")

    with refuse_broken(refusal):
        check_archive(path, LARGEST_WORKBOOK)
        with open_regular(path) as file, closing(load_workbook(file, read_only=True, data_only=True)) as workbook:
            sheet = workbook.worksheets[0]
            total = sheet.max_row
            sheet.reset_dimensions()  # programs write wrong ones, and openpyxl would cut the rows to them
            for values in sheet.iter_rows(values_only=True):
                number += 1
                cells = [_cell_text(value) for value in values]
                while cells and not cells[-1].strip():
                    cells.pop()
                yield cells, total


def _cell_text(value: object) -> str:
    """Return what a cell of a sheet shows; whole numbers may be stored as 3.0."""
    if value is None:
        return ""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _dataset_rows(path: Path, columns: Sequence[str], all_columns: bool) -> Iterator[Row | BadRow]:
    """Yield the rows of one split saved with ``datasets``; class labels become their names.

    The library would map the files into memory, where damage ends the process; here each part is checked as it is read.
    """
    require_extra("pyarrow", extra="parquet", capability="reading a datasets folder")
    import pyarrow.ipc

    def refusal(error: BaseException) -> InputError:
        what = f"damaged, or no datasets folder: {first_line(error)}"
        return InputError(what, path=path, line=first, remedy="write it again with save_to_disk")

    first = 1
    with refuse_broken(refusal):
        names = [file["filename"] for file in read_json(path / "state.json")["_data_files"]]
        features = read_json(path / "dataset_info.json")["features"]
        for name in names:
            if Path(name).name != name:
                raise InputError(f"state.json names {name!r}, which is not a file of this folder", path=path)
            with open_regular(path / name) as file, pyarrow.ipc.open_stream(file) as stream:
                found = stream.schema.names
                require_columns(found, columns, path=path, all_columns=all_columns)
                chosen = found if all_columns else list(columns)
                class_names = {column: _class_names(features[column]) for column in chosen}
                for batch in stream:
                    wanted = batch.select(chosen)
                    wanted.validate(full=True)
                    for start in range(0, wanted.num_rows, BATCH):
                        for row in arrow_rows(wanted.slice(start, BATCH), path, first):
                            if isinstance(row, Row):
                                for column, known in class_names.items():
                                    row.values[column] = _named(row.values[column], known)
                            yield row
                            first += 1


def _class_names(feature: Any) -> list[str]:
    """Return the names of the classes of a column of class labels, or of lists of them; of other columns, none."""
    inner = feature.get("feature", feature) if isinstance(feature, dict) else None
    is_class = isinstance(inner, dict) and inner.get("_type") == "ClassLabel"
    return [str(name) for name in inner["names"]] if is_class and inner is not None else []


def _named(cell: object, names: Sequence[str]) -> object:
    """Return the names of a cell's classes; a number without a name (-1 is usual) stays as it is."""
    if isinstance(cell, list) and names:
        return [_named(part, names) for part in cell]
    return names[cell] if isinstance(cell, int) and 0 <= cell < len(names) else cell
