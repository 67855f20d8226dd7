"""Gather all that a report needs in one pass over the documents; memory does not grow with their number."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hgclr.decisions.settings import Decisions
from hgclr.evaluation.bootstrap import BootstrapScores
from hgclr.evaluation.calibration_error import CalibrationScores
from hgclr.evaluation.metrics import MultiLabelScores
from hgclr.evaluation.ranking import RankingScores
from hgclr.level_order import monotone
from hgclr.reporting.confusions import SiblingConfusions
from hgclr.reporting.curves import RiskCoverage, RuleScores, ThresholdCurve
from hgclr.reporting.examples import Examples

__all__ = ["RESAMPLES", "Collector"]

RESAMPLES = 500
"""Of the documents, for intervals and tests."""


class Collector:
    """Count everything batch by batch; results do not depend on where one batch ends and the next begins.

    Memory is O(resamples · labels).

    Args:
        decisions: how probabilities become labels.
        resamples: how many resamples of the documents are scored; see
            :class:`~hgclr.evaluation.bootstrap.BootstrapScores`.
        seed: chooses the resamples.
    """

    def __init__(self, decisions: Decisions, *, resamples: int = RESAMPLES, seed: int = 0) -> None:
        taxonomy = decisions.taxonomy
        self.decisions, self.taxonomy = decisions, taxonomy
        self.documents = 0
        self.scores = MultiLabelScores(taxonomy)
        self.bootstrap = BootstrapScores(taxonomy, resamples, seed)
        self.ranking = RankingScores(taxonomy)
        self.calibration = CalibrationScores(taxonomy)
        """Of the probabilities as they come from the model."""
        self.consistent_calibration = CalibrationScores(taxonomy)
        """Of the probabilities after no label is more probable than its parent."""
        self.confusions = SiblingConfusions(taxonomy)
        self.examples = Examples(taxonomy)
        self.risk_coverage = RiskCoverage()
        self.threshold_curve = ThresholdCurve(decisions)
        self.rules = RuleScores(decisions)
        self._digest = hashlib.sha256()

    def update(self, texts: Sequence[str], probabilities: NDArray[np.float32], gold: NDArray[np.bool_]) -> None:
        """Count one batch.

        Args:
            texts: the documents.
            probabilities: of each label for each document, calibrated if the model is, (N, K).
            gold: whether the document has the label, (N, K).

        Raises:
            ValueError: if types or shapes are wrong, or a probability is not between 0 and 1.
        """
        if len(texts) != len(gold):
            raise ValueError(f"{len(texts)} texts, but the labels of {len(gold)}")
        self.calibration.update(probabilities, gold)
        decided = self.decisions.decide(probabilities)
        self.scores.update(decided.given, gold)
        self.bootstrap.update(decided.given, gold)
        self.ranking.update(probabilities, gold)
        self.consistent_calibration.update(monotone(probabilities, self.taxonomy), gold)
        self.confusions.update(decided.given, gold)
        self.examples.update(texts, decided.given, gold)
        # As the option --sure sees it, which may have taken labels away already.
        sureness = monotone(decided.probabilities, self.taxonomy)
        self.risk_coverage.update(sureness, decided.given | decided.doubtful, gold)
        self.threshold_curve.update(probabilities, gold)
        self.rules.update(probabilities, gold)
        self._identify(texts, gold)
        self.documents += len(texts)

    def digest(self) -> str:
        """Return what tells these documents, with their labels and in this order, from all others."""
        return self._digest.hexdigest()

    def _identify(self, texts: Sequence[str], gold: NDArray[np.bool_]) -> None:
        for text, chosen in zip(texts, gold, strict=True):
            content = text.encode()
            labels = np.flatnonzero(chosen).astype("<i8").tobytes()
            # The lengths come first, so that no other texts and labels make the same bytes.
            self._digest.update(np.array([len(content), len(labels)], dtype="<i8").tobytes() + content + labels)
