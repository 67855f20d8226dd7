"""Precision, recall and F1 from counts of right, predicted and gold labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["GroupScores", "LabelScores", "Score", "ratio", "score_group", "score_labels", "score_pool"]

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Score:
    """Precision, recall and F1, as fractions."""

    precision: float
    recall: float
    f1: float


@dataclass(frozen=True)
class GroupScores:
    """A group of labels, or of paths: how many there are, the decisions about them, and their scores."""

    labels: int
    gold: int
    predicted: int
    true_positives: int
    micro: Score
    macro: Score


@dataclass(frozen=True)
class LabelScores:
    """What was counted for each label, and its scores; all arrays have the shape (K,)."""

    true_positives: Counts
    predicted: Counts
    gold: Counts
    precision: NDArray[np.float64]
    recall: NDArray[np.float64]
    f1: NDArray[np.float64]


def score_pool(true: int, predicted: int, gold: int) -> Score:
    """Return the scores of decisions counted as one pool; 0 where a denominator is 0."""
    return Score(ratio(true, predicted), ratio(true, gold), ratio(2 * true, predicted + gold))


def score_labels(true: Counts, predicted: Counts, gold: Counts) -> LabelScores:
    """Return the scores of each label; 0 where a denominator is 0."""
    # Where a denominator is 0 so is its numerator, and dividing by 1 instead gives the 0 we want.
    precision = true / np.maximum(predicted, 1)
    recall = true / np.maximum(gold, 1)
    f1 = 2 * true / np.maximum(predicted + gold, 1)
    return LabelScores(true, predicted, gold, precision, recall, f1)


def score_group(true: Counts, predicted: Counts, gold: Counts) -> GroupScores:
    """Return the scores of labels as one pool (micro) and as the mean of the scores of each (macro)."""
    pool = int(true.sum()), int(predicted.sum()), int(gold.sum())
    each = score_labels(true, predicted, gold)
    macro = Score(*(float(values.mean()) if len(true) else 0.0 for values in (each.precision, each.recall, each.f1)))
    return GroupScores(len(true), pool[2], pool[1], pool[0], score_pool(*pool), macro)


def ratio(part: float, whole: float) -> float:
    """Return ``part / whole``, and 0 where there is no whole."""
    return part / whole if whole else 0.0
