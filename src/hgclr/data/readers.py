"""Stream rows from JSON lines, CSV, TSV (gzipped or not), Parquet, Excel, and Hugging Face ``datasets`` folders."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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

__all__ = [
    "SUFFIXES",
    "byte_lines",
    "decoded",
    "good_json_rows",
    "is_dataset_folder",
    "limited_lines",
    "open_parquet",
    "parquet_batches",
    "read_rows",
    "sheet_rows",
    "table_header",
]

SUFFIXES = (".jsonl", ".jsonl.gz", ".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet")
EXCEL = ".xlsx"
DELIMITERS = {"csv": ",;\t|", "tsv": "\t,;|"}
"""What may stand between the cells of a table; the first, unless the header has more cells with another one."""
HEADER_LINES = 20
"""Lines that a header may span, in which its delimiter is looked for."""
LONGEST_CELL = 2**24
"""Characters a table cell may have. Python's own limit, 131,072, is less than a long document has; with no
limit, a quote that is never closed would pull the rest of the file into memory."""
LONGEST_LINE = 2**26
"""Bytes, or characters, that a line may have, in all files that are read by lines."""
DEEPEST = 100
"""Levels of lists and objects in a row of JSON."""
LARGEST_WORKBOOK = 2**29
"""Bytes that a workbook may unpack to; openpyxl holds all of its texts in memory."""
BATCH = 1000
"""Rows of Parquet and ``datasets`` in memory at a time."""
Decoder = Callable[[object], object]


def is_dataset_folder(path: Path) -> bool:
    """Tell whether ``path`` is one split as ``datasets.Dataset.save_to_disk`` writes it."""
    return (path / "state.json").is_file()


def read_rows(path: str | Path, columns: Sequence[str], *, all_columns: bool = False) -> Iterator[Row | BadRow]:
    """Yield the rows of a file in order, in flat memory.

    A row that is broken while the next one can still be found comes as a `BadRow`.

    Args:
        path: a file whose name ends as in `SUFFIXES` or in `EXCEL`, of which the first sheet is read; or the folder of
            a ``datasets`` split; or the URL of a file in an object store, which is read piece by piece.
        columns: the columns every row must have.
        all_columns: read the other columns, too, of formats that can leave them out.
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
    return _table_file_rows(path, columns)


def json_rows(lines: Iterable[bytes], path: Path, columns: Sequence[str]) -> Iterator[Row | BadRow]:
    """Yield one row per JSON line, skipping blank lines."""
    for number, line in enumerate(lines, 1):
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        if not line.strip():
            continue
        try:
            text = decoded(line)
        except RowProblem as problem:
            content = line.rstrip(b"\r\n").decode(errors="backslashreplace")
            yield BadRow(path, number, problem.reason, content, problem.remedy)
            continue
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            yield BadRow(path, number, f"broken JSON: {error}", text.rstrip("\r\n"))
            continue
        if line.count(b"[") + line.count(b"{") > DEEPEST and _is_deep(values):
            yield BadRow(path, number, f"values are nested more than {DEEPEST} deep", text.rstrip("\r\n"))
            continue
        if not isinstance(values, dict):
            wanted = f" with {', '.join(columns)}" if columns else ""
            reason = f"wrong type: the row is a {type(values).__name__}, not an object{wanted}"
            yield BadRow(path, number, reason, values)
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
        raise RowProblem(reason, "save the file as UTF-8") from None


def _is_deep(values: object) -> bool:
    """Tell whether lists and objects are nested deeper than anybody means to; Python's own functions would give up."""
    level = [values]
    for _ in range(DEEPEST):
        holders = [value for value in level if isinstance(value, dict | list)]
        if not holders:
            return False
        level = [part for holder in holders for part in (holder.values() if isinstance(holder, dict) else holder)]
    return True


def good_json_rows(path: Path, columns: Sequence[str] = ()) -> Iterator[Row]:
    """Yield the rows of a file of JSON lines, whatever its name."""
    for row in json_rows(byte_lines(path), path, columns):
        if isinstance(row, BadRow):
            raise InputError(row.reason, path=path, line=row.number, remedy=row.remedy or "mend the line")
        yield row


