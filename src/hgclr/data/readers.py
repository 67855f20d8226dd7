"""Readers of JSON lines, CSV, TSV (also gzipped), Parquet and Excel, with constant memory.

Data folders, imports and bulk prediction read their rows here. An unreadable row that does not affect the next one
becomes a `BadRow` with its file and line. Tables that are not UTF-8 are converted to it line by line.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import hashlib
import io
import json
import logging
import unicodedata
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from itertools import accumulate, chain, count, islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from hgclr.errors import InputError, as_written, first_line, refuse_broken, require_extra, url_of
from hgclr.files import CODED, SheetCell, atomic_file, check_archive
from hgclr.remote import open_file, store_errors

if TYPE_CHECKING:
    import pyarrow

logger = logging.getLogger(__name__)
EXCEL = ".xlsx"
SUFFIXES = (".jsonl", ".jsonl.gz", ".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet", EXCEL)
LONGEST_CELL = 2**24
"""Maximum characters of a cell. Python's default, 131,072, is too short for long documents; without a limit, an
unclosed quote would read the rest of the file into memory."""
LONGEST_LINE = 2**26
"""Maximum bytes of a line."""
LARGEST_WORKBOOK = 2**29
"""Maximum unpacked bytes of a workbook; openpyxl holds all of its texts in memory."""
BATCH = 1024
"""Rows of Parquet in memory at a time."""
SHOWN = 3
"""Maximum number of bad rows in the warning; the side file has all of them."""
ENCODING = "save the file as UTF-8; hgclr predict and hgclr data import also take --encoding"
EAST_ASIAN = ("cp932", "gb18030", "big5", "cp949", "euc_jp")
GUESSES = (
    *("cp1252", "cp1250", "cp1251", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "koi8_r", "mac_roman", "cp850"),
    *EAST_ASIAN,
)
"""The encodings that a table without byte order mark may have, likely ones first; in all, ASCII is as in UTF-8."""
CLEAR = 0.05
"""Smallest difference in charset-normalizer's measure of disorder that decides between East Asian encodings."""
AHEAD = 2**20
"""Bytes read ahead at the first line that is not UTF-8."""
SAMPLE = 2**16
"""Bytes of lines that are not ASCII, from which an encoding is guessed."""
UTF_8_SHARE = 1 / 20
"""Lines that are UTF-8, for each that is not, above which the file is UTF-8 with damaged rows."""
COLUMN = "name the right column with --text-column or --label-column"


@dataclass(slots=True)
class TextForm:
    """How a table is written as text: readers fill in what they find, and results are written in the same form.

    ``encoding`` is the one that the user names; or None, for UTF-8 until a reader finds another one.
    """

    encoding: str | None = None
    bom: bool = False
    delimiter: str | None = None
    line_end: str = "\n"

    def __post_init__(self) -> None:
        if self.encoding is None:
            return
        try:
            "a".encode(self.encoding)
            self.encoding = codecs.lookup(self.encoding).name.removesuffix("-sig")
        except (LookupError, UnicodeError, ValueError):
            remedy = "give for example cp1252 (Windows, Western Europe), utf-16 or mac-roman"
            raise InputError(f"unknown encoding {self.encoding!r}", remedy=remedy) from None

    @property
    def other(self) -> str | None:
        """The encoding, if it is not UTF-8."""
        return None if self.encoding == "utf-8" else self.encoding


@dataclass(frozen=True, slots=True)
class Row:
    """A row with its cells by column.

    Its number is the line where it starts in a text file (a table's header is line 1), otherwise its position from 1.
    """

    number: int
    values: dict[str, Any]


@dataclass(frozen=True, slots=True)
class BadRow:
    """An unusable row: the reason, the row as far as it can be read, and a remedy other than skipping it."""

    path: Path
    number: int
    reason: str
    content: object
    remedy: str | None = None

    def error(self) -> InputError:
        """Return the error for a reader that does not skip bad rows."""
        remedy = f"{self.remedy or 'correct the row'}; or skip such rows with --skip-bad-rows (skip_bad_rows=True)"
        return InputError(self.reason, path=self.path, line=self.number, remedy=remedy)

    def to_json(self) -> str:
        """Return the row as a JSON line, in ASCII because it may contain lone surrogates."""
        record = {"file": as_written(self.path), "row": self.number, "reason": self.reason}
        return json.dumps(record | {"content": self.content, "remedy": self.remedy}, default=str)


