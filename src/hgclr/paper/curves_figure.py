"""Draw learning curves: Macro-F1 against training documents, a panel for each group of labels."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from hgclr.paper.curve_points import Curves
from hgclr.presentation import COLOURS, INK, MUTED, PLOT_STYLE, render

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["LOOKS", "draw_curves"]

ACROSS = 3
"""Panels side by side."""
WIDTH, HEIGHT, LINE = 3.4, 2.7, 0.24
"""Inches: a panel, and a line of the legend."""
IN_LEGEND = 3
"""Systems on a line of the legend."""
MARKERS = "os^DvPX*"
LOOKS: dict[str, tuple[str, str]] = {
    "tfidf": (MUTED, "s"),
    "hiclass": (MUTED, "v"),
    "names": (COLOURS[4], "v"),
    "head": (COLOURS[4], "^"),
    "flat-cls": (COLOURS[5], "o"),
    "flat-cls-long": (COLOURS[5], "D"),
    "flat-random-head": (COLOURS[3], "o"),
    "flat-random-head-long": (COLOURS[3], "D"),
    "flat": (COLOURS[0], "o"),
    "flat-long": (COLOURS[0], "D"),
    "default": (INK, "o"),
    "hgclr": (COLOURS[1], "o"),
    "hgclr-paper": (COLOURS[2], "o"),
    "hgclr-published": (COLOURS[2], "D"),
}
"""Colour and marker of each system, the same in every plot; relatives share a colour."""


def draw_curves(curves: Curves, kind: Literal["png", "svg"]) -> bytes:
    """Return the plot as a file's content: decisions tuned on dev in solid lines, at one half in dashed ones."""
    import matplotlib as mpl

    with mpl.rc_context(PLOT_STYLE):
        return render(_plot_figure(curves), kind)


def _plot_figure(curves: Curves) -> Figure:
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    keys = [key for key, points in curves.points.items() if points]
    across = min(ACROSS, len(curves.panels))
    down = math.ceil(len(curves.panels) / across)
    per_line = IN_LEGEND if across == ACROSS else 1
    legend_lines = math.ceil((len(keys) + 2) / per_line)
    top, bottom = 0.45 + LINE * legend_lines + 0.35, 0.5
    height = top + bottom + HEIGHT * down
    figure = Figure(figsize=(max(WIDTH * across, 2 * WIDTH), height))
    axes = figure.subplots(down, across, squeeze=False, sharex=True)
    for place, (panel, title) in enumerate(curves.panels.items()):
        _panel(axes[place // across][place % across], curves, keys, panel, title, first=place % across == 0)
    for place in range(len(curves.panels), down * across):
        axes[place // across][place % across].set_visible(False)
        axes[place // across - 1][place % across].tick_params(labelbottom=True)
    handles = [Line2D([], [], color=colour, marker=marker, markersize=4) for colour, marker in map(_look, keys)]
    handles += [Line2D([], [], color=MUTED, linestyle=style) for style in ("-", "--")]
    names = [curves.rows[key] for key in keys] + ["solid: decisions tuned on dev", "dashed: at one half"]
    figure.suptitle(f"Test Macro-F1: {curves.title}", x=0.01, y=1 - 0.1 / height, ha="left", va="top", weight="bold")
    figure.legend(
        handles, names, loc="upper left", bbox_to_anchor=(0.0, 1 - 0.38 / height), ncols=per_line, fontsize=8.5
    )
    figure.supxlabel("training documents", x=0.5, y=0.08 / height, fontsize=9, color=MUTED)
    figure.subplots_adjust(
        left=0.5 / figure.get_figwidth(),
        right=1 - 0.15 / figure.get_figwidth(),
        top=1 - top / height,
        bottom=bottom / height,
        wspace=0.16,
        hspace=0.32,
    )
    return figure


def _panel(axes: Axes, curves: Curves, keys: list[str], panel: str, title: str, *, first: bool) -> None:
    """Draw one group of labels; a size at which a system has no figure leaves a gap in its line."""
    from matplotlib.ticker import NullFormatter, NullLocator

    documents = sorted({point.documents for key in keys for point in curves.points[key]})
    for key in keys:
        colour, marker = _look(key)
        for decisions, style, width in (("half", (0, (3, 2)), 1.0), ("tuned", "-", 1.7)):
            spreads = [
                (point.documents, spread)
                for point in curves.points[key]
                if (spread := point.scores[decisions].get(panel)) is not None
            ]
            if not spreads:
                continue
            axes.errorbar(
                [place for place, _ in spreads],
                [spread.mean for _, spread in spreads],
                yerr=[spread.sd or 0.0 for _, spread in spreads] if decisions == "tuned" else None,
                color=colour,
                linestyle=style,
                linewidth=width,
                elinewidth=0.8,
                marker=marker,
                markersize=3.5 if decisions == "tuned" else 2.5,
                markerfacecolor=colour if decisions == "tuned" else "white",
                alpha=1.0 if decisions == "tuned" else 0.65,
                zorder=3 if key == "default" else 2,
            )
    axes.set_title(title)
    axes.set_xscale("log")
    axes.set_xticks(documents, [_short(number) for number in documents])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlim(documents[0] / 1.25, documents[-1] * 1.25)
    axes.set_ylim(bottom=max(0.0, axes.get_ylim()[0]))
    axes.grid(visible=True)
    if first:
        axes.set_ylabel("Macro-F1, %")


def _look(key: str) -> tuple[str, str]:
    """Return colour and marker of a system; extra ones that have none of their own are told apart by the marker."""
    return LOOKS.get(key, (COLOURS[2], MARKERS[sum(map(ord, key)) % len(MARKERS)]))


def _short(number: int) -> str:
    """Return a number of documents as an axis shows it: 300, 4k, 30.2k."""
    return str(number) if number < 1000 else f"{number / 1000:.3g}k"
