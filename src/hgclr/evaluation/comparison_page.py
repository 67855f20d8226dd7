"""A comparison as one HTML page with a plot, and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from hgclr.evaluation.comparison import PLAUSIBLE, Comparison, LabelChange, Line, level_lines, score_lines
from hgclr.evaluation.report_content import HEADLINES, shown_difference, shown_score
from hgclr.evaluation.report_plots import Plot, check_output, draw, json_file
from hgclr.evaluation.report_sections import LabelNames, decision_facts
from hgclr.files import write_files
from hgclr.presentation import (
    COLOURS,
    Html,
    Section,
    bullets,
    facts,
    legend_above,
    notice,
    page,
    paragraph,
    picture,
    table,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["write_comparison"]

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


PAGE, FILE = "comparison.html", "comparison.json"
STYLE = """
.better { color: var(--good); font-weight: 600; } .worse { color: var(--error); font-weight: 600; }
"""


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
    check_output(folder)
    plot = draw_comparison(comparison)
    text = comparison_page(comparison, plot, command=command)
    write_files(folder, {PAGE: text.encode(), FILE: json_file(comparison.to_json()), **plot.files()})
    return folder / PAGE


def comparison_page(comparison: Comparison, plot: Plot, *, command: str = "") -> str:
    """Return the page; the arguments are those of :func:`write_comparison`, and the plot."""
    first = comparison.contents[0]
    sections = [
        Section("In plain words", bullets(_sentences(comparison))),
        Section("Scores", Html(f"{picture(plot.svg, alt=plot.alt, kind='svg')}\n{_score_table(comparison)}")),
        Section("Level by level", _table(comparison, "level, 1 at the top", level_lines(comparison))),
        Section("Labels that gained and lost most", _labels(comparison)),
        Section("What was compared", _reports(comparison, command)),
    ]
    lead = f"On the same {first['documents']:,} documents of {first['data']}, {first['split']}."
    title = f"{', '.join(comparison.names[:-1])} and {comparison.names[-1]} compared"
    return page(title, sections, lead=lead, style=STYLE)


def _sentences(comparison: Comparison) -> Iterator[str]:
    first = comparison.names[0]
    for name, tests in zip(comparison.names[1:], comparison.tests, strict=True):
        for score in HEADLINES[:2]:
            test = tests[score.key]
            if test.difference == 0:
                yield f"{name} and {first} have the same {score.name}."
                continue
            better = "better" if test.difference > 0 else "worse"
            if test.p_value < PLAUSIBLE:
                chance = f"chance in the choice of documents hardly explains that (p = {test.p_value:.3f})"
            else:
                chance = f"that may well be chance in the choice of documents (p = {test.p_value:.2f})"
            points = f"{100 * abs(test.difference):.2f}"
            yield f"{name} is {better} than {first} by {points} points of {score.name}; {chance}."
    if len(comparison.tests) > 1:
        yield (
            f"With {len(comparison.tests)} comparisons, one of them may look clear by chance: to be on the safe side,"
            f" multiply each p by {len(comparison.tests)}."
        )


def _score_table(comparison: Comparison) -> Html:
    smallest = 2 / (1 + len(comparison.contents[0]["resampled"]["samples"]["micro_f1"]))
    caption = (
        "Difference: to the first, in points. p: by a paired bootstrap test, how likely a difference as large is by"
        f" chance in the choice of documents; never below {smallest:.3f} with these resamples. Differences with"
        f" p < {PLAUSIBLE} are in bold and colour. Scores without p were not resampled."
    )
    return _table(comparison, "score", score_lines(comparison), caption)


def _table(comparison: Comparison, heading: str, lines: Iterable[Line], caption: str = "") -> Html:
    others = (heading for name in comparison.names[1:] for heading in (name, "difference", "p"))
    rows = []
    for line in lines:
        row = [line.name, line.first]
        for cells in line.others:
            verdict = cells.verdict
            marked = Html(f'<span class="{verdict}">{cells.difference}</span>') if verdict else cells.difference
            row += [cells.value, marked, cells.p_value]
        rows.append(row)
    return table((heading, comparison.names[0], *others), rows, caption=caption)


def _labels(comparison: Comparison) -> Html:
    names = LabelNames(comparison.contents[0]["labels"])
    lead = "By what a label gains in F1 times its documents. Single labels vary much by chance; look at the whole list."
    parts = [paragraph(lead)]
    for other, name in enumerate(comparison.names[1:], 1):
        for what, changes in zip(("better", "worse"), comparison.changes(other), strict=True):
            parts.append(Html(f"<h3>{escape(name)} is {what} than {escape(comparison.names[0])} at</h3>"))
            headings = ("label", "documents", f"F1, {comparison.names[0]}", f"F1, {name}", "difference")
            rows = [_change(names, change) for change in changes]
            parts.append(table(headings, rows) if rows else notice("note", "at no label", "None"))
    return Html("\n".join(parts))


def _change(names: LabelNames, change: LabelChange) -> tuple[str, ...]:
    return (
        names.path_html(change.id),
        f"{change.gold:,}",
        shown_score(change.first),
        shown_score(change.other),
        shown_difference(change.other - change.first),
    )


def _reports(comparison: Comparison, command: str) -> Html:
    parts = []
    for name, content in zip(comparison.names, comparison.contents, strict=True):
        parts.append(Html(f"<h3>{escape(name)}</h3>"))
        made = [("Command", content["command"])] if content.get("command") else []
        parts.append(facts([("Model", content["model"]), *decision_facts(content), *made]))
    if command:
        parts.append(facts([("This page", command)]))
    return Html("\n".join(parts))
