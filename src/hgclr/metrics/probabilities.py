"""Scores of probabilities, without a threshold: ranks of gold labels, calibration error, Brier score, reliability."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hgclr.metrics.scores import check_probabilities, ratio
from hgclr.taxonomy import Taxonomy
from hgclr.taxonomy.order import monotone

BLOCK = 2**18
"""Decisions (documents times labels) sorted or counted at once; they fit into a CPU cache."""


class RankingScores:
    """Scores of each document's ranking of labels by probability, as means over documents.

    Tied labels share their ranks equally, so their order in the taxonomy does not matter. With R gold labels, and
    ``g_j`` = 1 if the label at rank ``j`` is gold::

        R-precision = Σ_{j ≤ R} g_j / R      precision@k = Σ_{j ≤ k} g_j / k

        nDCG@k = Σ_{j ≤ k} g_j / log2(j + 1)  /  Σ_{j ≤ min(k, R)} 1 / log2(j + 1)

    hF1-AUC is the area under a document's curve of hierarchical precision over hierarchical recall. It has a point for
    every threshold t, where labels with p'_k ≥ t are predicted, p'_k = min(p_k, p'_parent(k)), and gold labels include
    all their ancestors. The curve is a step function: AUC = Σ_t (recall_t - recall_{t'}) precision_t, where t' is the
    next higher threshold.

    The means leave out documents without gold labels.

    Args:
        taxonomy: the label tree; column ``k`` of every batch is its label ``k``.
        ks: the values of k in precision@k and nDCG@k. Ranks beyond the number of labels count as wrong.

    Example:
        >>> scores = RankingScores(Taxonomy(["science", "physics", "law"], [-1, 0, -1]), ks=(1, 2))
        >>> scores.update(np.array([[0.9, 0.3, 0.6]]), np.array([[True, True, False]]))
        >>> scores.precision_at(1), scores.precision_at(2), scores.r_precision()
        (1.0, 0.5, 0.5)
    """

    def __init__(self, taxonomy: Taxonomy, ks: Sequence[int] = (1, 3, 5)) -> None:
        if min(ks, default=1) < 1 or len(set(ks)) != len(ks):
            raise ValueError(f"expected distinct values of k from 1, got {tuple(ks)}")
        self.taxonomy, self.ks = taxonomy, tuple(ks)
        self._documents = 0
        self._with_gold = 0
        self._r_precision = self._area = 0.0
        self._precision = np.zeros(len(self.ks))
        self._gain = np.zeros(len(self.ks))

    def update(self, probabilities: NDArray[np.floating], gold: NDArray[np.bool_]) -> None:
        """Count one batch: probabilities and gold labels of the documents, both (N, K)."""
        check_probabilities(self.taxonomy, probabilities, gold)
        self._documents += len(gold)
        with_gold = gold.any(axis=1)
        self._with_gold += int(np.count_nonzero(with_gold))
        probabilities, gold = probabilities[with_gold], gold[with_gold]
        # For the whole batch: with many labels a block has few documents, and tree operations on it would be slow.
        lowered, closed = monotone(probabilities, self.taxonomy), self.taxonomy.close(gold)
        discounts = 1 / np.log2(np.arange(2, len(self.taxonomy) + 2))
        best = np.cumsum(discounts)
        size = max(1, BLOCK // len(self.taxonomy))
        for start in range(0, len(gold), size):
            rows = slice(start, start + size)
            hits = _Ranking.of(probabilities[rows], gold[rows]).shared_hits()
            found = np.cumsum(hits, axis=1)
            wanted = np.count_nonzero(gold[rows], axis=1)
            self._r_precision += float((found[np.arange(len(found)), wanted - 1] / wanted).sum())
            for number, k in enumerate(self.ks):
                places = min(k, len(self.taxonomy))
                self._precision[number] += found[:, places - 1].sum() / k
                gains = hits[:, :places] @ discounts[:places]
                self._gain[number] += (gains / best[np.minimum(wanted, places) - 1]).sum()
            self._area += _Ranking.of(lowered[rows], closed[rows]).sum_of_areas()

    def r_precision(self) -> float:
        """Return the share of gold labels among the first R ranks of a document with R gold labels."""
        return ratio(self._r_precision, self._with_gold)

    def precision_at(self, k: int) -> float:
        """Return the share of gold labels among the first ``k`` ranks, for a ``k`` of :attr:`ks`."""
        return ratio(float(self._precision[self._number(k)]), self._with_gold)

    def ndcg_at(self, k: int) -> float:
        """Return the normalised discounted cumulative gain of the first ``k`` ranks, for a ``k`` of :attr:`ks`."""
        return ratio(float(self._gain[self._number(k)]), self._with_gold)

    def hierarchical_auc(self) -> float:
        """Return hF1-AUC, the area under the curve of hierarchical precision over recall."""
        return ratio(self._area, self._with_gold)

    def to_json(self) -> dict[str, Any]:
        """Return all scores, as fractions, in plain Python types; k is a string key."""
        return {
            "documents": self._documents,
            "documents_with_gold": self._with_gold,
            "r_precision": self.r_precision(),
            "precision_at": {str(k): self.precision_at(k) for k in self.ks},
            "ndcg_at": {str(k): self.ndcg_at(k) for k in self.ks},
            "hierarchical_auc": self.hierarchical_auc(),
        }

    def _number(self, k: int) -> int:
        if k not in self.ks:
            raise ValueError(f"k = {k} was not scored, only {self.ks}")
        return self.ks.index(k)


class _Ranking(NamedTuple):
    """The labels of n documents by falling probability, in runs of equal probability; no run spans two documents.

    Runs are numbered over all documents.
    """

    hits: NDArray[np.float64]
    """1 if the label at this rank is gold, (n, K)."""
    starts: NDArray[np.int64]
    """The first of the n·K ranks of each run."""

    @classmethod
    def of(cls, probabilities: NDArray[np.floating], gold: NDArray[np.bool_]) -> _Ranking:
        order = np.argsort(-probabilities, axis=1)
        ranked = np.take_along_axis(probabilities, order, axis=1)
        begins = np.ones(ranked.shape, dtype=np.bool_)
        begins[:, 1:] = ranked[:, 1:] != ranked[:, :-1]
        hits = np.take_along_axis(gold, order, axis=1).astype(np.float64)
        return cls(hits, np.flatnonzero(begins))

    def run_hits(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return the number of gold labels in each run, and its length."""
        return np.add.reduceat(self.hits.ravel(), self.starts), np.diff(self.starts, append=self.hits.size)

    def shared_hits(self) -> NDArray[np.float64]:
        """Return, at every rank, the mean hits of its run, (n, K)."""
        gold, lengths = self.run_hits()
        return np.repeat(gold / lengths, lengths).reshape(self.hits.shape)

    def sum_of_areas(self) -> float:
        """Return the summed area under all documents' curves: the gain in recall of each run times its precision."""
        gold, lengths = self.run_hits()
        found = np.cumsum(self.hits, axis=1)
        ends = self.starts + lengths - 1
        precision = found.ravel()[ends] / (ends % self.hits.shape[1] + 1)
        return float((gold * precision / found[ends // self.hits.shape[1], -1]).sum())


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
