"""The statistics of a data folder as tables, plots, an HTML page and JSON."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hgclr.data.check import EXCERPT, LONG, LevelStatistics, Statistics, findings, percent
from hgclr.data.folder import SPLITS
from hgclr.files import json_bytes, write_files
from hgclr.presentation import COLOURS, Plot, dashed, draw, excerpt, legend_above, picture, render_page

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Rows = list[tuple[str, ...]]
"""Rows of cells, the header first."""
BRANCHES = 100
"""Maximum number of branches without a document on the page."""
FEW = (5, 10)
"""Documents below which a label can hardly be learned."""
NAMED = 12
"""Maximum number of levels in the legend of a plot; above it, only the first and the last are named."""
BINS = 50
"""Maximum number of bars in the histogram of lengths."""
LISTED = 15
"""Maximum number of bars of labels per document; documents with more labels share the last."""


def table1(statistics: Statistics) -> list[tuple[str, str]]:
    """Return the columns of the paper's Table 1, each as value and name."""
    documents = {name: f"{split.documents:,}" for name, split in statistics.splits.items()}
    return [
        (f"{len(statistics.taxonomy):,}", "|Y|"),
        (f"{statistics.taxonomy.depth:,}", "Depth"),
        (f"{statistics.labels_per_document:.2f}", "Avg(|y|)"),
        *((documents.get(name, "—"), name.capitalize()) for name in SPLITS),
    ]


def split_rows(statistics: Statistics) -> Rows:
    """Return a row for each split: labels, paths and words."""
    rows: Rows = [("split", "labels/doc", "paths/doc", "labels", "words", "median", "95 %", "max")]
    for name, split in statistics.splits.items():
        means = f"{split.labels.mean:.2f}", f"{split.paths.mean:.2f}"
        median, most = _median(split.words.quantile(0.5)), f"{split.words.quantile(0.95):,.0f}"
        lengths = f"{split.words.mean:,.1f}", median, most, f"{split.words.maximum:,}"
        rows.append((name, *means, f"{split.labels_used:,}", *lengths))
    return rows


def level_rows(statistics: Statistics) -> Rows:
    """Return the statistics of each level of the tree."""
    return [LevelStatistics._fields, *(tuple(map(_median, level)) for level in statistics.levels())]


def fact_rows(statistics: Statistics) -> list[tuple[str, str]]:
    """Return facts about the tree, the labels and the documents, each as name and text."""
    taxonomy, where, documents = statistics.taxonomy, statistics.reference, statistics.documents
    frequency, paths, children = statistics.frequency(), statistics.together("paths"), statistics.children
    tree = f"{len(taxonomy.levels[0]):,} top labels, {len(taxonomy.leaves):,} leaves"
    if children:
        tree += f"; inner labels have {children.mean:.1f} children on average, {children.maximum:,} at most"
    several = f", {percent(paths.above(1), documents)} several (up to {paths.maximum:,})" if paths.above(1) else ""
    typical = f"{_median(frequency.median)} at the median, {frequency.smallest:,} for the rarest label in use"
    return [
        ("tree", tree),
        ("frequency", f"{frequency.largest:,} documents in {where} for the most frequent label, {typical}"),
        (
            "rare labels",
            f"{frequency.below_5:,} with fewer than 5 documents, {frequency.below_10:,} with fewer than 10",
        ),
        ("paths", f"{percent(paths[1], documents)} of documents have one{several}"),
        ("inner ends", f"{percent(statistics.above_leaf, documents)} of documents have a path that ends above a leaf"),
    ]


def _median(median: float) -> str:
    """Return a median, which is an integer or ends in .5."""
    return f"{median:,.1f}".removesuffix(".0")


def write_report(folder: Path, name: str, statistics: Statistics, *, checked: bool) -> list[Path]:
    """Write ``report.html``, the plots and ``stats.json``; return their paths.

    ``name`` is the data's name on the page; with ``checked``, the page has findings. Other files in the folder stay.
    """
    plots = draw_plots(statistics)
    files = {"report.html": report_page(name, statistics, plots, checked=checked).encode()}
    for plot in plots:
        files |= plot.files()
    files["stats.json"] = json_bytes(statistics.to_json())
    return write_files(folder, files)


def report_page(name: str, statistics: Statistics, plots: list[Plot], *, checked: bool) -> str:
    """Return the page; the arguments are those of `write_report`."""
    bad = [row for split in statistics.splits.values() for row in split.first_bad_rows]
    branches = statistics.unused_branches()
    return render_page(
        "data/templates/report.html",
        name=name,
        statistics=statistics,
        checked=checked,
        findings=findings(statistics) if checked else [],
        bad_rows=[(f"{row.path.name}:{row.number}", "; ".join(filter(None, (row.reason, row.remedy)))) for row in bad],
        branches=[(branch.top, branch.path, f"{branch.labels:,}") for branch in branches[:BRANCHES]],
        branch_count=len(branches),
        excerpt=lambda text: excerpt(text, EXCERPT),
        table1=table1(statistics),
        splits=split_rows(statistics),
        levels=level_rows(statistics),
        facts=fact_rows(statistics),
        plots={plot.name: picture(plot, kind="png") for plot in plots},
    )


