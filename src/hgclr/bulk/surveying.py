"""Go through a file before it is labelled: its columns, the number of its rows, and whether all of them are good."""

from __future__ import annotations

import csv
import gzip
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hgclr.bulk.chunks import Chunk, read_chunks
from hgclr.bulk.formats import format_of
from hgclr.data.rows import BadRow
from hgclr.errors import InputError, require_extra

if TYPE_CHECKING:
    import pyarrow

__all__ = ["Survey", "stop_at", "survey"]


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
