"""Rows of a file, some at a time, with everything that their results are to keep."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from hgclr.data.readers import SUFFIXES, read_rows
from hgclr.data.rows import BadRow, Row, require_columns
from hgclr.decisions.decoding import Rule
from hgclr.decisions.settings import Decisions
from hgclr.errors import InputError, require_extra
from hgclr.inference.classifier import HierarchicalClassifier, check_text

if TYPE_CHECKING:
    import pyarrow

__all__ = [
    "Answer",
    "Chunk",
    "FileFormat",
    "Label",
    "Labelling",
    "format_of",
    "read_chunks",
    "spread",
    "target_of",
    "usable_texts",
]

FileFormat = Literal["jsonl", "csv", "parquet"]
"""What results can be asked for; without being asked they have the format of their input."""
FORMATS: tuple[FileFormat, ...] = get_args(FileFormat)


@dataclass(frozen=True, slots=True)
class Kind:
    """The format of one file.

    Args:
        name: ``jsonl``, ``csv``, ``tsv`` or ``parquet``.
        gzipped: whether it is packed with gzip.
    """

    name: str
    gzipped: bool

    @property
    def suffix(self) -> str:
        """Return how the names of such files end."""
        return f".{self.name}.gz" if self.gzipped else f".{self.name}"


def format_of(path: Path) -> Kind:
    """Return the format of a file, which its name tells.

    Raises:
        InputError: if it does not.
    """
    name = path.name.lower()
    if not name.endswith(SUFFIXES):
        raise InputError("unknown format", path=path, remedy="its name must end in " + ", ".join(SUFFIXES))
    return Kind(name.removesuffix(".gz").rpartition(".")[2], name.endswith(".gz"))


def target_of(source: Path, folder: Path, wanted: FileFormat | None) -> Path:
    """Return where the result of a file goes: a file of the same name, with another ending for another format."""
    kind = format_of(source)
    if wanted is None or wanted == kind.name:
        return folder / source.name
    stem = source.name[: -len(kind.suffix)]
    return folder / (stem + Kind(wanted, kind.gzipped and wanted != "parquet").suffix)


ROWS = 1024
"""Rows in a chunk: enough for batches of similar length, few enough to be dealt out evenly."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive rows of a file.

    Args:
        numbers: the line each row starts on in a text file, its place from 1 in a Parquet file.
        texts: what to label; None in a row that has no usable text.
        problems: why a row has none.
        rows: cells by column, empty in a row that cannot be read at all; none of a Parquet file.
        table: the rows of a Parquet file as they are there.
    """

    numbers: list[int]
    texts: list[str | None]
    problems: list[BadRow | None]
    rows: list[dict[str, object]]
    table: pyarrow.RecordBatch | None = None

    def values(self) -> list[dict[str, Any]]:
        """Return the cells of each row by column.

        Raises:
            InputError: if a cell of a Parquet file claims to be a text and is not.
        """
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
    """Yield all rows of a file in order, in flat memory; a row that cannot be labelled says why.

    Raises:
        InputError: if the file itself cannot be used: missing, damaged, or without the text column.
        MissingExtraError: if it is a Parquet file and pyarrow is not installed.
    """
    if format_of(path).name == "parquet":
        yield from _parquet_chunks(path, text_column)
        return
    rows = iter(read_rows(path, (text_column,)))
    while some := list(islice(rows, ROWS)):
        yield _chunk(some, path, text_column)


def _chunk(rows: list[Row | BadRow], path: Path, text_column: str) -> Chunk:
    chunk = Chunk([], [], [], [])
    for row in rows:
        if isinstance(row, Row):
            text, problem = _checked(row.values[text_column], path, row.number, text_column)
            values = row.values
        else:
            text, problem = None, row
            values = row.content if isinstance(row.content, dict) else {}
        chunk.numbers.append(row.number)
        chunk.texts.append(text)
        chunk.problems.append(problem)
        chunk.rows.append(values)
    return chunk


def _checked(cell: object, path: Path, number: int, text_column: str) -> tuple[str | None, BadRow | None]:
    """Return a text, or else what is wrong with it."""
    try:
        check_text(cell)
    except InputError as error:
        return None, BadRow(path, number, f"column {text_column!r}: {error.what}", None)
    return str(cell), None


def _parquet_chunks(path: Path, text_column: str) -> Iterator[Chunk]:
    require_extra("pyarrow", extra="parquet", capability="Reading Parquet")
    import pyarrow
    import pyarrow.parquet

    first = 1
    try:
        # Without these two, Arrow keeps every column chunk it has read until the file is closed.
        with pyarrow.parquet.ParquetFile(path, pre_buffer=False, buffer_size=2**20) as file:
            require_columns(file.schema_arrow.names, (text_column,), path=path)
            for batch in file.iter_batches(batch_size=ROWS):
                yield _parquet_chunk(batch, path, first, text_column)
                first += batch.num_rows
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(
            f"damaged, or no Parquet file: {error}", path=path, line=first, remedy="write it again"
        ) from None


def _parquet_chunk(batch: pyarrow.RecordBatch, path: Path, first: int, text_column: str) -> Chunk:
    chunk = Chunk(list(range(first, first + batch.num_rows)), [], [], [], batch)
    column = batch.column(text_column)
    for place, number in enumerate(chunk.numbers):
        text: str | None
        problem: BadRow | None
        try:
            cell = column[place].as_py()
        except UnicodeDecodeError as error:  # Arrow does not check its strings when it reads them
            text, problem = None, BadRow(path, number, f"column {text_column!r}: not UTF-8: {error.reason}", None)
        else:
            text, problem = _checked(cell, path, number, text_column)
        chunk.texts.append(text)
        chunk.problems.append(problem)
    return chunk


Answer = dict[str, list[dict[str, Any]]]
"""The labels of a text, as :meth:`hgclr.inference.Prediction.to_json` has them."""
NO_ANSWER: Answer = {"predictions": []}
Label = Callable[[Path], Iterator[tuple[Chunk, list[Answer]]]]
"""What an engine is to the rest: it yields the rows of a file with their answers, all of them, in order. It must be
called with the files that the engine was started with, in their order, each once and to its end."""


@dataclass(frozen=True)
class Labelling:
    """A model and how to decide.

    Args:
        model: its folder or hub name.
        threshold, decode, paths, abstain_below: see :meth:`hgclr.inference.HierarchicalClassifier.predict`.
    """

    model: str
    threshold: float | None = None
    decode: Rule | None = None
    paths: int | None = None
    abstain_below: float | None = None

    def open(self, device: str | None = None) -> HierarchicalClassifier:
        """Load the model; see :meth:`hgclr.inference.HierarchicalClassifier.from_pretrained`."""
        return HierarchicalClassifier.from_pretrained(self.model, device=device)

    def decisions(self, classifier: HierarchicalClassifier) -> Decisions:
        """Return how labels are decided in the end."""
        return classifier.decisions.changed(
            rule=self.decode, threshold=self.threshold, paths=self.paths, abstain_below=self.abstain_below
        )

    def answers(self, classifier: HierarchicalClassifier, texts: Sequence[str]) -> list[Answer]:
        """Return the labels of texts."""
        found = classifier.predict(
            texts, threshold=self.threshold, decode=self.decode, paths=self.paths, abstain_below=self.abstain_below
        )
        return [prediction.to_json() for prediction in found]


def usable_texts(chunk: Chunk) -> list[str]:
    """Return the texts of a chunk that can be labelled."""
    return [text for text in chunk.texts if text is not None]


def spread(chunk: Chunk, answers: Sequence[Answer]) -> list[Answer]:
    """Return an answer for every row of a chunk, from those to its usable texts."""
    given = iter(answers)
    return [NO_ANSWER if text is None else next(given) for text in chunk.texts]
