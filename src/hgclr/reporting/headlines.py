"""The scores that a report begins with: what they are called, what they mean, where they are in report.json."""

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
        meaning: what it says, in one sentence.
        place: the keys that lead to it in report.json.
        better: whether larger or smaller values are better.
        unit: whether it is shown in per cent or as a plain number.
    """

    key: str
    name: str
    meaning: str
    place: tuple[str, ...]
    better: Literal["larger", "smaller"] = "larger"
    unit: Literal["percent", "number"] = "percent"

    def value(self, content: Mapping[str, Any]) -> float:
        """Return the score from the content of a report."""
        found: Any = content
        for key in self.place:
            found = found[key]
        return float(found)

    def shown(self, value: float) -> str:
        """Return a value for people."""
        return shown_score(value) if self.unit == "percent" else f"{value:.4f}"

    def shown_difference(self, difference: float) -> str:
        """Return a difference of two values for people, with its sign."""
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
        "All decisions in one pool, where frequent labels weigh most: a mean of precision and recall that is high only"
        " where both are.",
        ("scores", "micro", "f1"),
    ),
    Headline(
        "macro_f1",
        "Macro-F1",
        "The mean of the F1 of every label: a label with three documents weighs as much as one with three thousand.",
        ("scores", "macro", "f1"),
    ),
    Headline(
        "hierarchical_f1",
        "Hierarchical F1",
        "As Micro-F1, after adding the ancestors of every label: being wrong near the right place costs less.",
        ("scores", "hierarchical", "f1"),
    ),
    Headline(
        "precision", "Precision", "How many of the labels that are given are right.", ("scores", "micro", "precision")
    ),
    Headline("recall", "Recall", "How many of the labels that should be given are.", ("scores", "micro", "recall")),
    Headline(
        "subset_accuracy",
        "Exact documents",
        "Documents that get all of their labels and no other (subset accuracy).",
        ("scores", "subset_accuracy"),
    ),
    Headline(
        "macro_present_f1",
        "Macro-F1, present labels",
        "Macro-F1 over the labels that occur here at all; some papers report this one.",
        ("scores", "macro_present", "f1"),
    ),
    Headline(
        "c_micro_f1",
        "C-Micro-F1",
        "Micro-F1 where a label is right only if all labels above it are, too.",
        ("scores", "path_constrained", "micro", "f1"),
    ),
    Headline(
        "c_macro_f1",
        "C-Macro-F1",
        "Macro-F1 where a label is right only if all labels above it are, too.",
        ("scores", "path_constrained", "macro", "f1"),
    ),
    Headline(
        "p_micro_f1",
        "P-Micro-F1",
        "Micro-F1 of whole paths from the top to a leaf in place of labels.",
        ("scores", "paths", "micro", "f1"),
    ),
    Headline(
        "p_macro_f1",
        "P-Macro-F1",
        "Macro-F1 of whole paths from the top to a leaf in place of labels.",
        ("scores", "paths", "macro", "f1"),
    ),
    Headline(
        "inconsistency_rate",
        "Orphans",
        "Labels given without the label above them (inconsistency rate).",
        ("scores", "inconsistency_rate"),
        "smaller",
    ),
    Headline(
        "hamming_loss",
        "Hamming loss",
        "Wrong decisions among all, one for each document and label; small wherever there are many labels.",
        ("scores", "hamming_loss"),
        "smaller",
    ),
    Headline(
        "r_precision",
        "R-precision",
        "With as many of the most probable labels as a document should have: how many of them are right.",
        ("ranking", "r_precision"),
    ),
    *(
        Headline(
            f"precision_at_{k}",
            f"Precision@{k}",
            "How often the most probable label is right."
            if k == 1
            else f"How many of the {k} most probable are right.",
            ("ranking", "precision_at", str(k)),
        )
        for k in (1, 3, 5)
    ),
    *(
        Headline(
            f"ndcg_at_{k}",
            f"nDCG@{k}",
            f"As Precision@{k}, where first places count more and a document with fewer labels can still reach 100.",
            ("ranking", "ndcg_at", str(k)),
        )
        for k in (3, 5)
    ),
    Headline(
        "hierarchical_auc",
        "hF1-AUC",
        "How well precision holds up as the threshold falls, averaged over all thresholds: needs no threshold at all.",
        ("ranking", "hierarchical_auc"),
    ),
    Headline(
        "ece",
        "Calibration error",
        "How far probabilities are from the share that comes true (ECE); small wherever there are many labels.",
        ("calibration", "ece"),
        "smaller",
    ),
    Headline(
        "brier",
        "Brier score",
        "The mean squared distance between probability and truth: 0 is perfect.",
        ("calibration", "brier"),
        "smaller",
        "number",
    ),
)
