"""Corpora in the literature's formats, a document a line: HiAGM's, NeuralClassifier's and fastText's."""

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
"""What stands between words for fastText; other white space, such as that which does not break, is part of them."""


class CorpusFormat(NamedTuple):
    """What sets a format apart."""

    keys: tuple[tuple[str, str], ...]
    """The keys of a JSON line that may hold words and labels; none for fastText's lines."""
    separator: str | None
    """Between the names of a path; None if labels are ids or names."""
    draws_tree: bool
    """Whether a tree can be drawn from the paths where there is none."""


FORMATS = {
    # The second keys are those that HiAGM's scripts for Web of Science and New York Times write.
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

    Without a label tree, which HiAGM needs, the tree is drawn from the paths of all splits: a label's id is its path as
    written, its name the last part. Documents without text or labels are left out.

    The arguments are the options of ``hgclr data prepare NAME``, the last two those of fastText, where no
    ``path_separator`` means that labels are plain names; ``progress`` is called with the number of lines read.
    """
    form = FORMATS[name]
    settings: dict[str, object] = {"add_ancestors": add_ancestors}
    read: Callable[[Path], Iterator[LabelledLine]]
    if name == "fasttext":
        if not label_prefix or SPACE.search(label_prefix) or path_separator == "":
            raise InputError(
                "the label prefix and the path separator must not be empty, and the prefix holds no space",
                remedy="give the prefix that marks labels in the files; --path-separator none if labels are no paths",
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
        raise InputError("HiAGM's format needs a label tree", remedy="name the .taxonomy file with --taxonomy")
    elif add_ancestors:
        raise InputError("--add-ancestors needs a label tree", remedy="name its file with --taxonomy")
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
    """A document as its line gives it: the line, from 1; its text, perhaps empty; its labels, perhaps none."""

    number: int
    text: str
    labels: list[str]


def json_lines(path: Path, keys: Sequence[tuple[str, str]]) -> Iterator[LabelledLine]:
    """Yield the documents of a file of JSON lines, by the first of the pairs of keys that a line has.

    The first key of a pair holds the words (a list, or a string), the second the labels (a list).
    """
    for row in good_json_rows(path):
        pair = next((pair for pair in keys if row.values.keys() >= set(pair)), None)
        if pair is None:
            wanted = " or ".join(f"{words!r} and {labels!r}" for words, labels in keys)
            found = ", ".join(map(repr, row.values)) or "none"
            raise InputError(f"the line lacks {wanted} (it has: {found})", path=path, line=row.number)
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
    """A tree that is known beforehand; labels are ids, names or, if there is a separator, paths of names."""

    def __init__(self, taxonomy: Taxonomy, *, separator: str | None, add_ancestors: bool) -> None:
        self._taxonomy = taxonomy
        # Without a separator of its own, a label would have to hold a line end to be taken for a path.
        form = RowForm(label_separator="\n", path_separator=separator or "\n", add_ancestors=add_ancestors)
        self._labels = LabelReader(taxonomy, form)

    def read(self, labels: Iterable[str]) -> list[str]:
        """Return the ids of a document's labels in the order of the tree, or raise a `RowProblem`."""
        return [self._taxonomy.ids[index] for index in self._labels.read(list(labels))]

    def taxonomy(self) -> Taxonomy:
        return self._taxonomy


class DrawnTree:
    """A tree that grows with the paths seen: every beginning of a path is a label.

    A label's id is its path as written, its name the last part; labels stand in the order in which they are seen.
    Without a separator, labels are plain names.
    """

    def __init__(self, separator: str | None) -> None:
        self._separator = separator
        self._index: dict[str, int] = {}
        self._names: list[str] = []
        self._parents: list[int] = []

    def read(self, labels: Iterable[str]) -> list[str]:
        """Return the ids of a document's labels, each after those above it, or raise a `RowProblem`."""
        return list(dict.fromkeys(identifier for label in labels for identifier in self._path(label)))

    def _path(self, label: str) -> list[str]:
        """Return the ids of a label and of all above it, top first, and add those that are new."""
        names = [label] if self._separator is None else label.split(self._separator)
        if not all(map(str.strip, names)):
            raise RowProblem(f"the label {label!r} has an empty part", "give every label on the path a name")
        if not is_unicode(label):
            raise RowProblem(f"the label {label!r} is not Unicode: half of a surrogate pair")
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
        """Return the tree of the paths seen; say so if it has one level only."""
        taxonomy = Taxonomy(list(self._index), self._parents, self._names)
        if taxonomy.depth == 1:
            holds = "no path separator was given" if self._separator is None else f"no label holds {self._separator!r}"
            logger.warning(
                "the %d labels form no tree: there is no taxonomy file, and %s; --taxonomy names one",
                len(taxonomy),
                holds,
            )
        return taxonomy
