"""Add the rows of tables, such as corrected review files, to the train split of a data folder."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from hgclr.data.folder import RECORD, DataFolder, LabelReader, Readings, find_data, remembered
from hgclr.data.layout import NO_LABELS, Layout, Raw, Whole, find_columns, find_separators
from hgclr.data.readers import Row, RowProblem, TextForm, byte_lines, json_rows, read_rows, text_hash
from hgclr.data.table_import import SAMPLE, TableRow, Tables, find_labels
from hgclr.errors import InputError, refuse_url
from hgclr.files import FORMULAS, atomic_file, gzip_stream, locked, write_json
from hgclr.taxonomy import Taxonomy

REASON, LABEL = "reason", "label"
SUGGESTIONS = {number: f"path {number}" for number in "123"}
"""The columns of the paths suggested in a review file, by number."""
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


class _Document(NamedTuple):
    """A text to add, its labels, and its places in the tables."""

    text: str
    id: str | None
    labels: set[int]
    places: list[str]


def add_tables(folder: str | Path, files: Sequence[str | Path], *, layout: Layout | None = None) -> Added:
    """Add the rows of tables to the train split of a data folder; dev and test are not changed.

    A table is a review file, or any that :func:`~hgclr.data.table_import.import_tables` reads. Labels are ids, names or
    paths in the folder's tree; in a review file also the number of a suggested path. Ancestors are added. A text that
    is in train already gets the new labels in place of the old ones. A text that is in dev or test is not added.

    All rows are checked first. Then the file of the split, JSON lines, is replaced.

    Args:
        folder: the data folder.
        files: the tables.
        layout: known columns and separators; the others are detected in each table.

    Raises:
        InputError: if train is not JSON lines; at an unknown label or an unusable row; if another process is adding.
    """
    refuse_url(folder)
    with locked(find_data(folder) / LOCK, "adding documents", remedy="wait until it is done"):
        data = DataFolder(folder)
        train, held_out = data.split_path("train"), list[str]()
        if not train.name.lower().endswith((".jsonl", ".jsonl.gz")):
            remedy = f"convert the folder: hgclr data import {folder} --output NEW"
            raise InputError("rows can be added to JSON lines only", path=train, remedy=remedy)
        documents: dict[int, _Document] = {}
        contradicted: set[int] = set()
        rows = labelled = 0
        for file in map(Path, files):
            found, total = _read_table(file, layout or Layout(), data)
            rows, labelled = rows + total, labelled + len(found)
            for row, labels in found:
                text = text_hash(row.text)
                own = documents.setdefault(text, _Document(row.text, row.id, set(labels), []))
                if own.labels != set(labels):
                    contradicted.add(text)
                    own.labels.update(labels)
                own.places.append(row.where)
        for split in data.splits.keys() - {"train"}:
            for each in read_rows(data.split_path(split), (column := data.form.text_column,)):
                if isinstance(each, Row) and (text := text_hash(str(each.values[column] or ""))) in documents:
                    held_out += [f"{place} ({split})" for place in documents.pop(text).places]
        in_train = _rewrite(data, train, documents) if documents else {}
        added, unchanged = len(documents) - len(in_train), sum(in_train.values())
        if counts := remembered(data.path, "documents"):
            counts |= {"train": counts.get("train", 0) + added}
            write_json(data.path / RECORD, remembered(data.path) | {"documents": counts})
        contradictions = len(contradicted & documents.keys())
        corrected, unlabelled = len(in_train) - unchanged, rows - labelled
        return Added(train, rows, added, corrected, unchanged, unlabelled, contradictions, sorted(held_out))


@dataclass(frozen=True)
class _ReviewLayout(Layout):
    """The layout of a review file, with the label tree."""

    taxonomy: Taxonomy | None = None

    def raw_labels(self, values: Mapping[str, object]) -> Raw:
        """Return the labels that a person wrote into a row; numbers become the suggested paths."""
        assert self.taxonomy is not None
        cell = str(values.get(LABEL) or "").strip()
        whole = self.taxonomy.candidates(cell)
        written = [cell] if whole else [part for part in map(str.strip, cell.split(";")) if part]
        if not written:
            raise RowProblem(NO_LABELS)
        labels = []
        for label in written:
            if (column := SUGGESTIONS.get(label)) is not None:
                if self.taxonomy.candidates(label):
                    raise RowProblem(f"{label!r} is a label and the number of a suggestion", "write the label's path")
                if not (label := str(values[column] or "")):
                    raise RowProblem(f"the row has no {column!r}", "write the path of a label")
            labels.append(Whole(label))
        return tuple(labels)


def _read_table(path: Path, layout: Layout, data: DataFolder) -> tuple[list[tuple[TableRow, tuple[int, ...]]], int]:
    """Return the labelled rows of a table with their labels and ancestors, and the number of all its rows."""
    sample = [row.values for row in islice(read_rows(path, (), all_columns=True), SAMPLE) if isinstance(row, Row)]
    if not sample:
        raise InputError("no usable row", path=path, remedy="add a header and at least one row")
    names = {name for values in sample for name in values}
    in_review = names.issuperset((*SUGGESTIONS.values(), REASON, LABEL))
    if in_review:
        layout = _ReviewLayout(layout.text, (LABEL,), id=layout.id, path_separator=">", taxonomy=data.taxonomy)
    if not layout.text:
        usual = (data.form.text_column, data.source_text_column)
        layout = replace(layout, text=next((name for name in usual if name in names), ""))
    tables = Tables(find_columns(layout, sample, path), Readings(None), {path: TextForm()}, keep_placeholders=True)
    rows = list(tables.read([path]))
    layout = find_separators(tables.layout, list(tables.cells))
    of_cell = find_labels(tables.cells, {}, layout, tree=data.taxonomy, merge=False).of_cell
    found = []
    for row in rows:
        labels = row.problem or of_cell[row.cell]
        if isinstance(labels, RowProblem):
            if labels.reason == NO_LABELS:
                continue
            raise InputError(labels.reason, path=path, line=row.number, remedy=labels.remedy or "correct the row")
        if in_review and row.text.startswith("'") and row.text[1:].startswith(FORMULAS):
            row = row._replace(text=row.text[1:])  # the apostrophe is that of TableWriter
        found.append((row, labels))
    return found, len(rows)


def _rewrite(data: DataFolder, train: Path, documents: Mapping[int, _Document]) -> dict[int, bool]:
    """Correct labels in train and append new documents; return, for each text that was in it, if its labels stay."""
    form, reader = data.form, LabelReader(data.taxonomy, replace(data.form, add_ancestors=True))
    in_train: dict[int, bool] = {}

    def cells(document: _Document) -> dict[str, Any]:
        return {form.label_column: [data.taxonomy.ids[label] for label in sorted(document.labels)]}

    def lines() -> Iterator[bytes]:
        for line in byte_lines(train, TextForm()):
            for row in json_rows([line], train, (form.text_column, form.label_column)):
                if isinstance(row, Row) and (text := text_hash(str(row.values[form.text_column] or ""))) in documents:
                    same = False
                    with suppress(RowProblem):
                        same = set(reader.read(row.values[form.label_column])) == documents[text].labels
                    if not same:
                        line = json.dumps(row.values | cells(documents[text]), ensure_ascii=False).encode()
                    in_train[text] = in_train.get(text, True) and same
            yield line
        for text, document in documents.items():
            if text not in in_train:
                own = ({} if document.id is None else {"id": document.id}) | {form.text_column: document.text}
                yield json.dumps(own | cells(document), ensure_ascii=False).encode()

    with (
        atomic_file(train) as temporary,
        temporary.open("wb") as raw,
        gzip_stream(raw) if train.suffix.lower() == ".gz" else nullcontext(raw) as stream,
    ):
        stream.writelines(line.rstrip(b"\r\n") + b"\n" for line in lines())
    return in_train
