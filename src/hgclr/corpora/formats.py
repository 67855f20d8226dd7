"""Prepare corpora that are a document a line: what HiAGM, NeuralClassifier and fastText files have in common."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from hgclr.corpora.label_trees import LabelTree, label_tree
from hgclr.data.folder_writer import Progress, Summary, write_corpus
from hgclr.data.readers import json_rows
from hgclr.data.rows import BadRow, RowProblem
from hgclr.data.source_files import SplitFiles, find_split_files
from hgclr.errors import InputError

__all__ = ["fasttext_lines", "prepare_fasttext", "prepare_hiagm", "prepare_neuralclassifier"]

JSON_ENDINGS = (".json", ".jsonl", "_all.json", ".hierar.json")
"""How the JSON files end: ``wos_train.json``, ``nyt_train_all.json``, ``rcv1_train.hierar.json``."""
STEP = 1000
"""Lines between two reports of progress."""


@dataclass(frozen=True, slots=True)
class LabelledLine:
    """A document as its line gives it.

    Args:
        number: the line, from 1.
        text: its text, perhaps empty.
        labels: its labels as they are spelt, perhaps none.
    """

    number: int
    text: str
    labels: list[str]


def prepare_lines(
    output: str | Path,
    *,
    name: str,
    settings: Mapping[str, object],
    files: SplitFiles,
    read: Callable[[Path], Iterator[LabelledLine]],
    labels: LabelTree,
    progress: Progress | None,
) -> Summary:
    """Write the documents of all splits as a data folder; those without text or labels are left out.

    Args:
        output: the folder to write.
        name: the corpus, as in ``hgclr data prepare NAME``.
        settings: what the user chose.
        files: what to read.
        read: yields the lines of a file.
        labels: knows or draws the label tree.
        progress: called with the number of lines read.

    Raises:
        InputError: with file and line, for a line of another form or a label that cannot be used.
    """
    done = 0
    with write_corpus(output, name=name, settings={**files.settings(), **settings}) as writer:
        for split, path in files.splits.items():
            for line in read(path):
                where = f"{path}:{line.number}"
                if problem := _text_problem(line.text):
                    writer.leave_out(problem, where)
                elif not line.labels:
                    writer.leave_out("no labels", where)
                else:
                    writer.add(split, line.text, _ids(line, labels, path))
                done += 1
                if progress is not None and done % STEP == 0:
                    progress(done, None)
        if writer.summary.documents["train"]:
            writer.taxonomy = labels.taxonomy()
    return writer.summary


def _text_problem(text: str) -> str | None:
    """Say why a text cannot be used, if so."""
    if not text.strip():
        return "no text"
    try:
        text.encode()
    except UnicodeEncodeError:  # JSON can spell half of a surrogate pair, which no UTF-8 file can hold
        return "not UTF-8: the text has a lone surrogate"
    return None


def _ids(line: LabelledLine, labels: LabelTree, path: Path) -> list[str]:
    """Return the ids of a line's labels."""
    try:
        return labels.read(line.labels)
    except RowProblem as problem:
        raise InputError(problem.reason, path=path, line=line.number, remedy=problem.remedy) from None


@contextmanager
def open_lines(path: Path) -> Iterator[BinaryIO]:
    """Open a file for reading.

    Raises:
        InputError: if it cannot be read.
    """
    try:
        stream = path.open("rb")
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", path=path) from None
    with stream:
        yield stream


def json_lines(path: Path, keys: Sequence[tuple[str, str]]) -> Iterator[LabelledLine]:
    """Yield the documents of a file of JSON lines.

    Args:
        path: the file.
        keys: the keys that may hold the words (a list, which is joined by spaces, or a string) and the labels (a list).
            The first pair of which a line has both is taken; other keys of the line are ignored.

    Raises:
        InputError: with file and line, if a line is not of this form.
    """
    with open_lines(path) as stream:
        for row in json_rows(stream, path, ()):
            if isinstance(row, BadRow):
                raise InputError(row.reason, path=path, line=row.number, remedy=row.remedy or "mend the line")
            pair = next((pair for pair in keys if row.values.keys() >= set(pair)), None)
            if pair is None:
                wanted = " or ".join(f"{words!r} and {labels!r}" for words, labels in keys)
                found = ", ".join(map(repr, row.values)) or "none"
                raise InputError(f"the line lacks {wanted} (it has: {found})", path=path, line=row.number)
            words, labels = (row.values[key] for key in pair)
            text = words if isinstance(words, str) else " ".join(_strings(words, pair[0], path, row.number))
            yield LabelledLine(row.number, text, _strings(labels, pair[1], path, row.number))