def table_rows(lines: Iterable[str], path: Path, columns: Sequence[str], *, delimiter: str) -> Iterator[Row | BadRow]:
    """Yield one row per record of a table with a header; cells in double quotes may span lines.

    The lines are decoded with ``surrogateescape``, so that a record that is not UTF-8 can be told from its neighbours.
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
            remedy = 'write a quote inside a quoted cell twice (""), close every quote, or use JSON lines'
            raise InputError(f"broken quoting: {error}", path=path, line=number, remedy=remedy) from None
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
            kind = "too many columns" if len(cells) > len(header) else "missing column"
            reason = f"{kind}: the row has {len(cells)} cells, the header {len(header)}"
            yield BadRow(path, number, reason, cells, "quote cells that contain the delimiter")
        else:
            yield Row(number, dict(zip(header, cells, strict=True)))


def _table_file_rows(path: Path, columns: Sequence[str]) -> Iterator[Row | BadRow]:
    """Yield the rows of a CSV or TSV file, whatever stands between its cells."""
    lines = _text_lines(path)
    head = list(islice(lines, HEADER_LINES))
    delimiter, _ = _header(head, path, columns)
    yield from table_rows(chain(head, lines), path, columns, delimiter=delimiter)


def table_header(path: Path, columns: Sequence[str]) -> list[str]:
    """Return the header of a CSV or TSV file; of one that cannot be read nothing: reading its rows will tell why."""
    try:
        return _header(list(islice(_text_lines(path), HEADER_LINES)), path, columns)[1]
    except InputError:
        return []


def _header(head: Sequence[str], path: Path, columns: Sequence[str]) -> tuple[str, list[str]]:
    """Return what stands between the cells of a table, and its header.

    The delimiter is the one with which the header has all the columns asked for, and then most cells.
    """
    best: tuple[tuple[bool, int], str, list[str]] | None = None
    for delimiter in DELIMITERS[path.name.lower().removesuffix(".gz").rpartition(".")[2]]:
        try:
            cells = next((cells for cells in csv.reader(head, delimiter=delimiter, strict=True) if cells), [])
        except csv.Error:
            cells = []
        names = [cell.strip() for cell in cells]
        fit = (set(columns) <= set(names), len(names))
        if best is None or fit > best[0]:
            best = fit, delimiter, names
    assert best is not None
    return best[1:]


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
    """Yield the lines of a stream; one that never ends, as a small gzip file can hold it, does not fill the memory."""
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
        yield from _rows(batch.select(_chosen(batch.schema.names, columns, all_columns, path)), path, first, {})


def parquet_batches(
    path: Path, columns: Sequence[str], *, all_columns: bool, size: int
) -> Iterator[tuple[int, pyarrow.RecordBatch]]:
    """Yield the rows of a Parquet file, some at a time, with the number of the first of them; see :func:`read_rows`."""
    require_extra("pyarrow", extra="parquet", capability="reading Parquet")

    def refusal(error: BaseException) -> InputError:
        what = f"damaged, or no Parquet file: {first_line(error)}"
        return InputError(what, path=path, line=first, remedy="write it again")

    first = 1
    with refuse_broken(refusal), open_parquet(path) as file:
        require_columns(file.schema_arrow.names, columns, path=path)
        for batch in file.iter_batches(batch_size=size, columns=None if all_columns else list(columns)):
            yield first, batch
            first += batch.num_rows


@contextmanager
def open_parquet(path: Path) -> Iterator[pyarrow.parquet.ParquetFile]:
    """Open a Parquet file to be read in flat memory; raises whatever Arrow does over a damaged one."""
    import pyarrow.parquet

    with ExitStack() as stack:
        source = path if url_of(path) is None else stack.enter_context(open_file(path))
        # Without these two, Arrow keeps every column chunk it has read until the file is closed.
        yield stack.enter_context(pyarrow.parquet.ParquetFile(source, pre_buffer=False, buffer_size=2**20))


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
    """Yield the cells of the first sheet's rows as texts, and how many rows the sheet says it has.

    Empty cells at the end of a row, which a sheet need not store, are left out.
    """
    require_extra("openpyxl", extra="data", capability=f"Reading {path.name}")
    from openpyxl import load_workbook

    number = 0

    def refusal(error: BaseException) -> InputError:
        # The parser reads ahead of the rows that it hands out, so the place is not exact.
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
    """Yield the rows of one split saved with ``datasets``; class labels come as their names.

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
        features = (read_json(path / "dataset_info.json") if (path / "dataset_info.json").exists() else {})["features"]
        for name in names:
            if Path(name).name != name:
                raise InputError(f"state.json names {name!r}, which is not a file of this folder", path=path)
            with open_regular(path / name) as file, pyarrow.ipc.open_stream(file) as stream:
                chosen = _chosen(stream.schema.names, columns, all_columns, path)
                decoders = {column: decode for column in chosen if (decode := _class_labels(features[column]))}
                for batch in stream:
                    wanted = batch.select(chosen)
                    for column in wanted.columns:
                        # As bytes: a text that is not UTF-8 is no damage, it makes one bad row.
                        column.view(_as_bytes(column.type)).validate(full=True)
                    for start in range(0, wanted.num_rows, BATCH):
                        some = wanted.slice(start, BATCH)
                        yield from _rows(some, path, first, decoders)
                        first += some.num_rows


