"""Corpora in the formats of HiAGM, NeuralClassifier and fastText, one document per line."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

from hgclr.data.folder import CorpusSummary, LabelReader, Progress, Readings, RowForm, write_corpus
from hgclr.data.readers import RowProblem, byte_lines, good_json_rows, is_unicode
from hgclr.errors import InputError
from hgclr.taxonomy import Taxonomy

logger = logging.getLogger(__name__)
SPACE = re.compile(r"[ \t\v\f\r\n\0]+")
"""The separators of words in fastText; other white space, such as a non-breaking space, is part of a word."""


class CorpusFormat(NamedTuple):
    """The properties of a format."""

    keys: tuple[tuple[str, str], ...]
    """Pairs of keys for words and labels in a JSON line; none for fastText's lines."""
    separator: str | None
    """Separator between the names of a path; None if labels are ids or names."""
    draws_tree: bool
    """Whether the label tree can be built from the paths."""


FORMATS = {
    # HiAGM's scripts for Web of Science and New York Times write the second pair.
    "hiagm": CorpusFormat((("token", "label"), ("doc_token", "doc_label")), None, draws_tree=False),
    "neuralclassifier": CorpusFormat((("doc_token", "doc_label"),), "--", draws_tree=True),
    "fasttext": CorpusFormat((), "/", draws_tree=True),
}


def prepare_format(
    name: Literal["hiagm", "neuralclassifier", "fasttext"],
    train: Path,
    output: str | Path,
    *,
    dev: Path | None = None,
    test: Path | None = None,
    taxonomy: Path | None = None,
    add_ancestors: bool = False,
    path_separator: str | None = "/",
    label_prefix: str = "__label__",
    progress: Progress | None = None,
) -> CorpusSummary:
    """Write a corpus in one of the literature's formats, see docs/guides/corpora/formats.md, as a data folder.

    HiAGM's format needs a label tree. For the others it can be built from the paths of all splits: a label's id is its
    path, its name the last part. Documents without text or labels are skipped.

    The arguments are the options of ``hgclr data prepare NAME``; the last two are for fastText, where a
    ``path_separator`` of None means that labels are plain names. ``progress`` is called with the number of lines read.
    """
    form = FORMATS[name]
    settings: dict[str, object] = {"add_ancestors": add_ancestors}
    read: Callable[[Path], Iterator[LabelledLine]]
    if name == "fasttext":
        if not label_prefix or SPACE.search(label_prefix) or path_separator == "":
            raise InputError(
                "the label prefix is empty or has a space, or the path separator is empty",
                remedy="give the prefix of labels in the files, and --path-separator none if labels are not paths",
            )
        form = form._replace(separator=path_separator)
        settings = {"path_separator": path_separator, "label_prefix": label_prefix, **settings}
        read = partial(fasttext_lines, label_prefix=label_prefix)
    else:
        read = partial(json_lines, keys=form.keys)
    named = {"train": train, "dev": dev, "test": test}
    splits = {split: path for split, path in named.items() if path is not None}
    for path in splits.values():
        if not path.is_file():
            raise InputError("no such file", path=path)
    tree: GivenTree | DrawnTree
    if taxonomy is not None:
        tree = GivenTree(Taxonomy.read(taxonomy), separator=form.separator, add_ancestors=add_ancestors)
    elif not form.draws_tree:
        raise InputError("HiAGM's format needs a label tree", remedy="give the .taxonomy file with --taxonomy")
    elif add_ancestors:
        raise InputError("--add-ancestors needs a label tree", remedy="give its file with --taxonomy")
    else:
        tree = DrawnTree(form.separator)
    readings = Readings(progress)
    with write_corpus(output, name=name, settings={**splits, "taxonomy": taxonomy, **settings}) as writer:
        for split, path in splits.items():
            for line in readings.count(read(path)):
                problem = None if line.labels else "no labels"
                if not line.text.strip():
                    problem = "no text"
                elif not is_unicode(line.text):
                    problem = "not UTF-8: the text has a lone surrogate"
                if problem is not None:
                    writer.leave_out(problem, f"{path}:{line.number}")
                    continue
                try:
                    writer.add(split, line.text, tree.read(line.labels))
                except RowProblem as error:
                    raise InputError(error.reason, path=path, line=line.number, remedy=error.remedy) from None
        if writer.summary.documents["train"]:
            writer.taxonomy = tree.taxonomy()
    return writer.summary


class LabelledLine(NamedTuple):
    """A line of a corpus: its number from 1, its text, which may be empty, and its labels, perhaps none."""

    number: int
    text: str
    labels: list[str]


