"""Learning curves: the table of systems at several sizes of the training sample."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hgclr.errors import InputError
from hgclr.files import json_bytes, write_files
from hgclr.paper.experiment import Budget, Experiment, Watch, check_runs, unwatched
from hgclr.paper.systems import SYSTEMS, TABLES
from hgclr.paper.tables import (
    MISSING,
    Spread,
    Summary,
    machines_of,
    markdown_table,
    reproduce,
    rounded,
    scores_of,
    training_time,
)
from hgclr.presentation import COLOURS, INK, MUTED, Plot, draw

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


ALL = "all"
RARE = {"unseen": "labels not in train", "1-5": "labels 1 to 5 times in train"}
"""Groups of labels by frequency in the training sample that have a panel of their own, and its title."""
ROWS = ("tfidf", "names", "head", "flat-cls", "flat-random-head", "flat", "default", "hgclr")
"""Rows that are run where the user names none."""
SEEDED = 5_000
"""Size up to which every seed is run; above it the first alone."""
ACROSS = 3
"""Panels side by side."""
WIDTH, HEIGHT = 3.4, 2.7
"""Inches of a panel."""
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
    "no-refit": (INK, "D"),
    "default": (INK, "o"),
    "hgclr": (COLOURS[1], "o"),
    "hgclr-paper": (COLOURS[2], "o"),
    "hgclr-published": (COLOURS[2], "D"),
}
"""Colour and marker of each system, the same in every plot; relatives share a colour."""
Plans = Mapping[int | None, tuple[Sequence[int], Experiment]]
"""By size, None being all documents: the seeds, and what all rows share."""


@dataclass(frozen=True)
class Point:
    """A system at one size; F1 on test in percent over the seeds.

    ``size`` is what was asked for, ``documents`` how many were read. ``scores`` are by ``half`` or ``tuned``, then by
    panel: Macro-F1, but ``micro`` is Micro-F1 over all labels. Seconds are of training, without resumed runs.
    """

    size: str
    documents: int
    seeds: list[int]
    scores: dict[str, dict[str, Spread]]
    seconds: Spread | None
    cpu_seconds: Spread | None


@dataclass(frozen=True)
class Curves:
    """Points of every system, and what is missing.

    ``rows`` are titles of systems by key; ``panels`` titles of the groups of labels that Macro-F1 is averaged over, all
    labels first; ``points`` by key, from few documents to many; ``missing`` what could not be run, or is not run yet.
    """

    title: str
    sizes: list[str]
    rows: dict[str, str]
    panels: dict[str, str]
    points: dict[str, list[Point]]
    missing: list[str]
    machines: list[dict[str, Any]]
    command: str


def size_name(size: int | None) -> str:
    """Return what a size is called in files and folders."""
    return ALL if size is None else str(size)


def collect_curves(
    plans: Plans,
    sizes: Sequence[int | None],
    rows: Sequence[str],
    refused: Mapping[tuple[int | None, str, int], str],
    command: str,
) -> Curves:
    """Read what the runs left behind: of the sizes and rows that were asked for, and of all others that are done.

    ``refused`` tells by size, system and seed why one could not be made.
    """
    table = [row for row in TABLES["systems"].rows if not row.printed]
    points: dict[str, list[Point]] = {row.system: [] for row in table}
    missing, made = [], []
    for size, (seeds, plan) in plans.items():
        documents = "all documents" if size is None else f"{size:,} documents"
        for row in table:
            runs = plan.finished_runs(SYSTEMS[row.system], seeds)
            missing += [
                f"{row.title}, {documents}, seed {seed}: {refused.get((size, row.system, seed), 'not run yet')}"
                for seed in seeds
                if seed not in runs and size in sizes and row.system in rows
            ]
            if runs:
                points[row.system].append(_point(size, runs))
                made.append(runs)
    points = {key: each for key, each in points.items() if each or key in rows}
    every = [point for each in points.values() for point in each]
    shown = {*map(size_name, sizes), *(point.size for point in every)}
    present = {panel for point in every for each in point.scores.values() for panel in each}
    levels = sorted((panel for panel in present if panel.startswith("level ")), key=lambda panel: int(panel.split()[1]))
    titles = {"macro": "all labels"} | {level: level for level in levels} | RARE
    plan = next(iter(plans.values()))[1]
    budget = str(replace(plan.budget or Budget(), documents=None))
    return Curves(
        title=", ".join([plan.data.name, Path(plan.encoder).name, *([budget] if budget else [])]),
        sizes=[name for name in map(size_name, plans) if name in shown],
        rows={row.system: row.title for row in table if row.system in points},
        panels={panel: title for panel, title in titles.items() if panel in present},
        points=points,
        missing=missing,
        machines=machines_of(made),
        command=command,
    )


def _point(size: int | None, runs: Mapping[int, dict[str, Any]]) -> Point:
    scores: dict[str, dict[str, Spread]] = {}
    for decisions in ("half", "tuned"):
        values: dict[str, list[float]] = {}
        for run in runs.values():
            for panel, value in _values(scores_of(run, "test", tuned=decisions == "tuned")):
                values.setdefault(panel, []).append(100 * value)
        scores[decisions] = {panel: spread for panel, each in values.items() if (spread := Spread.of(each)) is not None}
    documents = next(iter(runs.values()))["documents"]["train"]
    return Point(size_name(size), documents, list(runs), scores, **training_time(runs))


def _values(test: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield the F1 of every panel that the scores on test have."""
    for average in ("macro", "micro"):
        if average in test:
            yield average, test[average]["f1"]
    levels = test.get("levels", ())
    if len(levels) > 1:
        for level in levels:
            yield f"level {level['depth']}", level["macro"]["f1"]
    for group in RARE:
        scores = test.get("by_frequency", {}).get(group)
        if scores is not None and scores["macro_gold"] is not None:
            yield group, scores["macro_gold"]["f1"]


