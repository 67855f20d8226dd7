"""Read a data folder once and count what statistics and findings are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hgclr.data.describing.histogram import Histogram
from hgclr.data.describing.texts import TextMarks
from hgclr.data.folder import DataFolder, Document
from hgclr.data.rows import BadRow
from hgclr.taxonomy import Taxonomy

__all__ = ["SplitSurvey", "TokenLengths", "survey_split"]

TokenLengths = Callable[[Sequence[str]], list[int]]
"""Gives for each text how many tokens it is."""

BATCH = 256
"""Texts tokenised, and in memory, at a time."""


@dataclass(slots=True)
class SplitSurvey:
    """What was counted in one split; its size does not depend on the number of documents.

    Args:
        path: its file or folder.
        label_counts: (K,) documents by label.
        labels: of each document, how many labels it has, ancestors counted.
        paths: of each document, how many of its labels have none of the others below them.
        depths: of each document, the depth of its deepest label.
        words: of each text, the words between white space.
        tokens: of each text, an encoder's tokens, special ones counted; empty if no encoder was given.
        above_leaf: documents with a path that ends in a label with children.
    """

    path: Path
    label_counts: NDArray[np.int64]
    labels: Histogram = field(default_factory=Histogram)
    paths: Histogram = field(default_factory=Histogram)
    depths: Histogram = field(default_factory=Histogram)
    words: Histogram = field(default_factory=Histogram)
    tokens: Histogram = field(default_factory=Histogram)
    above_leaf: int = 0

    @property
    def documents(self) -> int:
        """The number of good rows."""
        return self.words.total


def survey_split(
    folder: DataFolder,
    split: str,
    *,
    bad_row: Callable[[BadRow], None],
    token_lengths: TokenLengths | None = None,
    marks: TextMarks | None = None,
    progress: Callable[[int], None] | None = None,
) -> SplitSurvey:
    """Read every row of a split and count.

    Args:
        folder: the data.
        split: which of its splits.
        bad_row: called with each row that cannot be used.
        token_lengths: counts the tokens of texts.
        marks: remembers texts and label sets, to find repeated ones.
        progress: called with the number of rows read since the last call.

    Raises:
        InputError: if the file cannot be read as a whole: damaged, or a table without the columns.
    """
    result = SplitSurvey(folder.split_path(split), np.zeros(len(folder.taxonomy), dtype=np.int64))
    count_labels = _label_counter(folder.taxonomy, result)
    waiting: list[str] = []
    for item in folder.scan(split):
        if progress is not None:
            progress(1)
        if not isinstance(item, Document):
            bad_row(item)
            continue
        count_labels(item.labels)
        result.words.add(len(item.text.split()))
        if marks is not None:
            marks.add(item)
        if token_lengths is not None:
            waiting.append(item.text)
            if len(waiting) == BATCH:
                result.tokens.update(token_lengths(waiting))
                waiting.clear()
    if token_lengths is not None and waiting:
        result.tokens.update(token_lengths(waiting))
    return result


def _label_counter(taxonomy: Taxonomy, result: SplitSurvey) -> Callable[[tuple[int, ...]], None]:
    """Return what enters the labels of one document into the result."""
    parents: list[int] = taxonomy.parents.tolist()  # plain lists: one number at a time is faster on them
    depths: list[int] = taxonomy.depths.tolist()
    leaves = frozenset(taxonomy.leaves.tolist())

    def count(labels: tuple[int, ...]) -> None:
        above = {parents[label] for label in labels}
        ends = [label for label in labels if label not in above]
        result.label_counts[list(labels)] += 1
        result.labels.add(len(labels))
        result.paths.add(len(ends))
        result.depths.add(max(depths[label] for label in ends))
        result.above_leaf += any(label not in leaves for label in ends)

    return count
