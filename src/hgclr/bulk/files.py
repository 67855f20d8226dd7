"""Files of bulk prediction: find the inputs, read their rows in chunks, write the rows with their predictions."""

from __future__ import annotations

import datetime
import decimal
import glob
import gzip
import io
import json
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, cast

from hgclr.data.readers import SUFFIXES, arrow_rows, byte_lines, decoded, parquet_batches, read_rows
from hgclr.data.rows import BadRow, Row, RowProblem, check_text
from hgclr.errors import InputError, require_extra
from hgclr.files import TableWriter, json_text
from hgclr.inference.backends import windows
from hgclr.remote import find_files, kind_of, new_file
from hgclr.urls import as_written, url_of

if TYPE_CHECKING:
    import pyarrow

Format = Literal["jsonl", "csv", "tsv", "parquet"]
Answer = dict[str, Any]
"""A prediction as ``Prediction.to_json`` returns it, or ``{"error": …}`` for a row without a usable text."""
ROWS = 1024
"""Rows in a chunk: enough for batches of similar length, few enough to be shared out evenly."""
SEPARATOR, PATH_SEPARATOR = ";", " > "
"""Separators of labels, and of the names of a path, in a cell of a table; the defaults of data folders."""
GROUP_ROWS, GROUP_BYTES = 2**14, 2**26
"""A row group of Parquet ends at one of these: small groups cost readers time, large ones cost memory."""


def format_of(path: Path) -> Format:
    """Return the format that the name of a file says."""
    name = path.name.lower()
    if not name.endswith(SUFFIXES):
        remedy = f"its name must end in {', '.join(SUFFIXES)}, or choose a format with --format"
        raise InputError("unknown format", path=path, remedy=remedy)
    return cast(Format, name.removesuffix(".gz").rpartition(".")[2])


def is_pattern(name: str | Path) -> bool:
    """Tell whether a name is a pattern such as ``part-*.parquet``, and not a file of that very name."""
    return glob.has_magic(str(name)) and kind_of(name) is None


def find_inputs(names: Sequence[str | Path]) -> list[Path]:
    """Return the files that are meant, each once, in the order of the names; within one of them sorted.

    Args:
        names: files; folders, which mean the files in them that can be read (not those in folders below); and patterns
            with ``*``, ``?``, ``[…]`` or ``**``; each of them also as a URL.
    """
    found: list[Path] = []
    for name in names:
        kind = kind_of(name)
        if kind == "file":
            files = [Path(name)]
        elif kind == "folder":
            inside = find_files(f"{glob.escape(url_of(name) or str(name))}/*")
            files = [file for file in inside if file.name.lower().endswith(SUFFIXES) and file.name[0] != "."]
        elif glob.has_magic(str(name)):
            files = find_files(name)
        else:
            raise InputError("no such file or folder", path=name)
        if not files:
            raise InputError("no files to label", path=name, remedy=f"give files that end in {', '.join(SUFFIXES)}")
        found += files
    return list(dict.fromkeys(map(_absolute, found)))


def _absolute(path: Path) -> Path:
    return path.resolve() if url_of(path) is None else path


