"""Read a split once and count what statistics and findings are made of."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import ceil, floor, pi
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hgclr.data.folder import DataFolder, Document
from hgclr.data.rows import BadRow, text_hash

__all__ = ["Histogram", "SplitDistance", "SplitSurvey", "TextMarks", "TokenLengths", "agreement", "survey_split"]

TokenLengths = Callable[[Sequence[str]], list[int]]
"""Gives for each text how many tokens it is."""
FIRST = 10
"""How many bad rows of a split, and how many conflicting texts of a folder, are kept to be shown."""
SHORT, LONG = 3, 512
"""Words: a text with fewer says hardly anything, one with more is longer than most encoders read."""
BATCH = 256
"""Texts tokenised, and in memory, at a time."""


class Histogram:
    """How often each whole number was seen; memory grows with different numbers, not with values.

    Args:
        values: the first values to count.

    Example:
        >>> Histogram([1, 2, 2, 9]).quantile(0.5)
        2.0
    """

    def __init__(self, values: Iterable[int] = ()) -> None:
        self.counts = Counter(values)

    def add(self, value: int) -> None:
        self.counts[value] += 1

    def update(self, values: Iterable[int]) -> None:
        self.counts.update(values)

    def __add__(self, other: Histogram) -> Histogram:
        total = Histogram()
        total.counts = self.counts + other.counts
        return total

    @property
    def total(self) -> int:
        return self.counts.total()

    @property
    def mean(self) -> float:
        """The mean, 0 if nothing was counted."""
        return sum(value * count for value, count in self.counts.items()) / (self.total or 1)

    @property
    def maximum(self) -> int:
        """The largest value, 0 if nothing was counted."""
        return max(self.counts, default=0)

    def quantile(self, share: float) -> float:
        """Return the value below which a share of all values lies; 0 if nothing was counted.

        Between two neighbours in the sorted values it is interpolated, as NumPy does by default:
        the value at place ``share * (total - 1)``, counted from 0.
        """
        if not self.counts:
            return 0.0
        place = share * (self.total - 1)
        low, high = self._at(floor(place)), self._at(ceil(place))
        return low + (high - low) * (place - floor(place))

    def above(self, limit: int) -> int:
        """Return how many values are greater than ``limit``."""
        return sum(count for value, count in self.counts.items() if value > limit)

    def share_above(self, limit: int) -> float:
        """Return which share of the values is greater than ``limit``, 0 if nothing was counted."""
        return self.above(limit) / (self.total or 1)

    def summary(self) -> dict[str, float]:
        """Return mean, median, 95th percentile and maximum."""
        return {"mean": self.mean, "median": self.quantile(0.5), "p95": self.quantile(0.95), "max": self.maximum}

    def to_json(self) -> dict[str, int]:
        """Return the counts by value, in order."""
        return {str(value): self.counts[value] for value in sorted(self.counts)}

    def _at(self, place: int) -> int:
        seen = 0
        for value in sorted(self.counts):
            seen += self.counts[value]
            if seen > place:
                return value
        raise IndexError(f"no place {place} among {seen} values")


class TextMarks:
    """Remember every document of a split by 16 bytes: a hash of its text and one of its labels."""

    def __init__(self) -> None:
        self._texts, self._labels = array("Q"), array("q")

    def add(self, document: Document) -> None:
        self._texts.append(text_hash(document.text))
        self._labels.append(hash(document.labels))

    @property
    def texts(self) -> NDArray[np.uint64]:
        """The hashes of the texts, in the order of the documents."""
        return np.frombuffer(self._texts, dtype=np.uint64)

    @property
    def labels(self) -> NDArray[np.int64]:
        """The hashes of the label sets, in the order of the documents."""
        return np.frombuffer(self._labels, dtype=np.int64)


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
        bad_rows: rows that cannot be used.
        first_bad_rows: the first of them.
        repeated_texts: documents whose text an earlier document of the split has, if that was looked for.
    """

    path: Path
    label_counts: NDArray[np.int64]
    labels: Histogram = field(default_factory=Histogram)
    paths: Histogram = field(default_factory=Histogram)
    depths: Histogram = field(default_factory=Histogram)
    words: Histogram = field(default_factory=Histogram)
    tokens: Histogram = field(default_factory=Histogram)
    above_leaf: int = 0
    bad_rows: int = 0
    first_bad_rows: list[BadRow] = field(default_factory=list)
    repeated_texts: int = 0

    @property
    def documents(self) -> int:
        return self.words.total

    @property
    def labels_used(self) -> int:
        """How many labels of the tree occur."""
        return int(np.count_nonzero(self.label_counts))

    @property
    def short_texts(self) -> int:
        """Texts with fewer than `SHORT` words."""
        return self.documents - self.words.above(SHORT - 1)

    @property
    def long_texts(self) -> int:
        """Texts with more than `LONG` words."""
        return self.words.above(LONG)


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
        progress: called for each row, with 1.
    """
    result = SplitSurvey(folder.split_path(split), np.zeros(len(folder.taxonomy), dtype=np.int64))
    taxonomy = folder.taxonomy
    depths: list[int] = taxonomy.depths.tolist()  # a plain list: one number at a time is faster on it
    waiting: list[str] = []

    def count_tokens(at_least: int) -> None:
        if token_lengths is not None and len(waiting) >= at_least:
            result.tokens.update(token_lengths(waiting))
            waiting.clear()

    for item in folder.scan(split):
        if progress is not None:
            progress(1)
        if not isinstance(item, Document):
            result.bad_rows += 1
            if len(result.first_bad_rows) < FIRST:
                result.first_bad_rows.append(item)
            bad_row(item)
            continue
        ends = taxonomy.path_ends(item.labels)
        result.label_counts[list(item.labels)] += 1
        result.labels.add(len(item.labels))
        result.paths.add(len(ends))
        result.depths.add(max(depths[label] for label in ends))
        result.above_leaf += taxonomy.ends_inside(ends)
        result.words.add(len(item.text.split()))
        if marks is not None:
            marks.add(item)
        if token_lengths is not None:
            waiting.append(item.text)
            count_tokens(BATCH)
    count_tokens(1)
    if marks is not None:
        result.repeated_texts = result.documents - len(np.unique(marks.texts))
    return result


class SplitDistance(NamedTuple):
    """How far the label distributions of two splits are apart, and what to expect if documents were dealt at random.

        distance = 1/2 sum_k |p_k - q_k|        (total variation: 0 is equal, 1 is nothing in common)

    where p_k is the share of label k in all labels given in a split, ancestors counted.
    """

    distance: float
    by_chance: float


def agreement(one: SplitSurvey, other: SplitSurvey) -> SplitDistance | None:
    """Return how far the label distributions of two splits are apart; None if one of them is empty.

    If documents are dealt at random, each p_k - q_k is about normal around 0, and the mean of its absolute value is
    sqrt(2 / pi) standard deviations.
    """
    if not one.documents or not other.documents:
        return None
    p, q = (split.label_counts / split.label_counts.sum() for split in (one, other))
    rate = (one.label_counts + other.label_counts) / (one.documents + other.documents)  # (K,) of documents
    variance = rate * (1 - rate) * (1 / one.documents + 1 / other.documents)
    by_chance = np.sqrt(2 / pi * variance).sum() / rate.sum() / 2  # rates sum up to the labels of a document
    return SplitDistance(float(np.abs(p - q).sum() / 2), float(by_chance))
