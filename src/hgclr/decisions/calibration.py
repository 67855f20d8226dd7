"""Make probabilities mean what they say: of the labels that are given 80 %, four in five should be right.

Training makes networks too sure of themselves, and not alike at all levels of the tree; so a correction is fitted for
each level, on documents that were not trained on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from hgclr.errors import InputError, require_extra
from hgclr.taxonomy import Taxonomy

__all__ = [
    "METHODS",
    "Calibration",
    "Isotonic",
    "Method",
    "Temperatures",
    "calibrated",
    "fit",
    "from_json",
    "sigmoid",
    "silent_levels",
]

Method = Literal["temperature", "isotonic"]
METHODS: tuple[Method, ...] = ("temperature", "isotonic")

KNOTS = 100
"""Points of an isotonic curve that are kept."""
LOWEST, HIGHEST = 0.05, 20.0
"""Between which temperatures are searched."""
HALVINGS = 25
"""Steps of that search: to seven digits."""

Logits = NDArray[np.float32]
Floats = TypeVar("Floats", bound=np.floating)
Fitted = TypeVar("Fitted")


@dataclass(frozen=True)
class Temperatures:
    """``p = σ(z / T_d)``, with one temperature T_d for each level d (Guo et al., 2017): above 1 makes less sure."""

    taxonomy: Taxonomy
    values: tuple[float, ...]

    def __call__(self, logits: Logits) -> NDArray[np.float32]:
        return sigmoid(logits / self.of_label)

    @property
    def of_label(self) -> NDArray[np.float32]:
        """The temperature of each label's level, (K,)."""
        values: NDArray[np.float32] = np.array(self.values, dtype=np.float32)[self.taxonomy.depths - 1]
        return values

    def to_json(self) -> dict[str, Any]:
        return {"method": "temperature", "levels": list(self.values)}


@dataclass(frozen=True)
class Isotonic:
    """A rising curve through points for each level, straight in between: takes any shape, needs more documents.

    A curve is the points' places, which are uncalibrated probabilities, and their heights.
    """

    taxonomy: Taxonomy
    curves: tuple[tuple[tuple[float, ...], tuple[float, ...]], ...]

    def __call__(self, logits: Logits) -> NDArray[np.float32]:
        probabilities = sigmoid(logits.copy())
        for level, (places, heights) in zip(self.taxonomy.levels, self.curves, strict=True):
            probabilities[:, level] = np.interp(probabilities[:, level], places, heights)
        return probabilities

    def to_json(self) -> dict[str, Any]:
        return {
            "method": "isotonic",
            "levels": [{"from": list(places), "to": list(heights)} for places, heights in self.curves],
        }


Calibration = Temperatures | Isotonic
"""What turns logits, (N, K), into probabilities, (N, K)."""


def fit(method: Method, logits: Logits, gold: NDArray[np.bool_], taxonomy: Taxonomy) -> Calibration:
    """Fit a calibration to documents that the model was not trained on, from logits and gold labels, both (N, K).

    Levels that tell nothing stay as they are.

    Raises:
        InputError: if there is no such method or no document.
        MissingExtraError: for ``isotonic``, if scikit-learn is not installed.
    """
    if method not in METHODS:
        raise InputError(f"unknown calibration {method!r}", remedy=f"choose one of {', '.join(METHODS)}")
    if not len(logits):
        raise InputError("there is no document to calibrate on")
    silent = silent_levels(gold, taxonomy)

    def of_level(fit_one: Callable[[Logits, NDArray[np.bool_]], Fitted], unchanged: Fitted) -> tuple[Fitted, ...]:
        return tuple(
            unchanged if depth in silent else fit_one(logits[:, level], gold[:, level])
            for depth, level in enumerate(taxonomy.levels, 1)
        )

    if method == "temperature":
        return Temperatures(taxonomy, of_level(_temperature, 1.0))
    require_extra("sklearn", extra="report", capability="Isotonic calibration")
    return Isotonic(taxonomy, of_level(_curve, ((0.0, 1.0), (0.0, 1.0))))


