"""The page of a report: scores in plain words and in numbers, the label tree, errors to look at, plots."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hgclr.evaluation.headlines import HEADLINES, shown_score
from hgclr.evaluation.report_content import ENOUGH
from hgclr.evaluation.report_plots import Plot
from hgclr.presentation import render_page

__all__ = ["LabelNames", "decision_facts", "report_page"]

TILES = ("micro_f1", "macro_f1", "hierarchical_f1", "precision", "recall", "subset_accuracy")
"""The scores that stand first, in large type."""
RULES = {
    "threshold": "every label by itself; children may lack their parents",
    "closure": "every label by itself, and all labels above it",
    "drop-orphans": "only labels whose ancestors are all given",
    "min-parent": "the same, with no label more probable than its parent",
    "top-down": "the same as drop-orphans, by its name in the literature",
    "best-path": "one path from the top",
    "top-k-paths": "the k best paths, none the beginning of another",
}


class LabelNames:
    """The labels of a report, found by id, with their names.

    Args:
        labels: as in report.json.
    """

    def __init__(self, labels: Sequence[Mapping[str, Any]]) -> None:
        self._labels = {label["id"]: label for label in labels}

    def label(self, identifier: str) -> Mapping[str, Any]:
        """Return what the report says of a label."""
        return self._labels[identifier]

    def path(self, identifier: str) -> list[str]:
        """Return the names from the top to a label."""
        names: list[str] = []
        step: str | None = identifier
        while step is not None:
            names.insert(0, self._labels[step]["name"])
            step = self._labels[step]["parent"]
        return names


def report_page(content: Mapping[str, Any], plots: Sequence[Plot]) -> str:
    """Return the page.

    Args:
        content: as in report.json.
        plots: from :func:`~hgclr.evaluation.report_plots.draw_plots`.
    """
    names = LabelNames(content["labels"])
    return render_page(
        "evaluation/templates/report.html",
        content=content,
        plots={plot.name: plot for plot in plots},
        headlines=HEADLINES,
        tiles=TILES,
        enough=ENOUGH,
        rules=RULES,
        decision_facts=decision_facts(content),
        tree_data=_tree_data(content["labels"]),
        path=names.path,
        label=names.label,
        score=shown_score,
    )


def decision_facts(content: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return how the model decided, as names and what is to be said: rule, thresholds, abstention, calibration."""
    decisions = content["decisions"]
    rule = decisions["rule"]
    text = f"{rule}: {RULES[rule]}"
    if rule == "top-k-paths":
        text += f", k = {decisions['paths']:,}"
    if rule in ("best-path", "top-k-paths"):
        text += ", down to a leaf or not" if decisions["allow_inner_nodes"] else ", down to a leaf"
    facts = [("Decoding rule", text), ("Thresholds", _thresholds(decisions["thresholds"]))]
    if (limit := decisions["abstain_below"]) is not None:
        facts.append(("Left out", f"labels that are less than {limit:.1%} sure, and all below them"))
    calibration = decisions["calibration"]
    facts.append(("Calibration", f"{calibration['method']}, one for each level" if calibration else "none"))
    return facts


def _thresholds(thresholds: float | Mapping[str, float]) -> str:
    if not isinstance(thresholds, Mapping):
        return f"{thresholds:g} for all labels"
    low, middle, high = np.quantile(list(thresholds.values()), [0, 0.5, 1]).tolist()
    return f"one for each label, from {low:.3f} to {high:.3f}, median {middle:.3f}"


def _tree_data(labels: Sequence[Mapping[str, Any]]) -> str:
    """Return the numbers that label_tree.js makes the rows of the tree from."""
    place = {label["id"]: index for index, label in enumerate(labels)}
    columns = {"names": "name", "gold": "gold", "predicted": "predicted", "right": "true_positives"}
    data = {
        **{name: [label[key] for label in labels] for name, key in columns.items()},
        "parents": [-1 if label["parent"] is None else place[label["parent"]] for label in labels],
    }
    # No name may end the script element: JSON can spell its angle bracket otherwise.
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
