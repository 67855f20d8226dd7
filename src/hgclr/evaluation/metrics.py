"""Scores of predicted label sets against gold ones, counted batch by batch in memory O(labels)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hgclr.taxonomy import Taxonomy

__all__ = ["MultiLabelScores", "Score"]


@dataclass(frozen=True)
class Score:
    """Precision, recall and F1, as fractions."""

    precision: float
    recall: float
    f1: float


class MultiLabelScores:
    """Count right, predicted and gold labels over any number of batches and score them at the end.

    With ``TP_k``, ``P_k``, ``G_k`` the number of documents for which label ``k`` is right, predicted, gold::

        precision_k = TP_k / P_k      recall_k = TP_k / G_k      F1_k = 2 TP_k / (P_k + G_k)

    and 0 wherever the denominator is 0. Micro scores put the sums over the labels into these formulas;
    macro scores are the mean of the values per label.

    Args:
        taxonomy: the label tree; column ``k`` of every batch is its label ``k``.

    Example:
        >>> scores = MultiLabelScores(Taxonomy(["science", "physics", "law"], [-1, 0, -1]))
        >>> scores.update(np.array([[True, True, False]]), np.array([[True, False, False]]))
        >>> scores.micro()
        Score(precision=0.5, recall=1.0, f1=0.6666666666666666)
    """

    def __init__(self, taxonomy: Taxonomy) -> None:
        self.taxonomy = taxonomy
        self._true = np.zeros(len(taxonomy), dtype=np.int64)
        self._predicted = np.zeros(len(taxonomy), dtype=np.int64)
        self._gold = np.zeros(len(taxonomy), dtype=np.int64)
        self._closed = np.zeros(3, dtype=np.int64)  # right, predicted, gold after adding all ancestors
        self._orphans = 0  # predicted labels whose parent is not predicted
        self._exact = 0  # documents whose label set is right
        self._documents = 0
        self._below_top = np.flatnonzero(taxonomy.parents >= 0)

    def update(self, predicted: NDArray[np.bool_], gold: NDArray[np.bool_]) -> None:
        """Count one batch.

        Args:
            predicted: whether each document is given each label, shape (documents, labels).
            gold: whether it should be, same shape.

        Raises:
            ValueError: if an array is not boolean, or the shapes do not fit the taxonomy or each other.
        """
        labels = len(self.taxonomy)
        if predicted.ndim != 2 or predicted.shape != gold.shape or predicted.shape[1] != labels:
            raise ValueError(f"expected two arrays (N, {labels}), got {predicted.shape} and {gold.shape}")
        if predicted.dtype != np.bool_ or gold.dtype != np.bool_:
            raise ValueError(f"expected booleans, got {predicted.dtype} and {gold.dtype}: apply a threshold")
        self._true += np.count_nonzero(predicted & gold, axis=0)
        self._predicted += np.count_nonzero(predicted, axis=0)
        self._gold += np.count_nonzero(gold, axis=0)
        self._documents += len(predicted)
        self._exact += int(np.count_nonzero((predicted == gold).all(axis=1)))
        parents = self.taxonomy.parents[self._below_top]
        self._orphans += int(np.count_nonzero(predicted[:, self._below_top] & ~predicted[:, parents]))
        predicted, gold = self.taxonomy.close(predicted), self.taxonomy.close(gold)
        self._closed += [np.count_nonzero(matrix) for matrix in (predicted & gold, predicted, gold)]

    def merge(self, other: MultiLabelScores) -> None:
        """Add the counts of ``other``, which scored further documents, for example in another process.

        Raises:
            ValueError: if the other scores belong to another label tree.
        """
        if self.taxonomy != other.taxonomy:
            raise ValueError("cannot merge scores over two different label trees")
        self._true += other._true
        self._predicted += other._predicted
        self._gold += other._gold
        self._closed += other._closed
        self._orphans += other._orphans
        self._exact += other._exact
        self._documents += other._documents

    def micro(self, depth: int | None = None) -> Score:
        """Score all decisions as one pool, over all labels or over those of ``depth`` (top labels: 1)."""
        true, predicted, gold = self._counts(depth)
        return _score(int(true.sum()), int(predicted.sum()), int(gold.sum()))

    def macro(self, depth: int | None = None) -> Score:
        """Average over **all** labels, or all of ``depth``; a label whose score is undefined counts as 0."""
        return _mean(*self._counts(depth))

    def macro_present(self) -> Score:
        """Average over the labels that occur in gold or prediction: a variant that others report."""
        present = self._present()
        return _mean(self._true[present], self._predicted[present], self._gold[present])

    def hierarchical(self) -> Score:
        """Score label sets with all their ancestors added (Kiritchenko et al.).

        ``hP = Σ|anc(P_i) ∩ anc(G_i)| / Σ|anc(P_i)|``, and ``hR`` likewise over ``Σ|anc(G_i)|``, where ``anc``
        leaves out the virtual root. Equal to :meth:`micro` where prediction and gold contain every ancestor.
        """
        true, predicted, gold = self._closed.tolist()
        return _score(true, predicted, gold)

    def inconsistency_rate(self) -> float:
        """Return the share of predicted labels below the top whose parent is not predicted."""
        return _ratio(self._orphans, int(self._predicted[self._below_top].sum()))

    def subset_accuracy(self) -> float:
        """Return the share of documents whose label set is exactly right."""
        return _ratio(self._exact, self._documents)

    def to_json(self) -> dict[str, Any]:
        """Return all scores, as fractions, and the counts behind them, in plain Python types."""
        return {
            "documents": self._documents,
            **self._summary(None),
            "macro_present": {"labels": int(self._present().sum()), **asdict(self.macro_present())},
            "hierarchical": asdict(self.hierarchical()),
            "inconsistency_rate": self.inconsistency_rate(),
            "subset_accuracy": self.subset_accuracy(),
            "levels": [{"depth": depth, **self._summary(depth)} for depth in range(1, len(self.taxonomy.levels) + 1)],
        }

    def _summary(self, depth: int | None) -> dict[str, Any]:
        true, predicted, gold = self._counts(depth)
        return {
            "labels": len(true),
            "gold": int(gold.sum()),
            "predicted": int(predicted.sum()),
            "true_positives": int(true.sum()),
            "micro": asdict(self.micro(depth)),
            "macro": asdict(self.macro(depth)),
        }

    def _counts(self, depth: int | None) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        if depth is None:
            return self._true, self._predicted, self._gold
        if not 1 <= depth <= len(self.taxonomy.levels):
            raise ValueError(f"no label has depth {depth}; depths go from 1 to {len(self.taxonomy.levels)}")
        level = self.taxonomy.levels[depth - 1]
        return self._true[level], self._predicted[level], self._gold[level]

    def _present(self) -> NDArray[np.bool_]:
        present: NDArray[np.bool_] = self._predicted + self._gold > 0
        return present


def _mean(true: NDArray[np.int64], predicted: NDArray[np.int64], gold: NDArray[np.int64]) -> Score:
    if not len(true):
        return Score(0.0, 0.0, 0.0)
    # Where a denominator is 0 so is its numerator, and dividing by 1 instead gives the 0 we want.
    precision = true / np.maximum(predicted, 1)
    recall = true / np.maximum(gold, 1)
    f1 = 2 * true / np.maximum(predicted + gold, 1)
    return Score(float(precision.mean()), float(recall.mean()), float(f1.mean()))


def _score(true: int, predicted: int, gold: int) -> Score:
    return Score(_ratio(true, predicted), _ratio(true, gold), _ratio(2 * true, predicted + gold))


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
