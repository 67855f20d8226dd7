"""Read the documents of a split with their places in the file, so that a reviewer finds them there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hgclr.data.cells import LabelReader, RowProblem, read_text
from hgclr.data.folder import DataFolder, empty_split
from hgclr.data.readers import read_rows
from hgclr.data.rows import BadRow, BadRowLog
from hgclr.taxonomy import Taxonomy

__all__ = ["LabelSurvey", "LabelledRow", "labelled_rows", "path_ends", "survey_labels", "texts_of"]


@dataclass(frozen=True, slots=True)
class LabelledRow:
    """A document and its place.

    Args:
        number: the line it starts on in a text file (a table's header is line 1), its place from 1 otherwise.
        text: the text, never empty.
        labels: indices into the taxonomy, sorted, every label with its parent.
    """

    number: int
    text: str
    labels: tuple[int, ...]


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


def labelled_rows(folder: DataFolder, split: str, log: BadRowLog | None = None) -> Iterator[LabelledRow]:
    """Yield the documents of a split in order.

    Args:
        folder: the data; its ``skip_bad_rows`` decides whether bad rows are left out.
        split: which of its splits.
        log: counts the rows that are left out.

    Raises:
        InputError: at a bad row, unless rows may be skipped; if the file is damaged.
    """
    labels = LabelReader(
        folder.taxonomy,
        separator=folder.label_separator,
        path_separator=folder.path_separator,
        add_ancestors=folder.add_ancestors,
    )
    path = folder.split_path(split)
    for row in read_rows(path, (folder.text_column, folder.label_column)):
        if isinstance(row, BadRow):
            bad = row
        else:
            try:
                text = read_text(row.values[folder.text_column])
                yield LabelledRow(row.number, text, labels.read(row.values[folder.label_column]))
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
    leaves = set(folder.taxonomy.leaves.tolist())
    with BadRowLog(None) as log:
        for row in labelled_rows(folder, split, log):
            documents += 1
            ends = path_ends(row.labels, folder.taxonomy)
            one_path = one_path and len(ends) == 1
            ends_inside = ends_inside or any(end not in leaves for end in ends)
    log.warn()
    if not documents:
        raise empty_split(folder.split_path(split), log.count)
    return LabelSurvey(documents, one_path, ends_inside)


def path_ends(labels: tuple[int, ...], taxonomy: Taxonomy) -> list[int]:
    """Return the labels of a document that none of its other labels is below of."""
    parents = taxonomy.parents
    inner = {int(parents[label]) for label in labels}
    return [label for label in labels if label not in inner]


def texts_of(folder: DataFolder, split: str, numbers: set[int]) -> dict[int, str]:
    """Return the texts of some documents by their places."""
    texts: dict[int, str] = {}
    for row in labelled_rows(folder, split):
        if row.number in numbers:
            texts[row.number] = row.text
        if len(texts) == len(numbers):
            break
    return texts
