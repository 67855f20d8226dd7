"""Statistics and checks of a data folder; both read every row."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, islice
from math import ceil, floor
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hgclr.data.folder import DataFolder, Document, empty_split
from hgclr.data.readers import BadRow, BadRowLog, text_hash
from hgclr.errors import as_written
from hgclr.presentation import excerpt
from hgclr.taxonomy import Taxonomy

FIRST = 10
"""Maximum number of bad rows of a split, and of conflicting texts of a folder, that are listed."""
SHORT, LONG = 3, 512
"""Words: a shorter text carries little information, a longer one is truncated by most encoders."""
LABELS, BRANCHES = 10, 5
"""Maximum number of labels and of branches, largest first, in a finding."""
EXCERPT = 60
"""Maximum characters of a text that is shown."""


class Histogram(Counter[int]):
    """Counts of integers; memory grows with the distinct values only.

    Example:
        >>> Histogram([1, 2, 2, 9]).quantile(0.5)
        2.0
    """

    @property
    def mean(self) -> float:
        """The mean, 0 if nothing was counted."""
        return sum(value * count for value, count in self.items()) / (self.total() or 1)

    @property
    def maximum(self) -> int:
        """The largest value, 0 if nothing was counted."""
        return max(self, default=0)

    def quantile(self, share: float) -> float:
        """Return the quantile at ``share``, interpolated as in NumPy; 0 if nothing was counted."""
        if not self:
            return 0.0
        values = sorted(self)
        seen = np.cumsum([self[value] for value in values])
        place = share * (self.total() - 1)  # interpolate if this is not an integer
        low, high = (values[np.searchsorted(seen, where, side="right")] for where in (floor(place), ceil(place)))
        return low + (high - low) * (place - floor(place))

    def above(self, limit: int) -> int:
        """Return how many values are greater than ``limit``."""
        return sum(count for value, count in self.items() if value > limit)

    def summary(self) -> dict[str, float]:
        """Return mean, median, 95th percentile and maximum."""
        return {"mean": self.mean, "median": self.quantile(0.5), "p95": self.quantile(0.95), "max": self.maximum}


@dataclass(slots=True)
class SplitSurvey:
    """Counts of one split; a document takes 16 bytes: hashes of its text and of its labels.

    Args:
        path: its file or folder.
        label_counts: (K,) documents of each label.
        labels: labels per document, ancestors included.
        paths: paths per document: its labels without a child among its labels.
        depths: depth of the deepest label of each document.
        words: words per text, separated by white space.
        above_leaf: number of documents with a path that ends at a label with children.
        bad_rows, first_bad_rows: number of unusable rows, and the first of them.
        text_hashes, label_hashes: one of each per document, in order.
    """

    path: Path
    label_counts: NDArray[np.int64]
    labels: Histogram = field(default_factory=Histogram)
    paths: Histogram = field(default_factory=Histogram)
    depths: Histogram = field(default_factory=Histogram)
    words: Histogram = field(default_factory=Histogram)
    above_leaf: int = 0
    bad_rows: int = 0
    first_bad_rows: list[BadRow] = field(default_factory=list)
    text_hashes: array[int] = field(default_factory=lambda: array("Q"))
    label_hashes: array[int] = field(default_factory=lambda: array("q"))

    @property
    def documents(self) -> int:
        return len(self.text_hashes)

    @property
    def labels_used(self) -> int:
        """The number of labels that occur."""
        return int(np.count_nonzero(self.label_counts))

    @property
    def repeated_texts(self) -> int:
        """The number of documents whose text occurs earlier in the split."""
        return self.documents - len(np.unique(self.text_hashes))


class LevelStatistics(NamedTuple):
    """One level of the tree, counted from 1 at the top.

    Labels are ``used`` if a document of any split has them. ``largest``, ``median`` and ``smallest`` are training
    documents per label.
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
    """Documents per label: the largest, median and smallest positive number; and the number of rare labels.

    ``below_5`` and ``below_10`` include the ``unused`` labels, which have no document.
    """

    largest: int
    median: float
    smallest: int
    unused: int
    below_5: int
    below_10: int


class Branch(NamedTuple):
    """A label, by id and path of names, and the number of labels in its branch, itself included."""

    top: str
    path: str
    labels: int


class Conflict(NamedTuple):
    """A text with different labels in two documents, as written in the first, and the splits of both."""

    text: str
    splits: tuple[str, str]
    labels: tuple[tuple[str, ...], ...]

    def sides(self) -> tuple[str, str]:
        """Return the split and the labels of each of the two documents."""
        first, second = (f"{split}: {', '.join(ids)}" for split, ids in zip(self.splits, self.labels, strict=True))
        return first, second


