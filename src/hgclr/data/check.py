"""Look over a whole data folder and report what is in it and what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hgclr.data.folder import DataFolder, Document
from hgclr.data.rows import BadRowLog
from hgclr.data.statistics import (
    FIRST,
    LONG,
    SHORT,
    Branch,
    SplitSurvey,
    Statistics,
    TextMarks,
    survey_split,
    unused_branches,
)
from hgclr.urls import as_written

__all__ = ["CheckReport", "check", "excerpt", "findings"]

LABELS, BRANCHES = 10, 5
"""How many labels, and how many branches, the largest first, a sentence names."""
EXCERPT = 60
"""Characters of a text that are shown."""


class Conflict(NamedTuple):
    """A text, as it is first written, that has different labels in two documents, and the splits of these."""

    text: str
    splits: tuple[str, str]
    labels: tuple[tuple[str, ...], ...]

    def sides(self) -> tuple[str, str]:
        """Return where the text is and with which labels, for each of the two documents."""
        first, second = (f"{split}: {', '.join(ids)}" for split, ids in zip(self.splits, self.labels, strict=True))
        return first, second


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What a data folder holds, and what is suspicious about it.

    Args:
        statistics: the folder in numbers.
        unused_labels: ids of the labels that no document of ``train`` has; empty if there is no ``train``.
        unseen_labels: those of them that a document of another split has.
        unused_branches: the largest branches of the tree that no document of any split has.
        constant_labels: ids of the labels that every document of ``train`` has.
        shared_texts: for each pair of splits with texts in common, how many different texts those are.
        conflicting_texts: how many different texts have different labels in different documents.
        first_conflicts: the first of them.
    """

    statistics: Statistics
    unused_labels: list[str]
    unseen_labels: list[str]
    unused_branches: list[Branch]
    constant_labels: list[str]
    shared_texts: dict[tuple[str, str], int]
    conflicting_texts: int
    first_conflicts: list[Conflict]

    @property
    def splits(self) -> Mapping[str, SplitSurvey]:
        return self.statistics.splits

    @property
    def bad_rows(self) -> int:
        return sum(split.bad_rows for split in self.splits.values())

    @property
    def empty_splits(self) -> list[str]:
        """The splits without a good row."""
        return [name for name, split in self.splits.items() if not split.documents]

    def to_json(self) -> dict[str, object]:
        """Return the report, without the statistics, as plain values for a JSON file."""
        return {
            "labels": len(self.statistics.taxonomy),
            "depth": self.statistics.taxonomy.depth,
            "splits": {name: _split_json(split) for name, split in self.splits.items()},
            "unused_labels": self.unused_labels,
            "unseen_labels": self.unseen_labels,
            "unused_branches": [branch._asdict() for branch in self.unused_branches],
            "constant_labels": self.constant_labels,
            "shared_texts": [{"splits": list(pair), "texts": count} for pair, count in self.shared_texts.items()],
            "conflicting_texts": self.conflicting_texts,
            "first_conflicts": [conflict._asdict() for conflict in self.first_conflicts],
        }


def _split_json(split: SplitSurvey) -> dict[str, object]:
    return {
        "path": as_written(split.path),
        "documents": split.documents,
        "bad_rows": split.bad_rows,
        "first_bad_rows": [{"row": row.number, "reason": row.reason} for row in split.first_bad_rows],
        "labels_per_document": split.labels.mean,
        "words_per_text": split.words.mean,
        "longest_text": split.words.maximum,
        "short_texts": split.short_texts,
        "long_texts": split.long_texts,
        "labels_used": split.labels_used,
        "repeated_texts": split.repeated_texts,
    }


