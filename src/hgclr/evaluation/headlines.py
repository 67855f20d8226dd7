"""The scores that a report begins with: where they are in it, how they are shown, and what they say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["HEADLINES", "Headline", "shown_difference", "shown_score"]


@dataclass(frozen=True, slots=True)
class Headline:
    """A score.

    Args:
        key: its name for programs; scores with intervals have the name that the bootstrap gives them.
        name: its name for people.
        place: the keys that lead to it in report.json, with dots between them.
        meaning: what it says, in one sentence.
        better: whether larger or smaller values are better.
        unit: whether it is shown in per cent or as a plain number.
    """

    key: str
    name: str
    place: str
    meaning: str = ""
    better: Literal["larger", "smaller"] = "larger"
    unit: Literal["percent", "number"] = "percent"

    def value(self, content: Mapping[str, Any]) -> float:
        """Return the score from the content of a report."""
        found: Any = content
        for key in self.place.split("."):
            found = found[int(key) if isinstance(found, list) else key]
        return float(found)

    def shown(self, value: float) -> str:
        """Format a value for display."""
        return shown_score(value) if self.unit == "percent" else f"{value:.4f}"

    def shown_difference(self, difference: float) -> str:
        """Format a difference of two values for display, with its sign."""
        return shown_difference(difference) if self.unit == "percent" else _signed(f"{difference:+.4f}")


def shown_score(value: float) -> str:
    """Return a score in per cent with two decimals, without the sign."""
    return f"{100 * value:.2f}"


def shown_difference(difference: float) -> str:
    """Return a difference of scores in points, with its sign."""
    return _signed(f"{100 * difference:+.2f}")


def _signed(number: str) -> str:
    """Return a number with a sign that is as wide as a digit, and none if it is 0."""
    return number.replace("-", "−") if number.strip("+-0.") else number.lstrip("+-")


HEADLINES = (
    Headline(
        "micro_f1",
        "Micro-F1",
        "scores.micro.f1",
        "All decisions in one pool, where frequent labels weigh most: a mean of precision and recall that is high only"
        " where both are.",
    ),
    Headline(
        "macro_f1",
        "Macro-F1",
        "scores.macro.f1",
        "The mean of the F1 of every label: a label with three documents weighs as much as one with three thousand.",
    ),
    Headline(
        "hierarchical_f1",
        "Hierarchical F1",
        "scores.hierarchical.f1",
        "As Micro-F1, after adding the ancestors of every label: being wrong near the right place costs less.",
    ),
    Headline("precision", "Precision", "scores.micro.precision", "How many of the labels that are given are right."),
    Headline("recall", "Recall", "scores.micro.recall", "How many of the labels that should be given are."),
    Headline(
        "subset_accuracy",
        "Exact documents",
        "scores.subset_accuracy",
        "Documents that get all of their labels and no other (subset accuracy).",
    ),
    Headline(
        "macro_present_f1",
        "Macro-F1, present labels",
        "scores.macro_present.f1",
        "Macro-F1 over the labels that occur here at all; some papers report this one.",
    ),
    *(
        Headline(f"{short}_{kind}_f1", f"{short.upper()}-{name}", f"scores.{place}.{kind}.f1", f"{name} {meaning}")
        for short, place, meaning in (
            ("c", "path_constrained", "where a label is right only if all labels above it are, too."),
            ("p", "paths", "of whole paths from the top to a leaf in place of labels."),
        )
        for kind, name in (("micro", "Micro-F1"), ("macro", "Macro-F1"))
    ),
    Headline(
        "inconsistency_rate",
        "Orphans",
        "scores.inconsistency_rate",
        "Labels given without the label above them (inconsistency rate).",
        better="smaller",
    ),
    Headline(
        "hamming_loss",
        "Hamming loss",
        "scores.hamming_loss",
        "Wrong decisions among all, one for each document and label; small wherever there are many labels.",
        better="smaller",
    ),
    Headline(
        "r_precision",
        "R-precision",
        "ranking.r_precision",
        "With as many of the most probable labels as a document should have: how many of them are right.",
    ),
    Headline("precision_at_1", "Precision@1", "ranking.precision_at.1", "How often the most probable label is right."),
    *(
        Headline(
            f"precision_at_{k}",
            f"Precision@{k}",
            f"ranking.precision_at.{k}",
            f"How many of the {k} most probable are right.",
        )
        for k in (3, 5)
    ),
    *(
        Headline(
            f"ndcg_at_{k}",
            f"nDCG@{k}",
            f"ranking.ndcg_at.{k}",
            f"As Precision@{k}, where first places count more and a document with fewer labels can still reach 100.",
        )
        for k in (3, 5)
    ),
    Headline(
        "hierarchical_auc",
        "hF1-AUC",
        "ranking.hierarchical_auc",
        "How well precision holds up as the threshold falls, averaged over all thresholds: needs no threshold at all.",
    ),
    Headline(
        "ece",
        "Calibration error",
        "calibration.ece",
        "How far probabilities are from the share that comes true (ECE); small wherever there are many labels.",
        better="smaller",
    ),
    Headline(
        "brier",
        "Brier score",
        "calibration.brier",
        "The mean squared distance between probability and truth: 0 is perfect.",
        better="smaller",
        unit="number",
    ),
)