@dataclass(frozen=True)
class Statistics:
    """Statistics of a data folder, computed from the counts of its splits.

    Conflicting texts have different labels in different documents; ``first_conflicts`` lists the first of them.
    """

    taxonomy: Taxonomy
    splits: Mapping[str, SplitSurvey]
    conflicting_texts: int = 0
    first_conflicts: Sequence[Conflict] = ()

    @property
    def documents(self) -> int:
        return sum(split.documents for split in self.splits.values())

    @property
    def bad_rows(self) -> int:
        return sum(split.bad_rows for split in self.splits.values())

    @property
    def empty_splits(self) -> list[str]:
        """The splits without a good row."""
        return [name for name, split in self.splits.items() if not split.documents]

    @property
    def labels_per_document(self) -> float:
        """The paper's Avg(|y|): the mean number of labels per document, ancestors included, over all splits."""
        return self.together("labels").mean

    @property
    def above_leaf(self) -> int:
        """The number of documents with a path that ends at a label with children."""
        return sum(split.above_leaf for split in self.splits.values())

    @property
    def reference(self) -> Literal["train", "all splits"]:
        """The split where label frequencies are counted: train, if there is one."""
        return "train" if "train" in self.splits else "all splits"

    @property
    def training_counts(self) -> NDArray[np.int64]:
        """(K,) documents of each label in the reference."""
        return self.splits["train"].label_counts if self.reference == "train" else self.all_counts

    @property
    def all_counts(self) -> NDArray[np.int64]:
        """(K,) documents of each label in all splits."""
        counts: NDArray[np.int64] = np.sum([split.label_counts for split in self.splits.values()], axis=0)
        return counts

    @property
    def children(self) -> Histogram:
        """The number of children of each label that has any."""
        inner = self.taxonomy.parents[self.taxonomy.parents >= 0]
        return Histogram(np.unique_counts(inner).counts.tolist())

    def together(self, name: Literal["labels", "paths", "depths", "words"]) -> Histogram:
        """Return a histogram of `SplitSurvey` summed over all splits."""
        total = Histogram()
        for split in self.splits.values():
            total.update(getattr(split, name))
        return total

    def levels(self) -> list[LevelStatistics]:
        """Return the statistics of each level, top first."""
        used, counts = self.all_counts, self.training_counts
        depths, leaf = self.together("depths"), np.zeros(len(self.taxonomy), dtype=np.bool_)
        leaf[self.taxonomy.leaves] = True
        return [
            LevelStatistics(
                level=number,
                labels=len(labels),
                leaves=int(np.count_nonzero(leaf[labels])),
                used=int(np.count_nonzero(used[labels])),
                documents=depths.above(number - 1),  # ancestors are included: no level is skipped
                largest=int(counts[labels].max()),
                median=float(np.median(counts[labels])),
                smallest=int(counts[labels].min()),
            )
            for number, labels in enumerate(self.taxonomy.levels, 1)
        ]

    def frequency(self) -> Frequency:
        """Return the label frequencies in the reference."""
        counts = self.training_counts
        return Frequency(
            largest=int(counts.max()),
            median=float(np.median(counts)),
            smallest=int(counts[counts > 0].min(initial=counts.max())),
            unused=int(np.count_nonzero(counts == 0)),
            below_5=int(np.count_nonzero(counts < 5)),
            below_10=int(np.count_nonzero(counts < 10)),
        )

    def unused_branches(self) -> list[Branch]:
        """Return the largest branches without a document in any split, in depth-first order."""
        taxonomy = self.taxonomy
        unused = np.append(self.all_counts == 0, False)  # the last entry, at -1, is the virtual root
        tops = unused[:-1] & ~unused[taxonomy.parents]  # documents include ancestors: all labels below are unused
        return [
            Branch(taxonomy.ids[top], taxonomy.path_name(top), int(taxonomy.branch_sizes[top]))
            for top in taxonomy.walk[tops[taxonomy.walk]].tolist()
        ]

    def label_problems(self) -> dict[str, list[str]]:
        """Return ids of labels: ``unused`` in train, ``unseen`` in train but used elsewhere, ``constant`` in train."""
        if "train" not in self.splits:
            return {"unused": [], "unseen": [], "constant": []}
        counts, documents = self.training_counts, self.splits["train"].documents
        chosen = {
            "unused": counts == 0,
            "unseen": (counts == 0) & (self.all_counts > 0),
            "constant": (counts == documents) & (documents > 1),
        }
        return {name: [self.taxonomy.ids[label] for label in np.flatnonzero(which)] for name, which in chosen.items()}

    def shared_texts(self) -> dict[tuple[str, str], int]:
        """Return, for each pair of splits that share texts, the number of different texts they share."""
        different = {name: np.unique(split.text_hashes) for name, split in self.splits.items()}
        counts = {
            (first, second): len(np.intersect1d(different[first], different[second], assume_unique=True))
            for first, second in combinations(different, 2)
        }
        return {pair: count for pair, count in counts.items() if count}

    def to_json(self) -> dict[str, Any]:
        """Return all statistics, problems and label frequencies as plain values for a JSON file."""
        taxonomy = self.taxonomy
        counts = {name: split.label_counts.tolist() for name, split in self.splits.items()}
        return {
            "table1": {
                "labels": len(taxonomy),
                "depth": taxonomy.depth,
                "labels_per_document": self.labels_per_document,
                "documents": {name: split.documents for name, split in self.splits.items()},
            },
            "tree": {
                "top_labels": len(taxonomy.levels[0]),
                "leaves": len(taxonomy.leaves),
                "children": self.children.summary(),
                "only_children": self.children[1],
            },
            "levels": [level._asdict() for level in self.levels()],
            "documents": {
                "paths": {str(number): count for number, count in sorted(self.together("paths").items())},
                "labels": {str(number): count for number, count in sorted(self.together("labels").items())},
                "ending_above_a_leaf": self.above_leaf,
            },
            "label_frequency": {"split": self.reference, **self.frequency()._asdict()},
            "splits": {
                name: {
                    "path": as_written(split.path),
                    "documents": split.documents,
                    "bad_rows": split.bad_rows,
                    "first_bad_rows": [{"row": row.number, "reason": row.reason} for row in split.first_bad_rows],
                    "labels_per_document": split.labels.mean,
                    "paths_per_document": split.paths.mean,
                    "labels_used": split.labels_used,
                    "ending_above_a_leaf": split.above_leaf,
                    "words": split.words.summary(),
                    "short_texts": split.documents - split.words.above(SHORT - 1),
                    "long_texts": split.words.above(LONG),
                    "repeated_texts": split.repeated_texts,
                }
                for name, split in self.splits.items()
            },
            **{f"{name}_labels": labels for name, labels in self.label_problems().items()},
            "unused_branches": [branch._asdict() for branch in self.unused_branches()],
            "shared_texts": [{"splits": list(pair), "texts": count} for pair, count in self.shared_texts().items()],
            "conflicting_texts": self.conflicting_texts,
            "first_conflicts": [conflict._asdict() for conflict in self.first_conflicts],
            "labels": [
                {"id": identifier, "path": taxonomy.path_name(index), "level": int(taxonomy.depths[index])}
                | {name: values[index] for name, values in counts.items()}
                for index, identifier in enumerate(taxonomy.ids)
            ],
        }


