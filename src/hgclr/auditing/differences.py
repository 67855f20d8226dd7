"""The documents for which the annotation and the model differ, a few numbers for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hgclr.taxonomy import Taxonomy

__all__ = ["DifferenceLog", "Differences"]

Indices = NDArray[np.int64]
Marks = NDArray[np.bool_]


@dataclass(frozen=True)
class Differences:
    """Documents that are given other labels than the model suggests, with all labels of either.

    An *entry* is a label that a document is given, or that is suggested for it, or both. Entries are in the order of
    the documents, and those of a document in the order of the labels.

    Args:
        taxonomy: the label tree.
        rows: the place of each document in its file, (D,).
        documents: the document of each entry, counted from 0, (E,).
        labels: the label of each entry, (E,).
        probabilities: what the model thinks of it, (E,).
        given: the annotation has it, (E,).
        suggested: the model would give it, (E,).
    """

    taxonomy: Taxonomy
    rows: Indices
    documents: Indices
    labels: Indices
    probabilities: NDArray[np.float64]
    given: Marks
    suggested: Marks

    @property
    def extra(self) -> Marks:
        """Entries that are given and not suggested, (E,)."""
        return self.given & ~self.suggested

    @property
    def missing(self) -> Marks:
        """Entries that are suggested and not given, (E,)."""
        return self.suggested & ~self.given

    @cached_property
    def starts(self) -> Indices:
        """Where the entries of each document begin, and where all end, (D + 1,)."""
        return np.searchsorted(self.documents, np.arange(len(self.rows) + 1))

    @cached_property
    def parents(self) -> Indices:
        """The entry of the parent of each entry's label in the same document; -1 for a top label, (E,)."""
        if not len(self.labels):
            return np.zeros(0, dtype=np.int64)
        keys = self.documents * len(self.taxonomy) + self.labels  # ascending
        above = self.taxonomy.parents[self.labels]
        # Every label of a document comes with its parent, in the annotation as in what is suggested.
        places = np.searchsorted(keys, self.documents * len(self.taxonomy) + above)
        return np.where(above < 0, -1, places)

    @cached_property
    def branches(self) -> Indices:
        """The top-most entry of the extra or the missing branch that each entry is in; itself for all others, (E,)."""
        side = self.extra * 1 + self.missing * 2
        above = self.parents
        joined = (side > 0) & (above >= 0) & (side[above] == side)
        tops = np.where(joined, above, np.arange(len(side)))
        while not np.array_equal(tops, further := tops[tops]):
            tops = further
        return tops

    def entries(self, document: int) -> range:
        """Return the entries of a document."""
        return range(int(self.starts[document]), int(self.starts[document + 1]))


class DifferenceLog:
    """Remember the documents that differ, batch by batch, by 14 bytes for each of their labels; no other is kept.

    Args:
        taxonomy: the label tree; column k of every array is its label k.
    """

    def __init__(self, taxonomy: Taxonomy) -> None:
        self.taxonomy = taxonomy
        self._differing = 0
        self._rows: list[Indices] = []
        self._entries: list[tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float32], Marks, Marks]] = []

    def update(
        self, rows: Sequence[int], probabilities: NDArray[np.float32], gold: NDArray[np.bool_], suggested: Marks
    ) -> None:
        """Add documents: places in the file, and probabilities, given and suggested labels, each (N, K)."""
        differing = np.flatnonzero((gold != suggested).any(axis=1))
        if not len(differing):
            return
        documents, labels = np.nonzero(gold[differing] | suggested[differing])
        which = differing[documents], labels
        self._rows.append(np.array(rows, dtype=np.int64)[differing])
        self._entries.append(
            (
                (documents + self._differing).astype(np.int32),
                labels.astype(np.int32),
                probabilities[which],
                gold[which],
                suggested[which],
            )
        )
        self._differing += len(differing)

    def differences(self) -> Differences:
        """Return what was remembered."""
        if not self._rows:
            nothing = np.zeros(0, dtype=np.int64)
            marks = np.zeros(0, dtype=np.bool_)
            return Differences(self.taxonomy, nothing, nothing, nothing, np.zeros(0), marks, marks)
        documents, labels, probabilities, given, suggested = zip(*self._entries, strict=True)
        return Differences(
            self.taxonomy,
            np.concatenate(self._rows),
            np.concatenate(documents).astype(np.int64),
            np.concatenate(labels).astype(np.int64),
            np.concatenate(probabilities).astype(np.float64),
            np.concatenate(given),
            np.concatenate(suggested),
        )
