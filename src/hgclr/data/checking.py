"""Look over a whole data folder and report what is in it and what is wrong with it."""

from __future__ import annotations

import hashlib
import unicodedata
from array import array
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hgclr.data.folder import DataFolder, Document
from hgclr.data.rows import BadRow, BadRowLog

__all__ = ["CheckReport", "SplitReport", "check"]

FIRST = 10
"""How many bad rows of a split the report keeps."""


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
        shared_texts: for each pair of splits with texts in common, how many different texts those are.
    """

    labels: int
    depth: int
    splits: dict[str, SplitReport]
    unused_labels: list[str]
    shared_texts: dict[tuple[str, str], int]

    @property
    def bad_rows(self) -> int:
        """The number of bad rows in all splits."""
        return sum(split.bad_rows for split in self.splits.values())

    @property
    def empty_splits(self) -> list[str]:
        """The splits without a good row."""
        return [name for name, split in self.splits.items() if not split.documents]

    def to_json(self) -> dict[str, object]:
        """Return the report as plain values for a JSON file."""
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
            "shared_texts": shared,
        }


def check(
    folder: DataFolder, *, bad_rows: Path | None = None, progress: Callable[[int], None] | None = None
) -> CheckReport:
    """Read every row of every split and report on it; bad rows are counted, never raised.

    Two texts are the same if they differ in nothing but case, white space and the composition of characters.
    Each is remembered by 8 bytes of hash, so a million rows take a few megabytes.

    Args:
        folder: the data.
        bad_rows: where to record every bad row, as `DataFolder.documents` does.
        progress: called with the number of rows read since the last call.

    Raises:
        InputError: if a file cannot be read as a whole: damaged, or a table without the columns.
    """
    splits: dict[str, SplitReport] = {}
    texts: dict[str, NDArray[np.uint64]] = {}
    unused: list[str] = []
    with BadRowLog(bad_rows) as log:
        for name in folder.splits:
            splits[name], texts[name], uses = _check_split(folder, name, log, progress)
            if name == "train":
                unused = [folder.taxonomy.ids[index] for index in np.flatnonzero(uses == 0)]
    shared = {}
    for first, second in combinations(texts, 2):
        if count := len(np.intersect1d(texts[first], texts[second], assume_unique=True)):
            shared[first, second] = count
    return CheckReport(len(folder.taxonomy), folder.taxonomy.depth, splits, unused, shared)


def _check_split(
    folder: DataFolder, name: str, log: BadRowLog, progress: Callable[[int], None] | None
) -> tuple[SplitReport, NDArray[np.uint64], NDArray[np.int64]]:
    """Return the report on one split, the hashes of its different texts, and how often each label is used."""
    report = SplitReport(str(folder.split_path(name)))
    hashes = array("Q")
    uses = np.zeros(len(folder.taxonomy), dtype=np.int64)
    words = 0
    for item in folder.scan(name):
        if progress is not None:
            progress(1)
        if not isinstance(item, Document):
            report.bad_rows += 1
            log.add(item)
            if len(report.first_bad_rows) < FIRST:
                report.first_bad_rows.append(item)
            continue
        length = len(item.text.split())
        report.documents += 1
        report.longest_text = max(report.longest_text, length)
        words += length
        uses[list(item.labels)] += 1
        hashes.append(_text_hash(item.text))
    different = np.unique(np.frombuffer(hashes, dtype=np.uint64))
    report.repeated_texts = report.documents - len(different)
    report.labels_used = int(np.count_nonzero(uses))
    if report.documents:
        report.labels_per_document = int(uses.sum()) / report.documents
        report.words_per_text = words / report.documents
    return report, different, uses


def _text_hash(text: str) -> int:
    """Return 8 bytes of hash of a text without regard to case, white space and character composition."""
    normal = " ".join(unicodedata.normalize("NFC", text.casefold()).split())
    return int.from_bytes(hashlib.blake2b(normal.encode(), digest_size=8).digest(), "little")
