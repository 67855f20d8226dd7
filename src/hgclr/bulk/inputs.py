"""The files to label: find them, name the files that their results go to, and read their rows, some at a time."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from hgclr.data.readers import SUFFIXES, open_parquet, parquet_batches, read_rows, table_header
from hgclr.data.rows import BadRow, Row, check_text
from hgclr.errors import InputError, require_extra
from hgclr.inference.backends import windows
from hgclr.remote import exists, find_files, is_dir, is_file
from hgclr.urls import as_written, url_of

if TYPE_CHECKING:
    import pyarrow

__all__ = [
    "Chunk",
    "FileFormat",
    "Survey",
    "TextFormat",
    "find_inputs",
    "format_of",
    "is_pattern",
    "line_chunks",
    "output_format",
    "pair_with_targets",
    "read_chunks",
    "stop_at",
    "survey",
    "target_of",
]

FileFormat = Literal["jsonl", "csv", "parquet"]
"""What results can be asked for; without being asked they have the format of their input."""
ROWS = 1024
"""Rows in a chunk: enough for batches of similar length, few enough to be dealt out evenly."""


class TextFormat(NamedTuple):
    """The format of one file: ``jsonl``, ``csv``, ``tsv`` or ``parquet``, and whether it is packed with gzip."""

    name: str
    gzipped: bool

    @property
    def suffix(self) -> str:
        return f".{self.name}.gz" if self.gzipped else f".{self.name}"


def format_of(path: Path) -> TextFormat:
    """Return the format of a file, which its name must tell."""
    name = path.name.lower()
    if not name.endswith(SUFFIXES):
        raise InputError("unknown format", path=path, remedy="its name must end in " + ", ".join(SUFFIXES))
    return TextFormat(name.removesuffix(".gz").rpartition(".")[2], name.endswith(".gz"))


def output_format(output: Path | None, wanted: FileFormat | None) -> TextFormat:
    """Return the format of one file of results: that which is wanted, else what its name says.

    Standard output (None) and a name without an ending have JSON lines.
    """
    if wanted == "parquet" and output is None:
        raise InputError("Parquet is not written to standard output", remedy="name a file with --output")
    if wanted is not None:
        return TextFormat(wanted, output is not None and output.name.endswith(".gz") and wanted != "parquet")
    if output is None or not output.suffix:
        return TextFormat("jsonl", False)
    try:
        return format_of(output)
    except InputError as error:
        raise InputError(
            error.what, path=output, remedy=f"{error.remedy}, or say what to write with --format"
        ) from None


def target_of(source: Path, folder: Path, wanted: FileFormat | None) -> Path:
    """Return where the result of a file goes: a file of the same name, with another ending for another format."""
    kind = format_of(source)
    if wanted is None or wanted == kind.name:
        return folder / source.name
    stem = source.name[: -len(kind.suffix)]
    return folder / (stem + TextFormat(wanted, kind.gzipped and wanted != "parquet").suffix)


def is_pattern(name: str | Path) -> bool:
    """Tell whether a name is a pattern such as ``part-*.parquet``; a file that has that very name comes first."""
    return glob.has_magic(str(name)) and not exists(name)


def find_inputs(names: Sequence[str | Path]) -> list[Path]:
    """Return the files that are meant, each once, in the order of the names; within one of them by their own names.

    Args:
        names: files; folders, which stand for the files in them that can be read (not for those in folders below); and
            patterns with ``*``, ``?``, ``[…]`` or ``**``; all of these also as URLs in object stores.
    """
    return list(dict.fromkeys(_whole(path) for name in names for path in _meant(name)))


def _whole(path: Path) -> Path:
    """Return an absolute path, without links; a URL as it is."""
    return path.resolve() if url_of(path) is None else path


def _meant(name: str | Path) -> list[Path]:
    path, url = Path(name), url_of(name)
    if is_file(name):
        return [path]
    if is_dir(name):
        inside = path.iterdir() if url is None else find_files(f"{glob.escape(url)}/*")
        readable = (file for file in inside if url is not None or file.is_file())
        files = sorted(file for file in readable if file.name.lower().endswith(SUFFIXES) and file.name[0] != ".")
        if not files:
            raise InputError("no files to label", path=path, remedy="their names must end in " + ", ".join(SUFFIXES))
        return files
    if not is_pattern(name):
        raise InputError("no such file or folder", path=path)
    if url is not None:
        files = find_files(url)
    else:
        files = sorted(Path(match) for match in glob.glob(str(name), recursive=True) if Path(match).is_file())  # noqa: PTH207 - absolute patterns too
    if not files:
        raise InputError(f"no file has a name like {as_written(name)!r}")
    return files


def pair_with_targets(
    names: Sequence[str | Path], sources: Sequence[Path], folder: Path, wanted: FileFormat | None
) -> list[tuple[Path, Path]]:
    """Return every input with the file that its result goes to.

    Two results must not have the same name, and input and results must not mix: no folder among the ``names`` that were
    asked for may hold the folder of results.
    """
    where = _whole(folder)
    if exists(where) and not is_dir(where):
        raise InputError("not a folder, and results of bulk prediction go to one", path=folder)
    for name in names:
        if where.is_relative_to(_whole(Path(name))) and is_dir(name):
            raise InputError(
                f"lies in the input folder {as_written(name)}",
                path=folder,
                remedy="give an --output outside the input folder",
            )
    pairs: dict[Path, Path] = {}
    for source in sources:
        if source.is_relative_to(where):
            raise InputError(
                f"an input lies in the output folder {as_written(folder)}",
                path=source,
                remedy="give another folder as --output",
            )
        target = target_of(source, folder, wanted)
        if target in pairs:
            raise InputError(
                f"{as_written(pairs[target])} and {as_written(source)} would both be written to {as_written(target)}",
                remedy="rename one of them, or label them into different folders",
            )
        pairs[target] = source
    return [(source, target) for target, source in pairs.items()]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive rows of a file.

    Args:
        numbers: the line each row starts on in a text file, its place from 1 in a Parquet file.
        texts: what to label; None in a row that has no usable text.
        problems: why a row has none.
        rows: cells by column, empty in a row that cannot be read at all; of a Parquet file only those with the text.
        table: the rows of a Parquet file as they are there.
    """

    numbers: list[int]
    texts: list[str | None]
    problems: list[BadRow | None]
    rows: list[dict[str, object]]
    table: pyarrow.RecordBatch | None = None

    @property
    def usable_texts(self) -> list[str]:
        return [text for text in self.texts if text is not None]

    @property
    def usable_rows(self) -> list[int]:
        """The numbers of the rows that these are in."""
        return [number for number, text in zip(self.numbers, self.texts, strict=True) if text is not None]

    def values(self) -> list[dict[str, Any]]:
        """Return the cells of each row by column; refuse one of a Parquet file that claims to be a text and is not."""
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
    """Yield all rows of a file in order, in flat memory; a row that cannot be labelled says why."""
    if format_of(path).name == "parquet":
        for first, batch in parquet_batches(path, (text_column,), all_columns=True, size=ROWS):
            yield _chunk(_parquet_rows(batch, first, path, text_column), path, text_column, batch)
        return
    for some in windows(read_rows(path, (text_column,)), ROWS):
        yield _chunk(some, path, text_column)