def _strings(value: object, key: str, path: Path, line: int) -> list[str]:
    """Return a list of strings; refuse anything else."""
    if not isinstance(value, list) or not all(isinstance(part, str) for part in value):
        shown = repr(value) if len(repr(value)) <= 60 else repr(value)[:59] + "…"
        raise InputError(f"{key!r} is {shown}, not a list of strings", path=path, line=line, remedy="mend the line")
    return value


ENDINGS = ("", ".txt", ".ft", ".ft.txt")
"""How the files end: ``cooking.train``, ``train.txt``, ``train.ft.txt``."""
SPACE = re.compile(r"[ \t\v\f\r\n\0]+")
"""What stands between words for fastText; other white space, such as that which does not break, is part of them."""


def prepare_fasttext(
    source: Path | None,
    output: str | Path,
    *,
    train: Path | None = None,
    dev: Path | None = None,
    test: Path | None = None,
    taxonomy: Path | None = None,
    path_separator: str | None = "/",
    label_prefix: str = "__label__",
    add_ancestors: bool = False,
    progress: Progress | None = None,
) -> Summary:
    """Write a corpus in fastText's format as a data folder.

    As fastText has it, every word of a line that begins with the prefix is a label, wherever it stands; the other words
    are the text, joined by a space. Without a label tree, the tree is drawn from the paths of all splits:
    ``__label__food/bread`` has the labels ``food`` and ``food/bread``.

    Args:
        source: the folder of the files, or one file, which is then all for training.
        output: the folder to write.
        train: the file for training, if its name does not say so.
        dev: the validation file, likewise.
        test: the test file, likewise.
        taxonomy: the label tree, if it is not the one in the folder, if any.
        path_separator: what stands between the names of a path; None if labels are plain names.
        label_prefix: what marks a label.
        add_ancestors: labels that are no paths are only the deepest ones; add the ones above. Needs a label tree.
        progress: called with the number of lines read.

    Raises:
        InputError: with file and line, for a line that is not UTF-8, an unknown label, or one without its parent.
    """
    if not label_prefix or SPACE.search(label_prefix) or path_separator == "":
        raise InputError(
            "the label prefix and the path separator must not be empty, and the prefix holds no space",
            remedy="give the prefix that marks labels in the files; --path-separator none if labels are no paths",
        )
    files = find_split_files(source, endings=ENDINGS, train=train, dev=dev, test=test, taxonomy=taxonomy)
    return prepare_lines(
        output,
        name="fasttext",
        settings={"path_separator": path_separator, "label_prefix": label_prefix, "add_ancestors": add_ancestors},
        files=files,
        read=lambda path: fasttext_lines(path, label_prefix),
        labels=label_tree(files.taxonomy, separator=path_separator, add_ancestors=add_ancestors),
        progress=progress,
    )


def fasttext_lines(path: Path, label_prefix: str) -> Iterator[LabelledLine]:
    """Yield the documents of a file, skipping blank lines.

    Args:
        path: the file.
        label_prefix: what marks a label.

    Raises:
        InputError: with file and line, if a line is not UTF-8.
    """
    with open_lines(path) as stream:
        for number, data in enumerate(stream, 1):
            if number == 1:
                data = data.removeprefix(codecs.BOM_UTF8)
            try:
                words = [word for word in SPACE.split(data.decode()) if word]
            except UnicodeDecodeError as error:
                what = f"not UTF-8: byte 0x{data[error.start]:02x} at byte {error.start + 1} of the line"
                raise InputError(what, path=path, line=number, remedy="save the file as UTF-8") from None
            if words:
                labels = [word.removeprefix(label_prefix) for word in words if word.startswith(label_prefix)]
                text = " ".join(word for word in words if not word.startswith(label_prefix))
                yield LabelledLine(number, text, labels)