def check(
    folder: DataFolder, *, bad_rows: Path | None = None, progress: Callable[[int], None] | None = None
) -> Statistics:
    """Return statistics and conflicts of all splits; bad rows are counted and recorded in ``bad_rows``, not raised."""
    with BadRowLog(bad_rows) as log:
        splits = {name: survey_split(folder, name, bad_row=log.add, progress=progress) for name in folder.splits}
    conflicts = conflicting_texts(splits.values())
    first = first_conflicts(folder, splits, conflicts)
    return Statistics(folder.taxonomy, splits, conflicting_texts=len(conflicts), first_conflicts=first)


def describe(folder: DataFolder, *, progress: Callable[[int], None] | None = None) -> Statistics:
    """Return statistics of all splits, without conflicts; raise at a bad row unless the folder skips them.

    ``progress`` is called with 1 for each row.
    """
    log = BadRowLog(None)

    def bad_row(row: BadRow) -> None:
        if not folder.skip_bad_rows:
            raise row.error()
        log.add(row)

    splits = {name: survey_split(folder, name, bad_row=bad_row, progress=progress) for name in folder.splits}
    log.warn()
    for split in splits.values():
        if not split.documents:
            raise empty_split(split.path, split.bad_rows)
    return Statistics(folder.taxonomy, splits)


def survey_split(
    folder: DataFolder,
    split: str,
    *,
    bad_row: Callable[[BadRow], None],
    progress: Callable[[int], None] | None = None,
) -> SplitSurvey:
    """Return the counts of one split."""
    taxonomy = folder.taxonomy
    result = SplitSurvey(folder.split_path(split), np.zeros(len(taxonomy), dtype=np.int64))
    depths: list[int] = taxonomy.depths.tolist()  # indexing a list is faster than indexing an array
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
        result.labels[len(item.labels)] += 1
        result.paths[len(ends)] += 1
        result.depths[max(depths[label] for label in ends)] += 1
        result.above_leaf += taxonomy.ends_inside(ends)
        result.words[len(item.text.split())] += 1
        result.text_hashes.append(text_hash(item.text))
        result.label_hashes.append(hash(item.labels))
    return result


