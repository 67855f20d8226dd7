"""Reading and writing of data folders: documents in up to three splits, and their label tree."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields
from io import BufferedIOBase
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from hgclr.data.readers import SUFFIXES, BadRow, BadRowLog, RowProblem, TextForm, read_rows, read_text
from hgclr.errors import InputError
from hgclr.files import atomic_folder, gzip_stream, json_bytes, read_json, recover_folder
from hgclr.remote import local
from hgclr.taxonomy import Taxonomy
from hgclr.taxonomy.formats import FileFormat
from hgclr.taxonomy.tree import read_model_tree

SPLITS = ("train", "dev", "test")
SPLIT_NAMES = {"train": ("train",), "dev": ("dev", "validation", "valid", "val"), "test": ("test",)}
"""The file names of each split."""
TAXONOMY, RECORD, LEFT_OUT, CONTRADICTIONS = "taxonomy.json", "corpus.json", "left-out.jsonl", "contradictions.jsonl"
FILES = {TAXONOMY, RECORD, LEFT_OUT, CONTRADICTIONS, *(f"{split}.jsonl.gz" for split in SPLITS)}
"""The files of a data folder that hgclr writes."""
Progress = Callable[[int, int | None], None]
"""Called with the number of rows done and, if known, of all rows."""
Item = TypeVar("Item")
STEP = 1000
"""Rows between two reports of progress."""


@dataclass(frozen=True, slots=True)
class Document:
    """A text, never blank, and its labels: sorted indices into the taxonomy, every label with its parent."""

    text: str
    labels: tuple[int, ...]


@dataclass(frozen=True)
class RowForm:
    """How the rows of a data folder are read; ``corpus.json`` records it in folders that hgclr imported or split.

    Args:
        text_column: the column with the text.
        label_column: the column with the labels: a list of strings, or one string.
        label_separator: the string between labels in one string, as in CSV.
        path_separator: the string between the names of a path.
        add_ancestors: add the ancestors of every label; otherwise a label without its parent is an error.
    """

    text_column: str = "text"
    label_column: str = "labels"
    label_separator: str = ";"
    path_separator: str = " > "
    add_ancestors: bool = False


class LabelReader:
    """Reader of label cells: a list of labels, or one string of separated labels.

    Each label is an id, a code, an unambiguous name, or a path of names, which includes the ancestors.
    """

    def __init__(self, taxonomy: Taxonomy, form: RowForm) -> None:
        self._taxonomy, self._form = taxonomy, form
        self._parents = [taxonomy.parents_of(label) for label in range(len(taxonomy))]
        self._known: dict[str, tuple[int, ...]] = {}

    def read_row(self, values: Mapping[str, object]) -> tuple[str, tuple[int, ...]]:
        """Return the text and the labels of a row, or raise a `RowProblem`."""
        return read_text(values[self._form.text_column]), self.read(values[self._form.label_column])

    def read(self, cell: object) -> tuple[int, ...]:
        """Return the sorted indices of the labels in a cell."""
        found: set[int] = set()
        for label in self._labels(cell):
            indices = self._known.get(label)
            if indices is None:
                try:
                    index = self._taxonomy.resolve(label, self._form.path_separator)
                except InputError as error:
                    raise RowProblem(error.what, error.remedy) from None
                paths = map(self._form.path_separator.join, self._taxonomy.all_path_names(index))
                with_ancestors = self._form.add_ancestors or (bool(self._parents[index]) and label in paths)
                indices = tuple(self._taxonomy.closure([index]).tolist()) if with_ancestors else (index,)
                self._known[label] = indices
            found.update(indices)
        labels = tuple(sorted(found))
        for index in labels:
            for parent in self._parents[index]:
                if parent not in found:
                    names = self._taxonomy.names
                    raise RowProblem(
                        f"label without its parent: {names[index]!r} is given, {names[parent]!r} is not",
                        "add the parent to the row, or pass --add-ancestors if rows name only the deepest labels",
                    )
        return labels

    def _labels(self, cell: object) -> list[str]:
        if isinstance(cell, str):
            cell = [part for part in map(str.strip, cell.split(self._form.label_separator)) if part]
        if cell is None or cell == []:
            raise RowProblem("no labels", "give the row at least one label")
        if not isinstance(cell, list):
            raise RowProblem(f"wrong type: the labels are {cell!r}, not a list or a string")
        for label in cell:
            if not isinstance(label, str):
                raise RowProblem(f"wrong type: the label {label!r} is not a string", "write ids and names as strings")
        return cell


def row_form(path: Path | None, **chosen: str | bool | None) -> RowForm:
    """Return how the rows of a data folder are read: values given, else those in its record, else defaults."""
    kinds = {field.name: type(field.default) for field in fields(RowForm)}
    form: dict[str, Any] = {
        name: value for name, value in remembered(path, "reading").items() if type(value) is kinds.get(name)
    }
    form |= {name: value for name, value in chosen.items() if value is not None}
    rows = RowForm(**form)
    if not rows.label_separator or not rows.path_separator:
        raise InputError("the label separator and the path separator must not be empty")
    return rows


def remembered(path: Path | None, *keys: str) -> dict[str, Any]:
    """Return a part of a folder's ``corpus.json``; {} if it is missing or not a record."""
    if path is None:
        return {}
    try:
        content = read_json(path / RECORD)
    except InputError:
        return {}
    for key in keys:
        content = content.get(key) if isinstance(content, dict) else None
    return content if isinstance(content, dict) else {}


