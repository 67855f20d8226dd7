"""Files of bulk prediction: finding inputs, reading chunks of rows, writing rows with predictions."""

from __future__ import annotations

import io
import logging
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import chain, starmap
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, cast

from hgclr.data.readers import (
    ENCODING,
    SUFFIXES,
    BadRow,
    Row,
    TextForm,
    byte_lines,
    check_text,
    in_utf8,
    parquet_batches,
    read_rows,
)
from hgclr.data.texts import absolute, find_inputs
from hgclr.errors import InputError, as_written, first_line, require_extra
from hgclr.files import SheetWriter, TableWriter, gzip_stream, json_text, sheet_writer
from hgclr.inference.backends import windows
from hgclr.remote import kind_of, new_file

if TYPE_CHECKING:
    import pyarrow

logger = logging.getLogger(__name__)
Format = Literal["jsonl", "csv", "tsv", "parquet", "xlsx"]
Answer = dict[str, Any]
"""The output of ``Prediction.to_json``, or ``{"error": …}`` for a row without a usable text."""
ROWS = 1024
"""Rows in a chunk: enough for batches of similar length, few enough to balance the workers."""
SEPARATOR, PATH_SEPARATOR = ";", " > "
"""Separators of labels, and of the names of a path, in a cell of a table; the defaults of data folders."""


def format_of(path: Path) -> Format:
    """Return the format of a file, by its name."""
    name = path.name.lower()
    if not name.endswith(SUFFIXES):
        remedy = f"use a file that ends in {', '.join(SUFFIXES)}, or choose a format with --format"
        raise InputError("unknown format", path=path, remedy=remedy)
    return cast(Format, name.removesuffix(".gz").rpartition(".")[2])


