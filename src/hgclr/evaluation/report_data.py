"""Gather all that a report needs in one pass over the documents; memory does not grow with their number."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hgclr.decisions.decoding import RULES
from hgclr.decisions.settings import Decisions
from hgclr.evaluation.report_errors import Examples, SiblingConfusions
from hgclr.metrics.bootstrap import BootstrapScores
from hgclr.metrics.calibration import CalibrationScores
from hgclr.metrics.ranking import RankingScores
from hgclr.metrics.scores import MultiLabelScores, count_bits, pack, ratio, score_group
from hgclr.taxonomy.level_order import monotone

__all__ = ["RESAMPLES", "Collector"]

RESAMPLES = 500
"""Of the documents, for intervals and tests."""
BINS = 1000
"""Steps in which sureness is counted."""
RISKS = (0.01, 0.02, 0.05, 0.1, 0.2)
"""Shares of wrong labels that one may want to stay below."""
GRID = tuple(step / 20 for step in range(1, 20))
"""Thresholds that are tried."""


class Collector:
    """Count everything batch by batch; results do not depend on where one batch ends and the next begins.

    Memory is O(resamples · labels).

    Args:
        decisions: how probabilities become labels.
        resamples: how many resamples of the documents are scored; see
            :class:`~hgclr.metrics.bootstrap.BootstrapScores`.
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
        self.scores.update(decided.predicted, gold)
        self.bootstrap.update(decided.predicted, gold)
        self.ranking.update(probabilities, gold)
        self.consistent_calibration.update(monotone(probabilities, self.taxonomy), gold)
        self.confusions.update(decided.predicted, gold)
        self.examples.update(texts, decided.predicted, gold)
        # As the option --abstain-below sees it, which may have taken labels away already.
        sureness = monotone(decided.probabilities, self.taxonomy)
        self.risk_coverage.update(sureness, decided.predicted | decided.abstained, gold)
        self.threshold_curve.update(probabilities, gold)
        self.rules.update(probabilities, gold)
        for text, chosen in zip(texts, gold, strict=True):
            content = text.encode()
            labels = np.flatnonzero(chosen).astype("<i8").tobytes()
            # The lengths come first, so that no other texts and labels make the same bytes.
            self._digest.update(np.array([len(content), len(labels)], dtype="<i8").tobytes() + content + labels)
        self.documents += len(texts)

    def digest(self) -> str:
        """Return what tells these documents, with their labels and in this order, from all others."""
        return self._digest.hexdigest()


class RiskCoverage:
    """Count how many of the predicted labels are right by how sure the model is of them, in :data:`BINS` steps.

    With only the labels given that are at least ``s`` sure::

        coverage(s) = labels given / labels given with s = 0      risk(s) = wrong ones / labels given
    """

    def __init__(self) -> None:
        self._given = np.zeros(BINS, dtype=np.int64)
        self._right = np.zeros(BINS, dtype=np.int64)

    def update(self, sureness: NDArray[np.floating], given: NDArray[np.bool_], gold: NDArray[np.bool_]) -> None:
        """Count one batch: how sure the model is, what it gives where any sureness will do, and gold, all (N, K)."""
        # In float64 the product with the number of bins is exact, and so is the bin.
        bins = np.minimum((sureness[given].astype(np.float64) * BINS).astype(np.int64), BINS - 1)
        self._given += np.bincount(bins, minlength=BINS)
        self._right += np.bincount(bins[gold[given]], minlength=BINS)

    def to_json(self) -> dict[str, Any]:
        """Return the curve from the surest labels to all, and the largest coverage for each of :data:`RISKS`."""
        bins = np.flatnonzero(self._given)[::-1]
        given, right = np.cumsum(self._given[bins]), np.cumsum(self._right[bins])
        total = int(given[-1]) if len(given) else 0
        points = [
            {"abstain_below": lowest / BINS, "coverage": ratio(count, total), "risk": 1 - hits / count}
            for lowest, count, hits in zip(bins.tolist(), given.tolist(), right.tolist(), strict=True)
        ]
        chosen = []
        for risk in RISKS:
            within = [point for point in points if point["risk"] <= risk]
            best = within[-1] if within else {"abstain_below": None, "coverage": 0.0, "risk": None}
            chosen.append({"wanted_risk": risk, **best})
        return {"labels_given": total, "points": points, "chosen": chosen}


class ThresholdCurve:
    """Score each threshold of :data:`GRID` for all labels, with all else as it was decided; memory O(labels).

    Args:
        decisions: how the model decides.
    """

    def __init__(self, decisions: Decisions) -> None:
        self._decisions = [decisions.changed(threshold=threshold) for threshold in GRID]
        shape = (len(GRID), len(decisions.taxonomy))
        self._true = np.zeros(shape, dtype=np.int64)
        self._predicted = np.zeros(shape, dtype=np.int64)
        self._gold = np.zeros(shape[1], dtype=np.int64)

    def update(self, probabilities: NDArray[np.float32], gold: NDArray[np.bool_]) -> None:
        """Count one batch: probabilities and gold labels, both of the shape (documents, labels)."""
        expected = pack(gold)
        self._gold += count_bits(expected)
        for number, decisions in enumerate(self._decisions):
            if decisions.abstain_below is None:  # the rule alone decides, which is faster
                predicted = pack(decisions.decoder(probabilities))
            else:
                predicted = pack(decisions.decide(probabilities).predicted)
            self._predicted[number] += count_bits(predicted)
            self._true[number] += count_bits(predicted & expected)

    def to_json(self) -> list[dict[str, float]]:
        """Return Micro- and Macro-F1 of every threshold."""
        points = []
        for threshold, true, predicted in zip(GRID, self._true, self._predicted, strict=True):
            scores = score_group(true, predicted, self._gold)
            points.append({"threshold": threshold, "micro_f1": scores.micro.f1, "macro_f1": scores.macro.f1})
        return points


class RuleScores:
    """Score every decoding rule, with thresholds and all else as it was decided.

    Args:
        decisions: how the model decides.
    """

    def __init__(self, decisions: Decisions) -> None:
        self._rules = {rule: decisions.changed(rule=rule) for rule in RULES}
        self._scores = {rule: MultiLabelScores(decisions.taxonomy) for rule in RULES}

    def update(self, probabilities: NDArray[np.float32], gold: NDArray[np.bool_]) -> None:
        """Count one batch: probabilities and gold labels, both of the shape (documents, labels)."""
        for rule, decisions in self._rules.items():
            self._scores[rule].update(decisions.decide(probabilities).predicted, gold)

    def to_json(self) -> list[dict[str, Any]]:
        """Return the scores of every rule and how many labels it gives a document."""
        rows = []
        for rule, counted in self._scores.items():
            scores = counted.to_json()
            rows.append(
                {
                    "rule": rule,
                    "micro_f1": scores["micro"]["f1"],
                    "macro_f1": scores["macro"]["f1"],
                    "hierarchical_f1": scores["hierarchical"]["f1"],
                    "subset_accuracy": scores["subset_accuracy"],
                    "inconsistency_rate": scores["inconsistency_rate"],
                    "labels_per_document": ratio(scores["predicted"], scores["documents"]),
                }
            )
        return rows
