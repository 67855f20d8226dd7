"""Read the documents of a split with their places in the file, so that a reviewer finds them there."""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from hgclr.data.folder import DataFolder, empty_split
from hgclr.data.readers import read_rows
from hgclr.data.rows import BadRow, BadRowLog, LabelReader, RowProblem, read_text, text_hash
from hgclr.errors import InputError

__all__ = ["Dealt", "LabelSurvey", "LabelledRow", "deal", "labelled_rows", "rows_of", "survey_labels"]


@dataclass(frozen=True, slots=True)
class LabelledRow:
    """A document and its place.

    Args:
        number: the line it starts on in a text file (a table's header is line 1), its place from 1 otherwise.
        text: the text, never empty.
        labels: indices into the taxonomy, sorted, every label with its parent.
        columns: what else is in the row, such as an id, if asked for.
    """

    number: int
    text: str
    labels: tuple[int, ...]
    columns: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LabelSurvey:
    """What the labels of a split look like.

    Args:
        documents: how many there are.
        one_path: every document has one path from the top.
        ends_inside: some path ends at a label that has children.
    """

    documents: int
    one_path: bool
    ends_inside: bool


def labelled_rows(
    folder: DataFolder, split: str, log: BadRowLog | None = None, *, all_columns: bool = False
) -> Iterator[LabelledRow]:
    """Yield the documents of a split in order.

    Args:
        folder: the data; its ``skip_bad_rows`` decides whether bad rows are left out.
        split: which of its splits.
        log: counts the rows that are left out.
        all_columns: read the other columns, too.

    Raises:
        InputError: at a bad row, unless rows may be skipped; if the file is damaged.
    """
    labels = LabelReader(folder.taxonomy, folder.form)
    path = folder.split_path(split)
    own = folder.form.text_column, folder.form.label_column
    for row in read_rows(path, own, all_columns=all_columns):
        if isinstance(row, BadRow):
            bad = row
        else:
            try:
                text = read_text(row.values[folder.form.text_column])
                found = labels.read(row.values[folder.form.label_column])
                others = {name: cell for name, cell in row.values.items() if name not in own} if all_columns else {}
                yield LabelledRow(row.number, text, found, others)
                continue
            except RowProblem as problem:
                bad = BadRow(path, row.number, problem.reason, row.values, problem.remedy)
        if not folder.skip_bad_rows:
            raise bad.error()
        if log is not None:
            log.add(bad)


def survey_labels(folder: DataFolder, split: str) -> LabelSurvey:
    """Look over the labels of a split; a bad row is found here, before a model has run for hours.

    Raises:
        InputError: as :func:`labelled_rows`, and if there is no document.
    """
    documents, one_path, ends_inside = 0, True, False
    with BadRowLog(None) as log:
        for row in labelled_rows(folder, split, log):
            documents += 1
            one_path = one_path and len(folder.taxonomy.path_ends(row.labels)) == 1
            ends_inside = ends_inside or folder.taxonomy.ends_inside(row.labels)
    log.warn()
    if not documents:
        raise empty_split(folder.split_path(split), log.count)
    return LabelSurvey(documents, one_path, ends_inside)


def rows_of(folder: DataFolder, split: str, numbers: set[int]) -> dict[int, LabelledRow]:
    """Return some documents, with all their columns, by their places."""
    found: dict[int, LabelledRow] = {}
    for row in labelled_rows(folder, split, all_columns=True):
        if row.number in numbers:
            # Such as JSON and tables can hold: dates as text, what is not UTF-8 marked.
            plain = json.dumps(row.columns, ensure_ascii=False, default=str).encode(errors="replace")
            found[row.number] = replace(row, columns=json.loads(plain))
        if len(found) == len(numbers):
            break
    return found


@dataclass(frozen=True)
class Dealt:
    """Which document is in which fold.

    Args:
        folds: the fold of each document, counted from 0, (N,).
        one_fold_labels: labels all of whose texts are in one fold, by index: the model that audits them has never seen
            the label.
        digest: tells these documents, with their labels and in this order, from all others.
    """

    folds: NDArray[np.int64]
    one_fold_labels: list[int]
    digest: str


def deal(folder: DataFolder, split: str, folds: int, seed: int) -> Dealt:
    """Deal the documents of a split out to folds.

    Documents with the same text, as ``hgclr data check`` sees it, go to the same fold: a model that was trained on one
    of them has seen the other. Texts are dealt out one fold after the other, in the order of their rarest label and, of
    those with the same one, at random; so the documents of a label are spread over the folds as evenly as possible.

    Raises:
        InputError: if there are fewer different texts than folds, or a row is bad.
    """
    hashes, rarest, pairs, digest = _read(folder, split)
    _, first, text_of_document = np.unique(hashes, return_index=True, return_inverse=True)
    if len(first) < folds:
        raise InputError(
            f"{len(first)} different texts cannot be dealt out to {folds} folds",
            path=folder.split_path(split),
            remedy="give fewer folds or more documents",
        )
    chance = np.random.default_rng(seed).permutation(len(first))
    order = np.lexsort((chance, rarest[first]))
    fold_of_text = np.empty(len(first), dtype=np.int64)
    fold_of_text[order] = np.arange(len(first)) % folds
    dealt = fold_of_text[text_of_document]
    documents, labels = pairs
    seen = np.unique(labels * folds + dealt[documents]) // folds
    alone, count = np.unique(seen, return_counts=True)
    return Dealt(dealt, alone[count == 1].tolist(), digest)


def _read(
    folder: DataFolder, split: str
) -> tuple[NDArray[np.uint64], NDArray[np.int64], tuple[NDArray[np.int64], NDArray[np.int64]], str]:
    """Return the hash of each text, each document's rarest label, pairs of document and label, and a digest."""
    hashes, counts, flat = array("Q"), array("q"), array("q")
    digest = hashlib.sha256()
    for row in labelled_rows(folder, split):
        hashes.append(text_hash(row.text))
        counts.append(len(row.labels))
        flat.extend(row.labels)
        content = row.text.encode()
        # The lengths come first, so that no other texts and labels make the same bytes.
        numbers = np.array([len(content), len(row.labels), *row.labels], dtype="<i8")
        digest.update(numbers.tobytes() + content)
    sizes, labels = np.array(counts, dtype=np.int64), np.array(flat, dtype=np.int64)
    documents = np.repeat(np.arange(len(sizes)), sizes)
    frequencies = np.bincount(labels, minlength=len(folder.taxonomy))[labels]
    # Each document's first pair in the order of frequency, equally frequent labels by index.
    order = np.lexsort((labels, frequencies, documents))
    rarest = labels[order[np.cumsum(sizes) - sizes]]
    return np.array(hashes, dtype=np.uint64), rarest, (documents, labels), digest.hexdigest()
