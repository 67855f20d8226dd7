"""Ranking scores: how high the gold labels rank by probability, without a threshold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hgclr.metrics.scores import check_probabilities, ratio
from hgclr.taxonomy import Taxonomy
from hgclr.taxonomy.order import monotone

BLOCK = 2**18
"""Decisions (documents times labels) sorted at once; they fit into a CPU cache."""


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