class BadRowLog(ExitStack):
    """Counts bad rows and, with a target, writes them as JSON lines to a side file.

    The side file is written atomically when the block succeeds, and only if there is a bad row.
    """

    def __init__(self, target: Path | None) -> None:
        super().__init__()
        self.target = target
        self.count = 0
        self._first: list[BadRow] = []
        self._stream: IO[str] | None = None
        if target is not None:
            target.unlink(missing_ok=True)

    def add(self, row: BadRow) -> None:
        self.count += 1
        if len(self._first) < SHOWN:
            self._first.append(row)
        if self.target is None:
            return
        if self._stream is None:
            temporary = self.enter_context(atomic_file(self.target))
            self._stream = self.enter_context(temporary.open("w", encoding="utf-8"))
        self._stream.write(row.to_json() + "\n")

    def warn(self) -> None:
        """Log the number of skipped rows and the problems of the first."""
        if self.count:
            shown = "; ".join(f"{as_written(row.path)}:{row.number}: {row.reason}" for row in self._first)
            kept = f"; all of them are in {self.target}" if self.target is not None else ""
            logger.warning("bad rows skipped: %d, such as %s%s", self.count, shown, kept)


class RowProblem(Exception):  # noqa: N818 - never leaves this package: it becomes a BadRow or an InputError
    """A problem with one row, with the offending value, and a remedy."""

    def __init__(self, reason: str, remedy: str | None = None) -> None:
        super().__init__(reason)
        self.reason, self.remedy = reason, remedy


def read_rows(
    path: str | Path, columns: Sequence[str], *, all_columns: bool = False, form: TextForm | None = None
) -> Iterator[Row | BadRow]:
    """Yield the rows of a file in order.

    Args:
        path: a file whose name ends as in `SUFFIXES`, of a workbook the first sheet; or the URL of a file in an object
            store, which is read block by block.
        columns: the columns that every row must have.
        all_columns: also read the other columns of Parquet, and raise if two columns have the same name.
        form: the encoding of text, if it is known, and a place for what the reader finds.
    """
    path, form = Path(path), form or TextForm()
    if url_of(path) is None and not path.is_file():
        raise InputError("no such file", path=path)
    name = path.name.lower()
    if name.endswith(".parquet"):
        batches = parquet_batches(path, columns, all_columns=all_columns)
        return (Row(number, row) for first, batch in batches for number, row in enumerate(batch.to_pylist(), first))
    if name.endswith(EXCEL):
        records = ((number, cells) for number, (cells, _) in enumerate(sheet_rows(path), 1))
        return _table_rows(path, records, columns, all_columns)
    if name.endswith((".jsonl", ".jsonl.gz")):
        return json_rows(byte_lines(path, form), path, columns)
    if name.endswith(SUFFIXES):
        return _table_rows(path, csv_records(path, form), columns, all_columns)
    raise InputError("unknown format", path=path, remedy=f"use a file that ends in {', '.join(SUFFIXES)}")