def check(
    folder: DataFolder, *, bad_rows: Path | None = None, progress: Callable[[int], None] | None = None
) -> CheckReport:
    """Read every row of every split and report on it; bad rows are counted, and recorded, never raised.

    Two texts are the same if they differ in nothing but case, white space and the composition of characters.
    Each document is remembered by 16 bytes of hashes, so a million rows take a few tens of megabytes.
    """
    marks = {name: TextMarks() for name in folder.splits}
    with BadRowLog(bad_rows) as log:
        surveys = {
            name: survey_split(folder, name, bad_row=log.add, marks=marks[name], progress=progress)
            for name in folder.splits
        }
    ids, statistics = folder.taxonomy.ids, Statistics(folder.taxonomy, surveys)
    everywhere = statistics.all_counts
    conflicts = conflicting_texts(marks)
    unused, unseen, constant = [], [], []
    if (train := surveys.get("train")) is not None:
        unused = [ids[index] for index in np.flatnonzero(train.label_counts == 0)]
        unseen = [ids[index] for index in np.flatnonzero((train.label_counts == 0) & (everywhere > 0))]
        if train.documents > 1:
            constant = [ids[index] for index in np.flatnonzero(train.label_counts == train.documents)]
    return CheckReport(
        statistics=statistics,
        unused_labels=unused,
        unseen_labels=unseen,
        unused_branches=unused_branches(folder.taxonomy, everywhere),
        constant_labels=constant,
        shared_texts=shared_texts(marks),
        conflicting_texts=len(conflicts),
        first_conflicts=first_conflicts(folder, marks, conflicts, FIRST),
    )


def shared_texts(marks: Mapping[str, TextMarks]) -> dict[tuple[str, str], int]:
    """Return, for each pair of splits that share texts, the number of distinct texts they share."""
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
    """
    places: dict[int, dict[int, tuple[str, int]]] = {}  # by text and label set: a document's split and place in it
    for name, split in marks.items():
        for place in np.flatnonzero(np.isin(split.texts, hashes)).tolist():
            text = int(split.texts[place])
            if text in places or len(places) < count:
                places.setdefault(text, {}).setdefault(int(split.labels[place]), (name, place))
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
    """Something to know about the data: a warning is most likely a mistake, a note may well be intended."""

    kind: Literal["warning", "note"]
    text: str


def findings(report: CheckReport) -> list[DataFinding]:
    """Return what is worth knowing about a folder, most important first, apart from bad rows and empty splits."""
    warnings = [
        f"{_count(count, 'text is', 'texts are')} in both {first} and {second}"
        for (first, second), count in report.shared_texts.items()
    ]
    if count := report.conflicting_texts:
        first = report.first_conflicts[0]
        example = f"{excerpt(first.text)!r} ({'; '.join(first.sides())})"
        number = _count(count, "text has", "texts have")
        warnings.append(
            f"{number} different labels in different documents{', such as' if count > 1 else ':'} {example}"
        )
    if unseen := report.unseen_labels:
        others = " or ".join(name for name in report.splits if name != "train")
        number = _count(len(unseen), "label has", "labels have")
        warnings.append(f"{number} documents in {others}, but none in train: {_some(unseen, LABELS)}")
    if branches := sorted(report.unused_branches, key=lambda branch: -branch.labels):
        number = _count(len(branches), "branch of the tree has", "branches of the tree have")
        names = [f"{one.path} ({one.labels:,} labels)" if one.labels > 1 else one.path for one in branches]
        labels = _count(sum(one.labels for one in branches), "label", "labels")
        warnings.append(f"{number} no document in any split ({labels}): {_some(names, BRANCHES)}")
    if constant := report.constant_labels:
        number = _count(len(constant), "label is", "labels are")
        warnings.append(f"{number} on every document of train: {_some(constant, LABELS)}")
    notes = []
    short = sum(split.short_texts for split in report.splits.values())
    long = sum(split.long_texts for split in report.splits.values())
    for count, limit in ((short, f"fewer than {SHORT}"), (long, f"more than {LONG}")):
        if count:
            percent = 100 * count / report.statistics.documents
            share = "less than 0.1 %" if percent < 0.1 else f"{percent:.1f} %"
            notes.append(f"{_count(count, 'text has', 'texts have')} {limit} words ({share})")
    if long:
        notes[-1] += f"; most encoders read {LONG} tokens"
    return [*(DataFinding("warning", text) for text in warnings), *(DataFinding("note", text) for text in notes)]


def excerpt(text: str) -> str:
    """Return the start of a text, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= EXCERPT else line[: EXCERPT - 1].rstrip() + "…"


def _some(names: Sequence[str], shown: int) -> str:
    return ", ".join(names[:shown]) + (", …" if len(names) > shown else "")


def _count(count: int, one: str, several: str) -> str:
    return f"{count:,} {one if count == 1 else several}"
