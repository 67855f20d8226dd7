"""How a fitted estimator decides: as its parameters say, or as is best on the documents held out."""

from __future__ import annotations

from dataclasses import dataclass

from hgclr.data import DataFolder
from hgclr.decisions.decoding import RULES, Rule
from hgclr.decisions.settings import Decisions
from hgclr.decisions.tuning import calibrate
from hgclr.errors import InputError
from hgclr.inference import HierarchicalClassifier
from hgclr.inference.outputs import read_outputs
from hgclr.taxonomy import Taxonomy

__all__ = ["Deciding"]


@dataclass(frozen=True)
class Deciding:
    """How labels are to be decided.

    Args:
        rule: the decoding rule, or ``auto``.
        threshold: probability from which on a label is given; None takes one half, or what calibration finds.
        paths: k of ``top-k-paths``.
        calibrate: calibrate probabilities and tune rule and thresholds on the documents held out.
        one_path: every text is to get exactly one path.
    """

    rule: str
    threshold: float | None
    paths: int
    calibrate: bool
    one_path: bool

    def check(self, taxonomy: Taxonomy, stop_inside: bool) -> Decisions:
        """Return the decisions without calibration.

        Raises:
            InputError: if a value does not fit.
        """
        if self.rule not in ("auto", *RULES):
            raise InputError(f"unknown decoding rule {self.rule!r}", remedy=f"choose auto, {', '.join(RULES)}")
        if self.one_path and self.rule not in ("auto", "best-path"):
            raise InputError(
                f"y has one path for each document, and decode={self.rule!r} may give a text none or several",
                remedy="give a list of paths for each document, or decode='auto'",
            )
        threshold = 0.5 if self.threshold is None else self.threshold
        return Decisions(taxonomy, self._fixed_rule, threshold, paths=self.paths, stop_inside=stop_inside)

    @property
    def _fixed_rule(self) -> Rule:
        if self.rule == "auto":
            return "best-path" if self.one_path else "closure"
        return self.rule  # type: ignore[return-value]  # checked to be one

    def find(self, classifier: HierarchicalClassifier, folder: DataFolder, without: Decisions, seed: int) -> Decisions:
        """Return the decisions that are best for Macro-F1 on the documents held out, or those without calibration."""
        found = calibrate(
            read_outputs(classifier, folder, "dev"),
            without,
            rule="auto" if self.rule == "auto" and not self.one_path else self._fixed_rule,
            scope="auto" if self.threshold is None else "none",
            metric="macro",
            paths=self.paths,
            seed=seed,
        )
        return found.decisions.changed(threshold=self.threshold)
