"""Draw what a data folder holds: its tree, how often labels occur, how long texts are, how many labels they have."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hgclr.data.statistics import USUAL_LENGTH, Statistics
from hgclr.errors import require_extra
from hgclr.presentation import COLOURS, MUTED, PALE, legend_above, render
from hgclr.presentation import PLOT_STYLE as STYLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["DataPlot", "draw_plots", "require_plots"]

SIZE = (8.8, 3.8)
"""Inches; at 200 dots, and shown at 100, as wide as the report."""
BARS = 12
"""Levels up to which bars carry their numbers."""
FEW = (5, 10)
"""Documents below which a label can hardly be learned."""
SMALL: Any = {"textcoords": "offset points", "ha": "right", "fontsize": 7, "color": MUTED}
BINS = 50
"""Bars of a histogram of lengths, at most."""
LISTED = 15
"""Numbers of labels that have a bar of their own; documents with more share one."""


class DataPlot(NamedTuple):
    """One picture: the name of its file, the content of the file, and what it shows, in words."""

    name: str
    png: bytes
    alt: str


def require_plots() -> None:
    """Raise an error that says how to install what plots need, if it is missing.

    Raises:
        MissingExtraError: if matplotlib is not installed.
    """
    require_extra("matplotlib", extra="data", capability="Drawing plots of a data folder")


def draw_plots(statistics: Statistics) -> list[DataPlot]:
    """Draw every plot as a PNG on white; the same statistics give the same bytes.

    Raises:
        MissingExtraError: if matplotlib is not installed.
    """
    require_plots()
    import matplotlib as mpl
    from matplotlib.figure import Figure

    plots = []
    with mpl.rc_context(STYLE):
        for name, draw in (
            ("labels-per-level", _levels),
            ("label-frequency", _frequency),
            ("text-length", _lengths),
            ("labels-per-document", _labels_per_document),
        ):
            figure = Figure(figsize=SIZE, layout="constrained")
            axes = figure.subplots()
            alt = draw(axes, statistics)
            plots.append(DataPlot(f"{name}.png", render(figure, "png"), alt))
    return plots


def _levels(axes: Axes, statistics: Statistics) -> str:
    """Draw how many labels each level has, and how many of them a document has."""
    from matplotlib.ticker import MaxNLocator

    levels = statistics.levels()
    places = np.arange(1, len(levels) + 1)
    labels = [level.labels for level in levels]
    used = [level.used for level in levels]
    axes.bar(places, labels, width=0.7, color=PALE, label="in the tree")
    axes.bar(places, used, width=0.7, color=COLOURS[0], label="with a document")
    if len(levels) <= BARS:
        for place, level in zip(places, levels, strict=True):
            text = f"{level.labels:,}" if level.used == level.labels else f"{level.used:,} of {level.labels:,}"
            axes.annotate(text, (place, level.labels), (0, 3), textcoords="offset points", ha="center")
        axes.set_xticks(places)
    axes.set(title="Labels per level", xlabel="level, 1 at the top", ylabel="labels")
    axes.set_xlim(0.3, len(levels) + 0.7)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.margins(y=0.12)
    axes.grid(axis="y")
    legend_above(axes, 2)
    numbers = "; ".join(f"level {one.level}: {one.used:,} of {one.labels:,}" for one in levels[:BARS])
    return f"Bars of the labels with a document among those of the tree. {numbers}"


def _frequency(axes: Axes, statistics: Statistics) -> str:
    """Draw the documents of each label by its rank in its level."""
    import matplotlib as mpl
    from matplotlib.ticker import FuncFormatter

    levels, counts = statistics.taxonomy.levels, statistics.training_counts
    colours = COLOURS
    if len(levels) > len(COLOURS):
        colours = tuple(mpl.colormaps["viridis"](np.linspace(0, 0.9, len(levels))).tolist())
    for number, (level, colour) in enumerate(zip(levels, colours, strict=False), 1):
        ranked = np.sort(counts[level])[::-1]
        ranked = ranked[ranked > 0]
        name = f"level {number}" if len(levels) <= BARS or number in (1, len(levels)) else None
        axes.plot(
            np.arange(1, len(ranked) + 1), ranked, color=colour, marker="o", markersize=3, linewidth=1.2, label=name
        )
    unused = int(np.count_nonzero(counts == 0))
    axes.set(xscale="log", yscale="log")
    for limit in FEW:
        _dashed(axes.axhline, limit)
        axes.annotate(f"{limit}", (1, limit), (-3, 2), xycoords=("axes fraction", "data"), **SMALL)
    axes.axhline(1, alpha=0)  # the scale starts at one document
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    without = f"; {unused:,} without a document not shown" if unused else ""
    axes.set(
        title="Label frequency",
        xlabel=f"rank of the label in its level{without}",
        ylabel=f"documents in {statistics.reference}",
    )
    axes.grid()
    if any(counts):
        axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0, fontsize=8)
    frequency = statistics.frequency()
    return (
        f"Lines of documents by rank of the label, one for each level, on logarithmic scales, from"
        f" {frequency.largest:,} documents down to {frequency.smallest:,}; dashed at 5 and 10 documents"
    )


def _lengths(axes: Axes, statistics: Statistics) -> str:
    """Draw how long the texts of each split are."""
    from matplotlib.ticker import MaxNLocator

    together = statistics.together("words")
    limit = max(10, int(np.ceil(together.quantile(0.995))))
    width = -(-limit // BINS)
    edges = np.arange(0, limit + width, width) + 0.5  # a bin holds whole numbers; no text is of length 0
    for (name, split), colour in zip(statistics.splits.items(), COLOURS, strict=False):
        counts = split.words.counts
        shares, _ = np.histogram(list(counts), edges, weights=100 * np.array(list(counts.values())))
        label = f"{name}: median {split.words.quantile(0.5):,.0f}"
        axes.stairs(shares / max(1, split.documents), edges, color=colour, linewidth=1.5, label=label)
    if edges[-1] > USUAL_LENGTH:
        _dashed(axes.axvline, USUAL_LENGTH)
    beyond = together.above(int(edges[-1]))
    longest = f"; {beyond:,} longer, up to {together.maximum:,}, not shown" if beyond else ""
    per = "word" if width == 1 else f"{width} words"
    axes.set(title="Text length", xlabel=f"words{longest}", ylabel=f"documents in % per {per}")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlim(0, edges[-1])
    axes.set_ylim(bottom=0)
    axes.grid()
    legend_above(axes, 3)
    return (
        f"Histograms of the words of texts by split: half of all texts have {together.quantile(0.5):,.0f} words or"
        f" fewer, 95 % up to {together.quantile(0.95):,.0f}"
    )


def _labels_per_document(axes: Axes, statistics: Statistics) -> str:
    """Draw how many labels the documents of each split have."""
    together = statistics.together("labels")
    numbers = np.arange(1, 1 + min(max(together.maximum, 4), LISTED))
    splits = {name: split for name, split in statistics.splits.items() if split.documents}
    width = 0.8 / max(1, len(splits))
    for place, ((name, split), colour) in enumerate(zip(splits.items(), COLOURS, strict=False)):
        counts = [split.labels.counts[int(number)] for number in numbers]
        counts[-1] += split.labels.above(int(numbers[-1]))
        shares = 100 * np.array(counts) / split.documents
        offset = (place - (len(splits) - 1) / 2) * width
        axes.bar(numbers + offset, shares, width=width, color=colour, label=f"{name}: mean {split.labels.mean:.2f}")
    names = [str(number) for number in numbers.tolist()]
    if together.maximum > numbers[-1]:
        names[-1] += " or more"
    axes.set_xticks(numbers, names)
    axes.set(title="Labels per document", xlabel="labels of a document, ancestors counted", ylabel="documents in %")
    axes.set_xlim(numbers[0] - 0.6, numbers[-1] + 0.6)
    axes.grid(axis="y")
    legend_above(axes, 3)
    return f"Bars of the share of documents by number of labels, by split; the mean is {together.mean:.2f}"


def _dashed(draw: Callable[..., object], place: float) -> None:
    """Draw a quiet line across the axes, above the grid and below the data."""
    draw(place, color="#999999", linewidth=0.8, linestyle=(0, (4, 4)), zorder=1.5)