HIAGM_KEYS = (("token", "label"), ("doc_token", "doc_label"))
"""The keys of HiAGM's programs, and those that its scripts for Web of Science and New York Times write."""


def prepare_hiagm(
    source: Path | None,
    output: str | Path,
    *,
    train: Path | None = None,
    dev: Path | None = None,
    test: Path | None = None,
    taxonomy: Path | None = None,
    add_ancestors: bool = False,
    progress: Progress | None = None,
) -> Summary:
    """Write a corpus in HiAGM's format as a data folder.

    A line is ``{"token": ["words", …], "label": ["CCAT", "C15", …]}``; the words may also be one string, and other keys
    (``doc_topic``, ``doc_keyword``) are ignored. Words are joined by a space. A label is an id in the label tree (a
    path, for New York Times), or a name that one label alone has.

    Args:
        source: the folder of the files, or one file, which is then all for training.
        output: the folder to write.
        train: the file for training, if its name does not say so.
        dev: the development file, likewise.
        test: the test file, likewise.
        taxonomy: the label tree, if it is not the one in the folder.
        add_ancestors: documents name only their deepest labels; add the ones above.
        progress: called with the number of lines read.

    Raises:
        InputError: with file and line, for a broken line, an unknown label, or one without its parent.
    """
    files = find_split_files(source, endings=JSON_ENDINGS, train=train, dev=dev, test=test, taxonomy=taxonomy)
    if files.taxonomy is None:
        raise InputError(
            "there is no label tree beside the documents",
            path=files.splits["train"].parent,
            remedy="name the .taxonomy file with --taxonomy",
        )
    return prepare_lines(
        output,
        name="hiagm",
        settings={"add_ancestors": add_ancestors},
        files=files,
        read=lambda path: json_lines(path, HIAGM_KEYS),
        labels=label_tree(files.taxonomy, separator=None, add_ancestors=add_ancestors),
        progress=progress,
    )


NEURALCLASSIFIER_KEYS = (("doc_token", "doc_label"),)
SEPARATOR = "--"
"""What stands between the names of a path; the program knows no other."""


def prepare_neuralclassifier(
    source: Path | None,
    output: str | Path,
    *,
    train: Path | None = None,
    dev: Path | None = None,
    test: Path | None = None,
    taxonomy: Path | None = None,
    add_ancestors: bool = False,
    progress: Progress | None = None,
) -> Summary:
    """Write a corpus in NeuralClassifier's format as a data folder.

    A line is ``{"doc_token": ["words", …], "doc_label": ["Computer--MachineLearning", …]}``; ``doc_keyword`` and
    ``doc_topic`` are ignored. A label is a path and brings the labels above it. Without a label tree, the tree is drawn
    from the paths of all splits: a label's id is its path as written, its name the last part. With one, a label
    may also be a single id or name, as in the program's flat files.

    Args:
        source: the folder of the files, or one file, which is then all for training.
        output: the folder to write.
        train: the file for training, if its name does not say so.
        dev: the development file, likewise.
        test: the test file, likewise.
        taxonomy: the label tree, if it is not the one in the folder, if any.
        add_ancestors: labels that are no paths are only the deepest ones; add the ones above. Needs a label tree.
        progress: called with the number of lines read.

    Raises:
        InputError: with file and line, for a broken line, an unknown label, or one without its parent.
    """
    files = find_split_files(source, endings=JSON_ENDINGS, train=train, dev=dev, test=test, taxonomy=taxonomy)
    return prepare_lines(
        output,
        name="neuralclassifier",
        settings={"add_ancestors": add_ancestors},
        files=files,
        read=lambda path: json_lines(path, NEURALCLASSIFIER_KEYS),
        labels=label_tree(files.taxonomy, separator=SEPARATOR, add_ancestors=add_ancestors),
        progress=progress,
    )
