"""Audit a split: compare the gold labels of documents with what a model that has not seen them predicts."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hgclr.data.folder import DataFolder
from hgclr.decisions.settings import Decisions
from hgclr.errors import InputError
from hgclr.evaluation.audit_results import Audit, AuditFinding, ConfusedPair, Contradiction, SuspectLabel
from hgclr.evaluation.audit_rows import LabelledRow, LabelSurvey, labelled_rows, path_ends, survey_labels, texts_of
from hgclr.evaluation.audit_scores import (
    KINDS,
    Agreement,
    DifferenceLog,
    confused_pairs,
    contradictions,
    document_scores,
    kinds,
    parting,
    suspect_labels,
)
from hgclr.inference.classifier import HierarchicalClassifier, PredictedLabel, reading_order
from hgclr.inference.outputs import scored_windows

__all__ = ["Auditor", "audit", "audit_decisions"]

logger = logging.getLogger(__name__)
LISTED = 20
"""Pairs of labels, and labels, that are listed."""


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
        split: which of its splits; for ``train`` see :func:`hgclr.evaluation.audit_folds.audit_folds`.
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
    auditor.read(classifier, labelled_rows(folder, split), survey, progress=progress)
    return auditor.result(top)


def audit_decisions(decisions: Decisions, survey: LabelSurvey) -> Decisions:
    """Return how to predict for an audit: as the model decides, and always whole paths.

    A model that abstains from labels gives them here: doubt is no contradiction. The rule ``threshold`` may give a
    child without its parent; in its place comes ``best-path`` where every document has one path, else ``closure``.
    """
    certain = replace(decisions, abstain_below=None)
    if certain.rule != "threshold":
        return certain
    if survey.one_path:
        return replace(certain, rule="best-path", allow_inner_nodes=survey.ends_inside)
    return replace(certain, rule="closure")


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

    def read(
        self,
        classifier: HierarchicalClassifier,
        rows: Iterable[LabelledRow],
        survey: LabelSurvey,
        *,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        """Add documents with what a model that was not trained on them says.

        Args:
            classifier: the model.
            rows: the documents.
            survey: what the labels of the split look like, which decides how to predict; see :func:`audit_decisions`.
            progress: called with the number of documents looked at since the last call.
        """
        decisions = audit_decisions(classifier.decisions, survey)
        for window, probabilities, gold in scored_windows(classifier, rows, progress=progress):
            decided = decisions.decide(probabilities)
            self._agreement.update(decided.probabilities, gold)
            self._log.update([row.number for row in window], decided.probabilities, gold, decided.predicted)

    def result(self, top: int) -> Audit:
        """Return what was found, with the ``top`` documents that are contradicted most; equal ones by their place."""
        maker = _ResultMaker(self._log, self._agreement)
        total, contradicted = self._agreement.documents, len(maker.kinds)
        if 2 * contradicted > total:
            logger.warning(
                "the model would label %d of %d documents otherwise: this may say more about the model than about them",
                contradicted,
                total,
            )
        counted = Counter(maker.kinds)
        pairs = confused_pairs(maker.differences, maker.order, LISTED)
        chosen = maker.order[:top].tolist()
        shown = {*chosen, *(document for pair in pairs for document in pair.examples)}
        texts = texts_of(self.folder, self.split, {maker.row(document) for document in shown})
        return Audit(
            data=self.folder.path.resolve().name,
            file=str(self.folder.split_path(self.split)),
            split=self.split,
            documents=total,
            kinds={kind: counted[kind] for kind in KINDS if counted[kind]},
            findings=tuple(maker.finding(document, texts) for document in chosen),
            pairs=tuple(
                ConfusedPair(
                    maker.taxonomy.ids[pair.first],
                    maker.taxonomy.ids[pair.second],
                    (maker.path(pair.first), maker.path(pair.second)),
                    pair.first_gold,
                    pair.second_gold,
                    tuple((row, texts[row]) for row in map(maker.row, pair.examples)),
                )
                for pair in pairs
            ),
            suspect_labels=maker.suspect_labels(),
        )


class _ResultMaker:
    """Score the documents that differ, and make of label numbers what an audit shows."""

    def __init__(self, log: DifferenceLog, agreement: Agreement) -> None:
        self.differences, self.taxonomy = log.differences(), log.taxonomy
        self.kinds = kinds(self.differences)
        self._agreement, self._usual = agreement, agreement.usual()
        self._strengths = contradictions(self.differences, self._usual)
        self._scores = document_scores(self.differences, self._strengths)
        self.order: NDArray[np.int64] = np.lexsort((self.differences.rows, -self._scores))
        """The documents, those that are contradicted most first, (D,)."""
        self._places = reading_order(self.taxonomy)

    def row(self, document: int) -> int:
        return int(self.differences.rows[document])

    def path(self, label: int) -> tuple[str, ...]:
        return tuple(self.taxonomy.names[node] for node in self.taxonomy.path(label).tolist())

    def finding(self, document: int, texts: dict[int, str]) -> AuditFinding:
        differences, kind = self.differences, self.kinds[document]
        entries = {int(differences.labels[entry]): entry for entry in differences.entries(document)}
        order = sorted(entries, key=self._places.__getitem__)
        gold, predicted = (
            [label for label in order if marks[entries[label]]] for marks in (differences.gold, differences.predicted)
        )
        contradicted = [label for label in order if (label in gold) != (label in predicted)]
        level = min(int(self.taxonomy.depths[label]) for label in contradicted)
        common: tuple[str, ...] = ()
        if kind == "other path":
            last = parting(differences, document, self._strengths)
            level = 1 if last < 0 else int(self.taxonomy.depths[last]) + 1
            common = () if last < 0 else self.path(last)
        row = self.row(document)
        return AuditFinding(
            row=row,
            text=texts[row],
            gold=self._ends(gold, entries),
            predicted=self._ends(predicted, entries),
            kind=kind,
            level=level,
            common=common,
            score=float(self._scores[document]),
            contradictions=tuple(
                Contradiction(
                    self._label(label, entries[label]),
                    label in gold,
                    float(self._usual[int(label in gold), label]),
                    float(self._strengths[entries[label]]),
                )
                for label in contradicted
            ),
        )

    def suspect_labels(self) -> tuple[SuspectLabel, ...]:
        found = suspect_labels(self.differences, self._strengths, self._agreement, LISTED)
        return tuple(
            SuspectLabel(
                self.taxonomy.ids[label],
                self.path(label),
                int(self._agreement.gold[label]),
                wrong,
                missing,
                float(self._usual[1, label]),
            )
            for label, wrong, missing in found
        )

    def _ends(self, labels: Sequence[int], entries: dict[int, int]) -> tuple[PredictedLabel, ...]:
        return tuple(self._label(label, entries[label]) for label in path_ends(tuple(labels), self.taxonomy))

    def _label(self, label: int, entry: int) -> PredictedLabel:
        return PredictedLabel(self.taxonomy.ids[label], self.path(label), float(self.differences.probabilities[entry]))
