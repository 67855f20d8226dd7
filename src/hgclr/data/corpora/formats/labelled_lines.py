"""Prepare corpora that are a document a line: what HiAGM, NeuralClassifier and fastText files have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from hgclr.data.cells import RowProblem
from hgclr.data.corpora.formats.label_trees import LabelTree
from hgclr.data.corpora.formats.split_files import SplitFiles
from hgclr.data.corpora.writing import Progress, Summary, write_corpus
from hgclr.data.readers import json_rows
from hgclr.data.rows import BadRow
from hgclr.errors import InputError

__all__ = ["JSON_ENDINGS", "LabelledLine", "json_lines", "open_lines", "prepare_lines"]

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
