"""Measure how far the label distributions of two splits are apart."""

from __future__ import annotations

from dataclasses import dataclass
from math import pi

import numpy as np

from hgclr.data.describing.surveying import SplitSurvey

__all__ = ["Agreement", "agreement"]


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far the label distributions of two splits are apart.

        distance = 1/2 sum_k |p_k - q_k|        (total variation: 0 is equal, 1 is nothing in common)

    where p_k is the share of label k in all labels given in a split, ancestors counted.

    Args:
        distance: between the two splits.
        by_chance: what to expect if documents were dealt to them at random.
    """

    distance: float
    by_chance: float


def agreement(one: SplitSurvey, other: SplitSurvey) -> Agreement | None:
    """Return how far the label distributions of two splits are apart; None if one of them is empty.

    If documents are dealt at random, each p_k - q_k is about normal around 0, and the mean of its absolute value is
    sqrt(2 / pi) standard deviations.
    """
    if not one.documents or not other.documents:
        return None
    p, q = (split.label_counts / split.label_counts.sum() for split in (one, other))
    rate = (one.label_counts + other.label_counts) / (one.documents + other.documents)  # (K,) of documents
    variance = rate * (1 - rate) * (1 / one.documents + 1 / other.documents)
    by_chance = np.sqrt(2 / pi * variance).sum() / rate.sum() / 2  # rates sum up to the labels of a document
    return Agreement(float(np.abs(p - q).sum() / 2), float(by_chance))