DocumentLike = Document | Mapping[str, Any] | tuple[str, Sequence[str]]
"""A document, a mapping with the keys ``text`` and ``labels``, or a pair of both; labels are ids, names or paths."""


def read_documents(
    rows: Iterable[DocumentLike], taxonomy: Taxonomy, *, path_separator: str = " > "
) -> Iterator[Document]:
    """Yield documents from memory, such as a list, a generator or a ``datasets.Dataset``; ancestors are added.

    Raises:
        InputError: with the row's position, if it has no text, no label, or an unknown label.

    Example:
        >>> tree = Taxonomy(["science", "physics"], [-1, 0])
        >>> list(read_documents([("a lens", ["physics"])], tree))
        [Document(text='a lens', labels=(0, 1))]
    """
    reader = LabelReader(taxonomy, RowForm(path_separator=path_separator, add_ancestors=True))
    for place, row in enumerate(rows):
        if isinstance(row, Document):
            yield row
            continue
        try:
            text, labels = (row["text"], row["labels"]) if isinstance(row, Mapping) else row
            yield Document(read_text(text), reader.read(labels if isinstance(labels, str) else list(labels)))
        except RowProblem as problem:
            raise InputError(f"document {place}: {problem.reason}", remedy=problem.remedy) from None
        except (KeyError, TypeError, ValueError):
            remedy = "give a pair (text, labels), or a mapping with these keys"
            raise InputError(f"document {place} is not a text with labels: {row!r:.80}", remedy=remedy) from None


class DocumentSet:
    """Documents in memory, by split, with the interface of a :class:`DataFolder`."""

    def __init__(self, taxonomy: Taxonomy, splits: Mapping[str, Iterable[DocumentLike]]) -> None:
        self.taxonomy = taxonomy
        self.splits = {name: list(read_documents(rows, taxonomy)) for name, rows in splits.items()}

    def usable(self, split: str, skipped: Callable[[BadRow], object] | None = None) -> Iterator[Document]:  # noqa: ARG002
        return iter(self.splits[split])


def find_data(path: str | Path) -> Path:
    """Return the local path of a data folder; a folder in an object store is downloaded."""
    folder = local(path)
    if not folder.is_dir():
        recover_folder(folder)
    if not folder.is_dir():
        raise InputError("no such data folder", path=path)
    return folder