def json_lines(path: Path, keys: Sequence[tuple[str, str]]) -> Iterator[LabelledLine]:
    """Yield the documents of a file of JSON lines, with the first pair of keys that a line has.

    The first key of a pair is for the words (a list, or a string), the second for the labels (a list).
    """
    for row in good_json_rows(path):
        pair = next((pair for pair in keys if row.values.keys() >= set(pair)), None)
        if pair is None:
            wanted = " or ".join(f"{words!r} and {labels!r}" for words, labels in keys)
            found = ", ".join(map(repr, row.values)) or "none"
            raise InputError(f"the line lacks {wanted}; its keys are: {found}", path=path, line=row.number)
        words, labels = (row.values[key] for key in pair)
        text = words if isinstance(words, str) else " ".join(_strings(words, pair[0], path, row.number))
        yield LabelledLine(row.number, text, _strings(labels, pair[1], path, row.number))


def _strings(value: object, key: str, path: Path, line: int) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(part, str) for part in value):
        shown = repr(value) if len(repr(value)) <= 60 else repr(value)[:59] + "…"
        raise InputError(f"{key!r} is {shown}, not a list of strings", path=path, line=line, remedy="correct the line")
    return value


def fasttext_lines(path: Path, label_prefix: str) -> Iterator[LabelledLine]:
    """Yield the documents of a file, skipping blank lines."""
    for number, data in enumerate(byte_lines(path), 1):
        try:
            words = [word for word in SPACE.split(data.decode()) if word]
        except UnicodeDecodeError as error:
            raise InputError(f"not UTF-8: {error}", path=path, line=number, remedy="save the file as UTF-8") from None
        if words:
            labels = [word.removeprefix(label_prefix) for word in words if word.startswith(label_prefix)]
            text = " ".join(word for word in words if not word.startswith(label_prefix))
            yield LabelledLine(number, text, labels)


class GivenTree:
    """A label tree from a file; labels are ids, names or, with a separator, paths of names."""

    def __init__(self, taxonomy: Taxonomy, *, separator: str | None, add_ancestors: bool) -> None:
        self._taxonomy = taxonomy
        # Without a separator, a line end is used, which no label contains.
        form = RowForm(label_separator="\n", path_separator=separator or "\n", add_ancestors=add_ancestors)
        self._labels = LabelReader(taxonomy, form)

    def read(self, labels: Iterable[str]) -> list[str]:
        """Return the ids of a document's labels in the order of the tree, or raise a `RowProblem`."""
        return [self._taxonomy.ids[index] for index in self._labels.read(list(labels))]

    def taxonomy(self) -> Taxonomy:
        return self._taxonomy


class DrawnTree:
    """A label tree built from paths, in which every prefix of a path is a label.

    A label's id is its path, its name the last part; labels are in the order of their first appearance. Without a
    separator, labels are plain names.
    """

    def __init__(self, separator: str | None) -> None:
        self._separator = separator
        self._index: dict[str, int] = {}
        self._names: list[str] = []
        self._parents: list[int] = []

    def read(self, labels: Iterable[str]) -> list[str]:
        """Return the ids of a document's labels, each after its ancestors, or raise a `RowProblem`."""
        return list(dict.fromkeys(identifier for label in labels for identifier in self._path(label)))

    def _path(self, label: str) -> list[str]:
        """Return the ids of a label and its ancestors, top first, and add new ones to the tree."""
        names = [label] if self._separator is None else label.split(self._separator)
        if not all(map(str.strip, names)):
            raise RowProblem(f"the label {label!r} has an empty part", "give every label on the path a name")
        if not is_unicode(label):
            raise RowProblem(f"the label {label!r} is not valid Unicode: it has a lone surrogate")
        ids = [(self._separator or "").join(names[: depth + 1]) for depth in range(len(names))]
        parent = -1
        for identifier, name in zip(ids, names, strict=True):
            if identifier not in self._index:
                self._index[identifier] = len(self._names)
                self._names.append(name)
                self._parents.append(parent)
            parent = self._index[identifier]
        return ids

    def taxonomy(self) -> Taxonomy:
        """Return the tree of all paths; log a warning if it has a single level."""
        taxonomy = Taxonomy(list(self._index), self._parents, self._names)
        if taxonomy.depth == 1:
            why = "there is no path separator" if self._separator is None else f"no label has {self._separator!r}"
            logger.warning(
                "the tree of %d labels has one level, because %s; give a label tree with --taxonomy", len(taxonomy), why
            )
        return taxonomy
