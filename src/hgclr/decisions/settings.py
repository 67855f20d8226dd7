"""Decisions of a model: calibration, decoding rule and thresholds, in ``decisions.json`` beside its weights.

Calibrated probabilities match frequencies: of the labels with 80 %, four in five are right. Trained networks are
overconfident, by a different amount at each level of the tree, so each level has its own correction, fitted on
documents that were not used in training.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from hgclr.decisions.decoding import Decoder, Rule
from hgclr.errors import InputError, require_extra
from hgclr.files import read_json, write_json
from hgclr.model_files import DECISIONS
from hgclr.taxonomy import Taxonomy
from hgclr.taxonomy.order import blocks, monotone

FILE = DECISIONS
Method = Literal["temperature", "isotonic"]
METHODS: tuple[Method, ...] = ("temperature", "isotonic")

KNOTS = 100
"""Maximum number of points kept of an isotonic curve."""
LOWEST, HIGHEST, HALVINGS = 0.05, 20.0, 25
"""Bounds of the search for a temperature, and bisection steps for seven digits."""
FAR = 100.0
"""A logit beyond the range of any model."""
REMEDY = "run hgclr calibrate again, or delete the file"

Kind = TypeVar("Kind")
Logits = NDArray[np.float32]
Floats = TypeVar("Floats", bound=np.floating)


@dataclass(frozen=True)
class Temperatures:
    """``p = σ(z / T_d)``, with one temperature T_d for each level d (Guo et al., 2017); above 1 lowers confidence."""

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
    """A monotone, piecewise linear curve for each level: uncalibrated (places) to calibrated probabilities (heights).

    It can have any shape, and needs more documents than temperatures.
    """

    taxonomy: Taxonomy
    curves: tuple[tuple[tuple[float, ...], tuple[float, ...]], ...]

    def __call__(self, logits: Logits) -> NDArray[np.float32]:
        probabilities = sigmoid(logits.copy())
        for level, (places, heights) in zip(self.taxonomy.levels, self.curves, strict=True):
            probabilities[:, level] = np.interp(probabilities[:, level], places, heights)
        return probabilities

    def to_json(self) -> dict[str, Any]:
        levels = [{"from": list(places), "to": list(heights)} for places, heights in self.curves]
        return {"method": "isotonic", "levels": levels}


@dataclass(frozen=True)
class LeafSoftmax:
    """A softmax over leaves, ``p_l = exp(s_l / T) / Σ exp(s / T)``, s_l the sum of the logits on the path to leaf l.

    Of several paths to a leaf, the one with the largest sum counts. The probability of an inner label is the sum over
    the leaves below it. It needs no labelled documents, and is for texts with one leaf.
    """

    taxonomy: Taxonomy
    temperature: float

    @cached_property
    def _leaves_below(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The leaves below each label, itself included, label by label, and where those of each label start, (K,)."""
        pairs = [(label, leaf) for leaf in self.taxonomy.leaves.tolist() for label in self.taxonomy.closure([leaf])]
        labels, leaves = np.array(sorted(pairs), dtype=np.int64).T
        return leaves, np.searchsorted(labels, np.arange(len(self.taxonomy)))

    def __call__(self, logits: Logits) -> NDArray[np.float32]:
        order, leaves = self.taxonomy.order, self.taxonomy.leaves
        below, starts = self._leaves_below
        probabilities = np.zeros_like(logits)
        for rows in blocks(logits):
            arranged = order.arrange(logits[rows])
            order.carry_down(arranged, np.add, among=np.maximum)
            scores = order.restore(arranged)[:, leaves] / self.temperature
            scores = np.exp(scores - scores.max(axis=1, keepdims=True))
            probabilities[rows, leaves] = scores / scores.sum(axis=1, keepdims=True)
            probabilities[rows] = np.add.reduceat(probabilities[rows][:, below], starts, axis=1)
        return np.minimum(probabilities, 1, out=probabilities)  # sums are rounded

    def to_json(self) -> dict[str, Any]:
        return {"method": "leaf-softmax", "temperature": self.temperature}


