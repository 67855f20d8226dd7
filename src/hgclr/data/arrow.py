"""Stream rows from Arrow tables on disk: Parquet files and Hugging Face ``datasets`` folders."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hgclr.data.columns import require_columns
from hgclr.data.rows import BadRow, Row
from hgclr.errors import InputError, require_extra

if TYPE_CHECKING:
    import pyarrow

__all__ = ["BATCH", "dataset_rows", "parquet_rows"]

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
