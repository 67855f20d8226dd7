"""Bootstrap: confidence intervals of scores, and paired comparison of two models on the same resamples."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hgclr.errors import InputError
from hgclr.metrics.scores import check_decisions, f1_of
from hgclr.taxonomy import Taxonomy

DRAWS = 16
"""16-bit numbers in one step of the Philox generator's counter, which gives 256 bits."""
VALUES = 2**16
"""Number of values of a 16-bit number."""
LIMITS = np.round(VALUES * np.cumsum([math.exp(-1) / math.factorial(weight) for weight in range(16)]))
"""For w = 1, 2, …: the smallest number with a weight of at least w, VALUES · P(weight < w)."""
BLOCK = 1024
"""Documents weighted at once: few enough for every sum of a block to be exact in float32."""
MARKS = 251
"""A document's mark is a hash of its gold labels below this number."""


@dataclass(frozen=True)
class Interval:
    """A score and the ends of its confidence interval."""

    score: float
    low: float
    high: float


@dataclass(frozen=True)
class ScoreDifference:
    """First score minus second, the ends of the confidence interval, and the p-value."""

    difference: float
    low: float
    high: float
    p_value: float


@dataclass(frozen=True)
class Resampled:
    """The scores of a model on the documents and on B resamples of them.

    ``gold`` is a digest of the gold labels in document order, ``seed`` chose the resamples, and ``samples`` are the
    scores of the resamples by name, (B,) each.
    """

    documents: int
    seed: int
    gold: str
    scores: dict[str, float]
    samples: dict[str, NDArray[np.float64]]

    def intervals(self, confidence: float = 0.95) -> dict[str, Interval]:
        """Return the confidence interval of every score by name: quantiles of the samples, corrected for bias.

        A rare label is missing from many resamples and counts 0 there, so their Macro-F1 is too low. The samples are
        shifted so that their mean is the score.
        """
        intervals = {}
        for name, score in self.scores.items():
            low, high = _quantiles(_moved(self.samples[name], score), confidence)
            intervals[name] = Interval(score, max(low, 0.0), min(high, 1.0))
        return intervals

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"samples": {name: values.tolist() for name, values in self.samples.items()}}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Resampled:
        """Read the form of :meth:`to_json`; raise an `InputError` if it is broken."""
        try:
            samples = {str(name): np.array(values, dtype=np.float64) for name, values in content["samples"].items()}
            scores = {str(name): float(score) for name, score in content["scores"].items()}
            resampled = cls(int(content["documents"]), int(content["seed"]), str(content["gold"]), scores, samples)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise InputError("the resampled scores cannot be read", remedy="evaluate the model again") from error
        sizes = {values.size if values.ndim == 1 and np.isfinite(values).all() else 0 for values in samples.values()}
        if scores.keys() != samples.keys() or len(sizes) != 1 or 0 in sizes:
            raise InputError("resampled scores are missing or NaN", remedy="evaluate the model again")
        return resampled


def paired_difference(first: Resampled, second: Resampled, confidence: float = 0.95) -> dict[str, ScoreDifference]:
    """Compare two models on the same resamples of the same documents, for every score that both have.

    ``d`` is the difference on the documents, ``d_b`` that on resample ``b``, shifted so that their mean is ``d``. The
    interval lies between quantiles of the ``d_b``, and the two-sided p-value is::

        p = min(1, 2 (1 + min(#{d_b ≤ 0}, #{d_b ≥ 0})) / (B + 1))

    Raises:
        InputError: if the models share no score, or were not scored on the same resamples of the same documents.
    """
    names = [name for name in first.scores if name in second.scores]
    if not names:
        raise InputError("the two models have no score in common")
    (one, seed), (other, other_seed) = [(len(each.samples[names[0]]), each.seed) for each in (first, second)]
    if (one, seed) != (other, other_seed):
        raise InputError(
            f"the two models have different resamples: {one} of seed {seed} and {other} of seed {other_seed}",
            remedy="evaluate both with the same number of resamples and seed",
        )
    if (first.documents, first.gold) != (second.documents, second.gold):
        raise InputError(
            "the two models were not scored on the same documents in the same order",
            remedy="evaluate both on the same split of the same data, with the same label tree",
        )
    differences = {}
    for name in names:
        difference = first.scores[name] - second.scores[name]
        resampled = _moved(first.samples[name] - second.samples[name], difference)
        beyond = min(int((resampled <= 0).sum()), int((resampled >= 0).sum()))
        p_value = min(1.0, 2 * (1 + beyond) / (len(resampled) + 1))
        low, high = _quantiles(resampled, confidence)
        differences[name] = ScoreDifference(difference, low, high, p_value)
    return differences


def _moved(samples: NDArray[np.float64], score: float) -> NDArray[np.float64]:
    """Return the samples shifted so that their mean is the score."""
    moved: NDArray[np.float64] = samples - samples.mean() + score
    return moved


def _quantiles(samples: NDArray[np.float64], confidence: float) -> tuple[float, float]:
    """Return the quantiles between which the share ``confidence`` of the samples lies."""
    if not 0 < confidence < 1:
        raise ValueError(f"the confidence must be between 0 and 1, got {confidence}")
    low, high = np.quantile(samples, [(1 - confidence) / 2, (1 + confidence) / 2]).tolist()
    return low, high


