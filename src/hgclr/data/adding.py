"""Add the rows of tables, such as corrected review files, to the train split of a data folder."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

from hgclr.data.folder import RECORD, DataFolder, LabelReader, find_data, remembered
from hgclr.data.layout import NO_LABELS, Layout, Raw, Whole, find_columns, find_separators
from hgclr.data.readers import (
    EXCEL,
    BadRow,
    Row,
    RowProblem,
    TextForm,
    byte_lines,
    csv_records,
    json_rows,
    parquet_batches,
    read_rows,
    read_text,
    sheet_rows,
    text_hash,
)
from hgclr.data.table_import import SAMPLE, find_labels
from hgclr.errors import InputError, refuse_url
from hgclr.files import FORMULAS, atomic_file, locked, sheet_writer, write_json
from hgclr.taxonomy import Taxonomy

SUGGESTED = 3
"""Number of paths suggested for a row of a review file."""
REASON, LABEL = "reason", "label"
SUGGESTIONS = {str(number): f"path {number}" for number in range(1, SUGGESTED + 1)}
"""The columns of the suggested paths, by number."""
LOCK = ".adding.lock"


@dataclass(frozen=True)
class Added:
    """The result of :func:`add_tables`.

    Args:
        train: the file of the train split.
        rows: number of rows read.
        added: number of new documents.
        corrected: number of texts that were in train with other labels.
        unchanged: number of texts that were in train with the same labels.
        unlabelled: number of rows without a label, which are not added.
        contradictions: number of texts whose rows have different labels; each gets the labels of all its rows.
        held_out: the places of rows whose text is in dev or test, which are not added.
    """

    train: Path
    rows: int
    added: int
    corrected: int
    unchanged: int
    unlabelled: int
    contradictions: int
    held_out: list[str]

    def to_json(self) -> dict[str, object]:
        """Return the result as plain values for a JSON file."""
        return vars(self) | {"train": str(self.train)}


class _Row(NamedTuple):
    """A labelled row of a table; ``id`` is its id there, ``raw`` its labels before they are looked up."""

    path: Path
    number: int
    text: str
    id: str | None
    raw: Raw


@dataclass(slots=True)
class _Document:
    """A text to add, its labels, its places in the tables, and what happens to it."""

    text: str
    id: str | None
    labels: set[int]
    places: list[str] = field(default_factory=list)
    fate: Literal["added", "corrected", "unchanged"] = "added"


def add_tables(folder: str | Path, files: Sequence[str | Path], *, layout: Layout | None = None) -> Added:
    """Add the rows of tables to the train split of a data folder; dev and test are not changed.

    A table is a review file, or any that :func:`~hgclr.data.table_import.import_tables` reads. Labels are ids, names or
    paths in the folder's tree; in a review file also the number of a suggested path. Ancestors are added. A text that
    is in train already gets the new labels in place of the old ones. A text that is in dev or test is not added.

    All rows are checked first. Then the file of the split is replaced by one of the same format.

    Args:
        folder: the data folder.
        files: the tables.
        layout: known columns and separators; the others are detected in each table.

    Raises:
        InputError: at an unknown label or an unusable row, with file and row; if another process is adding.
    """
    refuse_url(folder)
    with locked(find_data(folder) / LOCK, "adding documents", remedy="wait until it is done"):
        data = DataFolder(folder)
        train, held_out = data.split_path("train"), list[str]()
        documents: dict[int, _Document] = {}
        contradicted: set[int] = set()
        rows = labelled = 0
        for file in map(Path, files):
            found, total = _read_table(file, layout or Layout(), data)
            rows, labelled = rows + total, labelled + len(found)
            for row, labels in found:
                text = text_hash(row.text)
                own = documents.setdefault(text, _Document(row.text, row.id, set(labels)))
                if own.labels != set(labels):
                    contradicted.add(text)
                    own.labels.update(labels)
                own.places.append(f"{row.path}:{row.number}")
        for split in data.splits.keys() - {"train"}:
            for text, _ in _hashed(data, split):
                if (document := documents.pop(text, None)) is not None:
                    held_out += [f"{place} ({split})" for place in document.places]
        reader = LabelReader(data.taxonomy, replace(data.form, add_ancestors=True))
        for text, values in _hashed(data, "train"):
            if (document := documents.get(text)) is None:
                continue
            try:
                same = set(reader.read(values[data.form.label_column])) == document.labels
            except RowProblem:
                same = False
            if document.fate != "corrected":
                document.fate = "unchanged" if same else "corrected"
        _Rewriting(data, documents).write()
        fates = Counter(document.fate for document in documents.values())
        return Added(
            train,
            rows,
            added=fates["added"],
            corrected=fates["corrected"],
            unchanged=fates["unchanged"],
            unlabelled=rows - labelled,
            contradictions=len(contradicted & documents.keys()),
            held_out=sorted(held_out),
        )


def _hashed(data: DataFolder, split: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the hash of the text, and the cells, of the readable rows of a split."""
    form = data.form
    for row in read_rows(data.split_path(split), [form.text_column, form.label_column]):
        if isinstance(row, Row):
            yield text_hash(str(row.values[form.text_column] or "")), row.values