def pair_with_targets(
    names: Sequence[str | Path], folder: Path, wanted: Format | None = None
) -> list[tuple[Path, Path]]:
    """Return each input with its result file: the same name, with another ending for another format.

    Results must have different names, and inputs and results must be in different folders.
    """
    if kind_of(folder) == "file":
        raise InputError("this is a file, not a folder", path=folder, remedy="choose a folder as --output")
    where, sources = absolute(folder), find_inputs(names)
    folders = [absolute(Path(name)) for name in names if kind_of(name) == "folder"]
    if any(map(where.is_relative_to, folders)) or any(source.is_relative_to(where) for source in sources):
        remedy = "choose an --output outside the input folders"
        raise InputError("inputs and results would be in the same folder", path=folder, remedy=remedy)
    pairs: dict[Path, Path] = {}
    for source in sources:
        kind, name = format_of(source), source.name
        if wanted not in (None, kind):
            name = f"{name[: name.lower().rindex(f'.{kind}')]}.{wanted}"
        if (target := folder / name) in pairs:
            what = f"{as_written(pairs[target])} and {as_written(source)} would both be written to {as_written(target)}"
            raise InputError(what, remedy="rename one of them, or label them in two runs with different --output")
        pairs[target] = source
    return [(source, target) for target, source in pairs.items()]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive rows of a file: their texts, or the problems of bad rows, and their cells by column.

    ``first`` is the number of the first row. For Parquet, ``rows`` has only the text, and ``table`` all columns. All
    chunks of a file share its ``form``.
    """

    path: Path
    first: int = 1
    texts: list[str | BadRow] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    table: pyarrow.RecordBatch | None = None
    form: TextForm = field(default_factory=TextForm)

    @property
    def usable_texts(self) -> list[str]:
        return [text for text in self.texts if isinstance(text, str)]

    @property
    def problems(self) -> list[BadRow]:
        return [text for text in self.texts if not isinstance(text, str)]

    def cells(self) -> list[dict[str, Any]]:
        return self.rows if self.table is None else cast(list[dict[str, Any]], self.table.to_pylist())

    def answers(self, given: Iterable[Answer]) -> list[Answer]:
        """Return an answer for every row, given those for the usable texts."""
        usable = iter(given)
        return [
            next(usable) if isinstance(text, str) else {"error": f"row {text.number}: {text.reason}"}
            for text in self.texts
        ]


def read_chunks(path: Path, text_columns: Sequence[str], form: TextForm | None = None) -> Iterator[Chunk]:
    """Yield all rows of a file in order, with constant memory; the text is in the first of the columns that a row has.

    A file with an unknown ending has one text per line. An empty file gives one empty chunk. For ``form`` see
    :func:`~hgclr.data.readers.read_rows`.
    """
    form, required = form or TextForm(), text_columns if len(text_columns) == 1 else ()
    name = path.name.lower()
    if name.endswith(".parquet"):
        for first, batch in parquet_batches(path, required, all_columns=True):
            found = [column for column in text_columns if column in batch.schema.names][:1]
            rows = [Row(number, values) for number, values in enumerate(batch.select(found).to_pylist(), first)]
            yield _chunk(rows, path, text_columns, batch)
        return
    if name.endswith(SUFFIXES):
        read = windows(read_rows(path, required, all_columns=True, form=form), ROWS)
        chunks: Iterator[Chunk] = (_chunk(some, path, text_columns, form=form) for some in read)
    else:
        chunks = line_chunks(in_utf8(byte_lines(path, form), path, form), path, text_columns[0])
    yield next(chunks, Chunk(path))
    yield from chunks


def line_chunks(lines: Iterable[str | bytes], path: Path, column: str) -> Iterator[Chunk]:
    """Yield texts, or the lines of a file as bytes, as rows with one column; ``path`` is for error messages."""

    def row(number: int, line: str | bytes) -> Row | BadRow:
        try:
            return Row(number, {column: line if isinstance(line, str) else line.decode().rstrip("\r\n")})
        except UnicodeDecodeError as error:
            return BadRow(path, number, f"not UTF-8: {error}", None, ENCODING)

    for some in windows(starmap(row, enumerate(lines, 1)), ROWS):
        yield _chunk(some, path, [column])


def _chunk(
    rows: Sequence[Row | BadRow],
    path: Path,
    text_columns: Sequence[str],
    table: pyarrow.RecordBatch | None = None,
    form: TextForm | None = None,
) -> Chunk:
    """Return rows as a chunk."""
    chunk = Chunk(path, rows[0].number if rows else 1, table=table, form=form or TextForm())
    for row in rows:
        values = row.content if isinstance(row, BadRow) else row.values
        chunk.rows.append(values if isinstance(values, dict) else {})
        if isinstance(row, BadRow):
            chunk.texts.append(row)
        elif not (found := [column for column in text_columns if column in row.values]):
            what, remedy = f"missing column {text_columns[0]!r}", "name the right column with --text-column"
            chunk.texts.append(BadRow(path, row.number, what, row.values, remedy))
        else:
            try:
                check_text(row.values[found[0]])
                chunk.texts.append(str(row.values[found[0]]))  # a SheetCell as well
            except InputError as error:
                chunk.texts.append(BadRow(path, row.number, f"column {found[0]!r}: {error.what}", row.values))
    return chunk


@dataclass(frozen=True)
class Columns:
    """Columns added to tables besides ``labels`` and ``probabilities``; ``raw`` keeps cells that are formulas.

    With ``several_paths``, labels in Parquet have a field ``paths``.
    """

    paths: bool = False
    abstained: bool = False
    error: bool = False
    raw: bool = False
    several_paths: bool = False


Labelled = Iterator[tuple[Chunk, list[Answer]]]
Write = Callable[[Chunk, list[Answer]], None]


def write_file(labelled: Labelled, target: Path | None, kind: Format, added: Columns) -> Labelled:
    """Write the rows of a file with their answers, and yield them; the file is written atomically at the end.

    ``target`` is None for standard output. Without a column for errors, a bad row raises. Tables have the columns of
    the first chunk. CSV from CSV has the encoding, byte order mark, delimiter and line ends of the input.
    """
    first = next(labelled)
    form = first[0].form
    columns = list(dict.fromkeys(chain.from_iterable(first[0].rows)))
    if first[0].table is not None:
        columns = first[0].table.schema.names
    own = ["prediction"]
    if kind in ("csv", "tsv", "xlsx"):
        own = ["labels", *(["paths"] if added.paths else []), "probabilities"]
        own += [name for name in ("abstained", "error") if getattr(added, name)]
    try:
        with ExitStack() as stack:
            path = None if target is None else stack.enter_context(new_file(target))
            output = stack.enter_context(ExitStack())
            if kind in ("parquet", "xlsx"):
                assert path is not None  # the command line rejects it for standard output
                if kind == "parquet":
                    write = output.enter_context(_parquet_writer(path, columns, first[0], added))
                else:
                    write = _table_writer(output.enter_context(sheet_writer(path)), columns, own)
            else:
                stream: IO[str] = sys.stdout
                if path is not None and target is not None:
                    encoding = "utf-8-sig" if form.bom and not form.other and kind != "jsonl" else "utf-8"
                    stream = output.enter_context(_text_stream(path, target, "wb", encoding))
                if kind == "jsonl":
                    write = _line_writer(stream)
                else:
                    delimiter = "," if kind == "csv" else "\t"
                    if form.delimiter is not None and format_of(first[0].path) == kind:
                        delimiter = form.delimiter
                    table = TableWriter(stream, raw=added.raw, delimiter=delimiter, lineterminator=form.line_end)
                    write = _table_writer(table, columns, own)
            for chunk, answers in chain([first], labelled):
                if chunk.problems and not added.error:
                    raise chunk.problems[0].error()
                for name in dict.fromkeys(chain(columns, *chunk.rows)):
                    what = f"the input already has a column {name!r}, which bulk prediction adds"
                    if name not in own:
                        if kind == "jsonl" or name in columns:
                            continue
                        what = f"column {name!r} is not in the first {ROWS} rows of the file"
                    remedy = "rename the column, or write the results with --format jsonl"
                    raise InputError(what, path=chunk.path, line=chunk.first, remedy=remedy)
                with _fitting(chunk):
                    write(chunk, answers)
                yield chunk, answers
            output.close()
            if path is not None and target is not None and form.other and kind in ("csv", "tsv"):
                _recode(path, target, form)
    except BrokenPipeError:  # the reader of standard output has stopped
        raise
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", path=target) from None


@contextmanager
def _fitting(chunk: Chunk) -> Iterator[None]:
    """Report a value that cannot be written in the format of the results."""
    try:
        yield
    except InputError as error:
        raise InputError(error.what, path=error.path or chunk.path, remedy=error.remedy) from None
    except (ArithmeticError, NotImplementedError, RecursionError, TypeError, ValueError) as error:
        what, remedy = f"cannot be written in this format: {first_line(error)}", "choose another --format"
        raise InputError(what, path=chunk.path, line=chunk.first, remedy=remedy) from None


@contextmanager
def _text_stream(path: Path, target: Path, mode: Literal["rb", "wb"], encoding: str) -> Iterator[IO[str]]:
    """Open a text file, packed if the name of ``target`` ends in ``.gz``."""
    with path.open(mode) as raw, ExitStack() as stack:
        stream: Any = raw
        if target.name.lower().endswith(".gz"):
            stream = stack.enter_context(gzip_stream(raw, mode))
        yield stack.enter_context(io.TextIOWrapper(stream, encoding=encoding, newline=""))


def _recode(path: Path, target: Path, form: TextForm) -> None:
    """Rewrite UTF-8 in the encoding of the input, known only now; or, if that lacks a character, in UTF-8 with mark."""
    own = form.other or ""
    copy = path.with_suffix(".2.tmp")
    try:
        for encoding in (own, "utf-8-sig"):
            try:
                with (
                    _text_stream(path, target, "rb", "utf-8") as source,
                    _text_stream(copy, target, "wb", encoding) as result,
                ):
                    if form.bom and encoding == own:
                        result.write("\ufeff")
                    shutil.copyfileobj(source, result)
                break
            except UnicodeEncodeError as error:
                text = error.object[error.start]
                what = "%s: written as UTF-8 with a byte order mark, because %s has no character %r"
                logger.warning(what, as_written(target), own, text)
        copy.replace(path)
    finally:
        copy.unlink(missing_ok=True)


def _json(value: object) -> str:
    """Return a value as JSON; a lone surrogate, which is not valid in UTF-8, is escaped."""
    return json_text(value, default=str).encode(errors="backslashreplace").decode()


def paths_of(label: Mapping[str, Any]) -> list[list[str]]:
    """Return all paths of a predicted label, from its JSON form."""
    return label.get("paths") or [label["path"]]


def _line_writer(stream: IO[str]) -> Write:
    def write(chunk: Chunk, answers: list[Answer]) -> None:
        for values, answer in zip(chunk.cells(), answers, strict=True):
            stream.write(_json(values | {"prediction": answer}) + "\n")

    return write


def table_cell(value: object) -> object:
    """Return a value as it is written into a table."""
    if isinstance(value, bool | dict | list):
        return _json(value)
    return "" if value is None else value if isinstance(value, str | int | float) else str(value)


def _table_writer(table: TableWriter | SheetWriter, columns: Sequence[str], own: Sequence[str]) -> Write:
    table.writerow([*columns, *own])

    def write(chunk: Chunk, answers: list[Answer]) -> None:
        for values, answer in zip(chunk.cells(), answers, strict=True):
            labels = answer.get("labels", [])
            inside = {tuple(path[:-1]) for label in labels for path in paths_of(label)}
            cells = {
                "labels": [label["id"] for label in labels],
                "probabilities": [str(label["probability"]) for label in labels],
                "paths": [
                    PATH_SEPARATOR.join(path)
                    for label in labels
                    if tuple(label["path"]) not in inside
                    for path in paths_of(label)
                ],
                "abstained": [label["id"] for label in answer.get("abstained", [])],
            }
            if unclear := [label for parts in cells.values() for label in parts if SEPARATOR in label]:
                what = f"the label {unclear[0]!r} contains {SEPARATOR!r}, which separates labels in a table"
                remedy = "write the results with --format jsonl or --format parquet"
                raise InputError(what, path=chunk.path, remedy=remedy)
            cells["error"] = [answer.get("error") or answer.get("note", "")]
            own_cells = (SEPARATOR.join(cells[name]) for name in own)
            table.writerow([*(table_cell(values.get(name)) for name in columns), *own_cells])

    return write


@contextmanager
def _parquet_writer(path: Path, columns: Sequence[str], first: Chunk, own: Columns) -> Iterator[Write]:
    """Yield the function that writes a chunk as one row group."""
    require_extra("pyarrow", extra="parquet", capability="Parquet")
    import pyarrow
    import pyarrow.parquet

    text = pyarrow.string()
    names = pyarrow.list_(text)
    several = [("paths", pyarrow.list_(names))] if own.several_paths else []
    label = pyarrow.struct([("id", text), ("path", names), ("probability", pyarrow.float64()), *several])
    labels = [("labels", pyarrow.list_(label)), ("abstained", pyarrow.list_(label)), ("truncated", pyarrow.bool_())]
    prediction = pyarrow.struct([*labels, ("note", text), ("error", text)])
    with _fitting(first):
        if first.table is None:
            kinds = [pyarrow.array([row.get(name) for row in first.rows]).type for name in columns]
            kinds = [text if pyarrow.types.is_null(kind) else kind for kind in kinds]
            schema = pyarrow.schema(list(zip(columns, kinds, strict=True)))
        else:
            schema = first.table.schema
        file = pyarrow.parquet.ParquetWriter(path, schema.append(pyarrow.field("prediction", prediction)))

    def write(chunk: Chunk, answers: list[Answer]) -> None:
        batch = chunk.table
        if batch is None:
            batch = pyarrow.RecordBatch.from_pylist(chunk.rows, schema=schema)
        added = pyarrow.array(answers, prediction)
        file.write_batch(pyarrow.RecordBatch.from_arrays([*batch.columns, added], schema=file.schema))

    with file:
        yield write