def json_rows(lines: Iterable[bytes], path: Path, columns: Sequence[str] = ()) -> Iterator[Row | BadRow]:
    """Yield one row per JSON line, skipping blank lines."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            values = json.loads(line.decode())
        except (ValueError, RecursionError) as error:
            what = "not UTF-8" if isinstance(error, UnicodeDecodeError) else "broken JSON"
            content = line.rstrip(b"\r\n").decode(errors="backslashreplace")
            yield BadRow(path, number, f"{what}: {error}", content, ENCODING if what == "not UTF-8" else None)
            continue
        if not isinstance(values, dict):
            yield BadRow(path, number, f"wrong type: the row is a {type(values).__name__}, not an object", values)
        elif missing := [column for column in columns if column not in values]:
            reason = f"missing column {missing[0]!r} (the row has: {', '.join(map(repr, values)) or 'none'})"
            yield BadRow(path, number, reason, values, COLUMN)
        else:
            yield Row(number, values)


def good_json_rows(path: Path, columns: Sequence[str] = ()) -> Iterator[Row]:
    """Yield the rows of a file of JSON lines with any name; raise at a bad row."""
    for row in json_rows(byte_lines(path), path, columns):
        if isinstance(row, BadRow):
            raise InputError(row.reason, path=path, line=row.number, remedy=row.remedy or "correct the line")
        yield row


def _table_rows(
    path: Path, records: Iterable[tuple[int, list[str]]], columns: Sequence[str], all_columns: bool
) -> Iterator[Row | BadRow]:
    """Yield the non-empty records below a table's header. Excel omits empty cells at the end of a row."""
    header: list[str] | None = None
    for number, cells in records:
        if not cells:
            continue
        if not is_unicode("".join(cells)):
            if header is None:
                raise InputError("not UTF-8", path=path, line=number, remedy=ENCODING)
            content = [cell.encode(errors="surrogateescape").decode(errors="backslashreplace") for cell in cells]
            yield BadRow(path, number, "not UTF-8", content, ENCODING)
        elif header is None:
            header = [cell.strip() for cell in cells]
            _require_columns(header, columns, path=path, line=number, all_columns=all_columns)
        elif len(cells) > len(header) or (len(cells) < len(header) and path.suffix.lower() != EXCEL):
            reason = f"the row has {len(cells)} cells, the header {len(header)}"
            yield BadRow(path, number, reason, cells, "quote cells that contain the delimiter")
        else:
            yield Row(number, dict(zip(header, cells + [""] * (len(header) - len(cells)), strict=True)))


def csv_records(path: Path, form: TextForm) -> Iterator[tuple[int, list[str]]]:
    """Yield the records of a CSV or TSV file with the lines where they start; cells in double quotes may span lines.

    The delimiter is the one that splits the first line into most cells. Lines are decoded with ``surrogateescape``,
    so that a record that is not UTF-8 does not affect the others.
    """
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST_CELL))
    raw = in_utf8(byte_lines(path, form), path, form)
    lines = (line.decode(errors="surrogateescape") for line in raw)
    head = list(islice(lines, 1))
    form.line_end = "\r\n" if head and head[0].endswith("\r\n") else "\n"
    likely = "\t,;|" if path.name.lower().removesuffix(".gz").endswith(".tsv") else ",;\t|"

    def cells(delimiter: str) -> int:
        with suppress(csv.Error):  # raised again below, with the line
            return sum(map(len, csv.reader(head, delimiter=delimiter)))
        return 0

    form.delimiter = delimiter = max(likely, key=cells)
    reader = csv.reader(chain(head, lines), delimiter=delimiter, strict=True)
    while True:
        number = reader.line_num + 1
        try:
            yield number, next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            remedy = 'write a quote inside a quoted cell twice (""), close every quote, or use JSON lines'
            raise InputError(f"broken quoting: {error}", path=path, line=number, remedy=remedy) from None


def sheet_rows(path: Path, stream: IO[bytes] | None = None) -> Iterator[tuple[list[str], int | None]]:
    """Yield each row of the first sheet as strings, without empty ones at the end, and the sheet's row count.

    Values that are not text are `SheetCell`. With ``stream``, an open workbook, ``path`` is its name for errors.
    """
    require_extra("openpyxl", extra="data", capability=f"Reading {path.name}")
    from openpyxl import load_workbook

    remedy = "copy it again from its source"
    with refuse_broken("damaged, truncated or not an XLSX file", path=path, remedy=remedy), ExitStack() as stack:
        file = stack.enter_context(open_file(path)) if stream is None else stream
        check_archive(path, LARGEST_WORKBOOK, file)
        workbook = stack.enter_context(closing(load_workbook(file, read_only=True, data_only=True)))
        sheet = workbook.worksheets[0]
        total = sheet.max_row
        sheet.reset_dimensions()  # some programs write wrong ones, to which openpyxl would cut the rows
        for row in sheet.iter_rows():
            cells = list(map(_sheet_text, row))
            while cells and not cells[-1].strip():
                cells.pop()
            yield cells, total