def pair_with_targets(
    names: Sequence[str | Path], folder: Path, wanted: Format | None = None
) -> list[tuple[Path, Path]]:
    """Return each input with its result: a file of the same name, with another ending for another format.

    Two results must have different names, no input may be in the folder of results, and that in no folder of inputs.
    """
    if kind_of(folder) == "file":
        raise InputError("not a folder, and results of bulk prediction go to one", path=folder)
    where, sources = _absolute(folder), find_inputs(names)
    folders = [_absolute(Path(name)) for name in names if kind_of(name) == "folder"]
    if any(map(where.is_relative_to, folders)) or any(source.is_relative_to(where) for source in sources):
        remedy = "give an --output outside the folders of the inputs"
        raise InputError("inputs and results would be in one folder", path=folder, remedy=remedy)
    pairs: dict[Path, Path] = {}
    for source in sources:
        kind, name = format_of(source), source.name
        if wanted not in (None, kind):
            packed = name.lower().endswith(".gz")
            name = name[: -len(f".{kind}.gz" if packed else f".{kind}")]
            name += f".{wanted}.gz" if packed and wanted != "parquet" else f".{wanted}"
        if (target := folder / name) in pairs:
            raise InputError(
                f"{as_written(pairs[target])} and {as_written(source)} would both be written to {as_written(target)}",
                remedy="rename one of them, or label them into different folders",
            )
        pairs[target] = source
    return [(source, target) for target, source in pairs.items()]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive rows of a file: their numbers, texts or problems, and cells by column.

    Of a Parquet file, ``rows`` has the text only, and ``table`` all columns with their types.
    """

    path: Path
    numbers: list[int] = field(default_factory=list)
    texts: list[str | None] = field(default_factory=list)
    problems: list[BadRow | None] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    table: pyarrow.RecordBatch | None = None

    @property
    def usable_texts(self) -> list[str]:
        return [text for text in self.texts if text is not None]

    def answers(self, given: Iterable[Answer]) -> list[Answer]:
        """Return an answer for every row, from those to the usable texts."""
        usable = iter(given)
        return [
            next(usable) if problem is None else {"error": f"row {problem.number}: {problem.reason}"}
            for problem in self.problems
        ]

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys(chain.from_iterable(self.rows))) if self.table is None else self.table.schema.names

    def values(self, columns: Sequence[str]) -> list[dict[str, Any]]:
        """Return the cells by column; ``columns`` are those of the first rows, to which all others must keep."""
        if self.table is not None:
            try:
                return cast(list[dict[str, Any]], self.table.to_pylist())
            except UnicodeDecodeError:
                what, remedy = "a cell is not UTF-8", "write the results with --format parquet"
                raise InputError(what, path=self.path, line=self.numbers[0], remedy=remedy) from None
        if late := [name for name in self.columns if name not in columns]:
            what = f"column {late[0]!r} is not in the first {ROWS} rows of the file"
            remedy = "write the results with --format jsonl"
            raise InputError(what, path=self.path, line=self.numbers[0], remedy=remedy)
        return self.rows


def read_chunks(path: Path, text_columns: Sequence[str]) -> Iterator[Chunk]:
    """Yield all rows of a file in order, in flat memory; the text is in the first of the columns that a row has.

    A file with an unknown ending has one text per line.
    """
    required = text_columns if len(text_columns) == 1 else ()
    name = path.name.lower()
    if name.endswith(".parquet"):
        for first, batch in parquet_batches(path, required, all_columns=True, size=ROWS):
            found = [column for column in text_columns if column in batch.schema.names][:1]
            yield make_chunk(arrow_rows(batch.select(found), path, first), path, text_columns, batch)
        return
    if name.endswith(SUFFIXES):
        rows = read_rows(path, required, all_columns=True)
    else:
        rows = line_rows(byte_lines(path), path, text_columns[0])
    for some in windows(rows, ROWS):
        yield make_chunk(some, path, text_columns)


def line_rows(lines: Iterable[str | bytes], path: Path, column: str) -> Iterator[Row | BadRow]:
    """Yield texts, or the lines of a file as bytes, as rows of a table with one column; ``path`` is for messages."""
    for number, line in enumerate(lines, 1):
        try:
            yield Row(number, {column: line if isinstance(line, str) else decoded(line).rstrip("\r\n")})
        except RowProblem as problem:
            yield BadRow(path, number, problem.reason, None, problem.remedy)


def make_chunk(
    rows: Iterable[Row | BadRow], path: Path, text_columns: Sequence[str], table: pyarrow.RecordBatch | None = None
) -> Chunk:
    """Return rows as a chunk, in which the unusable texts have a problem."""
    chunk = Chunk(path, table=table)
    for row in rows:
        problem, text = None, None
        values = row.content if isinstance(row, BadRow) else row.values
        if isinstance(row, BadRow):
            problem = row
        elif not (found := [column for column in text_columns if column in row.values]):
            what, remedy = f"missing column {text_columns[0]!r}", "name the right column with --text-column"
            problem = BadRow(path, row.number, what, row.values, remedy)
        else:
            try:
                check_text(text := row.values[found[0]])
            except InputError as error:
                problem = BadRow(path, row.number, f"column {found[0]!r}: {error.what}", row.values)
        chunk.numbers.append(row.number)
        chunk.texts.append(cast(str, text) if problem is None else None)
        chunk.problems.append(problem)
        chunk.rows.append(values if isinstance(values, dict) else {})
    return chunk


@dataclass(frozen=True)
class Columns:
    """Columns that tables get beside ``labels`` and ``probabilities``; ``raw`` keeps cells that are formulas."""

    paths: bool = False
    abstained: bool = False
    error: bool = False
    raw: bool = False


Write = Callable[[Chunk, Sequence[Answer]], None]


@contextmanager
def open_writer(target: Path | None, kind: Format, first: Chunk | None, added: Columns) -> Iterator[Write]:
    """Yield the function that writes rows to a file, which appears, whole, when the block succeeds.

    ``target`` is None for standard output. ``first``, None for an empty input, shows the columns. An added column gets
    a number if the input has one of its name.
    """
    columns = [] if first is None else first.columns
    own = ["prediction"]
    if kind in ("csv", "tsv"):
        chosen = {"labels": True, "paths": added.paths, "probabilities": True}
        own = [name for name, is_chosen in (chosen | vars(added)).items() if is_chosen and name != "raw"]
    names = {name: _fresh(name, columns) for name in own}
    with ExitStack() as stack:
        path = None if target is None else stack.enter_context(new_file(target))
        if kind == "parquet":
            assert path is not None  # the command line refuses it for standard output
            yield stack.enter_context(_parquet_writer(path, columns, first, names["prediction"]))
            return
        stream: IO[str] = sys.stdout
        if path is not None and target is not None:
            raw: IO[bytes] = stack.enter_context(path.open("wb"))
            if target.name.lower().endswith(".gz"):  # without name and time: equal content makes equal files
                packed = gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=6, mtime=0)
                raw = cast(IO[bytes], stack.enter_context(packed))
            stream = stack.enter_context(io.TextIOWrapper(raw, encoding="utf-8", newline=""))
        if kind == "jsonl":

            def write(chunk: Chunk, answers: Sequence[Answer]) -> None:
                for values, answer in zip(chunk.values(chunk.columns), answers, strict=True):
                    if names["prediction"] in values:
                        what = f"the field {names['prediction']!r} is not in the first {ROWS} rows, but here"
                        raise InputError(what, path=chunk.path, line=chunk.numbers[0], remedy="rename the field")
                    stream.write(_json(values | {names["prediction"]: answer}) + "\n")

            yield write
        else:
            yield _table_writer(stream, "," if kind == "csv" else "\t", columns, names, raw=added.raw)


def _fresh(name: str, columns: Sequence[str]) -> str:
    variants = chain([name], (f"{name}_{number}" for number in count(2)))
    return next(variant for variant in variants if variant not in columns)


def _table_writer(
    stream: IO[str], delimiter: str, columns: Sequence[str], names: dict[str, str], *, raw: bool
) -> Write:
    table = TableWriter(stream, raw=raw, delimiter=delimiter, lineterminator="\n")
    table.writerow([*columns, *names.values()])

    def write(chunk: Chunk, answers: Sequence[Answer]) -> None:
        for values, answer in zip(chunk.values(columns), answers, strict=True):
            labels = answer.get("labels", [])
            inside = {tuple(label["path"][:-1]) for label in labels}
            cells = {
                "labels": [label["id"] for label in labels],
                "probabilities": [str(label["probability"]) for label in labels],
                "paths": [PATH_SEPARATOR.join(label["path"]) for label in labels if tuple(label["path"]) not in inside],
                "abstained": [label["id"] for label in answer.get("abstained", [])],
                "error": [answer.get("error") or answer.get("note", "")],
            }
            table.writerow(
                [_cell(values.get(column)) for column in columns] + [SEPARATOR.join(cells[n]) for n in names]
            )

    return write


def _cell(value: object) -> str:
    """Return a cell of a table: a text as it is, nothing for None, anything else as JSON."""
    value = _plain(value) if value is not None and not isinstance(value, str | int | float | list | dict) else value
    text = "" if value is None else value if isinstance(value, str) else _json(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        remedy = "write the results with --format jsonl"
        raise InputError(f"not UTF-8: a cell has a lone surrogate: {text!r:.80}", remedy=remedy) from None
    return text


def _json(value: object) -> str:
    text = json_text(value, default=_plain)
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate, which an escape can hold
        return json.dumps(value, default=_plain)
    return text


def _plain(value: object) -> object:
    """Return a value of Parquet that JSON does not have as text, where that loses nothing."""
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, decimal.Decimal | uuid.UUID):
        return str(value)
    what = f"JSON and tables cannot hold the {type(value).__name__} {value!r:.80}"
    raise InputError(what, remedy="write the results with --format parquet, or turn the column into text")


@contextmanager
def _parquet_writer(path: Path, columns: Sequence[str], first: Chunk | None, name: str) -> Iterator[Write]:
    require_extra("pyarrow", extra="parquet", capability="Parquet")
    import pyarrow
    import pyarrow.parquet

    @contextmanager
    def unfit_reported() -> Iterator[None]:
        try:
            yield
        except (pyarrow.ArrowException, OverflowError, TypeError, ValueError) as error:
            what = f"Parquet cannot hold a column: {str(error).splitlines()[0]}"
            raise InputError(what, remedy="write the results with --format jsonl") from None

    text = pyarrow.string()
    with unfit_reported():
        if first is None or first.table is None:
            cells = [pyarrow.array([row.get(column) for row in first.rows] if first else []) for column in columns]
            kinds = [text if pyarrow.types.is_null(array.type) else array.type for array in cells]
            own = pyarrow.schema(list(zip(columns, kinds, strict=True)))
        else:
            own = first.table.schema
        label = pyarrow.struct([("id", text), ("path", pyarrow.list_(text)), ("probability", pyarrow.float64())])
        labels = [("labels", pyarrow.list_(label)), ("abstained", pyarrow.list_(label)), ("truncated", pyarrow.bool_())]
        prediction = pyarrow.struct([*labels, ("note", text), ("error", text)])
        file = pyarrow.parquet.ParquetWriter(path, own.append(pyarrow.field(name, prediction)))
    waiting: list[pyarrow.RecordBatch] = []

    def write(chunk: Chunk, answers: Sequence[Answer]) -> None:
        with unfit_reported():
            batch = chunk.table
            if batch is None:
                batch = pyarrow.RecordBatch.from_pylist(chunk.values(columns), schema=own)
            added = pyarrow.array(list(answers), prediction)
            waiting.append(pyarrow.RecordBatch.from_arrays([*batch.columns, added], schema=file.schema))
        if sum(b.num_rows for b in waiting) >= GROUP_ROWS or sum(b.nbytes for b in waiting) >= GROUP_BYTES:
            file.write_table(pyarrow.Table.from_batches(waiting, file.schema))
            waiting.clear()

    with file:
        yield write
        with unfit_reported():
            file.write_table(pyarrow.Table.from_batches(waiting, file.schema))
