"""Confidence intervals from resampled scores, and the comparison of two models on the same resamples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hgclr.errors import InputError

__all__ = ["Interval", "Resampled", "ScoreDifference", "paired_difference"]


@dataclass(frozen=True)
class Interval:
    """A score and the ends of its confidence interval."""

    score: float
    low: float
    high: float


@dataclass(frozen=True)
class ScoreDifference:
    """How much the first of two scores is larger, the ends of the confidence interval, and the p-value."""

    difference: float
    low: float
    high: float
    p_value: float


@dataclass(frozen=True)
class Resampled:
    """The scores of a model, and those of the same B resamples of the documents for every model.

    Attributes:
        documents: how many there are.
        seed: what the resamples were drawn with.
        gold: a digest of the gold labels of the documents in their order.
        scores: the scores on the documents themselves, by name.
        samples: the scores of the resamples by name, each of the shape (B,).
    """

    documents: int
    seed: int
    gold: str
    scores: dict[str, float]
    samples: dict[str, NDArray[np.float64]]

    def intervals(self, confidence: float = 0.95) -> dict[str, Interval]:
        """Return the interval of every score by name: quantiles of the samples, moved onto the score.

        A label of few documents is missing from many resamples and counts 0 there, so that the Macro-F1 of resamples is
        too low, by their mean less the score. The quantiles are moved back by this difference; for scores without such
        a bias it is next to nothing. An interval ends at 0 and at 1.

        Raises:
            ValueError: if the confidence is not between 0 and 1.
        """
        intervals = {}
        for name, score in self.scores.items():
            low, high = _quantiles(_moved(self.samples[name], score), confidence)
            intervals[name] = Interval(score, max(low, 0.0), min(high, 1.0))
        return intervals

    def to_json(self) -> dict[str, Any]:
        """Return all of it in plain Python types."""
        return asdict(self) | {"samples": {name: values.tolist() for name, values in self.samples.items()}}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Resampled:
        """Return what :meth:`to_json` was given.

        Raises:
            InputError: if it is not of that form.
        """
        try:
            samples = {str(name): np.array(values, dtype=np.float64) for name, values in content["samples"].items()}
            scores = {str(name): float(score) for name, score in content["scores"].items()}
            resampled = cls(int(content["documents"]), int(content["seed"]), str(content["gold"]), scores, samples)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise InputError("these are not resampled scores", remedy="evaluate the model anew") from error
        sizes = {values.size if values.ndim == 1 and np.isfinite(values).all() else 0 for values in samples.values()}
        if scores.keys() != samples.keys() or len(sizes) != 1 or 0 in sizes:
            raise InputError("a resampled score is not one number for each resample", remedy="evaluate the model anew")
        return resampled


def paired_difference(first: Resampled, second: Resampled, confidence: float = 0.95) -> dict[str, ScoreDifference]:
    """Compare two models on the same resamples of the same documents, for every score that both have.

    A resample that is hard for one model is hard for the other, which cancels out in the difference of their scores.
    With ``d`` the difference on the documents themselves and ``d_b`` that of resample ``b``, moved by the same number
    for all b so that their mean is ``d``, the interval lies between quantiles of the ``d_b``, and the two-sided p-value
    is twice the share of resamples on the other side of 0, counting the documents themselves as one more on each side::

        p = min(1, 2 (1 + min(#{d_b ≤ 0}, #{d_b ≥ 0})) / (B + 1))

    It is thus never below 2 / (B + 1).

    Raises:
        InputError: if the two have no score in common or were not made from the same resamples of the same documents.
        ValueError: if the confidence is not between 0 and 1.
    """
    names = [name for name in first.scores if name in second.scores]
    if not names:
        raise InputError("the two models have no score in common")
    _check_pair(first, second, names[0])
    differences = {}
    for name in names:
        difference = first.scores[name] - second.scores[name]
        resampled = _moved(first.samples[name] - second.samples[name], difference)
        beyond = min(int((resampled <= 0).sum()), int((resampled >= 0).sum()))
        p_value = min(1.0, 2 * (1 + beyond) / (len(resampled) + 1))
        low, high = _quantiles(resampled, confidence)
        differences[name] = ScoreDifference(difference, low, high, p_value)
    return differences


def _check_pair(first: Resampled, second: Resampled, name: str) -> None:
    resamples = [(len(each.samples[name]), each.seed) for each in (first, second)]
    if resamples[0] != resamples[1]:
        (one, seed), (other, other_seed) = resamples
        raise InputError(
            f"the two models have different resamples: {one} of seed {seed} and {other} of seed {other_seed}",
            remedy="evaluate both with the same number of resamples and seed",
        )
    if (first.documents, first.gold) != (second.documents, second.gold):
        raise InputError(
            "the two models were not scored on the same documents in the same order",
            remedy="evaluate both on the same split of the same data, with the same label tree",
        )


def _moved(samples: NDArray[np.float64], score: float) -> NDArray[np.float64]:
    """Return the samples moved so that their mean is the score."""
    moved: NDArray[np.float64] = samples - samples.mean() + score
    return moved


def _quantiles(samples: NDArray[np.float64], confidence: float) -> tuple[float, float]:
    """Return the two ends between which the share ``confidence`` of the samples lies."""
    if not 0 < confidence < 1:
        raise ValueError(f"the confidence must be between 0 and 1, got {confidence}")
    low, high = np.quantile(samples, [(1 - confidence) / 2, (1 + confidence) / 2]).tolist()
    return low, high
