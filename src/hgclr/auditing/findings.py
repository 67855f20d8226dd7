"""Turn numbers into findings that a person can read: names, paths, texts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hgclr.auditing.agreement import Agreement
from hgclr.auditing.differences import Differences
from hgclr.auditing.results import ConfusedPair, Contradiction, DoubtfulLabel, Finding
from hgclr.auditing.rows import path_ends, texts_of
from hgclr.auditing.scoring import Kind
from hgclr.auditing.summing_up import confused_pairs, doubtful_labels, parting
from hgclr.data.folder import DataFolder
from hgclr.inference.predictions import PredictedLabel, reading_order

__all__ = ["FindingMaker"]

LISTED = 20
"""Pairs of labels, and labels, that are listed."""

Found = tuple[tuple[Finding, ...], tuple[ConfusedPair, ...], tuple[DoubtfulLabel, ...]]


class FindingMaker:
    """Make what an audit shows.

    Args:
        differences: the documents that are contradicted.
        strengths: of the contradiction of each of their labels, (E,).
        scores: of each document, (D,).
        kinds: in which way each is contradicted, D of them.
        agreement: the model's with each label.
    """

    def __init__(
        self,
        differences: Differences,
        strengths: NDArray[np.float64],
        scores: NDArray[np.float64],
        kinds: Sequence[Kind],
        agreement: Agreement,
    ) -> None:
        self._differences, self._strengths, self._scores, self._kinds = differences, strengths, scores, kinds
        self._agreement, self._usual = agreement, agreement.usual()
        self._taxonomy = differences.taxonomy
        self._places = reading_order(self._taxonomy)

    def __call__(self, folder: DataFolder, split: str, order: NDArray[np.int64], top: int) -> Found:
        """Return the documents that are contradicted most, confused pairs, and doubtful labels.

        Args:
            folder, split: where the texts are.
            order: the documents, those that are contradicted most first, (D,).
            top: how many of them to return.
        """
        differences, chosen = self._differences, order[:top].tolist()
        pairs = confused_pairs(differences, order, LISTED)
        shown = {*chosen, *(document for pair in pairs for document in pair.examples)}
        rows = {int(differences.rows[document]) for document in shown}
        texts = texts_of(folder, split, rows)
        findings = tuple(self._finding(document, texts) for document in chosen)
        ids = self._taxonomy.ids
        confused = tuple(
            ConfusedPair(
                ids[pair.first],
                ids[pair.second],
                (self._path(pair.first), self._path(pair.second)),
                pair.first_given,
                pair.second_given,
                tuple((row, texts[row]) for row in differences.rows[pair.examples].tolist()),
            )
            for pair in pairs
        )
        doubtful = tuple(
            DoubtfulLabel(
                ids[counts.label],
                self._path(counts.label),
                int(self._agreement.given[counts.label]),
                counts.wrong,
                counts.missing,
                float(self._usual[1, counts.label]),
            )
            for counts in doubtful_labels(differences, self._strengths, self._agreement, LISTED)
        )
        return findings, confused, doubtful

    def _finding(self, document: int, texts: dict[int, str]) -> Finding:
        differences, kind = self._differences, self._kinds[document]
        entries = differences.entries(document)
        labels = {int(differences.labels[entry]): entry for entry in entries}
        order = sorted(labels, key=self._places.__getitem__)
        given, suggested = (
            tuple(self._label(label, labels[label]) for label in order if label in ends)
            for ends in (
                path_ends(tuple(label for label in order if marks[labels[label]]), self._taxonomy)
                for marks in (differences.given, differences.suggested)
            )
        )
        contradicted = [
            label for label in order if differences.given[labels[label]] != differences.suggested[labels[label]]
        ]
        level = min(int(self._taxonomy.depths[label]) for label in contradicted)
        common: tuple[str, ...] = ()
        if kind == "other path":
            last = parting(differences, document, self._strengths)
            level = 1 if last < 0 else int(self._taxonomy.depths[last]) + 1
            common = () if last < 0 else self._path(last)
        row = int(differences.rows[document])
        return Finding(
            row=row,
            text=texts[row],
            given=given,
            suggested=suggested,
            kind=kind,
            level=level,
            common=common,
            score=float(self._scores[document]),
            contradictions=tuple(self._contradiction(label, labels[label]) for label in contradicted),
        )

    def _contradiction(self, label: int, entry: int) -> Contradiction:
        given = bool(self._differences.given[entry])
        usual = float(self._usual[int(given), label])
        return Contradiction(self._label(label, entry), given, usual, float(self._strengths[entry]))

    def _label(self, label: int, entry: int) -> PredictedLabel:
        probability = float(self._differences.probabilities[entry])
        return PredictedLabel(self._taxonomy.ids[label], self._path(label), probability)

    def _path(self, label: int) -> tuple[str, ...]:
        return tuple(self._taxonomy.names[node] for node in self._taxonomy.path(label).tolist())