Calibration = Temperatures | Isotonic | LeafSoftmax
"""A function from logits, (N, K), to probabilities, (N, K)."""


def fit_calibration(method: Method, logits: Logits, gold: NDArray[np.bool_], taxonomy: Taxonomy) -> Calibration:
    """Fit a calibration to logits and gold labels, both (N, K), of documents that the model was not trained on.

    Levels on which no label varies are not calibrated; ``isotonic`` needs scikit-learn.
    """
    if method not in METHODS:
        raise InputError(f"unknown calibration {method!r}", remedy=f"choose one of {', '.join(METHODS)}")
    if not len(logits):
        raise InputError("there are no documents to calibrate on")
    levels = [(logits[:, level], gold[:, level]) for level in taxonomy.levels]
    constant = [depth in constant_levels(gold, taxonomy) for depth in range(1, taxonomy.depth + 1)]
    if method == "temperature":
        values = [1.0 if skip else _temperature(*level) for level, skip in zip(levels, constant, strict=True)]
        return Temperatures(taxonomy, tuple(values))
    require_extra("sklearn", extra="report", capability="Isotonic calibration")
    unchanged = ((0.0, 1.0), (0.0, 1.0))
    curves = [unchanged if skip else _curve(*level) for level, skip in zip(levels, constant, strict=True)]
    return Isotonic(taxonomy, tuple(curves))


def constant_levels(gold: NDArray[np.bool_], taxonomy: Taxonomy) -> list[int]:
    """Return the depths at which all labels are always absent, or always present, so nothing can be fitted."""
    return [depth for depth, level in enumerate(taxonomy.levels, 1) if len(np.unique(gold[:, level])) < 2]


def calibration_from_json(fields: Mapping[str, Any], taxonomy: Taxonomy) -> Calibration:
    """Return the calibration from the output of ``to_json``; raise an `InputError` if it does not fit the tree."""
    try:
        if (method := fields["method"]) == "leaf-softmax":
            if not 0 < (temperature := _number(fields["temperature"])) < np.inf:
                raise ValueError(f"the temperature is {temperature}")
            return LeafSoftmax(taxonomy, temperature)
        levels = fields["levels"]
        if method not in METHODS:
            raise InputError(f"unknown calibration {method!r}")
        if len(levels) != taxonomy.depth:
            raise InputError(f"the calibration has {len(levels)} levels, the label tree {taxonomy.depth}")
        if method == "isotonic":
            curves = tuple((_rising(level["from"]), _rising(level["to"])) for level in levels)
            if any(len(places) != len(heights) for places, heights in curves):
                raise ValueError("a curve has lists of different lengths")
            return Isotonic(taxonomy, curves)
        if invalid := [value for value in levels if not 0 < float(value) < np.inf]:
            raise ValueError(f"a temperature is {invalid[0]}")
        return Temperatures(taxonomy, tuple(map(float, levels)))
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"the calibration cannot be read: {error!r}") from None


def calibrated(logits: Logits, calibration: Calibration | None) -> NDArray[np.float32]:
    """Return probabilities, (N, K), from logits, (N, K): their sigmoids if there is no calibration."""
    return sigmoid(logits.copy()) if calibration is None else calibration(logits)


def sigmoid(logits: NDArray[Floats]) -> NDArray[Floats]:
    """Return the sigmoid of logits, computed in place because a window may be large."""
    np.negative(logits, out=logits)
    np.minimum(logits, 88, out=logits)  # exp(89) overflows float32; 1 / (1 + exp(88)) is practically 0
    np.exp(logits, out=logits)
    logits += 1
    np.reciprocal(logits, out=logits)
    return logits