def line_chunks(lines: Iterable[str | bytes], path: Path, text_column: str) -> Iterator[Chunk]:
    """Yield texts, or the lines of a file as bytes, as a table with that one column; ``path`` is for messages."""

    def rows() -> Iterator[Row | BadRow]:
        for number, line in enumerate(lines, 1):
            try:
                text = line if isinstance(line, str) else line.decode().rstrip("\r\n")
                yield Row(number, {text_column: text})
            except UnicodeDecodeError as error:
                yield BadRow(path, number, f"not UTF-8: {error.reason}", None, "save the file as UTF-8")

    for some in windows(rows(), ROWS):
        yield _chunk(some, path, text_column)


def _chunk(
    rows: Iterable[Row | BadRow], path: Path, text_column: str, table: pyarrow.RecordBatch | None = None
) -> Chunk:
    chunk = Chunk([], [], [], [], table)
    for row in rows:
        text: str | None = None
        problem: BadRow | None = None
        if isinstance(row, BadRow):
            values, problem = row.content if isinstance(row.content, dict) else {}, row
        else:
            values = row.values
            try:
                check_text(values[text_column])
                text = str(values[text_column])
            except InputError as error:
                problem = BadRow(path, row.number, f"column {text_column!r}: {error.what}", None)
        chunk.numbers.append(row.number)
        chunk.texts.append(text)
        chunk.problems.append(problem)
        chunk.rows.append(values)
    return chunk


