"""Scores of many resamples of the documents, counted batch by batch: how far a score can be trusted."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hgclr.metrics.intervals import Resampled
from hgclr.metrics.scores import check_decisions
from hgclr.taxonomy import Taxonomy

__all__ = ["BootstrapScores", "poisson_weights"]

DRAWS = 16
"""16-bit numbers in one step of the Philox generator's counter, which gives 256 bits."""
VALUES = 2**16
"""How many values such a number has."""
BLOCK = 1024
"""Documents that are weighed at once: few enough that float32 holds every sum of a block exactly."""
MARKS = 251
"""Documents are told apart by a number below this one that is made of their gold labels."""


def _limits() -> NDArray[np.uint16]:
    """Return for w = 1, 2, … the first number that stands for a weight of at least w: VALUES · P(weight < w)."""
    below = np.cumsum([math.exp(-1) / math.factorial(weight) for weight in range(16)])
    limits = np.round(VALUES * below)
    return limits[limits < VALUES].astype(np.uint16)


LIMITS = _limits()


def poisson_weights(resamples: int, seed: int, first: int, count: int) -> NDArray[np.uint8]:
    """Return the weights of documents in B resamples: independent Poisson numbers with mean 1, to 16 bits, (count, B).

    A bootstrap draws N documents with replacement, which gives each a Binomial(N, 1/N) weight and needs N beforehand;
    Poisson(1) is its limit and needs no N. The weights of document ``i`` come from its own stretch of a counter-based
    generator: they depend on the seed, on B and on ``i``, and on nothing else, so that two models that are scored on
    the same documents get the same resamples, in whatever batches.

    Args:
        resamples: B.
        seed: chooses the resamples.
        first, count: the documents, numbered from ``first`` to ``first + count - 1``.
    """
    steps = -(-resamples // DRAWS)
    generator = np.random.Philox(seed, counter=first * steps)
    numbers = generator.random_raw(count * steps * 4).astype("<u8", copy=False).view("<u2")
    numbers = numbers.reshape(count, steps * DRAWS)[:, :resamples]
    weights = np.zeros(numbers.shape, dtype=np.uint8)
    for limit in LIMITS:
        weights += numbers >= limit
    return weights


class BootstrapScores:
    """Score B resamples of the documents, in which each occurs Poisson(1) times; memory O(B · labels).

    With ``w_i`` the weight of document ``i``, every count of :class:`~hgclr.metrics.scores.MultiLabelScores` is a
    sum of weights, and F1 = 2 TP / (P + G) as there. The scores are ``micro_f1``, ``macro_f1``, ``hierarchical_f1``,
    and for each depth d ``micro_f1_level_d`` and ``macro_f1_level_d``.

    Args:
        taxonomy: the label tree; column ``k`` of every batch is its label ``k``.
        resamples: B.
        seed: chooses the resamples. Models are compared on the same documents in the same order with the same seed and
            B, and then share their resamples; see :func:`~hgclr.metrics.intervals.paired_difference`.

    Raises:
        ValueError: if a number is out of range.
    """

    def __init__(self, taxonomy: Taxonomy, resamples: int = 500, seed: int = 0) -> None:
        self.taxonomy = taxonomy
        if resamples < 1 or seed < 0:
            raise ValueError(f"expected at least one resample and a seed from 0, got {resamples} and {seed}")
        self.resamples, self.seed = resamples, seed
        self._documents = 0
        # The last column of every array weighs each document once: the data themselves.
        shape = (len(taxonomy), resamples + 1)
        self._true = np.zeros(shape, dtype=np.int32)
        self._given = np.zeros(shape, dtype=np.int32)  # predicted plus gold
        # By document: right and given after adding all ancestors, and its mark.
        self._per_document = np.zeros((3, resamples + 1), dtype=np.int64)

    def update(self, predicted: NDArray[np.bool_], gold: NDArray[np.bool_]) -> None:
        """Count one batch, predicted and gold labels, both bool (N, K); the documents are numbered as they come.

        Raises:
            ValueError: if an array is not boolean, or the shapes do not fit the taxonomy or each other.
        """
        check_decisions(self.taxonomy, predicted, gold)
        for start in range(0, len(gold), BLOCK):
            self._count(predicted[start : start + BLOCK], gold[start : start + BLOCK])

    def _count(self, predicted: NDArray[np.bool_], gold: NDArray[np.bool_]) -> None:
        weights = np.ones((len(gold), self.resamples + 1), dtype=np.float32)
        weights[:, :-1] = poisson_weights(self.resamples, self.seed, self._documents, len(gold))
        self._documents += len(gold)
        # Of many labels most are on no document of the block.
        present = np.flatnonzero((predicted | gold).any(axis=0))
        right, given = (predicted & gold)[:, present], predicted[:, present].view(np.uint8) + gold[:, present]
        self._true[present] += (right.astype(np.float32).T @ weights).astype(np.int32)
        self._given[present] += (given.astype(np.float32).T @ weights).astype(np.int32)
        marks = _marks(gold)
        predicted, gold = self.taxonomy.close(predicted), self.taxonomy.close(gold)
        closed_right = np.count_nonzero(predicted & gold, axis=1)
        closed_given = np.count_nonzero(predicted, axis=1) + np.count_nonzero(gold, axis=1)
        # In float64, because dense predictions of many labels add up to more than float32 holds.
        numbers = np.array([closed_right, closed_given, marks], dtype=np.float64)
        self._per_document += (numbers @ weights).astype(np.int64)

    def resampled(self) -> Resampled:
        """Return scores and samples as one object that can be kept and compared with that of another model."""
        scores = self._scores()
        return Resampled(
            documents=self._documents,
            seed=self.seed,
            gold=hashlib.sha256(self._per_document[2].astype("<i8").tobytes()).hexdigest()[:16],
            scores={name: float(values[-1]) for name, values in scores.items()},
            samples={name: values[:-1] for name, values in scores.items()},
        )

    def _scores(self) -> dict[str, NDArray[np.float64]]:
        """Return the scores of the B resamples and of the data themselves, shape (B + 1,)."""
        counts = np.zeros((2, self._true.shape[1]), dtype=np.int64)  # right and given, of all labels
        label_f1 = np.zeros(self._true.shape[1])  # sum over all labels
        levels = {}
        for depth, level in enumerate(self.taxonomy.levels, start=1):
            true, given = self._true[level], self._given[level]
            level_counts = np.array([true.sum(axis=0, dtype=np.int64), given.sum(axis=0, dtype=np.int64)])
            level_f1 = _f1(true, given).sum(axis=0)
            levels[f"micro_f1_level_{depth}"] = _f1(*level_counts)
            levels[f"macro_f1_level_{depth}"] = level_f1 / len(level)
            counts += level_counts
            label_f1 += level_f1
        return {
            "micro_f1": _f1(*counts),
            "macro_f1": label_f1 / len(self.taxonomy),
            "hierarchical_f1": _f1(*self._per_document[:2]),
            **levels,
        }


def _f1(true: NDArray[Any], given: NDArray[Any]) -> NDArray[np.float64]:
    """Return 2 TP / (P + G), and 0 where no label is predicted or gold."""
    f1: NDArray[np.float64] = 2 * true / np.maximum(given, 1)
    return f1


def _marks(gold: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return a number from 0 to ``MARKS`` - 1 for the gold labels of each document, (N,)."""
    documents, labels = np.nonzero(gold)
    sums = np.bincount(documents, weights=labels + 1, minlength=len(gold))
    return sums.astype(np.int64) % MARKS