def _read_table(path: Path, layout: Layout, data: DataFolder) -> tuple[list[tuple[_Row, tuple[int, ...]]], int]:
    """Return the labelled rows of a table with their labels and ancestors, and the number of all its rows."""
    sample = [row for row in islice(read_rows(path, (), all_columns=True), SAMPLE) if isinstance(row, Row)]
    if not sample:
        return [], 0
    names = dict.fromkeys(name for row in sample for name in row.values)
    in_review = all(name in names for name in (*SUGGESTIONS.values(), REASON, LABEL))
    if in_review:
        layout = replace(layout, labels=layout.labels or (LABEL,), label_separator=";", path_separator=">")
    if not layout.text:
        usual = (data.form.text_column, data.source_text_column)
        layout = replace(layout, text=next((name for name in usual if name in names), ""))
    layout = find_columns(layout, [row.values for row in sample], path)
    rows: list[_Row] = []
    total = 0
    for row in read_rows(path, (layout.text,), all_columns=True):
        total += 1
        if isinstance(row, BadRow):
            raise InputError(row.reason, path=path, line=row.number, remedy=row.remedy or "correct the row")
        values = {name: row.values.get(name) for name in layout.columns}
        try:
            raw = _review_labels(row.values, data.taxonomy) if in_review else layout.raw_labels(values)
            text = read_text(values[layout.text])
        except RowProblem as problem:
            if problem.reason == NO_LABELS:
                continue
            raise _refused(problem, path, row.number) from None
        if in_review and text.startswith("'") and text[1:].startswith(FORMULAS):
            text = text[1:]  # the apostrophe is that of TableWriter
        own = values.get(layout.id or "")
        rows.append(_Row(path, row.number, text, None if own in (None, "") else str(own), raw))
    cells = {raw: place for place, raw in enumerate(dict.fromkeys(row.raw for row in rows))}
    of_cell = find_labels(cells, {}, find_separators(layout, list(cells)), tree=data.taxonomy, merge=False).of_cell
    found = []
    for each in rows:
        labels = of_cell[cells[each.raw]]
        if isinstance(labels, RowProblem):
            raise _refused(labels, path, each.number)
        found.append((each, labels))
    return found, total


def _refused(problem: RowProblem, path: Path, number: int) -> InputError:
    return InputError(problem.reason, path=path, line=number, remedy=problem.remedy)


def _review_labels(values: Mapping[str, Any], taxonomy: Taxonomy) -> Raw:
    """Return the labels that a person wrote into a row of a review file; numbers become the suggested paths."""
    cell = str(values[LABEL] or "").strip()
    written = [cell] if taxonomy.candidates(cell) else [part for part in map(str.strip, cell.split(";")) if part]
    if not written:
        raise RowProblem(NO_LABELS)
    labels = []
    for label in written:
        if (column := SUGGESTIONS.get(label)) is not None:
            if taxonomy.candidates(label):
                what = f"{label!r} is both a label and the number of a suggestion"
                raise RowProblem(what, "write the path of the label")
            if not (label := str(values[column] or "")):
                raise RowProblem(f"the row has no {column!r}", "write the path of a label")
        labels.append(Whole(label))
    return tuple(labels)