def parse_sizes(text: str) -> list[int | None]:
    """Read sizes with commas between them, and put them in order; ``all``, here None, is every document.

    Raises:
        InputError: if one is no whole number from 1, or stands there twice.

    Example:
        >>> parse_sizes("all,1000,300")
        [300, 1000, None]
    """
    sizes: list[int | None] = []
    for word in (part.strip() for part in text.split(",")):
        if word != ALL and (not word.isascii() or not word.isdigit() or int(word) < 1):
            raise InputError(f"--sizes: {word!r} is no size", remedy="give whole numbers or all, as in 300,1000,all")
        size = None if word == ALL else int(word)
        if size in sizes:
            raise InputError(f"--sizes has {word} twice")
        sizes.append(size)
    return _in_order(sizes)


def _in_order(sizes: Iterable[int | None]) -> list[int | None]:
    return sorted(sizes, key=lambda size: (size is None, size))


def run_curves(
    sizes: Sequence[int | None],
    seeds: Sequence[int],
    experiment: Experiment,
    *,
    rows: Sequence[str] | None = None,
    command: str = "",
    watch: Watch = unwatched,
) -> Curves:
    """Run the table of systems at every size, and write ``curves.json``, ``.md`` and ``.svg`` after each run.

    Each size has its own folder in ``experiment.output``, with its table and its runs; finished runs stay, killed ones
    are resumed. Finished runs of other rows and sizes with the same settings are shown, too. Dev and test are whole, or
    the samples of the budget, at every size.

    A size of None is all documents. Sizes above 5,000 are run with the first seed alone. The experiment's budget has no
    ``documents``. The other arguments are those of :func:`~hgclr.paper.tables.reproduce`.
    """
    if experiment.budget is not None and experiment.budget.documents is not None:
        raise InputError("--budget has documents, which --sizes decides", remedy="leave them out of --budget")
    table, chosen = TABLES["systems"], list(rows or ROWS)

    def plan_of(size: int | None) -> tuple[Sequence[int], Experiment]:
        some = seeds if size is not None and size <= SEEDED else seeds[:1]
        budget = replace(experiment.budget or Budget(), documents=size, scores_all=True)
        return some, replace(experiment, output=experiment.output / size_name(size), budget=budget)

    names = [folder.parent.name for folder in experiment.output.glob("*/runs")]  # sizes that were run before
    there = {None if name == ALL else int(name) for name in names if name == ALL or (name.isascii() and name.isdigit())}
    plans = {size: plan_of(size) for size in _in_order({*sizes, *there})}
    for size in sizes:
        some, plan = plans[size]
        check_runs(table, some, plan, chosen)
    refused: dict[tuple[int | None, str, int], str] = {}
    last: Curves | None = None

    def written() -> Curves:
        nonlocal last
        curves = collect_curves(plans, sizes, chosen, refused, command)
        if curves != last:  # a run that was there already changes nothing
            files = {"curves.json": json_bytes(rounded(asdict(curves))), "curves.md": _markdown(curves).encode()}
            if curves.panels:
                files["curves.svg"] = draw_curves(curves).svg
            write_files(experiment.output, files)
            last = curves
        return curves

    for size in sizes:
        some, plan = plans[size]

        def on_table(summary: Summary, size: int | None = size) -> None:
            refused.update(
                {(size, line.key, seed): reason for line in summary.lines for seed, reason in line.refused.items()}
            )
            written()

        reproduce(table, some, plan, rows=chosen, command=command, watch=watch, on_table=on_table)
    return written()


