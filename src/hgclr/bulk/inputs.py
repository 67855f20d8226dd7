"""Find the files to label: names, folders and patterns."""

from __future__ import annotations

import csv
import glob
import gzip
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hgclr.bulk.chunks import Chunk, FileFormat, format_of, read_chunks, target_of
from hgclr.data.readers import SUFFIXES
from hgclr.data.rows import BadRow
from hgclr.errors import InputError, require_extra

if TYPE_CHECKING:
    import pyarrow

__all__ = ["Survey", "find_inputs", "is_pattern", "pair_with_targets", "stop_at", "survey"]


def is_pattern(name: str | Path) -> bool:
    """Tell whether a name is a pattern such as ``part-*.parquet``; a file that has that very name comes first."""
    return glob.has_magic(str(name)) and not Path(name).exists()


def find_inputs(names: Sequence[str | Path]) -> list[Path]:
    """Return the files that are meant, each once, in the order of the names; within one of them by their own names.

    Args:
        names: files; folders, which stand for the files in them that can be read (not for those in folders below); and
            patterns with ``*``, ``?``, ``[…]`` or ``**``.

    Raises:
        InputError: if there is no such file, or a folder or a pattern stands for none.
    """
    found: dict[Path, None] = {}
    for name in names:
        for path in _meant(name):
            found.setdefault(path.resolve(), None)
    return list(found)


def _meant(name: str | Path) -> list[Path]:
    path = Path(name)
    if path.is_file():
        return [path]
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.is_file() and _usable(file))
        if not files:
            raise InputError("no files to label", path=path, remedy="their names must end in " + ", ".join(SUFFIXES))
        return files
    if not is_pattern(name):
        raise InputError("no such file or folder", path=path)
    files = sorted(Path(match) for match in glob.glob(str(name), recursive=True) if Path(match).is_file())  # noqa: PTH207 - absolute patterns too
    if not files:
        raise InputError(f"no file has a name like {str(name)!r}")
    return files


def _usable(file: Path) -> bool:
    return not file.name.startswith(".") and file.name.lower().endswith(SUFFIXES)


def pair_with_targets(
    names: Sequence[str | Path], sources: Sequence[Path], folder: Path, wanted: FileFormat | None
) -> list[tuple[Path, Path]]:
    """Return every input with the file that its result goes to.

    Args:
        names: what was asked for, of which folders matter here.
        sources: the files that this stands for.
        folder: the folder of results.
        wanted: their format.

    Raises:
        InputError: if two results would have the same name, or input and results would mix.
    """
    where = folder.resolve()
    if where.exists() and not where.is_dir():
        raise InputError("not a folder, and results of bulk prediction go to one", path=folder)
    for name in names:
        if Path(name).is_dir() and where.is_relative_to(Path(name).resolve()):
            raise InputError(
                f"lies in the input folder {name}", path=folder, remedy="give an --output outside the input folder"
            )
    pairs: dict[Path, Path] = {}
    for source in sources:
        if source.is_relative_to(where):
            raise InputError(
                f"an input lies in the output folder {folder}", path=source, remedy="give another folder as --output"
            )
        target = target_of(source, folder, wanted)
        if target in pairs:
            raise InputError(
                f"{pairs[target]} and {source} would both be written to {target}",
                remedy="rename one of them, or label them into different folders",
            )
        pairs[target] = source
    return [(source, target) for target, source in pairs.items()]


@dataclass(frozen=True)
class Survey:
    """What is known of a file before its rows are labelled.

    Args:
        columns: all of them, in the order of the file; of JSON lines in the order in which they first appear.
        rows: how many there are.
        schema: the columns with their types: of a Parquet file, and of any other if asked for.
    """

    columns: list[str]
    rows: int
    schema: pyarrow.Schema | None = None


def survey(path: Path, text_column: str, *, strict: bool, types: bool) -> Survey:
    """Read a file once. Against labelling that costs nothing, and what is wrong with the file is known before.

    Args:
        path: the file.
        text_column: the column with the text.
        strict: stop at the first row without a usable text. Those of a Parquet file are met only when it is labelled.
        types: find out the types of all columns, which Parquet needs.

    Raises:
        InputError: if the file cannot be used, a column stands twice, a row is bad, or a column has no type.
    """
    kind = format_of(path).name
    if types or kind == "parquet":
        require_extra("pyarrow", extra="parquet", capability="Parquet")
    if kind == "parquet":
        return _parquet_survey(path)
    columns = dict.fromkeys(_header(path, "," if kind == "csv" else "\t") if kind != "jsonl" else ())
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
        schema = _texts(list(columns))
    return Survey(list(columns), rows, schema)


def stop_at(row: BadRow) -> InputError:
    """Return the error that a row without a usable text is, unless such rows are to be left unlabelled."""
    remedy = f"{row.remedy or 'mend the row'}; --skip-bad-rows leaves such rows without labels"
    return InputError(row.reason, path=row.path, line=row.number, remedy=remedy)


def _parquet_survey(path: Path) -> Survey:
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            names, rows, schema = list(file.schema_arrow.names), file.metadata.num_rows, file.schema_arrow
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(f"damaged, or no Parquet file: {error}", path=path, remedy="write it again") from None
    _refuse_twins(names, path)
    return Survey(names, rows, schema)


def _header(path: Path, delimiter: str) -> list[str]:
    """Return the header of a table; of one that cannot be read nothing, because reading its rows will tell why."""
    opened = gzip.open if format_of(path).gzipped else open
    try:
        with opened(path, "rt", encoding="utf-8-sig", errors="surrogateescape", newline="") as lines:
            names = next((cells for cells in csv.reader(lines, delimiter=delimiter, strict=True) if cells), [])
    except (csv.Error, OSError, EOFError, zlib.error):
        return []
    names = [name.strip() for name in names]
    _refuse_twins(names, path)
    return names


def _refuse_twins(names: list[str], path: Path) -> None:
    for place, name in enumerate(names):
        if name in names[:place]:
            raise InputError(
                f"column {name!r} stands {names.count(name)} times in the file", path=path, remedy="rename one of them"
            )


def _joined(schema: pyarrow.Schema | None, chunk: Chunk, columns: list[str], path: Path) -> pyarrow.Schema:
    """Return types that also fit the rows of a chunk."""
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


def _texts(columns: list[str]) -> pyarrow.Schema:
    import pyarrow

    return pyarrow.schema([(column, pyarrow.string()) for column in columns])
