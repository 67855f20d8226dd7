"""How a model decides: calibration, decoding rule and thresholds, in ``decisions.json`` beside its weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from hgclr.decisions.calibration import Calibration, Temperatures, calibrated, from_json
from hgclr.decisions.decoding import Decoder, Rule
from hgclr.errors import InputError
from hgclr.files import read_json, write_json
from hgclr.model_files import DECISIONS as FILE
from hgclr.taxonomy import Taxonomy
from hgclr.taxonomy.order import monotone

__all__ = ["FILE", "Decided", "Decisions"]

FAR = 100.0
"""A logit that no model gives."""
REMEDY = "run hgclr calibrate again, or delete the file"

Kind = TypeVar("Kind")


@dataclass(frozen=True, eq=False)
class Decisions:
    """Everything between the logits and the labels of a text.

    Args:
        taxonomy: the label tree.
        rule: the decoding rule.
        thresholds: one for all labels, or one for each, (K,).
        calibration: what makes probabilities of logits, where it is not the sigmoid.
        paths: see :class:`~hgclr.decisions.decoding.Decoder`.
        allow_inner_nodes: see there.
        abstain_below: stop at the parent of a label that is less probable than this: leave that label out, and all
            below it. 0 leaves nothing out, as None does.
        provenance: how all this was found: data, metric, scores.

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
        self.decoder  # noqa: B018 (refuses what does not fit)

    @cached_property
    def decoder(self) -> Decoder:
        """The decoder that applies rule and thresholds."""
        return Decoder(
            self.taxonomy, self.rule, self.thresholds, paths=self.paths, allow_inner_nodes=self.allow_inner_nodes
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
        """Return the probabilities that these decisions are made of, (N, K), from logits, (N, K)."""
        return calibrated(logits, self.calibration)

    def decide(self, probabilities: NDArray[np.float32]) -> Decided:
        """Return the labels of documents, from probabilities, (N, K), which must be calibrated already."""
        predicted, shown = self.decoder(probabilities), self.decoder.shown(probabilities)
        if self.abstain_below is None:
            return Decided(predicted, np.zeros_like(predicted), shown)
        sure = monotone(shown, self.taxonomy) >= self.abstain_below
        return Decided(predicted & sure, predicted & ~sure, shown)

    def logit_shift(self) -> NDArray[np.float32]:
        """Return what to add to each logit, (K,), so that it is above 0 just where its label passes its threshold.

        ``σ(z / T) > t`` is ``z - T logit(t) > 0``; without calibration T is 1. Added to the bias of a linear head it
        makes one half the right threshold for all labels. What a rule does with labels that pass is not in it.
        Thresholds of 0 and 1 give a shift that no logit outweighs.

        Raises:
            InputError: if probabilities are calibrated in another way than by temperatures.
        """
        if not isinstance(self.calibration, Temperatures | None):
            raise InputError(
                "thresholds on isotonic probabilities are no thresholds on logits",
                remedy="run hgclr calibrate with --method temperature or none",
            )
        thresholds = self.decoder.thresholds.astype(np.float64)
        with np.errstate(divide="ignore"):
            odds = np.clip(np.log(thresholds) - np.log1p(-thresholds), -FAR, FAR)
        temperatures = np.ones(1) if self.calibration is None else self.calibration.of_label
        shift: NDArray[np.float32] = (-odds * temperatures).astype(np.float32)
        return shift

    def summary(self) -> str:
        """Return how labels are decided, in a few words."""
        values = self.decoder.thresholds
        lowest, highest = float(values.min()), float(values.max())
        parts = [
            self.rule if self.rule != "top-k-paths" else f"{self.rule} with k = {self.paths}",
            f"threshold {lowest:.3g}" if lowest == highest else f"thresholds {lowest:.3g} to {highest:.3g}",
            "probabilities as trained" if self.calibration is None else "probabilities calibrated",
            *([f"only where {self.abstain_below:.1%} sure"] if self.abstain_below else []),
        ]
        return "decoding: " + ", ".join(parts)

    def to_json(self) -> dict[str, Any]:
        """Return everything in plain Python types."""
        values = [float(str(value)) for value in self.decoder.thresholds]  # the shortest that is the same float32
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
        """Write ``decisions.json`` into a model's folder."""
        write_json(folder / FILE, self.to_json())

    @classmethod
    def read(cls, file: Path, taxonomy: Taxonomy) -> Decisions:
        """Read ``decisions.json``.

        Raises:
            InputError: if it is broken, or made for another tree.
        """
        try:
            fields = _of_type(dict, read_json(file))
            calibration = fields["calibration"]
            return cls(
                taxonomy,
                rule=fields["rule"],
                thresholds=_thresholds(fields["thresholds"], taxonomy),
                calibration=None if calibration is None else from_json(calibration, taxonomy),
                paths=_of_type(int, fields["paths"]),
                allow_inner_nodes=_of_type(bool, fields["allow_inner_nodes"]),
                abstain_below=None if fields["abstain_below"] is None else _number(fields["abstain_below"]),
                provenance=_of_type(dict, fields["provenance"]),
            )
        except InputError as error:
            raise InputError(error.what, path=file, remedy=REMEDY) from None
        except KeyError as error:
            raise InputError(f"no field {error}", path=file, remedy=REMEDY) from None
        except (ValueError, TypeError) as error:
            raise InputError(f"broken: {error}", path=file, remedy=REMEDY) from None


@dataclass(frozen=True, eq=False, slots=True)
class Decided:
    """What was decided about documents.

    Args:
        predicted: the labels of each, bool (N, K).
        abstained: the labels that the rule gives and that are less probable than ``abstain_below``, bool (N, K).
        probabilities: of every label, (N, K), as the rule sees them.
    """

    predicted: NDArray[np.bool_]
    abstained: NDArray[np.bool_]
    probabilities: NDArray[np.float32]


def _thresholds(value: object, taxonomy: Taxonomy) -> float | NDArray[np.float32]:
    if not isinstance(value, dict):
        return _number(value)
    if missing := [identifier for identifier in taxonomy.ids if identifier not in value]:
        raise InputError(f"no threshold for {len(missing)} labels of the model, such as {missing[0]!r}")
    if strange := sorted(value.keys() - set(taxonomy.ids)):
        raise InputError(f"thresholds for {len(strange)} labels that the model does not have, such as {strange[0]!r}")
    return np.array([_number(value[identifier]) for identifier in taxonomy.ids], dtype=np.float32)


def _number(value: object) -> float:
    return float(value) if type(value) is int else _of_type(float, value)


def _of_type(kind: type[Kind], value: object) -> Kind:
    if type(value) is not kind:  # a truth value is no number
        raise TypeError(f"expected {kind.__name__}, got {value!r:.80}")
    return value