def conflicting_texts(splits: Iterable[SplitSurvey]) -> NDArray[np.uint64]:
    """Return the hashes of texts with different labels, within or across splits."""
    texts = np.concatenate([np.frombuffer(split.text_hashes, dtype=np.uint64) for split in splits])
    labels = np.concatenate([np.frombuffer(split.label_hashes, dtype=np.int64) for split in splits])
    order = np.lexsort((labels, texts))
    texts, labels = texts[order], labels[order]
    differs = (texts[1:] == texts[:-1]) & (labels[1:] != labels[:-1])
    return np.unique(texts[1:][differs])


def first_conflicts(
    folder: DataFolder, splits: Mapping[str, SplitSurvey], hashes: NDArray[np.uint64]
) -> list[Conflict]:
    """Return the first conflicting texts, each with two documents.

    The surveys hold only hashes, so the splits are read again as far as necessary.
    """
    places: dict[int, dict[int, tuple[str, int]]] = {}  # text -> label set -> split and position of a document
    for name, split in splits.items():
        for place in np.flatnonzero(np.isin(np.frombuffer(split.text_hashes, dtype=np.uint64), hashes)).tolist():
            text = split.text_hashes[place]
            if text in places or len(places) < FIRST:
                places.setdefault(text, {}).setdefault(split.label_hashes[place], (name, place))
    pairs = [list(by_labels.values())[:2] for by_labels in places.values()]
    wanted = {place for pair in pairs for place in pair}
    documents: dict[tuple[str, int], Document] = {}
    for name in folder.splits:
        last = max((place for split, place in wanted if split == name), default=-1)
        good = (item for item in folder.scan(name) if isinstance(item, Document))
        for place, document in enumerate(islice(good, last + 1)):
            if (name, place) in wanted:
                documents[name, place] = document
    ids = folder.taxonomy.ids
    return [
        Conflict(
            documents[first].text,
            (first[0], second[0]),
            tuple(tuple(ids[label] for label in documents[side].labels) for side in (first, second)),
        )
        for first, second in pairs
    ]


class DataFinding(NamedTuple):
    """A finding about the data: a warning is probably a mistake, a note may be intended."""

    kind: Literal["warning", "note"]
    text: str


def findings(statistics: Statistics) -> list[DataFinding]:
    """Return warnings and notes, most important first, without bad rows and empty splits."""

    def counted(count: int, one: str, several: str) -> str:
        return f"{count:,} {one if count == 1 else several}"

    def some(names: Sequence[str], shown: int) -> str:
        return ", ".join(names[:shown]) + (", …" if len(names) > shown else "")

    warnings = [
        f"{counted(count, 'text is', 'texts are')} in both {first} and {second}"
        for (first, second), count in statistics.shared_texts().items()
    ]
    if count := statistics.conflicting_texts:
        first = statistics.first_conflicts[0]
        number = counted(count, "text has", "texts have")
        example = f"{excerpt(first.text, EXCERPT)!r} ({'; '.join(first.sides())})"
        warnings.append(f"{number} different labels in different documents, such as {example}")
    problems = statistics.label_problems()
    if unseen := problems["unseen"]:
        others = " or ".join(name for name in statistics.splits if name != "train")
        number = counted(len(unseen), "label has", "labels have")
        warnings.append(f"{number} documents in {others}, but none in train: {some(unseen, LABELS)}")
    if branches := sorted(statistics.unused_branches(), key=lambda branch: -branch.labels):
        number = counted(len(branches), "branch of the tree has", "branches of the tree have")
        names = [f"{one.path} ({one.labels:,} labels)" if one.labels > 1 else one.path for one in branches]
        labels = counted(sum(one.labels for one in branches), "label", "labels")
        warnings.append(f"{number} no document in any split ({labels}): {some(names, BRANCHES)}")
    if constant := problems["constant"]:
        number = counted(len(constant), "label is", "labels are")
        warnings.append(f"{number} on every document of train: {some(constant, LABELS)}")
    words = statistics.together("words")
    notes = []
    for count, limit in (
        (words.total() - words.above(SHORT - 1), f"fewer than {SHORT}"),
        (words.above(LONG), f"more than {LONG}"),
    ):
        if count:
            share = percent(count, statistics.documents)
            notes.append(f"{counted(count, 'text has', 'texts have')} {limit} words ({share})")
    return [*(DataFinding("warning", text) for text in warnings), *(DataFinding("note", text) for text in notes)]


def percent(count: int, total: int) -> str:
    """Return a share as a percentage; a share above 0 is never shown as 0."""
    share = 100 * count / (total or 1)
    return "< 0.1 %" if 0 < share < 0.1 else "> 99.9 %" if 99.9 < share < 100 else f"{share:.1f} %"