def _sheet_text(cell: Any) -> str:
    value = cell.value
    if value is None:
        return ""
    if isinstance(value, str):
        return CODED.sub(lambda found: chr(int(found[1], 16)), value)
    # Whole numbers may be stored as 3.0.
    whole = int(value) if isinstance(value, float) and value.is_integer() else value
    return SheetCell(str(whole), value, cell.number_format)


def parquet_batches(
    path: Path, columns: Sequence[str], *, all_columns: bool
) -> Iterator[tuple[int, pyarrow.RecordBatch]]:
    """Yield the rows of a Parquet file, `BATCH` at a time, with the number of the first of them.

    A file without rows gives one empty batch with the columns. A text that is not UTF-8 counts as damage.
    """
    require_extra("pyarrow", extra="parquet", capability="Reading Parquet")
    import pyarrow
    import pyarrow.parquet

    def refusal(error: BaseException) -> Exception:
        what = f"damaged or not a Parquet file: {first_line(error)}"
        return InputError(what, path=path, line=first, remedy="write it again")

    first = 1
    with refuse_broken(refusal), ExitStack() as stack:
        source = path if url_of(path) is None else stack.enter_context(open_file(path))
        # With pre_buffer and without buffer_size, Arrow keeps every column chunk it has read until the file is closed.
        file = stack.enter_context(pyarrow.parquet.ParquetFile(source, pre_buffer=False, buffer_size=2**20))
        _require_columns(file.schema_arrow.names, columns, path=path, all_columns=all_columns)
        for batch in file.iter_batches(batch_size=BATCH, columns=None if all_columns else list(columns)):
            batch.validate(full=True)  # Arrow does not validate UTF-8 when it reads
            yield first, batch
            first += batch.num_rows
        if first == 1:
            yield first, pyarrow.RecordBatch.from_pylist([], schema=file.schema_arrow)


def byte_lines(path: Path, form: TextForm | None = None) -> Iterator[bytes]:
    """Yield the lines of a file, unpacked if its name ends in ``.gz``; for ``form`` see `limited_lines`."""
    with store_errors(path), ExitStack() as stack:
        try:
            stream: IO[bytes] = stack.enter_context(open_file(path))
        except OSError as error:
            what = "no such file" if isinstance(error, FileNotFoundError) else f"cannot be read: {error.strerror}"
            raise InputError(what, path=path) from None
        if path.name.lower().endswith(".gz"):
            stream = cast(IO[bytes], stack.enter_context(gzip.GzipFile(fileobj=stream)))
        yield from limited_lines(stream, path, form)


def limited_lines(stream: IO[bytes], path: Path, form: TextForm | None = None) -> Iterator[bytes]:
    """Yield the lines of a stream without byte order mark; raise at a line over the limit, as gzip may hide one.

    With ``form``, lines in UTF-16 with a byte order mark, or in the encoding of the form, are converted to UTF-8.
    Bytes that the encoding does not have stay as they are, which is not UTF-8.
    """
    with ExitStack() as stack:
        form, number = form or TextForm("utf-8"), 1
        try:
            if form.encoding is None:
                stream = stream if hasattr(stream, "peek") else io.BufferedReader(cast(io.RawIOBase, stream))
                start = stream.peek(2)[:2]
                form.encoding = "utf-16" if start in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else None
            read: Callable[[int], bytes] = stream.readline
            if form.other:
                errors = "surrogatepass" if form.other.startswith(("utf-16", "utf-32")) else "surrogateescape"
                text = io.TextIOWrapper(cast(io.BufferedReader, stream), form.other, errors, newline="\n")
                stack.callback(text.detach)

                def read(most: int) -> bytes:
                    return text.readline(most).encode(errors=errors)

            for number in count(1):
                line = read(LONGEST_LINE + 1)
                if not line:
                    return
                if len(line) > LONGEST_LINE:
                    what = f"no line end in {LONGEST_LINE:,} bytes"
                    raise InputError(what, path=path, line=number, remedy="put each document on its line")
                if number == 1 and line.startswith(codecs.BOM_UTF8):
                    form.bom, line = True, line[len(codecs.BOM_UTF8) :]
                yield line
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            what = f"damaged or truncated gzip file: {error}"
            raise InputError(what, path=path, line=number, remedy="copy it again from its source") from None
        except UnicodeDecodeError as error:
            raise InputError(f"not {form.encoding}: {error.reason}", path=path, line=number, remedy=ENCODING) from None