def _markdown(curves: Curves) -> str:
    lines = [f"# Learning curves: {curves.title}", ""]
    lines += ["![Macro-F1 against training documents](curves.svg)", ""] if curves.panels else []
    lines += ["F1 on test in percent by the size of the training sample, mean ± standard deviation over the seeds.", ""]
    subjects = {"micro": "Micro-F1, all labels"} | {panel: f"Macro-F1, {of}" for panel, of in curves.panels.items()}
    for panel, subject in subjects.items():
        for decisions, how in (("tuned", "decisions tuned on dev"), ("half", "decisions at 0.5")):

            def f1(point: Point, decisions: str = decisions, panel: str = panel) -> str:
                spread = point.scores[decisions].get(panel)
                if spread is None:
                    return ""
                return f"{spread.mean:.1f}" + ("" if spread.sd is None else f" ± {spread.sd:.1f}")

            lines += _table(curves, f"{subject}, {how}", f1)
    lines += _table(curves, "CPU seconds", lambda at: "" if at.cpu_seconds is None else f"{at.cpu_seconds.mean:,.0f}")
    if curves.missing:
        lines += ["## Missing", "", *(f"- {what}" for what in curves.missing), ""]
    if not RARE.keys().isdisjoint(curves.panels):
        counted = "How often a label is in train is counted in the sample, so that at each size these are other labels;"
        lines += [f"{counted} their Macro-F1 is over those that test has.", ""]
    if curves.command:
        lines += [f"Made by `{curves.command}`.", ""]
    return "\n".join(lines[:-1]) + "\n"


def _table(curves: Curves, title: str, cell: Callable[[Point], str]) -> list[str]:
    """Return a table of systems by size, under its title, without rows that have no figure; nothing if none has."""
    rows = []
    for key, name in curves.rows.items():
        cells = {point.size: cell(point) for point in curves.points[key]}
        if any(cells.values()):
            rows.append([name, *(cells.get(size) or MISSING for size in curves.sizes)])
    head = ["documents", *(size if size == ALL else f"{int(size):,}" for size in curves.sizes)]
    return [f"## {title}", "", *markdown_table([head, *rows]), ""] if rows else []


def draw_curves(curves: Curves) -> Plot:
    """Plot Macro-F1: decisions tuned on dev in solid lines, at 0.5 in dashed ones."""
    keys = [key for key, points in curves.points.items() if points]
    across = min(ACROSS, len(curves.panels))
    down = math.ceil(len(curves.panels) / across)

    def look(key: str) -> tuple[str, str]:
        """Return colour and marker of a system; extra ones differ by the marker."""
        return LOOKS.get(key, (COLOURS[2], MARKERS[sum(map(ord, key)) % len(MARKERS)]))

    def fill(figure: Figure) -> str:
        from matplotlib.lines import Line2D

        axes = figure.subplots(down, across, squeeze=False, sharex=True)
        for place, (panel, title) in enumerate(curves.panels.items()):
            _panel(axes[place // across][place % across], curves, {key: look(key) for key in keys}, panel, title)
        for place in range(len(curves.panels), down * across):
            axes[place // across][place % across].set_visible(False)
            axes[place // across - 1][place % across].tick_params(labelbottom=True)
        handles = [Line2D([], [], color=colour, marker=marker, markersize=4) for colour, marker in map(look, keys)]
        handles += [Line2D([], [], color=MUTED, linestyle=style) for style in ("-", "--")]
        names = [curves.rows[key] for key in keys] + ["solid: decisions tuned on dev", "dashed: at 0.5"]
        figure.suptitle(f"Test Macro-F1, %: {curves.title}", ha="left", x=0.01, weight="bold")
        figure.legend(handles, names, loc="outside lower left", ncols=across, fontsize=8.5)
        figure.supxlabel("training documents", fontsize=9, color=MUTED)
        return f"test Macro-F1 by training documents: {curves.title}"

    legend = 0.24 * math.ceil((len(keys) + 2) / across)
    return draw("curves", fill, (max(WIDTH * across, 2 * WIDTH), HEIGHT * down + legend + 0.8))


def _panel(axes: Axes, curves: Curves, looks: Mapping[str, tuple[str, str]], panel: str, title: str) -> None:
    """Draw one group of labels; a size at which a system has no figure leaves a gap in its line."""
    from matplotlib.ticker import NullFormatter, NullLocator

    documents = sorted({point.documents for key in looks for point in curves.points[key]})
    for key, (colour, marker) in looks.items():
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
    axes.set_xticks(documents, [str(number) if number < 1000 else f"{number / 1000:.3g}k" for number in documents])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlim(documents[0] / 1.25, documents[-1] * 1.25)
    axes.set_ylim(bottom=max(0.0, axes.get_ylim()[0]))
    axes.grid(visible=True)
