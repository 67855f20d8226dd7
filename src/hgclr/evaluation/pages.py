"""The pages: of a report, with scores in words and numbers, the label tree, errors and plots; and of a comparison."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hgclr.evaluation.comparison import PLAUSIBLE, Comparison, level_lines, score_lines
from hgclr.evaluation.headlines import HEADLINES, shown_difference, shown_score
from hgclr.evaluation.report_content import ENOUGH
from hgclr.evaluation.report_plots import Plot, check_report, draw, json_file
from hgclr.files import write_files
from hgclr.presentation import COLOURS, legend_above, render_page

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["decision_facts", "report_page", "write_comparison"]

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
COMPARISON_PAGE, COMPARISON_FILE = "comparison.html", "comparison.json"
COMPARED = {"micro_f1": "Micro-F1", "macro_f1": "Macro-F1", "hierarchical_f1": "Hierarchical F1"}


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
    """Return how the model decided, as pairs of name and text: rule, thresholds, abstention, calibration."""
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


def write_comparison(output: str | Path, comparison: Comparison, *, command: str = "") -> Path:
    """Write ``comparison.html``, ``comparison.json`` and the plot; return the path of the page.

    Args:
        output: the folder, made if it is not there; other files in it stay.
        comparison: what to write.
        command: the command that does this, for the record.

    Raises:
        InputError: if a file cannot be written.
        MissingExtraError: if matplotlib is not installed.
    """
    folder = Path(output)
    check_report(folder)
    rows = len(COMPARED) * len(comparison.names)
    plot = draw("comparison", lambda figure: _dots(figure, comparison), (9.3, 1.3 + 0.25 * rows))
    text = _comparison_page(comparison, plot, command)
    write_files(
        folder, {COMPARISON_PAGE: text.encode(), COMPARISON_FILE: json_file(comparison.to_json()), **plot.files()}
    )
    return folder / COMPARISON_PAGE


def _comparison_page(comparison: Comparison, plot: Plot, command: str) -> str:
    return render_page(
        "evaluation/templates/comparison.html",
        comparison=comparison,
        plot=plot,
        command=command,
        headlines=HEADLINES,
        score_lines=score_lines(comparison),
        level_lines=level_lines(comparison),
        plausible=PLAUSIBLE,
        decision_facts=decision_facts,
        path=LabelNames(comparison.contents[0]["labels"]).path,
        score=shown_score,
        difference=shown_difference,
    )


def _dots(figure: Figure, comparison: Comparison) -> str:
    """Draw a dot for every score, and a line as long as its 95% interval."""
    axes = figure.subplots()
    step = 0.7 / len(comparison.names)
    words = []
    for number, (name, content) in enumerate(zip(comparison.names, comparison.contents, strict=True)):
        intervals = [content["intervals"][key] for key in COMPARED]
        places = [row + (number - (len(comparison.names) - 1) / 2) * step for row in range(len(COMPARED))]
        scores = [100 * interval["score"] for interval in intervals]
        reach = [
            [score - 100 * interval["low"] for score, interval in zip(scores, intervals, strict=True)],
            [100 * interval["high"] - score for score, interval in zip(scores, intervals, strict=True)],
        ]
        # An interval need not hold its score: where it ends at 0 or 100, rounding may put it outside.
        reach = [[max(0.0, length) for length in side] for side in reach]
        axes.errorbar(
            scores,
            places,
            xerr=reach,
            fmt="o",
            color=COLOURS[number % len(COLOURS)],
            markersize=6,
            linewidth=2,
            capsize=3,
            label=name,
        )
        words += [f"{name}: {COMPARED[key]} {score:.1f}" for key, score in zip(COMPARED, scores, strict=True)]
    axes.set_yticks(range(len(COMPARED)), list(COMPARED.values()))
    axes.set_ylim(len(COMPARED) - 0.45, -0.55)
    axes.set(title="Scores with 95% intervals")
    axes.grid(axis="x")
    legend_above(axes, 4)
    return f"Dots with lines for the 95% intervals. {'; '.join(words)}"
