"""Write statistics and findings as one HTML file with the plots in it, and as files for programs beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import islice
from pathlib import Path
from typing import Any

from hgclr.data.check import CheckReport, excerpt, findings
from hgclr.data.plots import DataPlot, draw_plots, require_plots
from hgclr.data.statistics import Statistics, statistics_json
from hgclr.data.survey import Histogram
from hgclr.files import check_output, json_bytes, write_files
from hgclr.presentation import Html, Section, facts, folding_tree, notice, page, picture, table, tiles

__all__ = [
    "check_report",
    "fact_rows",
    "level_rows",
    "report_page",
    "split_rows",
    "table1",
    "token_rows",
    "write_plots",
    "write_report",
]

Rows = list[tuple[str, ...]]
"""Rows of cells, the headings first."""
SPLITS = ("train", "dev", "test")
DRAWN = 1000
"""Labels that the tree of unused branches shows."""
FOOTER = (
    "Avg(|y|) is the mean number of labels of a document, ancestors counted. A word is what stands between white space."
    " Two texts are the same if they differ in nothing but case, white space and the composition of characters."
)


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
    rows: Rows = [("level", "labels", "leaves", "used", "documents", "largest", "median", "smallest")]
    return [*rows, *(tuple(map(_half, level)) for level in statistics.levels())]


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
    """Refuse a place where no report can be written, before any work is done.

    Raises:
        InputError: if the place is a file.
        MissingExtraError: if matplotlib is not installed.
    """
    require_plots()
    check_output(folder)


def write_plots(folder: Path, statistics: Statistics) -> list[Path]:
    """Write the plots into a folder and return their paths; other files in it stay.

    Raises:
        InputError: if one cannot be written.
        MissingExtraError: if matplotlib is not installed.
    """
    return write_files(folder, {plot.name: plot.png for plot in draw_plots(statistics)})


def write_report(folder: Path, name: str, statistics: Statistics, check: CheckReport | None = None) -> list[Path]:
    """Write ``report.html``, the plots, ``stats.json`` and, after a check, ``check.json``; return their paths.

    Args:
        folder: made if it is not there; other files in it stay.
        name: how to call the data.
        statistics: the data in numbers.
        check: what a check found.

    Raises:
        InputError: if a file cannot be written.
        MissingExtraError: if matplotlib is not installed.
    """
    plots = draw_plots(statistics)
    files = {"report.html": report_page(name, statistics, plots, check).encode()}
    files |= {plot.name: plot.png for plot in plots}
    files["stats.json"] = _json(statistics_json(statistics))
    if check is not None:
        files["check.json"] = _json(check.to_json())
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
    headings, *others = rows
    return table(headings, others, caption=caption)


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


def _json(values: Mapping[str, Any]) -> bytes:
    return json_bytes(values)
