"""Draw the scores of several reports with their confidence intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hgclr.plot_style import COLOURS, legend_above
from hgclr.reporting.comparing import Comparison
from hgclr.reporting.plots import Plot, draw

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw_comparison"]

NAMES = {"micro_f1": "Micro-F1", "macro_f1": "Macro-F1", "hierarchical_f1": "Hierarchical F1"}


def draw_comparison(comparison: Comparison) -> Plot:
    """Draw a dot for every score, and a line as long as its 95% interval.

    Raises:
        MissingExtraError: if matplotlib is not installed.
    """
    rows = len(NAMES) * len(comparison.names)
    return draw("comparison", lambda figure: _dots(figure, comparison), (9.3, 1.3 + 0.25 * rows))


def _dots(figure: Figure, comparison: Comparison) -> str:
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
