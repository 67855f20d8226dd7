"""Look over a whole data folder and report what is in it and what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from hgclr.data.folder import DataFolder
from hgclr.data.rows import BadRow, BadRowLog
from hgclr.data.statistics import Branch, Statistics, unused_branches
from hgclr.data.survey import SplitSurvey, survey_split
from hgclr.data.texts import Conflict, TextMarks, conflicting_texts, first_conflicts, shared_texts

__all__ = ["CheckReport", "check", "excerpt", "findings"]

FIRST = 10
"""How many bad rows of a split, and how many conflicting texts, the report keeps."""
SHORT, LONG = 3, 512
"""Words: a text with fewer says hardly anything, one with more is longer than most encoders read."""


@dataclass(slots=True)
class SplitReport:
    """What one split holds.

    Args:
        path: its file or folder.
        documents: good rows.
        bad_rows: bad rows.
        first_bad_rows: the first of them.
        labels_per_document: mean number of labels, ancestors counted.
        words_per_text: mean number of words between white space.
        longest_text: words in the longest text.
        short_texts: texts with fewer than `SHORT` words.
        long_texts: texts with more than `LONG` words.
        labels_used: how many labels of the tree occur.
        repeated_texts: documents whose text an earlier document of the split has.
    """

    path: str
    documents: int = 0
    bad_rows: int = 0
    first_bad_rows: list[BadRow] = field(default_factory=list)
    labels_per_document: float = 0.0
    words_per_text: float = 0.0
    longest_text: int = 0
    short_texts: int = 0
    long_texts: int = 0
    labels_used: int = 0
    repeated_texts: int = 0


@dataclass(slots=True)
class CheckReport:
    """What a data folder holds.

    Args:
        labels: number of labels in the tree.
        depth: depth of the tree.
        splits: a report for each split.
        unused_labels: ids of the labels that no document of ``train`` has; empty if there is no ``train``.
        unseen_labels: those of them that a document of another split has.
        unused_branches: the largest branches of the tree that no document of any split has.
        constant_labels: ids of the labels that every document of ``train`` has.
        shared_texts: for each pair of splits with texts in common, how many different texts those are.
        conflicting_texts: how many different texts have different labels in different documents.
        first_conflicts: the first of them.
        statistics: the folder in numbers.
    """

    labels: int
    depth: int
    splits: dict[str, SplitReport]
    unused_labels: list[str]
    unseen_labels: list[str]
    unused_branches: list[Branch]
    constant_labels: list[str]
    shared_texts: dict[tuple[str, str], int]
    conflicting_texts: int
    first_conflicts: list[Conflict]
    statistics: Statistics

    @property
    def documents(self) -> int:
        """The number of good rows in all splits."""
        return sum(split.documents for split in self.splits.values())

    @property
    def bad_rows(self) -> int:
        """The number of bad rows in all splits."""
        return sum(split.bad_rows for split in self.splits.values())

    @property
    def empty_splits(self) -> list[str]:
        """The splits without a good row."""
        return [name for name, split in self.splits.items() if not split.documents]

    def to_json(self) -> dict[str, object]:
        """Return the report, without the statistics, as plain values for a JSON file."""
        splits = {}
        for name, split in self.splits.items():
            values = asdict(split)
            values["first_bad_rows"] = [{"row": row.number, "reason": row.reason} for row in split.first_bad_rows]
            splits[name] = values
        shared = [{"splits": list(pair), "texts": count} for pair, count in self.shared_texts.items()]
        return {
            "labels": self.labels,
            "depth": self.depth,
            "splits": splits,
            "unused_labels": self.unused_labels,
            "unseen_labels": self.unseen_labels,
            "unused_branches": [asdict(branch) for branch in self.unused_branches],
            "constant_labels": self.constant_labels,
            "shared_texts": shared,
            "conflicting_texts": self.conflicting_texts,
            "first_conflicts": [asdict(conflict) for conflict in self.first_conflicts],
        }


def check(
    folder: DataFolder, *, bad_rows: Path | None = None, progress: Callable[[int], None] | None = None
) -> CheckReport:
    """Read every row of every split and report on it; bad rows are counted, never raised.

    Two texts are the same if they differ in nothing but case, white space and the composition of characters.
    Each document is remembered by 16 bytes of hashes, so a million rows take a few tens of megabytes.

    Args:
        folder: the data.
        bad_rows: where to record every bad row, as `DataFolder.documents` does.
        progress: called with the number of rows read since the last call.

    Raises:
        InputError: if a file cannot be read as a whole: damaged, or a table without the columns.
    """
    splits: dict[str, SplitReport] = {}
    surveys: dict[str, SplitSurvey] = {}
    marks: dict[str, TextMarks] = {}
    with BadRowLog(bad_rows) as log:
        for name in folder.splits:
            report = splits[name] = SplitReport(str(folder.split_path(name)))

            def bad_row(row: BadRow, report: SplitReport = report) -> None:
                report.bad_rows += 1
                log.add(row)
                if len(report.first_bad_rows) < FIRST:
                    report.first_bad_rows.append(row)

            marks[name] = TextMarks()
            surveys[name] = survey_split(folder, name, bad_row=bad_row, marks=marks[name], progress=progress)
            _fill(report, surveys[name], marks[name])
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
        labels=len(folder.taxonomy),
        depth=folder.taxonomy.depth,
        splits=splits,
        unused_labels=unused,
        unseen_labels=unseen,
        unused_branches=unused_branches(folder.taxonomy, everywhere),
        constant_labels=constant,
        shared_texts=shared_texts(marks),
        conflicting_texts=len(conflicts),
        first_conflicts=first_conflicts(folder, marks, conflicts, FIRST),
        statistics=statistics,
    )


def _fill(report: SplitReport, survey: SplitSurvey, marks: TextMarks) -> None:
    """Enter what was counted into the report on a split."""
    report.documents = survey.documents
    report.labels_per_document = survey.labels.mean
    report.words_per_text = survey.words.mean
    report.longest_text = survey.words.maximum
    report.short_texts = survey.documents - survey.words.above(SHORT - 1)
    report.long_texts = survey.words.above(LONG)
    report.labels_used = int(np.count_nonzero(survey.label_counts))
    report.repeated_texts = survey.documents - len(np.unique(marks.texts))


LABELS, BRANCHES = 10, 5
"""How many labels, and how many branches, the largest first, a sentence names."""
EXCERPT = 60
"""Characters of a text that are shown."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that the owner of the data should know.

    Args:
        kind: a warning is most likely a mistake, a note may be as it should be.
        text: the sentence, without a full stop.
    """

    kind: Literal["warning", "note"]
    text: str


def findings(report: CheckReport) -> list[Finding]:
    """Return what is worth knowing about a folder, what weighs most first; bad rows and empty splits apart."""
    found = [
        *(
            Finding("warning", f"{_count(count, 'text is', 'texts are')} in both {first} and {second}")
            for (first, second), count in report.shared_texts.items()
        ),
        *_conflicts(report),
        *_labels(report),
    ]
    if report.documents:
        short = sum(split.short_texts for split in report.splits.values())
        long = sum(split.long_texts for split in report.splits.values())
        if short:
            share = _share(short, report.documents)
            found.append(
                Finding("note", f"{_count(short, 'text has', 'texts have')} fewer than {SHORT} words ({share})")
            )
        if long:
            share = _share(long, report.documents)
            texts = _count(long, "text has", "texts have")
            found.append(Finding("note", f"{texts} more than {LONG} words ({share}); most encoders read {LONG} tokens"))
    return found


def _conflicts(report: CheckReport) -> list[Finding]:
    if not report.conflicting_texts:
        return []
    first = report.first_conflicts[0]
    number = _count(report.conflicting_texts, "text has", "texts have")
    example = f"{excerpt(first.text)!r} ({'; '.join(first.sides())})"
    such_as = ", such as" if report.conflicting_texts > 1 else ":"
    return [Finding("warning", f"{number} different labels in different documents{such_as} {example}")]


def _labels(report: CheckReport) -> list[Finding]:
    found = []
    if unseen := report.unseen_labels:
        others = " or ".join(name for name in report.splits if name != "train")
        number = _count(len(unseen), "label has", "labels have")
        found.append(Finding("warning", f"{number} documents in {others}, but none in train: {_some(unseen, LABELS)}"))
    if branches := sorted(report.unused_branches, key=lambda branch: -branch.labels):
        number = _count(len(branches), "branch of the tree has", "branches of the tree have")
        names = [f"{one.path} ({one.labels:,} labels)" if one.labels > 1 else one.path for one in branches]
        labels = _count(sum(one.labels for one in branches), "label", "labels")
        found.append(Finding("warning", f"{number} no document in any split ({labels}): {_some(names, BRANCHES)}"))
    if constant := report.constant_labels:
        number = _count(len(constant), "label is", "labels are")
        found.append(Finding("warning", f"{number} on every document of train: {_some(constant, LABELS)}"))
    return found


def excerpt(text: str) -> str:
    """Return the start of a text, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= EXCERPT else line[: EXCERPT - 1].rstrip() + "…"


def _some(names: Sequence[str], shown: int) -> str:
    return ", ".join(names[:shown]) + (", …" if len(names) > shown else "")


def _count(count: int, one: str, several: str) -> str:
    return f"{count:,} {one if count == 1 else several}"


def _share(count: int, total: int) -> str:
    share = count / total
    return "less than 0.1 %" if share < 0.001 else f"{100 * share:.1f} %"