def in_utf8(lines: Iterator[bytes], path: Path, form: TextForm) -> Iterator[bytes]:
    """Yield the lines of a text in UTF-8; if they are in another encoding that the form lacks, guess it and convert.

    If the first line that is not ASCII is UTF-8, so is the file; other lines are damaged, and stay as they are.
    """
    for line in lines:
        if not line.isascii():
            break
        yield line
    else:
        return
    lines = chain([line], lines)
    if form.encoding is None and not form.bom and not is_unicode(line):
        ahead, size = [], 0
        while size < AHEAD and (more := next(lines, None)) is not None:
            ahead.append(more)
            size += len(more)
        lines = chain(ahead, lines)
        if found := guess_encoding(ahead):
            form.encoding = found
            advice = "if characters are wrong, save it as UTF-8 or name its encoding with --encoding"
            logger.warning("%s: not UTF-8, read as %s; %s", as_written(path), found, advice)
            lines = (_recoded(each, found) for each in lines)
    yield from lines


def guess_encoding(lines: Sequence[bytes]) -> str | None:
    """Return the likely encoding of lines that are not all UTF-8, or None if they are damaged or it is unclear."""
    marked = [line for line in lines if not line.isascii()]
    damaged = [line for line in marked if not is_unicode(line)]
    if len(marked) - len(damaged) >= UTF_8_SHARE * len(damaged):
        return None
    from charset_normalizer import from_bytes

    sizes = accumulate(map(len, damaged))
    sample = b"".join(line for line, size in zip(damaged, sizes, strict=True) if size - len(line) < SAMPLE)
    # Of encodings that explain the sample equally well, the likeliest.
    ranks = sorted(
        (match.chaos, -match.coherence, GUESSES.index(name))
        for match in from_bytes(sample, cp_isolation=list(GUESSES))
        for name in match.could_be_from_charset
        if name in GUESSES
    )
    found = [GUESSES[place] for chaos, _, place in ranks if chaos < ranks[0][0] + CLEAR]
    return found[0] if found and (len(found) == 1 or found[0] not in EAST_ASIAN) else None


def _recoded(line: bytes, encoding: str) -> bytes:
    try:
        return line.decode(encoding, "surrogateescape").encode(errors="surrogateescape")
    except UnicodeDecodeError:
        return line


def _require_columns(
    found: Sequence[str], wanted: Sequence[str], *, path: Path, line: int | None = None, all_columns: bool = False
) -> None:
    """Raise if a wanted column is missing or occurs twice; with ``all_columns``, if any column occurs twice."""
    for column in [*wanted, *filter(None, found if all_columns else ())]:
        times = found.count(column)
        if times != 1:
            what = f"column {column!r} occurs {times} times" if times else f"missing column {column!r}"
            what += f" (the table has: {', '.join(map(repr, found)) or 'none'})"
            raise InputError(what, path=path, line=line, remedy="rename one of them" if times else COLUMN)


def is_blank(text: str) -> bool:
    """Return whether a text has no visible character; zero-width and control characters count as spaces."""
    return not any(character.isprintable() and not character.isspace() for character in text)


def is_unicode(text: str | bytes) -> bool:
    """Return whether a text can be encoded as UTF-8, or bytes are UTF-8."""
    try:
        text.encode() if isinstance(text, str) else text.decode()
    except UnicodeError:
        return False
    return True


def check_text(text: object) -> None:
    """Raise InputError if a text is not a string, cannot be encoded as UTF-8, or has a NUL character."""
    if not isinstance(text, str):
        raise InputError(f"expected a string, got {type(text).__name__} {text!r:.80}")
    if not is_unicode(text):
        raise InputError("not UTF-8: the text has a lone surrogate")
    if (place := text.find("\0")) >= 0:
        raise InputError(f"the text has a NUL at character {place + 1}")


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