def silent_levels(gold: NDArray[np.bool_], taxonomy: Taxonomy) -> list[int]:
    """Return the depths at which all labels are always absent, or always present: nothing can be fitted to them."""
    return [depth for depth, level in enumerate(taxonomy.levels, 1) if len(np.unique(gold[:, level])) < 2]


def from_json(fields: Mapping[str, Any], taxonomy: Taxonomy) -> Calibration:
    """Return the calibration that ``to_json`` described.

    Raises:
        InputError: if the description does not fit.
    """
    try:
        method, levels = fields["method"], fields["levels"]
        if method not in METHODS:
            raise InputError(f"unknown calibration {method!r}")
        if len(levels) != taxonomy.depth:
            raise InputError(f"a calibration of {len(levels)} levels for a tree of {taxonomy.depth}")
        if method == "isotonic":
            return Isotonic(taxonomy, tuple(_curve_from(level) for level in levels))
        if strange := [value for value in levels if not 0 < float(value) < np.inf]:
            raise ValueError(f"{strange[0]} is no temperature")
        return Temperatures(taxonomy, tuple(map(float, levels)))
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"the calibration cannot be read: {error!r}") from None


def calibrated(logits: Logits, calibration: Calibration | None) -> NDArray[np.float32]:
    """Return probabilities, (N, K), of logits, (N, K): their sigmoids where there is no calibration."""
    return sigmoid(logits.copy()) if calibration is None else calibration(logits)


def sigmoid(logits: NDArray[Floats]) -> NDArray[Floats]:
    """Return the sigmoid of logits, computed in place: a window of them may be large."""
    np.negative(logits, out=logits)
    np.minimum(logits, 88, out=logits)  # exp(89) is no float32; 1 / (1 + exp(88)) is as good as 0
    np.exp(logits, out=logits)
    logits += 1
    np.reciprocal(logits, out=logits)
    return logits


def _temperature(logits: Logits, gold: NDArray[np.bool_]) -> float:
    """Return the temperature with the least cross-entropy.

    In s = 1/T it is convex, with the derivative ``∑ (σ(s z) - y) z``, which is 0 at one place. Instead of 1 and 0, y is
    ``(n + 1) / (n + 2)`` for the n labels that are present and ``1 / (m + 2)`` for the m that are not (Platt, 1999):
    else a level that a small dev has all right would be made infinitely sure.
    """
    values, present = logits.astype(np.float64).ravel(), gold.ravel()
    number = int(present.sum())
    right = np.where(present, (number + 1) / (number + 2), 1 / (len(present) - number + 2))
    low, high = np.log(1 / HIGHEST), np.log(1 / LOWEST)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        slope = float(np.dot(sigmoid(np.exp(middle) * values) - right, values))
        low, high = (middle, high) if slope < 0 else (low, middle)
    return float(np.exp(-(low + high) / 2))


def _curve(logits: Logits, gold: NDArray[np.bool_]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the points of the best rising curve; none is quite 0 or 1, because documents are finitely many."""
    from sklearn.isotonic import IsotonicRegression

    margin = 1 / (gold.size + 2)
    regression = IsotonicRegression(y_min=margin, y_max=1 - margin, out_of_bounds="clip")
    regression.fit(sigmoid(logits.astype(np.float64)).ravel(), gold.ravel())
    places, heights = regression.X_thresholds_, regression.y_thresholds_
    if len(places) > KNOTS:
        kept = np.unique(np.linspace(0, len(places) - 1, KNOTS).round().astype(int))
        places, heights = places[kept], heights[kept]
    return tuple(places.tolist()), tuple(heights.tolist())


def _curve_from(fields: Mapping[str, Any]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    places, heights = _rising(fields["from"]), _rising(fields["to"])
    if len(places) != len(heights):
        raise ValueError(f"a curve from {len(places)} points to {len(heights)}")
    return places, heights


def _rising(values: Sequence[float]) -> tuple[float, ...]:
    points = np.array(values, dtype=np.float64)
    if points.ndim != 1 or not points.size or not (np.diff(points, prepend=0, append=1) >= 0).all():
        raise ValueError("a curve does not rise between 0 and 1")
    return tuple(points.tolist())
