"""What would have been if the model decided otherwise: sureness, thresholds, decoding rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hgclr.decisions.decoding import RULES
from hgclr.decisions.settings import Decisions
from hgclr.evaluation.metrics import MultiLabelScores
from hgclr.evaluation.packing import count_bits, pack
from hgclr.evaluation.score import ratio, score_group

__all__ = ["RiskCoverage", "RuleScores", "ThresholdCurve"]

BINS = 1000
"""Steps in which sureness is counted."""
RISKS = (0.01, 0.02, 0.05, 0.1, 0.2)
"""Shares of wrong labels that one may want to stay below."""
GRID = tuple(step / 20 for step in range(1, 20))
"""Thresholds that are tried."""


class RiskCoverage:
    """Count how many of the given labels are right by how sure the model is of them, in :data:`BINS` steps.

    With only the labels given that are at least ``s`` sure::

        coverage(s) = labels given / labels given with s = 0      risk(s) = wrong ones / labels given
    """

    def __init__(self) -> None:
        self._given = np.zeros(BINS, dtype=np.int64)
        self._right = np.zeros(BINS, dtype=np.int64)

    def update(self, sureness: NDArray[np.floating], given: NDArray[np.bool_], gold: NDArray[np.bool_]) -> None:
        """Count one batch.

        Args:
            sureness: of each label for each document, shape (documents, labels), from 0 to 1.
            given: the labels that are given where any sureness will do, same shape.
            gold: the labels that should be, same shape.
        """
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
            {"sure": lowest / BINS, "coverage": ratio(count, total), "risk": 1 - hits / count}
            for lowest, count, hits in zip(bins.tolist(), given.tolist(), right.tolist(), strict=True)
        ]
        chosen = []
        for risk in RISKS:
            within = [point for point in points if point["risk"] <= risk]
            best = within[-1] if within else {"sure": None, "coverage": 0.0, "risk": None}
            chosen.append({"wanted_risk": risk, **best})
        return {"labels_given": total, "points": points, "chosen": chosen}


class ThresholdCurve:
    """Score one threshold for all labels after the other, with all else as it was decided; memory O(labels).

    Args:
        decisions: how the model decides.
        grid: the thresholds.
    """

    def __init__(self, decisions: Decisions, grid: Sequence[float] = GRID) -> None:
        self.grid = tuple(grid)
        self._decisions = [decisions.changed(threshold=threshold) for threshold in self.grid]
        shape = (len(self.grid), len(decisions.taxonomy))
        self._true = np.zeros(shape, dtype=np.int64)
        self._predicted = np.zeros(shape, dtype=np.int64)
        self._gold = np.zeros(shape[1], dtype=np.int64)

    def update(self, probabilities: NDArray[np.float32], gold: NDArray[np.bool_]) -> None:
        """Count one batch: probabilities and gold labels, both of the shape (documents, labels)."""
        expected = pack(gold)
        self._gold += count_bits(expected)
        for number, decisions in enumerate(self._decisions):
            # Without a demand for sureness the rule alone decides, which is faster.
            chosen = (
                decisions.decoder(probabilities) if decisions.sure is None else decisions.decide(probabilities).given
            )
            given = pack(chosen)
            self._predicted[number] += count_bits(given)
            self._true[number] += count_bits(given & expected)

    def to_json(self) -> list[dict[str, float]]:
        """Return Micro- and Macro-F1 of every threshold."""
        points = []
        for threshold, true, predicted in zip(self.grid, self._true, self._predicted, strict=True):
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
            self._scores[rule].update(decisions.decide(probabilities).given, gold)

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