class DataFolder:
    """The splits and the label tree of a folder.

    A split is ``train``, ``dev`` (also ``validation``, ``valid``, ``val``) or ``test`` as a ``.jsonl``, ``.csv`` or
    ``.tsv`` file (also with ``.gz``), ``.xlsx`` or ``.parquet``. The taxonomy is ``taxonomy.*`` or ``*.taxonomy``.

    Args:
        path: the folder, or its URL in an object store.
        taxonomy: the label tree or its file, if it is not the one in the folder.
        skip_bad_rows: skip and record bad rows instead of raising at the first.
        needs_documents: raise if the folder has no split.
        **reading: fields of :class:`RowForm`; by default those in the folder's ``corpus.json``.

    Raises:
        InputError: if the folder, its splits or its label tree are missing, or if one of them has two files.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        taxonomy: Taxonomy | str | Path | None = None,
        skip_bad_rows: bool = False,
        needs_documents: bool = True,
        **reading: str | bool | None,
    ) -> None:
        self.path = find_data(path)
        self.form = row_form(self.path, **reading)
        self.skip_bad_rows = skip_bad_rows
        self.splits: dict[str, Path] = {}
        for split, names in SPLIT_NAMES.items():
            files = [self.path / (name + suffix) for name in names for suffix in SUFFIXES]
            if found := [file for file in files if file.is_file()]:
                what = f"for the split {split!r}"
                self.splits[split] = only_file(found, self.path, what, "keep one of them in the folder")
        if needs_documents and not self.splits:
            remedy = f"add a file such as train{SUFFIXES[0]} (or {', '.join(SUFFIXES[1:])})"
            raise InputError("no train, dev or test split", path=self.path, remedy=remedy)
        if not isinstance(taxonomy, Taxonomy):
            found = taxonomy_files(self.path) if taxonomy is None else [local(taxonomy)]
            if not found:
                remedy = "add taxonomy.tsv (or .csv, .json), or name the file with --taxonomy"
                raise InputError("no label tree", path=self.path, remedy=remedy)
            file = only_file(found, self.path, "for the label tree", "keep one of them in the folder")
            taxonomy = Taxonomy.read(file, separator=self.form.path_separator)
        self.taxonomy: Taxonomy = taxonomy
        self._labels = LabelReader(taxonomy, self.form)
        self.text_forms = {split: TextForm() for split in self.splits}

    @property
    def source_text_column(self) -> str | None:
        """The text column of the table that the folder was imported from, if it was."""
        column = remembered(self.path, "settings", "columns").get("text")
        return column if isinstance(column, str) else None

    def split_path(self, split: str) -> Path:
        """Return the file or folder of a split, which must exist."""
        if split not in self.splits:
            raise InputError(f"no split {split!r}", path=self.path, remedy=f"choose one of {', '.join(self.splits)}")
        return self.splits[split]

    def scan(self, split: str) -> Iterator[Document | BadRow]:
        """Yield every row of a split as a document or a bad row."""
        path = self.split_path(split)
        columns = self.form.text_column, self.form.label_column
        for row in read_rows(path, columns, form=self.text_forms[split]):
            if isinstance(row, BadRow):
                yield row
                continue
            try:
                document = Document(*self._labels.read_row(row.values))
            except RowProblem as problem:
                yield BadRow(path, row.number, problem.reason, row.values, problem.remedy)
            else:
                yield document

    def documents(self, split: str, bad_rows: Path | None = None) -> Iterator[Document]:
        """Yield the documents of a split in order; record skipped rows as JSON lines in the file ``bad_rows``.

        Raises:
            InputError: at a bad row unless bad rows are skipped; if there is no good row; if the file is damaged.
        """
        empty = True
        with BadRowLog(bad_rows) as log:
            for document in self.usable(split, log.add):
                empty = False
                try:
                    yield document
                except GeneratorExit:
                    log.warn()
                    return  # the caller stopped early; rows skipped so far are still recorded
        log.warn()
        if empty:
            raise empty_split(self.split_path(split), log.count)

    def usable(self, split: str, skipped: Callable[[BadRow], object] | None = None) -> Iterator[Document]:
        """Yield the documents of a split; raise at a bad row or, with ``skip_bad_rows``, pass it to ``skipped``."""
        for item in self.scan(split):
            if isinstance(item, Document):
                yield item
            elif not self.skip_bad_rows:
                raise item.error()
            elif skipped is not None:
                skipped(item)


def empty_split(path: Path, bad: int) -> InputError:
    """Return the error for a split without a good row."""
    what = f"empty split: all {bad} rows are bad" if bad else "empty split: no rows"
    return InputError(what, path=path, remedy="add at least one good row")


def open_tree(path: Path, *, format: FileFormat = "auto", separator: str = " > ") -> Taxonomy:  # noqa: A002
    """Read the label tree of a file, a model or a data folder; the arguments are those of `Taxonomy.read`."""
    if path.name == "config.json" or (path / "config.json").is_file():
        return read_model_tree(path.parent if path.name == "config.json" else path)
    if path.is_dir():
        return DataFolder(path, path_separator=separator).taxonomy
    return Taxonomy.read(path, format=format, separator=separator)


def taxonomy_files(folder: Path) -> list[Path]:
    """Return the files in a folder that may contain its label tree."""
    return sorted({*folder.glob("taxonomy.*"), *folder.glob("[!.]*.taxonomy")})


def only_file(found: Sequence[Path], folder: Path, role: str, remedy: str) -> Path:
    """Return the only file found in a folder; raise if there are several for one role."""
    if len(found) > 1:
        names = " and ".join(path.name for path in found)
        raise InputError(f"several files {role}: {names}", path=folder, remedy=remedy)
    return found[0]


def label_texts(taxonomy: Taxonomy) -> list[str]:
    """Return each label's name as a text, (K,), without underscores; its path if several labels share the name.

    Example:
        >>> label_texts(Taxonomy(["a", "ao", "l", "lo"], [-1, 0, -1, 2], ["arts", "other", "civil_law", "other"]))
        ['arts', 'arts > other', 'civil law', 'civil law > other']
    """
    counts = Counter(taxonomy.names)
    names = (name if counts[name] == 1 else taxonomy.path_name(label) for label, name in enumerate(taxonomy.names))
    return [_readable(name) for name in names]


def label_documents(taxonomy: Taxonomy) -> Iterator[Document]:
    """Yield the label documents: name, path, alternative names and, if there is one, description of each label.

    An alternative name that is also a name or alternative name of another label is left out.

    Example:
        >>> tree = Taxonomy(["science", "physics"], [-1, 0])
        >>> [(document.text, document.labels) for document in label_documents(tree)]
        [('science', (0,)), ('physics', (0, 1)), ('science > physics', (0, 1))]
    """
    owners = Counter(chain(taxonomy.names, *map(set, taxonomy.alternatives)))
    for label, text in enumerate(label_texts(taxonomy)):
        labels = tuple(taxonomy.closure([label]).tolist())
        path, description = _readable(taxonomy.path_name(label)), taxonomy.descriptions[label]
        others = [_readable(name) for name in taxonomy.alternatives[label] if owners[name] == 1]
        for words in dict.fromkeys([text, path, *others, *([description] if description else [])]):
            yield Document(words, labels)


def _readable(name: str) -> str:
    """Return a name such as ``card_declined`` with spaces for underscores."""
    return " ".join(name.replace("_", " ").split()) or name


@dataclass(slots=True)
class CorpusSummary:
    """The folder of a corpus, and the number of documents written, by split, and left out, by reason."""

    output: Path
    documents: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SPLITS, 0))
    left_out: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class Readings:
    """Counts rows as they are read and reports progress; ``total`` can be set once it is known."""

    progress: Progress | None
    done: int = 0
    total: int | None = None

    def count(self, rows: Iterable[Item]) -> Iterator[Item]:
        for row in rows:
            yield row
            self.done += 1
            if self.progress is not None and self.done % STEP == 0:
                self.progress(self.done, self.total)


class CorpusWriter:
    """Writes documents one by one, in order; see `write_corpus`."""

    def __init__(self, summary: CorpusSummary, streams: Mapping[str, BufferedIOBase]) -> None:
        self.summary = summary
        self.taxonomy: Taxonomy | None = None
        """Must be set before the block of `write_corpus` ends."""
        self._streams = streams

    def add(self, split: str, text: str, labels: Sequence[str], *, id: str | None = None) -> None:  # noqa: A002
        """Write one document; labels are ids, ancestors included, ``id`` is the publisher's id."""
        row = {"text": text, "labels": list(labels)}
        self.add_row(split, row if id is None else {"id": id, **row})

    def add_row(self, split: str, row: Mapping[str, Any]) -> None:
        """Write one document with all its fields."""
        self._write(split, row)
        self.summary.documents[split] += 1

    def leave_out(self, reason: str, where: str, detail: str | None = None) -> None:
        """Record an unusable document; counts are by ``reason``, ``detail`` is specific to the document."""
        self._write(LEFT_OUT, {"where": where, "reason": reason} | ({} if detail is None else {"detail": detail}))
        self.summary.left_out[reason] += 1

    def contradict(self, text: str, rows: Sequence[tuple[str, Sequence[str]]]) -> None:
        """Record a text whose rows have different labels, with the place and the labels of each row."""
        listed = [{"where": where, "labels": list(labels)} for where, labels in rows]
        self._write(CONTRADICTIONS, {"text": text, "rows": listed})

    def _write(self, stream: str, row: Mapping[str, Any]) -> None:
        self._streams[stream].write(json.dumps(row, ensure_ascii=False).encode() + b"\n")


