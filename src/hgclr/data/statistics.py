"""Describe a data folder in numbers: the paper's Table 1 row, and what else makes it easy or hard."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import ceil, floor, pi
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hgclr.data.folder import DataFolder, Document, empty_split
from hgclr.data.rows import BadRow, BadRowLog, text_hash
from hgclr.data.tokens import TokenLengths, token_lengths
from hgclr.taxonomy import Taxonomy

__all__ = [
    "Branch",
    "Histogram",
    "SplitSurvey",
    "Statistics",
    "TextMarks",
    "describe",
    "statistics_json",
    "survey_split",
    "unused_branches",
]

USUAL_LENGTH = 512
"""Tokens that most encoders can read."""
FIRST = 10
"""How many bad rows of a split, and how many conflicting texts of a folder, are kept to be shown."""
SHORT, LONG = 3, 512
"""Words: a text with fewer says hardly anything, one with more is longer than most encoders read."""
BATCH = 256
"""Texts tokenised, and in memory, at a time."""


class Histogram:
    """How often each whole number was seen; memory grows with different numbers, not with values.

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
        """Return the value below which a share of all values lies, as NumPy does; 0 if nothing was counted."""
        if not self.counts:
            return 0.0
        values = sorted(self.counts)
        seen = np.cumsum([self.counts[value] for value in values])
        place = share * (self.total - 1)  # counted from 0; between two neighbours it is interpolated
        low, high = (values[np.searchsorted(seen, where, side="right")] for where in (floor(place), ceil(place)))
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
        words, tokens: of each text, the words between white space; an encoder's tokens, if one was given.
        above_leaf: documents with a path that ends in a label with children.
        bad_rows, first_bad_rows: rows that cannot be used: how many, and the first of them.
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
    """Read every row of a split and count; marks remember texts and label sets, to find repeated ones."""
    result = SplitSurvey(folder.split_path(split), np.zeros(len(folder.taxonomy), dtype=np.int64))
    taxonomy = folder.taxonomy
    depths: list[int] = taxonomy.depths.tolist()  # a plain list: one number at a time is faster on it
    waiting: list[str] = []
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
            if len(waiting) == BATCH:
                result.tokens.update(token_lengths(waiting))
                waiting = []
    if token_lengths is not None and waiting:
        result.tokens.update(token_lengths(waiting))
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


class LevelStatistics(NamedTuple):
    """One level of the tree, counted from 1 at the top.

    Labels are ``used`` by a document of any split. The last three are training documents of its most frequent label,
    of the median and of its rarest.
    """

    level: int
    labels: int
    leaves: int
    used: int
    documents: int
    largest: int
    median: float
    smallest: int


class Frequency(NamedTuple):
    """The documents of the most frequent label, the median, and those of the rarest that has any; and rare labels.

    Labels without a document, the ``unused``, are among those ``below_5`` and ``below_10``.
    """

    largest: int
    median: float
    smallest: int
    unused: int
    below_5: int
    below_10: int

    @property
    def imbalance(self) -> float:
        """The most frequent label's documents for one of the rarest."""
        return self.largest / self.smallest if self.smallest else 0.0


@dataclass(frozen=True)
class Statistics:
    """What a data folder holds, computed from the counts of its splits.

    Tokens are those of ``encoder``, if any; ``max_length`` of them a model is to read, so that longer texts are cut.
    """

    taxonomy: Taxonomy
    splits: Mapping[str, SplitSurvey]
    encoder: str | None = None
    max_length: int | None = None

    @property
    def documents(self) -> int:
        """The documents of all splits."""
        return sum(split.documents for split in self.splits.values())

    @property
    def labels_per_document(self) -> float:
        """The paper's Avg(|y|): the mean number of labels of a document, ancestors counted, over all splits."""
        return self.together("labels").mean

    @property
    def reference(self) -> Literal["train", "all splits"]:
        """Where label frequencies are counted: in train, if there is one."""
        return "train" if "train" in self.splits else "all splits"

    @property
    def training_counts(self) -> NDArray[np.int64]:
        """(K,) documents by label in the reference."""
        return self.splits["train"].label_counts if self.reference == "train" else self.all_counts

    @property
    def all_counts(self) -> NDArray[np.int64]:
        """(K,) documents by label in all splits."""
        counts: NDArray[np.int64] = np.sum([split.label_counts for split in self.splits.values()], axis=0)
        return counts

    @property
    def limits(self) -> list[int]:
        """The lengths in tokens at which to tell how many texts would be cut."""
        return sorted({USUAL_LENGTH, self.max_length or USUAL_LENGTH})

    @property
    def above_leaf(self) -> int:
        """The documents with a path that ends in a label with children."""
        return sum(split.above_leaf for split in self.splits.values())

    @property
    def children(self) -> Histogram:
        """Of each label with children, how many it has."""
        inner = self.taxonomy.parents[self.taxonomy.parents >= 0]
        return Histogram(np.unique_counts(inner).counts.tolist())

    def together(self, name: Literal["labels", "paths", "depths", "words", "tokens"]) -> Histogram:
        """Return one of the histograms of `SplitSurvey` over all splits."""
        return sum((getattr(split, name) for split in self.splits.values()), start=Histogram())

    def levels(self) -> list[LevelStatistics]:
        """Return what each level holds, top first."""
        used, counts = self.all_counts, self.training_counts
        depths = self.together("depths")
        return [
            LevelStatistics(
                level=number,
                labels=len(labels),
                leaves=len(np.intersect1d(labels, self.taxonomy.leaves)),
                used=int(np.count_nonzero(used[labels])),
                documents=depths.above(number - 1),  # a label brings its ancestors, so that no level is left out
                largest=int(counts[labels].max()),
                median=float(np.median(counts[labels])),
                smallest=int(counts[labels].min()),
            )
            for number, labels in enumerate(self.taxonomy.levels, 1)
        ]

    def frequency(self) -> Frequency:
        """Return how often labels occur in the reference."""
        counts = self.training_counts
        return Frequency(
            largest=int(counts.max()),
            median=float(np.median(counts)),
            smallest=int(counts[counts > 0].min(initial=counts.max())),
            unused=int(np.count_nonzero(counts == 0)),
            below_5=int(np.count_nonzero(counts < 5)),
            below_10=int(np.count_nonzero(counts < 10)),
        )

    def agreement(self, split: str) -> SplitDistance | None:
        """Return how far the labels of a split are from those of train; None for train itself and empty splits."""
        if split == "train" or self.reference != "train":
            return None
        return agreement(self.splits["train"], self.splits[split])


