"""Write rows with their labels as Parquet; what comes from Parquet keeps its types, nested ones too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from hgclr.bulk.chunks import Chunk
from hgclr.bulk.labelling import Answer
from hgclr.bulk.surveying import Survey
from hgclr.errors import InputError

if TYPE_CHECKING:
    import pyarrow

    from hgclr.bulk.writers import Added

__all__ = ["ParquetWriter"]

GROUP_ROWS, GROUP_BYTES = 2**14, 2**26
"""A row group ends when it has so many rows or bytes: small ones cost every reader time, large ones us memory."""


class ParquetWriter(AbstractContextManager["ParquetWriter"]):
    """Write a Parquet file.

    Args:
        path: the file.
        survey: the columns and types of the input.
        added: the columns of the results.

    Raises:
        InputError: if Parquet cannot hold a column.
    """

    def __init__(self, path: Path, survey: Survey, added: Added) -> None:
        import pyarrow
        import pyarrow.parquet

        self._names = added.names(survey.columns, table=False)
        fields = [
            ("id", pyarrow.string()),
            ("path", pyarrow.list_(pyarrow.string())),
            ("probability", pyarrow.float64()),
        ]
        labels = pyarrow.list_(pyarrow.struct(fields))
        types = {"error": pyarrow.string(), "predictions": labels, "doubtful": labels}
        self._input = survey.schema
        schema: Any = survey.schema
        for name, fresh in self._names.items():
            schema = schema.append(pyarrow.field(fresh, types[name]))
        self._schema = schema
        self._waiting: list[pyarrow.RecordBatch] = []
        with _unfit_reported():
            self._file = pyarrow.parquet.ParquetWriter(path, self._schema)

    def write(self, chunk: Chunk, answers: Sequence[Answer]) -> None:
        """Write the rows of a chunk, each with its answer."""
        import pyarrow

        with _unfit_reported():
            batch = chunk.table
            if batch is None:
                batch = pyarrow.RecordBatch.from_pylist(chunk.rows, schema=self._input)
            cells: dict[str, list[object]] = {
                "predictions": [answer["predictions"] for answer in answers],
                "doubtful": [answer.get("doubtful", []) for answer in answers],
                "error": list(chunk.errors()),
            }
            arrays = [pyarrow.array(cells[name], self._schema.field(fresh).type) for name, fresh in self._names.items()]
            self._waiting.append(pyarrow.RecordBatch.from_arrays([*batch.columns, *arrays], schema=self._schema))
        rows = sum(batch.num_rows for batch in self._waiting)
        if rows >= GROUP_ROWS or sum(batch.nbytes for batch in self._waiting) >= GROUP_BYTES:
            self._flush()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._flush()
        finally:
            self._file.close()

    def _flush(self) -> None:
        import pyarrow

        if self._waiting:
            with _unfit_reported():
                self._file.write_table(pyarrow.Table.from_batches(self._waiting, self._schema))
            self._waiting = []


@contextmanager
def _unfit_reported() -> Iterator[None]:
    """Turn what Arrow raises over values that Parquet cannot hold into an error that says what to do."""
    import pyarrow

    try:
        yield
    except (pyarrow.ArrowException, OverflowError) as error:
        raise InputError(
            f"Parquet cannot hold a column: {str(error).splitlines()[0]}",
            remedy="write the results with --format jsonl",
        ) from None
