"""A comparison as one HTML page with a plot, and as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hgclr.evaluation.comparison import PLAUSIBLE, Comparison, level_lines, score_lines
from hgclr.evaluation.headlines import HEADLINES, shown_difference, shown_score
from hgclr.evaluation.report_page import LabelNames, decision_facts
from hgclr.evaluation.report_plots import Plot, check_report, draw, json_file
from hgclr.files import write_files
from hgclr.presentation import COLOURS, legend_above, render_page

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["write_comparison"]

PAGE, FILE = "comparison.html", "comparison.json"
NAMES = {"micro_f1": "Micro-F1", "macro_f1": "Macro-F1", "hierarchical_f1": "Hierarchical F1"}


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
    rows = len(NAMES) * len(comparison.names)
    plot = draw("comparison", lambda figure: _dots(figure, comparison), (9.3, 1.3 + 0.25 * rows))
    text = _page(comparison, plot, command)
    write_files(folder, {PAGE: text.encode(), FILE: json_file(comparison.to_json()), **plot.files()})
    return folder / PAGE


def _page(comparison: Comparison, plot: Plot, command: str) -> str:
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
        intervals = [content["intervals"][key] for key in NAMES]
        places = [row + (number - (len(comparison.names) - 1) / 2) * step for row in range(len(NAMES))]
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
        words += [f"{name}: {NAMES[key]} {score:.1f}" for key, score in zip(NAMES, scores, strict=True)]
    axes.set_yticks(range(len(NAMES)), list(NAMES.values()))
    axes.set_ylim(len(NAMES) - 0.45, -0.55)
    axes.set(title="Scores with 95% intervals")
    axes.grid(axis="x")
    legend_above(axes, 4)
    return f"Dots with lines for the 95% intervals. {'; '.join(words)}"