class _Rewriting:
    """Writes a train split with added and corrected documents; its other rows stay as they are."""

    def __init__(self, data: DataFolder, documents: Mapping[int, _Document]) -> None:
        self.data, self.train, self.form = data, data.split_path("train"), data.form
        self.new = [document for document in documents.values() if document.fate == "added"]
        self.corrected = {text: document for text, document in documents.items() if document.fate == "corrected"}

    def write(self) -> None:
        """Replace the file of the split, unless nothing changes."""
        if not self.new and not self.corrected:
            return
        name = self.train.name.lower()
        with ExitStack() as stack:
            temporary = stack.enter_context(atomic_file(self.train))
            if name.endswith(".parquet"):
                self._write_parquet(temporary)
            elif name.endswith(EXCEL):
                with sheet_writer(temporary) as sheet:
                    for cells in self._records(cells for cells, _ in sheet_rows(self.train)):
                        sheet.writerow(cells)
            else:
                stream: Any = stack.enter_context(temporary.open("wb"))
                if name.endswith(".gz"):  # without name and time, for reproducible bytes
                    stream = stack.enter_context(gzip.GzipFile("", "wb", compresslevel=6, fileobj=stream, mtime=0))
                lines = name.removesuffix(".gz").endswith(".jsonl")
                (self._write_lines if lines else self._write_table)(stream)
        if counts := remembered(self.data.path, "documents"):
            content = remembered(self.data.path) | {
                "documents": counts | {"train": counts.get("train", 0) + len(self.new)}
            }
            write_json(self.data.path / RECORD, content)

    def _write_lines(self, stream: IO[bytes]) -> None:
        as_text, line = False, b"\n"
        for line in byte_lines(self.train, TextForm()):
            row = next(json_rows([line], self.train), None)
            if isinstance(row, Row):
                as_text = isinstance(row.values.get(self.form.label_column), str)
                if (document := self._correction(row.values)) is not None:
                    changed = row.values | {self.form.label_column: self._label_cell(document, as_text=as_text)}
                    line = json.dumps(changed, ensure_ascii=False).encode() + b"\n"
            stream.write(line)
        if not line.endswith(b"\n"):
            stream.write(b"\n")
        for document in self.new:
            own = {} if document.id is None else {"id": document.id}
            stream.write(json.dumps(own | self._cells(document, as_text=as_text), ensure_ascii=False).encode() + b"\n")

    def _write_table(self, stream: IO[bytes]) -> None:
        form = TextForm()
        text = io.TextIOWrapper(stream, encoding="utf-8", errors="surrogateescape", newline="")
        writer: Any = None
        for cells in self._records(cells for _, cells in csv_records(self.train, form)):
            if writer is None:  # now the delimiter is known
                writer = csv.writer(text, delimiter=form.delimiter or ",", lineterminator=form.line_end)
            writer.writerow(cells)
        text.detach()

    def _records(self, records: Iterable[list[str]]) -> Iterator[list[str]]:
        """Yield the records of a table, the header first, with the corrected labels and the new documents."""
        header: list[str] = []
        for cells in records:
            if (document := self._correction(dict(zip(header, cells, strict=False)))) is not None:
                cells += [""] * (len(header) - len(cells))  # Excel omits empty cells at the end
                cells[header.index(self.form.label_column)] = self._label_cell(document, as_text=True)
            header = header or [cell.strip() for cell in cells]
            yield cells
        for document in self.new:
            own = {"id": document.id or ""} | self._cells(document, as_text=True)
            yield [own.get(name, "") for name in header]

    def _write_parquet(self, target: Path) -> None:
        import pyarrow
        import pyarrow.parquet

        schema, column = pyarrow.parquet.read_schema(self.train), self.form.label_column
        kind, place = schema.field(column).type, schema.get_field_index(column)
        as_text = not pyarrow.types.is_list(kind) and not pyarrow.types.is_large_list(kind)
        with pyarrow.parquet.ParquetWriter(target, schema) as file:
            for _, batch in parquet_batches(self.train, (), all_columns=True):
                cells = [
                    row[column] if document is None else self._label_cell(document, as_text=as_text)
                    for row in batch.select([self.form.text_column, column]).to_pylist()
                    for document in [self._correction(row)]
                ]
                file.write_batch(batch.set_column(place, schema.field(place), pyarrow.array(cells, kind)))
            new = [self._cells(document, as_text=as_text) for document in self.new]
            file.write_batch(pyarrow.RecordBatch.from_pylist(new, schema=schema))

    def _correction(self, values: Mapping[str, Any]) -> _Document | None:
        return self.corrected.get(text_hash(str(values.get(self.form.text_column) or "")))

    def _cells(self, document: _Document, *, as_text: bool) -> dict[str, Any]:
        label_cell = self._label_cell(document, as_text=as_text)
        return {self.form.text_column: document.text, self.form.label_column: label_cell}

    def _label_cell(self, document: _Document, *, as_text: bool) -> Any:
        ids, separator = [self.data.taxonomy.ids[label] for label in sorted(document.labels)], self.form.label_separator
        if not as_text:
            return ids
        if unclear := [label for label in ids if separator in label]:
            what = f"the label {unclear[0]!r} contains {separator!r}, which separates labels in {self.train.name}"
            raise InputError(what, path=self.data.path, remedy="convert the folder with hgclr data import")
        return separator.join(ids)