def _temperature(logits: Logits, gold: NDArray[np.bool_]) -> float:
    """Return the temperature with the least cross-entropy.

    It is convex in s = 1/T, with the derivative ``∑ (σ(s z) - y) z``, which has one zero. Instead of 1 and 0, y is
    ``(n + 1) / (n + 2)`` for the n labels that are present and ``1 / (m + 2)`` for the m that are not (Platt, 1999).
    Otherwise the probabilities of a level without errors on a small dev set would go to 0 and 1.
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
    """Return the points of the best monotone curve, kept off 0 and 1 because the number of documents is finite."""
    from sklearn.isotonic import IsotonicRegression

    margin = 1 / (gold.size + 2)
    regression = IsotonicRegression(y_min=margin, y_max=1 - margin, out_of_bounds="clip")
    regression.fit(sigmoid(logits.astype(np.float64)).ravel(), gold.ravel())
    places, heights = regression.X_thresholds_, regression.y_thresholds_
    if len(places) > KNOTS:
        kept = np.unique(np.linspace(0, len(places) - 1, KNOTS).round().astype(int))
        places, heights = places[kept], heights[kept]
    return tuple(places.tolist()), tuple(heights.tolist())


def _rising(values: Sequence[float]) -> tuple[float, ...]:
    points = np.array(values, dtype=np.float64)
    if points.ndim != 1 or not points.size or not (np.diff(points, prepend=0, append=1) >= 0).all():
        raise ValueError("a curve is not increasing from 0 to 1")
    return tuple(points.tolist())


@dataclass(frozen=True, eq=False)
class Decisions:
    """Calibration, decoding rule and thresholds: how logits become labels.

    Args:
        taxonomy: the label tree.
        rule: the decoding rule.
        thresholds: one for all labels, or one for each, (K,).
        calibration: turns logits into probabilities; None is the sigmoid.
        paths, allow_inner_nodes: see :class:`~hgclr.decisions.decoding.Decoder`.
        abstain_below: withhold labels less probable than this, and all below them; None or 0 withholds nothing.
        provenance: how these values were tuned: data, metric, scores.

    Raises:
        InputError: if there is no such rule, or a number is out of range.
    """

    taxonomy: Taxonomy
    rule: Rule = "threshold"
    thresholds: float | NDArray[np.float32] = 0.5
    calibration: Calibration | None = None
    paths: int = 1
    allow_inner_nodes: bool = True
    abstain_below: float | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.abstain_below is not None and not 0 <= self.abstain_below <= 1:
            raise InputError(f"abstain_below is {self.abstain_below}", remedy="give a probability between 0 and 1")
        self.decoder  # noqa: B018 (checks the values)

    @cached_property
    def decoder(self) -> Decoder:
        return Decoder(
            self.taxonomy,
            self.rule,
            self.thresholds,
            paths=self.paths,
            allow_inner_nodes=self.allow_inner_nodes,
            exclusive=isinstance(self.calibration, LeafSoftmax),
        )

    def changed(
        self,
        *,
        rule: Rule | None = None,
        threshold: float | None = None,
        paths: int | None = None,
        abstain_below: float | None = None,
    ) -> Decisions:
        """Return a copy of these decisions with the given values replaced."""
        wanted = {"rule": rule, "thresholds": threshold, "paths": paths, "abstain_below": abstain_below}
        changes: dict[str, Any] = {name: value for name, value in wanted.items() if value is not None}
        return replace(self, **changes) if changes else self

    def probabilities(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the probabilities that decisions are made from, (N, K), from logits, (N, K)."""
        return calibrated(logits, self.calibration)

    def decide(self, probabilities: NDArray[np.float32]) -> Decided:
        """Return the labels of documents, from calibrated probabilities, (N, K)."""
        predicted, shown = self.decoder(probabilities), self.decoder.shown(probabilities)
        if self.abstain_below is None:
            return Decided(predicted, np.zeros_like(predicted), shown)
        sure = monotone(shown, self.taxonomy) >= self.abstain_below
        return Decided(predicted & sure, predicted & ~sure, shown)

    def logit_shift(self) -> NDArray[np.float32]:
        """Return a shift for each logit, (K,), after which a logit above 0 means that the label passes its threshold.

        ``σ(z / T) > t`` is ``z - T logit(t) > 0``; without calibration T is 1. Added to the bias of a linear head, the
        shift makes 0.5 the threshold of all labels. It ignores the decoding rule. Thresholds of 0 and 1 give a shift
        larger than any logit.

        Raises:
            InputError: if the calibration is not one temperature per level.
        """
        if not isinstance(self.calibration, Temperatures | None):
            raise InputError(
                "this calibration cannot be expressed as thresholds on logits",
                remedy="run hgclr calibrate with --method temperature or none",
            )
        thresholds = self.decoder.thresholds.astype(np.float64)
        with np.errstate(divide="ignore"):
            odds = np.clip(np.log(thresholds) - np.log1p(-thresholds), -FAR, FAR)
        temperatures = np.ones(1) if self.calibration is None else self.calibration.of_label
        shift: NDArray[np.float32] = (-odds * temperatures).astype(np.float32)
        return shift

    def summary(self) -> str:
        """Return a short description of these decisions."""
        values = self.decoder.thresholds
        lowest, highest = float(values.min()), float(values.max())
        parts = [
            f"{self.rule} with k = {self.paths}" if self.rule == "top-k-paths" else self.rule,
            f"threshold {lowest:.3g}" if lowest == highest else f"thresholds {lowest:.3g} to {highest:.3g}",
            _described(self.calibration),
        ]
        if self.abstain_below:
            parts.append(f"abstaining below {self.abstain_below:.1%}")
        return "decoding: " + ", ".join(parts)

    def to_json(self) -> dict[str, Any]:
        values = [float(str(value)) for value in self.decoder.thresholds]  # the shortest decimal for the float32
        one_for_all = np.ndim(self.thresholds) == 0
        return {
            "rule": self.rule,
            "paths": self.paths,
            "allow_inner_nodes": self.allow_inner_nodes,
            "abstain_below": self.abstain_below,
            "calibration": None if self.calibration is None else self.calibration.to_json(),
            "thresholds": values[0] if one_for_all else dict(zip(self.taxonomy.ids, values, strict=True)),
            "provenance": dict(self.provenance),
        }

    def write(self, folder: Path) -> None:
        """Write ``decisions.json`` into a model folder."""
        write_json(folder / FILE, self.to_json())

    @classmethod
    def read(cls, file: Path, taxonomy: Taxonomy) -> Decisions:
        """Read ``decisions.json``; raise an `InputError` if it is broken or does not fit the label tree."""
        try:
            fields = _of_type(dict, read_json(file))
            calibration, thresholds, below = fields["calibration"], fields["thresholds"], fields["abstain_below"]
            if isinstance(thresholds, dict):
                if odd := sorted(thresholds.keys() ^ set(taxonomy.ids)):
                    raise InputError(f"{len(odd)} labels differ between thresholds and model, such as {odd[0]!r}")
                thresholds = np.array([_number(thresholds[label]) for label in taxonomy.ids], dtype=np.float32)
            else:
                thresholds = _number(thresholds)
            return cls(
                taxonomy,
                rule=fields["rule"],
                thresholds=thresholds,
                calibration=None if calibration is None else calibration_from_json(calibration, taxonomy),
                paths=_of_type(int, fields["paths"]),
                allow_inner_nodes=_of_type(bool, fields["allow_inner_nodes"]),
                abstain_below=None if below is None else _number(below),
                provenance=_of_type(dict, fields["provenance"]),
            )
        except InputError as error:
            raise InputError(error.what, path=file, remedy=REMEDY) from None
        except (KeyError, ValueError, TypeError) as error:
            raise InputError(f"cannot be read: {error!r}", path=file, remedy=REMEDY) from None


@dataclass(frozen=True, eq=False, slots=True)
class Decided:
    """The predicted and the abstained labels of documents, and the probabilities that the rule used, (N, K) each."""

    predicted: NDArray[np.bool_]
    abstained: NDArray[np.bool_]
    probabilities: NDArray[np.float32]


def _described(calibration: Calibration | None) -> str:
    if isinstance(calibration, LeafSoftmax):
        return "probabilities a softmax over leaves, not calibrated on documents"
    return "probabilities not calibrated" if calibration is None else "probabilities calibrated"


def _number(value: object) -> float:
    return float(value) if type(value) is int else _of_type(float, value)


def _of_type(kind: type[Kind], value: object) -> Kind:
    if type(value) is not kind:  # a bool is not a number
        raise TypeError(f"expected {kind.__name__}, got {value!r:.80}")
    return value
