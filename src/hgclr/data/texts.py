"""Find texts that stand several times in a data folder, and those of them whose labels differ."""

from __future__ import annotations

import hashlib
import unicodedata
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations, islice
from math import ceil, floor

import numpy as np
from numpy.typing import NDArray

from hgclr.data.folder import DataFolder, Document

__all__ = ["Conflict", "Histogram", "TextMarks", "conflicting_texts", "first_conflicts", "shared_texts", "text_hash"]


def text_hash(text: str) -> int:
    """Return 8 bytes of hash of a text without regard to case, white space and character composition."""
    normal = " ".join(unicodedata.normalize("NFC", text.casefold()).split())
    return int.from_bytes(hashlib.blake2b(normal.encode(), digest_size=8).digest(), "little")


class TextMarks:
    """Remember every document of a split by 16 bytes: a hash of its text and one of its labels."""

    def __init__(self) -> None:
        self._texts, self._labels = array("Q"), array("q")

    def add(self, document: Document) -> None:
        """Remember one document."""
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


@dataclass(frozen=True, slots=True)
class Conflict:
    """A text that has different labels in two documents.

    Args:
        text: as it is written in the first of them.
        splits: where the two are.
        labels: the ids of the labels of the two.
    """

    text: str
    splits: tuple[str, str]
    labels: tuple[tuple[str, ...], tuple[str, ...]]

    def sides(self) -> tuple[str, str]:
        """Return where the text is and with which labels, for each of the two documents."""
        first, second = (f"{split}: {', '.join(ids)}" for split, ids in zip(self.splits, self.labels, strict=True))
        return first, second


def shared_texts(marks: Mapping[str, TextMarks]) -> dict[tuple[str, str], int]:
    """Return for each pair of splits with texts in common how many different texts those are."""
    different = {name: np.unique(split.texts) for name, split in marks.items()}
    shared = {}
    for first, second in combinations(different, 2):
        if count := len(np.intersect1d(different[first], different[second], assume_unique=True)):
            shared[first, second] = count
    return shared


def conflicting_texts(marks: Mapping[str, TextMarks]) -> NDArray[np.uint64]:
    """Return the hashes of the texts that have different labels in the folder, be it in one split or in two."""
    texts = np.concatenate([split.texts for split in marks.values()])
    labels = np.concatenate([split.labels for split in marks.values()])
    order = np.lexsort((labels, texts))
    texts, labels = texts[order], labels[order]
    differs = (texts[1:] == texts[:-1]) & (labels[1:] != labels[:-1])
    return np.unique(texts[1:][differs])


def first_conflicts(
    folder: DataFolder, marks: Mapping[str, TextMarks], hashes: NDArray[np.uint64], count: int
) -> list[Conflict]:
    """Return the first ``count`` of the conflicting texts, each with two documents that have it.

    The texts themselves were not kept: the splits are read again, no further than need be.

    Args:
        folder: the data.
        marks: what was remembered of it.
        hashes: the conflicting texts.
        count: how many to return.
    """
    places: dict[int, dict[int, tuple[str, int]]] = {}  # by text and label set: a document's split and place in it
    for name, split in marks.items():
        for place in np.flatnonzero(np.isin(split.texts, hashes)).tolist():
            text = int(split.texts[place])
            if text in places or len(places) < count:
                places.setdefault(text, {}).setdefault(int(split.labels[place]), (name, place))
    pairs = [list(by_labels.values())[:2] for by_labels in places.values()]
    documents = _documents(folder, {place for pair in pairs for place in pair})
    ids = folder.taxonomy.ids
    return [
        Conflict(
            documents[first].text,
            (first[0], second[0]),
            (
                tuple(ids[label] for label in documents[first].labels),
                tuple(ids[label] for label in documents[second].labels),
            ),
        )
        for first, second in pairs
    ]


def _documents(folder: DataFolder, places: set[tuple[str, int]]) -> dict[tuple[str, int], Document]:
    """Return the documents at some places, each given by its split and its number among the good rows, from 0."""
    found = {}
    for split in folder.splits:
        last = max((place for name, place in places if name == split), default=-1)
        good = (item for item in folder.scan(split) if isinstance(item, Document))
        for place, document in enumerate(islice(good, last + 1)):
            if (split, place) in places:
                found[split, place] = document
    return found


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
        """Count one value."""
        self.counts[value] += 1

    def update(self, values: Iterable[int]) -> None:
        """Count several values."""
        self.counts.update(values)

    def __add__(self, other: Histogram) -> Histogram:
        total = Histogram()
        total.counts = self.counts + other.counts
        return total

    @property
    def total(self) -> int:
        """How many values were counted."""
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
        """Return the value at a place of the sorted values, counted from 0."""
        seen = 0
        for value in sorted(self.counts):
            seen += self.counts[value]
            if seen > place:
                return value
        raise IndexError(f"no place {place} among {seen} values")