def poisson_weights(resamples: int, seed: int, first: int, count: int) -> NDArray[np.uint8]:
    """Return the weights of documents in B resamples: independent Poisson(1) numbers, to 16 bits, (count, B).

    Drawing N documents with replacement gives each a Binomial(N, 1/N) weight; Poisson(1) is its limit and needs no N.
    With a counter-based generator, the weights of document ``i`` depend only on the seed, B and ``i``, so models scored
    on the same documents share their resamples for any batch size. ``first`` is the number of the first document.
    """
    steps = -(-resamples // DRAWS)
    generator = np.random.Philox(seed, counter=first * steps)
    numbers = generator.random_raw(count * steps * 4).astype("<u8", copy=False).view("<u2")
    numbers = numbers.reshape(count, steps * DRAWS)[:, :resamples]
    weights = np.zeros(numbers.shape, dtype=np.uint8)
    for limit in LIMITS[LIMITS < VALUES].astype(np.uint16):
        weights += numbers >= limit
    return weights


class BootstrapScores:
    """Scores of B resamples of the documents, in which each occurs Poisson(1) times; memory O(B · labels).

    Every count of :class:`~hgclr.metrics.scores.MultiLabelScores` becomes a sum of document weights. The scores are
    ``micro_f1``, ``macro_f1``, ``hierarchical_f1``, and for each depth d ``micro_f1_level_d`` and
    ``macro_f1_level_d``.

    Args:
        taxonomy: the label tree; column ``k`` of every batch is its label ``k``.
        resamples: B.
        seed: chooses the resamples; :func:`paired_difference` needs the same seed for both models.
    """

    def __init__(self, taxonomy: Taxonomy, resamples: int = 500, seed: int = 0) -> None:
        self.taxonomy = taxonomy
        if resamples < 1 or seed < 0:
            raise ValueError(f"expected at least one resample and a seed from 0, got {resamples} and {seed}")
        self.resamples, self.seed = resamples, seed
        self._documents = 0
        # The last column of every array weights each document once: the original data.
        shape = (len(taxonomy), resamples + 1)
        self._true = np.zeros(shape, dtype=np.int32)
        self._given = np.zeros(shape, dtype=np.int32)  # predicted plus gold
        # Weighted sums over documents: right and given labels after adding all ancestors, and marks.
        self._per_document = np.zeros((3, resamples + 1), dtype=np.int64)

    def update(self, predicted: NDArray[np.bool_], gold: NDArray[np.bool_]) -> None:
        """Count one batch: predicted and gold labels, both bool (N, K); documents are numbered in order."""
        check_decisions(self.taxonomy, predicted, gold)
        for start in range(0, len(gold), BLOCK):
            self._count(predicted[start : start + BLOCK], gold[start : start + BLOCK])

    def _count(self, predicted: NDArray[np.bool_], gold: NDArray[np.bool_]) -> None:
        weights = np.ones((len(gold), self.resamples + 1), dtype=np.float32)
        weights[:, :-1] = poisson_weights(self.resamples, self.seed, self._documents, len(gold))
        self._documents += len(gold)
        # With many labels, most occur on no document of the block.
        present = np.flatnonzero((predicted | gold).any(axis=0))
        right, given = (predicted & gold)[:, present], predicted[:, present].view(np.uint8) + gold[:, present]
        self._true[present] += (right.astype(np.float32).T @ weights).astype(np.int32)
        self._given[present] += (given.astype(np.float32).T @ weights).astype(np.int32)
        documents, labels = np.nonzero(gold)
        marks = np.bincount(documents, weights=labels + 1, minlength=len(gold)).astype(np.int64) % MARKS
        predicted, gold = self.taxonomy.close(predicted), self.taxonomy.close(gold)
        closed_right = np.count_nonzero(predicted & gold, axis=1)
        closed_given = np.count_nonzero(predicted, axis=1) + np.count_nonzero(gold, axis=1)
        # In float64, because sums of dense predictions of many labels are not exact in float32.
        numbers = np.array([closed_right, closed_given, marks], dtype=np.float64)
        self._per_document += (numbers @ weights).astype(np.int64)

    def resampled(self) -> Resampled:
        scores = self._scores()
        return Resampled(
            documents=self._documents,
            seed=self.seed,
            gold=hashlib.sha256(self._per_document[2].astype("<i8").tobytes()).hexdigest()[:16],
            scores={name: float(values[-1]) for name, values in scores.items()},
            samples={name: values[:-1] for name, values in scores.items()},
        )

    def _scores(self) -> dict[str, NDArray[np.float64]]:
        """Return the scores of the B resamples and of the original data, (B + 1,) each."""
        counts = np.zeros((2, self._true.shape[1]), dtype=np.int64)  # right and given, of all labels
        label_f1 = np.zeros(self._true.shape[1])  # sum over all labels
        levels = {}
        for depth, level in enumerate(self.taxonomy.levels, start=1):
            true, given = self._true[level], self._given[level]
            level_counts = np.array([true.sum(axis=0, dtype=np.int64), given.sum(axis=0, dtype=np.int64)])
            level_f1 = f1_of(true, given).sum(axis=0)
            levels[f"micro_f1_level_{depth}"] = f1_of(*level_counts)
            levels[f"macro_f1_level_{depth}"] = level_f1 / len(level)
            counts += level_counts
            label_f1 += level_f1
        return {
            "micro_f1": f1_of(*counts),
            "macro_f1": label_f1 / len(self.taxonomy),
            "hierarchical_f1": f1_of(*self._per_document[:2]),
            **levels,
        }