def draw_plots(statistics: Statistics) -> list[Plot]:
    """Draw every plot; the same statistics give the same bytes."""
    return [
        draw("label-frequency", lambda figure: _frequency(figure.subplots(), statistics)),
        draw("text-length", lambda figure: _text_lengths(figure.subplots(), statistics)),
        draw("labels-per-document", lambda figure: _labels_per_document(figure.subplots(), statistics)),
    ]


def _frequency(axes: Axes, statistics: Statistics) -> str:
    """Plot the documents of each label by its rank in its level."""
    import matplotlib as mpl

    levels, counts = statistics.taxonomy.levels, statistics.training_counts
    colours = mpl.colormaps["viridis"](np.linspace(0, 0.9, len(levels))) if len(levels) > len(COLOURS) else COLOURS
    for number, (level, colour) in enumerate(zip(levels, colours, strict=False), 1):
        ranked = np.sort(counts[level][counts[level] > 0])[::-1]
        name = f"level {number}" if len(levels) <= NAMED or number in (1, len(levels)) else None
        axes.plot(np.arange(1, len(ranked) + 1), ranked, color=colour, marker="o", markersize=3, label=name)
    axes.set(xscale="log", yscale="log")
    for limit in FEW:
        dashed(axes.axhline, limit)
    axes.axhline(1, alpha=0)  # the scale starts at one document
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:,.0f}")
    frequency = statistics.frequency()
    without = f"; {frequency.unused:,} without a document not shown" if frequency.unused else ""
    axes.set(title="Label frequency", xlabel=f"rank of the label in its level{without}")
    axes.set_ylabel(f"documents in {statistics.reference}")
    axes.grid()
    legend_above(axes, 6)
    return (
        f"Documents by rank of the label, one line for each level, on logarithmic scales, from"
        f" {frequency.largest:,} documents down to {frequency.smallest:,}; dashed lines at 5 and 10 documents"
    )


def _text_lengths(axes: Axes, statistics: Statistics) -> str:
    """Plot the text lengths of each split."""
    together = statistics.together("words")
    limit = max(10, int(np.ceil(together.quantile(0.995))))
    width = -(-limit // BINS)
    edges = np.arange(0, limit + width, width) + 0.5  # between integers; no text has length 0
    for (name, split), colour in zip(statistics.splits.items(), COLOURS, strict=False):
        shares, _ = np.histogram(list(split.words), edges, weights=100 * np.array(list(split.words.values())))
        label = f"{name}: median {split.words.quantile(0.5):,.0f}"
        axes.stairs(shares / max(1, split.documents), edges, color=colour, linewidth=1.5, label=label)
    if edges[-1] > LONG:
        dashed(axes.axvline, LONG)
    axes.set(title="Text length", xlabel="words", ylabel=f"documents in % per {width} words", xlim=(0, edges[-1]))
    axes.grid()
    legend_above(axes, 3)
    half, most = together.quantile(0.5), together.quantile(0.95)
    return f"Histograms of words by split: half of all texts have at most {half:,.0f} words, 95 % at most {most:,.0f}"


def _labels_per_document(axes: Axes, statistics: Statistics) -> str:
    """Plot the labels per document of each split."""
    together = statistics.together("labels")
    numbers = np.arange(1, 1 + min(max(together.maximum, 4), LISTED))
    splits = {name: split for name, split in statistics.splits.items() if split.documents}
    width = 0.8 / max(1, len(splits))
    for place, ((name, split), colour) in enumerate(zip(splits.items(), COLOURS, strict=False)):
        counts = [split.labels[number] for number in numbers.tolist()]
        counts[-1] += split.labels.above(int(numbers[-1]))
        offset = (place - (len(splits) - 1) / 2) * width
        shares = 100 * np.array(counts) / split.documents
        axes.bar(numbers + offset, shares, width=width, color=colour, label=f"{name}: mean {split.labels.mean:.2f}")
    axes.set_xticks(numbers, [f"≥ {LISTED}" if number == LISTED else f"{number}" for number in numbers.tolist()])
    axes.set(title="Labels per document", xlabel="labels of a document, ancestors included", ylabel="documents in %")
    axes.grid(axis="y")
    legend_above(axes, 3)
    return f"Share of documents by number of labels, bars for each split; the mean is {together.mean:.2f}"
