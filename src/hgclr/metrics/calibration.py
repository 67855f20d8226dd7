"""Calibration of probabilities: calibration error, Brier score, reliability."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hgclr.metrics.scores import check_probabilities, ratio
from hgclr.taxonomy import Taxonomy

BLOCK = 2**18
"""Decisions (documents times labels) counted at once; they fit into a CPU cache."""


@dataclass(frozen=True)
class ReliabilityBin:
    """Pairs of document and label with a probability from ``lower`` to below ``upper`` (1 is in the last bin).

    ``frequency`` is the share of pairs with a gold label; it and ``mean_probability`` are None without a pair.
    """

    lower: float
    upper: float
    count: int
    mean_probability: float | None
    frequency: float | None


class CalibrationScores:
    """Expected calibration error and Brier score over all pairs of document and label.

    With ``n`` pairs, ``n_b`` of them in bin ``b``, and ``frequency_b`` the share of those with a gold label::

        ECE = Σ_b n_b / n · |mean probability_b - frequency_b|      Brier = Σ (p - g)² / n

    With many labels most pairs are easy, so both numbers are small for any model.

    Args:
        taxonomy: the label tree; column ``k`` of every batch is its label ``k``.
        bins: number of bins of equal width.

    Example:
        >>> scores = CalibrationScores(Taxonomy(["science", "law"], [-1, -1]), bins=2)
        >>> scores.update(np.array([[0.75, 0.25], [1.0, 0.0]]), np.array([[True, False], [False, False]]))
        >>> scores.ece(), scores.brier()
        (0.25, 0.28125)
    """

    def __init__(self, taxonomy: Taxonomy, bins: int = 15) -> None:
        if bins < 1:
            raise ValueError(f"expected at least one bin, got {bins}")
        self.taxonomy, self.bins = taxonomy, bins
        self._counts, self._gold = np.zeros((2, taxonomy.depth, bins), dtype=np.int64)  # by level
        self._probabilities = np.zeros((taxonomy.depth, bins))
        self._squares = np.zeros(taxonomy.depth)
        self._first_bins = (taxonomy.depths - 1) * bins  # of the label's level, in the flat arrays

    def update(self, probabilities: NDArray[np.floating], gold: NDArray[np.bool_]) -> None:
        """Count one batch: probabilities and gold labels of the documents, both (N, K)."""
        check_probabilities(self.taxonomy, probabilities, gold)
        size = max(1, BLOCK // len(self.taxonomy))
        for start in range(0, len(gold), size):
            # In float64 the product with the number of bins is exact, so the bin is too.
            self._count(probabilities[start : start + size].astype(np.float64), gold[start : start + size])

    def _count(self, probabilities: NDArray[np.float64], gold: NDArray[np.bool_]) -> None:
        bins = np.minimum((probabilities * self.bins).astype(np.int64), self.bins - 1) + self._first_bins
        total = self._counts.size
        self._counts += np.bincount(bins.ravel(), minlength=total).reshape(self._counts.shape)
        self._gold += np.bincount(bins[gold], minlength=total).reshape(self._counts.shape)
        sums = np.bincount(bins.ravel(), weights=probabilities.ravel(), minlength=total)
        self._probabilities += sums.reshape(self._counts.shape)
        squares = np.square(probabilities - gold).sum(axis=0)
        self._squares += np.bincount(self.taxonomy.depths - 1, weights=squares, minlength=self.taxonomy.depth)

    def ece(self, depth: int | None = None) -> float:
        """Return the expected calibration error, of all labels or of those of ``depth`` (top labels: 1)."""
        levels = self._levels(depth)
        gaps = np.abs(self._probabilities[levels].sum(axis=0) - self._gold[levels].sum(axis=0))
        return ratio(float(gaps.sum()), int(self._counts[levels].sum()))

    def brier(self, depth: int | None = None) -> float:
        """Return the mean squared difference between probability and gold, of all labels or of those of ``depth``."""
        levels = self._levels(depth)
        return ratio(float(self._squares[levels].sum()), int(self._counts[levels].sum()))

    def reliability(self, depth: int | None = None) -> list[ReliabilityBin]:
        """Return the bins of a reliability diagram, from 0 to 1."""
        levels = self._levels(depth)
        arrays = (self._counts, self._probabilities, self._gold)
        columns = zip(*(array[levels].sum(axis=0).tolist() for array in arrays), strict=True)
        return [
            ReliabilityBin(
                lower=number / self.bins,
                upper=(number + 1) / self.bins,
                count=count,
                mean_probability=probability / count if count else None,
                frequency=gold / count if count else None,
            )
            for number, (count, probability, gold) in enumerate(columns)
        ]

    def to_json(self) -> dict[str, Any]:
        """Return errors and bins of all labels and of each level, in plain Python types."""
        depths = range(1, self.taxonomy.depth + 1)
        return {**self._summary(None), "levels": [{"depth": depth, **self._summary(depth)} for depth in depths]}

    def _summary(self, depth: int | None) -> dict[str, Any]:
        return {
            "pairs": int(self._counts[self._levels(depth)].sum()),
            "ece": self.ece(depth),
            "brier": self.brier(depth),
            "bins": [asdict(part) for part in self.reliability(depth)],
        }

    def _levels(self, depth: int | None) -> slice:
        if depth is None:
            return slice(None)
        if not 1 <= depth <= self.taxonomy.depth:
            raise ValueError(f"no label has depth {depth}; depths go from 1 to {self.taxonomy.depth}")
        return slice(depth - 1, depth)