def _as_bytes(kind: Any) -> Any:
    """Return the type of a column with bytes in the place of texts."""
    import pyarrow

    if pyarrow.types.is_string(kind):
        return pyarrow.binary()
    if pyarrow.types.is_large_string(kind):
        return pyarrow.large_binary()
    if pyarrow.types.is_list(kind):
        return pyarrow.list_(kind.value_field.with_type(_as_bytes(kind.value_type)))
    if pyarrow.types.is_large_list(kind):
        return pyarrow.large_list(kind.value_field.with_type(_as_bytes(kind.value_type)))
    if pyarrow.types.is_struct(kind):
        return pyarrow.struct([field.with_type(_as_bytes(field.type)) for field in kind])
    return kind


def _chosen(found: Sequence[str], columns: Sequence[str], all_columns: bool, path: Path) -> list[str]:
    chosen = list(dict.fromkeys([*columns, *found])) if all_columns else list(columns)
    require_columns(found, chosen, path=path)
    return chosen


def _class_labels(feature: Any) -> Decoder | None:
    """Return what turns the numbers of a column of class labels, or of lists of them, into names.

    A number without a name (-1 is usual) stays as it is.
    """
    inner = feature.get("feature", feature) if isinstance(feature, dict) else None
    if not isinstance(inner, dict) or inner.get("_type") != "ClassLabel":
        return None
    names = [str(name) for name in inner["names"]]

    def decode(cell: object) -> object:
        if isinstance(cell, list):
            return [decode(part) for part in cell]
        return names[cell] if isinstance(cell, int) and 0 <= cell < len(names) else cell

    return decode


def _rows(
    table: pyarrow.RecordBatch | pyarrow.Table, path: Path, first: int, decoders: Mapping[str, Decoder]
) -> Iterator[Row | BadRow]:
    """Yield the rows of a batch whose first row has the number ``first``."""
    names = table.schema.names

    def row(number: int, cells: Iterable[object]) -> Row:
        values = dict(zip(names, cells, strict=True))
        for column, decode in decoders.items():
            values[column] = decode(values[column])
        return Row(number, values)

    try:
        columns = [table.column(name).to_pylist() for name in names]
    except UnicodeDecodeError:
        # Arrow does not check its strings when it reads them: find the rows at fault one by one.
        for place in range(table.num_rows):
            scalars = [table.column(name)[place] for name in names]
            try:
                yield row(first + place, [scalar.as_py() for scalar in scalars])
            except UnicodeDecodeError as error:
                content = dict(zip(names, map(_readable, scalars), strict=True))
                yield BadRow(path, first + place, f"not UTF-8: {error.reason}", content, "store the text as UTF-8")
        return
    for number, cells in enumerate(zip(*columns, strict=True), first):
        yield row(number, cells)


def _readable(scalar: Any) -> object:
    """Return a cell with the bytes that are not UTF-8 written as ``\\xNN``."""
    try:
        return scalar.as_py()
    except UnicodeDecodeError:
        if hasattr(scalar, "as_buffer"):
            return scalar.as_buffer().to_pybytes().decode(errors="backslashreplace")
        return [_readable(part) for part in scalar.values]
