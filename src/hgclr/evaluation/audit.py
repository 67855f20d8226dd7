"""Audit a split: compare what documents are given with what a model that has not seen them would give."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hgclr.data.folder import DataFolder
from hgclr.decisions.settings import Decisions
from hgclr.errors import InputError
from hgclr.evaluation.audit_results import Audit, ConfusedPair, Contradiction, DoubtfulLabel, Finding
from hgclr.evaluation.audit_rows import LabelledRow, LabelSurvey, labelled_rows, path_ends, survey_labels, texts_of
from hgclr.evaluation.audit_scores import (
    KINDS,
    Agreement,
    DifferenceLog,
    Differences,
    Kind,
    confused_pairs,
    contradictions,
    document_scores,
    doubtful_labels,
    kinds,
    parting,
)
from hgclr.inference.backends import windows
from hgclr.inference.classifier import HierarchicalClassifier, PredictedLabel, reading_order

__all__ = ["Auditor", "audit", "suggesting"]

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


logger = logging.getLogger(__name__)


class Auditor:
    """Take documents with probabilities, batch by batch, then rank them.

    Memory grows with the documents that are contradicted, by a few dozen bytes for each of their labels; texts are not
    kept, but read again for those that are shown.

    Args:
        folder: the documents.
        split: which of its splits.
    """

    def __init__(self, folder: DataFolder, split: str) -> None:
        self.folder, self.split = folder, split
        self._agreement = Agreement(folder.taxonomy)
        self._log = DifferenceLog(folder.taxonomy)

    def update(self, rows: Sequence[LabelledRow], probabilities: NDArray[np.float32], decisions: Decisions) -> None:
        """Add documents.

        Args:
            rows: the documents.
            probabilities: of each label for each of them, (N, K), from a model that was not trained on them.
            decisions: what makes suggestions of probabilities; see :func:`suggesting`.
        """
        gold = np.zeros(probabilities.shape, dtype=np.bool_)
        for place, row in enumerate(rows):
            gold[place, list(row.labels)] = True
        decided = decisions.decide(probabilities)
        self._agreement.update(decided.probabilities, gold)
        self._log.update([row.number for row in rows], decided.probabilities, gold, decided.predicted)

    def result(self, top: int) -> Audit:
        """Return what was found, with the ``top`` documents that are contradicted most; equal ones by their place."""
        differences, usual = self._log.differences(), self._agreement.usual()
        strengths = contradictions(differences, usual)
        scores = document_scores(differences, strengths)
        found = kinds(differences)
        if 2 * len(found) > self._agreement.documents:
            logger.warning(
                "the model would label %d of %d documents otherwise: this may say more about the model than about them",
                len(found),
                self._agreement.documents,
            )
        counted = Counter(found)
        order = np.lexsort((differences.rows, -scores))
        make = FindingMaker(differences, strengths, scores, found, self._agreement)
        findings, pairs, labels = make(self.folder, self.split, order, top)
        return Audit(
            data=self.folder.path.resolve().name,
            file=str(self.folder.split_path(self.split)),
            split=self.split,
            documents=self._agreement.documents,
            kinds={kind: counted[kind] for kind in KINDS if counted[kind]},
            findings=findings,
            pairs=pairs,
            labels=labels,
        )


def audit(
    classifier: HierarchicalClassifier,
    folder: DataFolder,
    split: str = "dev",
    *,
    top: int = 50,
    on_survey: Callable[[int], None] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Audit:
    """Find the documents whose labels a model contradicts most.

    Example:
        >>> classifier = HierarchicalClassifier.from_pretrained("runs/first/model")  # doctest: +SKIP
        >>> folder = DataFolder("my-data", taxonomy=classifier.taxonomy)  # doctest: +SKIP
        >>> for finding in audit(classifier, folder, "dev").findings:  # doctest: +SKIP
        ...     print(finding.row, finding.score, finding.kind)

    Args:
        classifier: the model, which was not trained on these documents.
        folder: the documents, read with the classifier's own label tree.
        split: which of its splits; for ``train`` see :func:`hgclr.auditing.folds.audit_folds`.
        top: how many documents to return.
        on_survey: called once, with the number of documents there are.
        progress: called with the number of documents looked at since the last call.

    Raises:
        InputError: if the folder was read with another tree, has no such split, or a row of it is bad.
    """
    if folder.taxonomy != classifier.taxonomy:
        raise InputError(
            "the data is read with another label tree than the model has",
            path=folder.path,
            remedy="open the folder with taxonomy=classifier.taxonomy",
        )
    if split == "train":
        logger.warning(
            "if the model was trained on these documents, it has learned their errors and will not find them;"
            " hgclr audit --folds audits train with models that have not seen it"
        )
    survey = survey_labels(folder, split)
    if on_survey is not None:
        on_survey(survey.documents)
    auditor = Auditor(folder, split)
    decisions = suggesting(classifier.decisions, survey)
    for rows in windows(labelled_rows(folder, split), classifier.window):
        auditor.update(rows, classifier.predict_proba([row.text for row in rows]), decisions)
        if progress is not None:
            progress(len(rows))
    return auditor.result(top)


def suggesting(decisions: Decisions, survey: LabelSurvey) -> Decisions:
    """Return how to make suggestions: as the model decides, and always whole paths.

    A model that leaves labels out for doubt gives them here: doubt is no contradiction. The rule ``threshold`` may give
    a child without its parent; in its place comes ``best-path`` where every document has one path, else ``closure``.
    """
    certain = replace(decisions, abstain_below=None)
    if certain.rule != "threshold":
        return certain
    if survey.one_path:
        return replace(certain, rule="best-path", allow_inner_nodes=survey.ends_inside)
    return replace(certain, rule="closure")