def describe(
    folder: DataFolder,
    *,
    encoder: str | None = None,
    max_length: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Statistics:
    """Read every document of every split and describe what is there; ``progress`` is called with 1 for each row.

    The tokens of an encoder are counted, too, if it is a folder or a name of one on this machine. Of any other name a
    warning says that they are not; nothing is downloaded.
    """
    count = None if encoder is None else token_lengths(encoder)
    if count is None:
        encoder = max_length = None
    splits = {}
    for name in folder.splits:
        log = BadRowLog(None)

        def bad_row(row: BadRow, log: BadRowLog = log) -> None:
            if not folder.skip_bad_rows:
                raise row.error()
            log.add(row)

        splits[name] = survey_split(folder, name, bad_row=bad_row, token_lengths=count, progress=progress)
        log.warn()
        if not splits[name].documents:
            raise empty_split(folder.split_path(name), log.count)
    return Statistics(folder.taxonomy, splits, encoder, max_length)


class Branch(NamedTuple):
    """A label, given by its id and its path of names, and how many labels its branch has, itself included."""

    top: str
    path: str
    labels: int


def unused_branches(taxonomy: Taxonomy, counts: NDArray[np.int64]) -> list[Branch]:
    """Return the largest branches without a document, in the order of a walk through the tree.

    The counts, (K,), are documents by label, ancestors counted, so that below an unused label none is used.
    """
    unused = np.append(counts == 0, False)  # the last entry, at -1, is the virtual root
    tops = unused[:-1] & ~unused[taxonomy.parents]
    return [
        Branch(taxonomy.ids[top], taxonomy.path_name(top), int(taxonomy.branch_sizes[top]))
        for top in taxonomy.walk[tops[taxonomy.walk]].tolist()
    ]


def statistics_json(statistics: Statistics) -> dict[str, Any]:
    """Return everything that `Statistics` knows, and how often each label occurs."""
    taxonomy, frequency = statistics.taxonomy, statistics.frequency()
    counts = {name: split.label_counts.tolist() for name, split in statistics.splits.items()}
    return {
        "table1": {
            "labels": len(taxonomy),
            "depth": taxonomy.depth,
            "labels_per_document": statistics.labels_per_document,
            "documents": {name: split.documents for name, split in statistics.splits.items()},
        },
        "tree": {
            "top_labels": len(taxonomy.levels[0]),
            "leaves": len(taxonomy.leaves),
            "children": statistics.children.summary(),
            "only_children": statistics.children.counts[1],
        },
        "levels": [level._asdict() for level in statistics.levels()],
        "documents": {
            "paths": statistics.together("paths").to_json(),
            "labels": statistics.together("labels").to_json(),
            "ending_above_a_leaf": statistics.above_leaf,
        },
        "label_frequency": {
            "split": statistics.reference,
            **frequency._asdict(),
            "imbalance": frequency.imbalance,
        },
        "encoder": statistics.encoder,
        "max_length": statistics.max_length,
        "splits": {name: _split_json(statistics, name) for name in statistics.splits},
        "labels": [
            {"id": identifier, "path": taxonomy.path_name(index), "level": int(taxonomy.depths[index])}
            | {name: values[index] for name, values in counts.items()}
            for index, identifier in enumerate(taxonomy.ids)
        ],
    }


def _split_json(statistics: Statistics, name: str) -> dict[str, Any]:
    split, distance = statistics.splits[name], statistics.agreement(name)
    values: dict[str, Any] = {
        "documents": split.documents,
        "labels_per_document": split.labels.mean,
        "paths_per_document": split.paths.mean,
        "labels_used": split.labels_used,
        "ending_above_a_leaf": split.above_leaf,
        "words": split.words.summary(),
        "labels_compared_with_train": distance._asdict() if distance else None,
    }
    if statistics.encoder is not None:
        cut = {str(limit): split.tokens.share_above(limit) for limit in statistics.limits}
        values["tokens"] = {**split.tokens.summary(), "share_cut_at": cut}
    return values