def _parquet_rows(batch: pyarrow.RecordBatch, first: int, path: Path, text_column: str) -> Iterator[Row | BadRow]:
    for number, cell in enumerate(batch.column(text_column), first):
        try:
            yield Row(number, {text_column: cell.as_py()})
        except UnicodeDecodeError as error:  # Arrow does not check its strings when it reads them
            yield BadRow(path, number, f"column {text_column!r}: not UTF-8: {error.reason}", None)


@dataclass(frozen=True)
class Survey:
    """What is known of a file before its rows are labelled.

    The columns are in the order of the file, those of JSON lines in the order in which they first appear. The schema
    has the types of a Parquet file's columns, and of any other's if asked for.
    """

    columns: list[str]
    rows: int
    schema: pyarrow.Schema | None = None


def survey(path: Path, text_column: str, *, strict: bool, types: bool) -> Survey:
    """Read a file once. Against labelling that costs nothing, and what is wrong with the file is known before.

    ``strict`` stops at the first row without a usable text (those of a Parquet file are met only when it is labelled),
    ``types`` finds out the types of all columns, which Parquet needs.
    """
    kind = format_of(path).name
    if types or kind == "parquet":
        require_extra("pyarrow", extra="parquet", capability="Parquet")
    if kind == "parquet":
        return _parquet_survey(path)
    names = table_header(path, (text_column,)) if kind != "jsonl" else []
    _refuse_twins(names, path)
    columns = dict.fromkeys(names)
    schema, rows = None, 0
    for chunk in read_chunks(path, text_column):
        rows += len(chunk.numbers)
        if strict:
            for problem in filter(None, chunk.problems):
                raise stop_at(problem)
        for row in chunk.rows:
            columns.update(dict.fromkeys(row))
        if types and kind == "jsonl":
            schema = _joined(schema, chunk, list(columns), path)
    if types and schema is None:
        import pyarrow

        schema = pyarrow.schema([(column, pyarrow.string()) for column in columns])
    return Survey(list(columns), rows, schema)


def stop_at(row: BadRow) -> InputError:
    """Return the error that a row without a usable text is, unless such rows are to be left unlabelled."""
    remedy = f"{row.remedy or 'mend the row'}; --skip-bad-rows leaves such rows without labels"
    return InputError(row.reason, path=row.path, line=row.number, remedy=remedy)


def _parquet_survey(path: Path) -> Survey:
    import pyarrow

    try:
        with open_parquet(path) as file:
            names, rows, schema = list(file.schema_arrow.names), file.metadata.num_rows, file.schema_arrow
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(f"damaged, or no Parquet file: {error}", path=path, remedy="write it again") from None
    _refuse_twins(names, path)
    return Survey(names, rows, schema)


def _refuse_twins(names: list[str], path: Path) -> None:
    for place, name in enumerate(names):
        if name in names[:place]:
            raise InputError(
                f"column {name!r} stands {names.count(name)} times in the file", path=path, remedy="rename one of them"
            )


def _joined(schema: pyarrow.Schema | None, chunk: Chunk, columns: list[str], path: Path) -> pyarrow.Schema:
    import pyarrow

    for column in columns:
        try:
            found = pyarrow.array([row.get(column) for row in chunk.rows]).type
            known = pyarrow.schema([] if schema is None else schema)
            schema = pyarrow.unify_schemas([known, pyarrow.schema([(column, found)])], promote_options="permissive")
        except (pyarrow.ArrowException, OverflowError, TypeError, ValueError) as error:
            raise InputError(
                f"column {column!r} does not fit Parquet: {str(error).splitlines()[0]}",
                path=path,
                line=chunk.numbers[0],
                remedy="make the column of one type, or write the results with --format jsonl",
            ) from None
    return schema