@contextmanager
def write_corpus(
    output: str | Path, *, name: str, settings: Mapping[str, object], reading: Mapping[str, object] | None = None
) -> Iterator[CorpusWriter]:
    """Write a data folder: ``taxonomy.json``, the splits as gzipped JSON lines, and a record, ``corpus.json``.

    ``left-out.jsonl`` lists the documents left out, with places and reasons. The same input and settings give the same
    bytes. If the block fails, an earlier build stays unchanged and nothing else is written.

    Args:
        output: the folder; it may be absent, empty, or an earlier build, which is replaced.
        name: the corpus, as in ``hgclr data prepare NAME``.
        settings: the user's choices.
        reading: fields of `RowForm`, if they are not the defaults.
    """
    output = Path(output)
    if output.exists() and not output.is_dir():
        raise InputError("this is a file, not a folder", path=output, remedy="choose another folder")
    if foreign := sorted(path.name for path in output.glob("*") if path.name not in FILES):
        what = f"the folder contains other files, such as {foreign[0]!r}, which would be deleted"
        raise InputError(what, path=output, remedy="choose a new or empty folder")
    with atomic_folder(output) as folder:
        summary = CorpusSummary(output)
        with ExitStack() as stack:
            streams: dict[str, BufferedIOBase] = {
                name: stack.enter_context((folder / name).open("wb")) for name in (LEFT_OUT, CONTRADICTIONS)
            }
            for split in SPLITS:
                raw = stack.enter_context((folder / f"{split}.jsonl.gz").open("wb"))
                streams[split] = stack.enter_context(gzip_stream(raw))
            writer = CorpusWriter(summary, streams)
            yield writer
        if not summary.documents["train"]:
            reasons = ", ".join(f"{count:,} ({reason})" for reason, count in summary.left_out.most_common(3))
            what = "no training document was found" + (f"; left out: {reasons}" if reasons else "")
            raise InputError(what, remedy="check --source")
        for split in SPLITS:
            if not summary.documents[split]:
                (folder / f"{split}.jsonl.gz").unlink()
        for side in (LEFT_OUT, CONTRADICTIONS):
            if not (folder / side).stat().st_size:
                (folder / side).unlink()
        if writer.taxonomy is None:
            raise RuntimeError("the taxonomy of the corpus was not set")
        writer.taxonomy.write(folder / TAXONOMY)
        record = {
            "corpus": name,
            "settings": {key: str(value) if isinstance(value, Path) else value for key, value in settings.items()},
            **({} if reading is None else {"reading": dict(reading)}),
            "labels": len(writer.taxonomy),
            "documents": summary.documents,
            "left_out": dict(summary.left_out),
        }
        (folder / RECORD).write_bytes(json_bytes(record))
