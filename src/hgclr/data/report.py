"""Write statistics and findings as one HTML file with the plots in it, and as files for programs beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hgclr.data.check import CheckReport, excerpt, findings
from hgclr.data.folder import SPLITS
from hgclr.data.statistics import USUAL_LENGTH, Histogram, LevelStatistics, Statistics, statistics_json
from hgclr.errors import require_extra
from hgclr.files import check_output, json_bytes, write_files
from hgclr.presentation import (
    COLOURS,
    MUTED,
    PALE,
    PLOT_STYLE,
    Html,
    Section,
    facts,
    folding_tree,
    legend_above,
    notice,
    page,
    picture,
    render,
    table,
    tiles,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "check_report",
    "fact_rows",
    "level_rows",
    "split_rows",
    "table1",
    "token_rows",
    "write_plots",
    "write_report",
]

Rows = list[tuple[str, ...]]
"""Rows of cells, the headings first."""
DRAWN = 1000
"""Labels that the tree of unused branches shows."""
FOOTER = (
    "Avg(|y|) is the mean number of labels of a document, ancestors counted. A word is what stands between white space."
    " Two texts are the same if they differ in nothing but case, white space and the composition of characters."
)

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
    """Return what each split holds: labels, paths, and lengths in words."""
    return [
        ("split", "labels/doc", "paths/doc", "labels", "words", "median", "95 %", "max"),
        *(
            (
                name,
                f"{split.labels.mean:.2f}",
                f"{split.paths.mean:.2f}",
                f"{split.labels_used:,}",
                *_lengths(split.words),
            )
            for name, split in statistics.splits.items()
        ),
    ]


def token_rows(statistics: Statistics) -> Rows:
    """Return the lengths of the texts of each split in tokens, and how many would be cut."""
    limits = statistics.limits
    return [
        ("split", "tokens", "median", "95 %", "max", *(f"cut at {limit:,}" for limit in limits)),
        *(
            (name, *_lengths(split.tokens), *(percent(split.tokens.above(limit), split.documents) for limit in limits))
            for name, split in statistics.splits.items()
        ),
    ]


def _lengths(values: Histogram) -> tuple[str, ...]:
    median, most = values.quantile(0.5), values.quantile(0.95)
    return f"{values.mean:,.1f}", _half(median), f"{most:,.0f}", f"{values.maximum:,}"


def level_rows(statistics: Statistics) -> Rows:
    """Return what each level of the tree holds."""
    return [LevelStatistics._fields, *(tuple(map(_half, level)) for level in statistics.levels())]


def fact_rows(statistics: Statistics) -> list[tuple[str, str]]:
    """Return facts about the tree, the labels and the documents, each as name and text."""
    where = statistics.reference
    frequency, paths, documents = statistics.frequency(), statistics.together("paths"), statistics.documents
    median, below_10 = f"{_half(frequency.median)} at the median", f"{frequency.below_10:,} with fewer than 10"
    rarest = f"{frequency.smallest:,} for the rarest that has any ({frequency.imbalance:,.0f} : 1)"
    facts = {
        "tree": _tree(statistics),
        "frequency": f"{frequency.largest:,} documents in {where} for the most frequent label, {median}, {rarest}",
        "rare labels": f"{frequency.below_5:,} with fewer than 5 documents in {where}, {below_10}",
        "paths": f"{percent(paths.counts[1], documents)} of documents have one",
        "inner ends": f"{percent(statistics.above_leaf, documents)} of documents have a path that ends above a leaf",
    }
    if several := paths.above(1):
        facts["paths"] += f", {percent(several, documents)} several (up to {paths.maximum:,})"
    agreements = {name: statistics.agreement(name) for name in statistics.splits}
    distances = [
        f"{name} {agreement.distance:.3f} ({agreement.by_chance:.3f} by chance)"
        for name, agreement in agreements.items()
        if agreement is not None
    ]
    if distances:
        facts["from train"] = f"distance of label distributions, 0 to 1: {', '.join(distances)}"
    return list(facts.items())


def _tree(statistics: Statistics) -> str:
    taxonomy, children = statistics.taxonomy, statistics.children
    text = f"{len(taxonomy.levels[0]):,} top labels, {len(taxonomy.leaves):,} leaves"
    if children.total:
        text += f"; inner labels have {children.mean:.1f} children on average, {children.maximum:,} at most"
    return text


def percent(count: int, total: int) -> str:
    """Return a share as a percentage; a share above 0 is never shown as 0."""
    share = 100 * count / (total or 1)
    return "< 0.1 %" if 0 < share < 0.1 else "> 99.9 %" if 99.9 < share < 100 else f"{share:.1f} %"


def _half(median: float) -> str:
    """Return a number that is whole or a half, as a median is."""
    return f"{median:,.1f}".removesuffix(".0")


def check_report(folder: Path) -> None:
    """Refuse a place where no report can be written, or a machine without matplotlib, before any work is done."""
    _require_plots()
    check_output(folder)


def write_plots(folder: Path, statistics: Statistics) -> list[Path]:
    """Write the plots into a folder and return their paths; other files in it stay."""
    return write_files(folder, {plot.name: plot.png for plot in draw_plots(statistics)})


def write_report(folder: Path, name: str, statistics: Statistics, check: CheckReport | None = None) -> list[Path]:
    """Write ``report.html``, the plots, ``stats.json`` and, after a check, ``check.json``; return their paths.

    The data is called by ``name``. The folder is made if it is not there; other files in it stay.
    """
    plots = draw_plots(statistics)
    files = {"report.html": report_page(name, statistics, plots, check).encode()}
    files |= {plot.name: plot.png for plot in plots}
    files["stats.json"] = json_bytes(statistics_json(statistics))
    if check is not None:
        files["check.json"] = json_bytes(check.to_json())
    return write_files(folder, files)


def report_page(name: str, statistics: Statistics, plots: list[DataPlot], check: CheckReport | None = None) -> str:
    """Return the page; the arguments are those of `write_report`."""
    pictures = {plot.name: picture(plot.png, alt=plot.alt) for plot in plots}
    sections = [
        Section("Documents", _documents(statistics, pictures)),
        Section("Labels", _labels(statistics, pictures)),
    ]
    if check is not None:
        sections.insert(0, Section("Findings", _findings(check)))
        if check.unused_branches:
            sections.append(Section("Branches without a document", _branches(statistics)))
    return page(f"Data folder {name}", sections, lead=tiles(table1(statistics)), footer=FOOTER)


def _documents(statistics: Statistics, pictures: Mapping[str, Html]) -> Html:
    parts = [_table(split_rows(statistics), "Labels: how many of the tree occur. Words, median, 95 %, max: of a text.")]
    if statistics.encoder is not None:
        caption = f"Lengths in tokens of {statistics.encoder}, special tokens counted."
        parts.append(_table(token_rows(statistics), caption))
    return Html("\n".join([*parts, pictures["text-length.png"], pictures["labels-per-document.png"]]))


def _labels(statistics: Statistics, pictures: Mapping[str, Html]) -> Html:
    caption = f"Largest, median, smallest: documents of a label in {statistics.reference}."
    levels = _table(level_rows(statistics), caption)
    tree, frequency = pictures["labels-per-level.png"], pictures["label-frequency.png"]
    return Html("\n".join([facts(fact_rows(statistics)), tree, levels, frequency]))


def _table(rows: Rows, caption: str) -> Html:
    return table(rows[0], rows[1:], caption=caption)


def _findings(check: CheckReport) -> Html:
    """Return what is wrong, what is suspicious, and the rows and texts to look at."""
    parts = [
        notice("error", f"{check.splits[name].path} has no good row", "Empty split") for name in check.empty_splits
    ]
    if check.bad_rows:
        text = f"{check.bad_rows:,}; a reader stops at the first, unless it is told to skip bad rows"
        parts.append(notice("error", text, "Bad rows"))
    parts += [notice(found.kind, found.text, found.kind.capitalize()) for found in findings(check)]
    if not parts:
        parts.append(notice("good", "every row can be used, and nothing looks wrong", "Good"))
    if bad := [row for split in check.splits.values() for row in split.first_bad_rows]:
        rows = [(f"{row.path.name}:{row.number}", "; ".join(filter(None, (row.reason, row.remedy)))) for row in bad]
        parts.append(Html(f"<h3>Bad rows{_first(bad, check.bad_rows)}</h3>"))
        parts.append(table(("row", "what is wrong"), rows, text_columns=2))
    if conflicts := check.first_conflicts:
        parts.append(Html(f"<h3>Texts with different labels{_first(conflicts, check.conflicting_texts)}</h3>"))
        texts = [(excerpt(one.text), *one.sides()) for one in conflicts]
        parts.append(table(("text", "labels", "other labels"), texts, text_columns=3))
    return Html("\n".join(parts))


def _first(shown: Sequence[object], total: int) -> str:
    return "" if len(shown) == total else f", the first {len(shown)} of {total:,}"


def _branches(statistics: Statistics) -> Html:
    """Return the part of the tree in which labels have no document, to be unfolded from the top."""
    nodes = list(islice(_nodes(statistics), DRAWN + 1))
    rest = '<p class="quiet">And more: stats.json has the documents of every label.</p>' if len(nodes) > DRAWN else ""
    return Html(f"{folding_tree(nodes[:DRAWN])}\n{rest}")


def _nodes(statistics: Statistics) -> Iterator[tuple[int, Html]]:
    """Yield the labels without a document and those above them, with their depths, as in a walk through the tree."""
    taxonomy, unused = statistics.taxonomy, statistics.all_counts == 0
    without = taxonomy.branch_sums(unused)
    for index in taxonomy.walk[without[taxonomy.walk] > 0].tolist():
        name, below = escape(taxonomy.names[index]), int(taxonomy.branch_sizes[index]) - 1
        if not unused[index]:
            name += f' <span class="quiet">{without[index]:,} of {below:,} below have no document</span>'
        elif not unused[taxonomy.parents[index]] or taxonomy.parents[index] < 0:
            name = f"<b>{name}</b>" + (f' <span class="quiet">and all {below:,} below</span>' if below else "")
        yield int(taxonomy.depths[index]) - 1, Html(name)


class DataPlot(NamedTuple):
    """One picture: the name of its file, the content of the file, and what it shows, in words."""

    name: str
    png: bytes
    alt: str


def _require_plots() -> None:
    require_extra("matplotlib", extra="data", capability="Drawing plots of a data folder")


def draw_plots(statistics: Statistics) -> list[DataPlot]:
    """Draw every plot as a PNG on white; the same statistics give the same bytes."""
    _require_plots()
    import matplotlib as mpl
    from matplotlib.figure import Figure

    plots = []
    with mpl.rc_context(PLOT_STYLE):
        for name, draw in (
            ("labels-per-level", _draw_levels),
            ("label-frequency", _frequency),
            ("text-length", _text_lengths),
            ("labels-per-document", _labels_per_document),
        ):
            figure = Figure(figsize=SIZE, layout="constrained")
            axes = figure.subplots()
            alt = draw(axes, statistics)
            plots.append(DataPlot(f"{name}.png", render(figure, "png"), alt))
    return plots


def _draw_levels(axes: Axes, statistics: Statistics) -> str:
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


def _text_lengths(axes: Axes, statistics: Statistics) -> str:
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
