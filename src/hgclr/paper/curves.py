"""Learning curves: the table of systems at several sizes of the training sample."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hgclr.errors import InputError, require_extra
from hgclr.files import write_files
from hgclr.paper.experiment import Experiment
from hgclr.paper.output import MISSING, rounded
from hgclr.paper.runner import Watch, check_runs, reproduce, unwatched
from hgclr.paper.summary import Spread, Summary, finished_runs
from hgclr.paper.systems import TABLES, Budget, Row
from hgclr.presentation import COLOURS, INK, MUTED, render
from hgclr.presentation import PLOT_STYLE as STYLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["ROWS", "draw_curves", "parse_sizes", "run_curves"]

ALL = "all"
RARE = {"unseen": "labels not in train", "1-5": "labels 1 to 5 times in train"}
"""Groups of labels by frequency in the training sample that have a panel of their own, and its title."""
DECISIONS = ("half", "tuned")
Plans = Mapping[int | None, tuple[Sequence[int], Experiment]]
"""By size, None being all documents: the seeds, and what all rows share."""


@dataclass(frozen=True)
class Point:
    """A system at one size; F1 on test in percent over the seeds.

    Args:
        size: the size that was asked for, or ``all``.
        documents: training documents that were read.
        seeds: those that are done.
        scores: by ``half`` or ``tuned``, then by panel: Macro-F1, but ``micro`` is Micro-F1 over all labels.
        seconds: of training; runs that were killed and went on are left out.
    """

    size: str
    documents: int
    seeds: list[int]
    scores: dict[str, dict[str, Spread]]
    seconds: Spread | None


@dataclass(frozen=True)
class Curves:
    """Points of every system, and what is missing.

    Args:
        title: data, encoder and budget.
        sizes: those that were asked for, from few to many.
        rows: titles of the systems by key.
        panels: titles of the groups of labels that Macro-F1 is averaged over; the first is all of them.
        points: by the key of a system, from few documents to many.
        missing: what could not be run, or has not been yet, in words.
        machines: what runs were made on.
        command: the command line.
    """

    title: str
    sizes: list[str]
    rows: dict[str, str]
    panels: dict[str, str]
    points: dict[str, list[Point]]
    missing: list[str]
    machines: list[dict[str, Any]]
    command: str

    def at(self, key: str, size: str) -> Point | None:
        """Return a system's point at a size, if there is one."""
        return next((point for point in self.points[key] if point.size == size), None)

    def to_json(self) -> dict[str, Any]:
        """Return everything in plain Python types."""
        return asdict(self)


def size_name(size: int | None) -> str:
    """Return what a size is called in files and folders."""
    return ALL if size is None else str(size)


def collect(
    plans: Plans, rows: Sequence[Row], refused: Mapping[tuple[int | None, str, int], str], command: str
) -> Curves:
    """Read what the runs left behind.

    Args:
        plans: what was to be run.
        rows: the systems.
        refused: why a run could not be made, by its size, system and seed.
        command: the command line, for the record.
    """
    points: dict[str, list[Point]] = {row.system: [] for row in rows}
    missing: list[str] = []
    machines: list[dict[str, Any]] = []
    for size, (seeds, plan) in plans.items():
        for row in rows:
            runs = finished_runs(row, seeds, plan)
            documents = "all documents" if size is None else f"{size:,} documents"
            missing += [
                f"{row.title}, {documents}, seed {seed}: {refused.get((size, row.system, seed), 'not run yet')}"
                for seed in seeds
                if seed not in runs
            ]
            if runs:
                points[row.system].append(_point(size, runs))
            for run in runs.values():
                if run["machine"] not in machines:
                    machines.append(run["machine"])
    plan = next(iter(plans.values()))[1]
    budget = str(replace(plan.budget or Budget(), documents=None))
    return Curves(
        title=", ".join([plan.data.name, Path(plan.encoder).name, *([budget] if budget else [])]),
        sizes=[size_name(size) for size in plans],
        rows={row.system: row.title for row in rows},
        panels=_panels(points.values()),
        points=points,
        missing=missing,
        machines=machines,
        command=command,
    )


def _point(size: int | None, runs: Mapping[int, dict[str, Any]]) -> Point:
    scores: dict[str, dict[str, Spread]] = {}
    for decisions in DECISIONS:
        values: dict[str, list[float]] = {}
        for run in runs.values():
            test = run["test"] if decisions == "half" else run.get("tuned", {}).get("test", {})
            for panel, value in _values(test):
                values.setdefault(panel, []).append(100 * value)
        scores[decisions] = {panel: spread for panel, each in values.items() if (spread := Spread.of(each)) is not None}
    documents = next(iter(runs.values()))["documents"]["train"]
    seconds = Spread.of([run["seconds"] for run in runs.values() if not run["resumed"]])
    return Point(size_name(size), documents, list(runs), scores, seconds)


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


def _panels(systems: Iterable[Sequence[Point]]) -> dict[str, str]:
    """Return the titles of the panels that have a value: all labels, levels from the top, rare labels."""
    found = {panel for points in systems for point in points for each in point.scores.values() for panel in each}
    levels = sorted((panel for panel in found if panel.startswith("level ")), key=lambda panel: int(panel.split()[1]))
    titles = {"macro": "all labels"} | {level: level for level in levels} | RARE
    return {panel: title for panel, title in titles.items() if panel in found}


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
    """Return the plot as a file's content: decisions tuned on dev in solid lines, at one half in dashed ones.

    Raises:
        MissingExtraError: if matplotlib is not installed.
    """
    require_extra("matplotlib", extra="paper", capability="Plots of learning curves")
    import matplotlib as mpl

    with mpl.rc_context(STYLE):
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


ROWS = ("tfidf", "names", "head", "flat-cls", "flat-random-head", "flat", "default", "hgclr")
"""Rows that are run where the user names none."""
SEEDED = 5_000
"""Size up to which every seed is run; above it the first alone."""


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
    """Run the table of systems at every size, and write ``curves.json``, ``.md`` and ``.svg``, anew after each run.

    Each size has a folder of its own in ``experiment.output``, with its table and its runs; what is done stays, what
    was killed goes on. Dev and test are whole, or the samples of the budget, at every size.

    Args:
        sizes: of the training sample; None is all documents.
        seeds: of sizes up to 5,000; larger ones have the first alone.
        experiment: what all rows share; its budget has no ``documents``.
        rows: keys of rows of the table ``systems``.
        command: the command line, for the record.
        watch: shows each run's progress.

    Raises:
        InputError: before anything is run, as :func:`~hgclr.reproduction.tables.runner.reproduce` does, and if the
            budget has ``documents``.
    """
    if experiment.budget is not None and experiment.budget.documents is not None:
        raise InputError("--budget has documents, which --sizes decides", remedy="leave them out of --budget")
    table, chosen = TABLES["systems"], list(rows or ROWS)
    plans = {size: (_seeds(size, seeds), _experiment(size, experiment)) for size in sizes}
    for some, plan in plans.values():
        check_runs(table, some, plan, chosen)
    refused: dict[tuple[int | None, str, int], str] = {}

    def written() -> Curves:
        curves = collect(plans, table.choose(chosen), refused, command)
        write_curves(curves, experiment.output)
        return curves

    for size, (some, plan) in plans.items():

        def on_table(summary: Summary, size: int | None = size) -> None:
            refused.update(
                {(size, line.key, seed): reason for line in summary.lines for seed, reason in line.refused.items()}
            )
            written()

        reproduce(table, some, plan, rows=chosen, command=command, watch=watch, on_table=on_table)
    return written()


def _seeds(size: int | None, seeds: Sequence[int]) -> list[int]:
    return list(seeds if size is not None and size <= SEEDED else seeds[:1])


def _experiment(size: int | None, experiment: Experiment) -> Experiment:
    budget = replace(experiment.budget or Budget(), documents=size, scores_all=True)
    return replace(experiment, output=experiment.output / size_name(size), budget=budget)


def write_curves(curves: Curves, folder: Path) -> list[Path]:
    """Write ``curves.json``, ``curves.md`` and, once there is something to draw, ``curves.svg``; return the files."""
    content = json.dumps(rounded(curves.to_json()), indent=2, ensure_ascii=False) + "\n"
    files = {"curves.json": content.encode(), "curves.md": markdown(curves).encode()}
    if curves.panels:
        files["curves.svg"] = draw_curves(curves, "svg")
    return write_files(folder, files)


def markdown(curves: Curves) -> str:
    """Return tables of all figures, and what is missing."""
    lines = [f"# Learning curves: {curves.title}", ""]
    lines += ["![Macro-F1 against training documents](curves.svg)", ""] if curves.panels else []
    lines += ["F1 on test in percent by the size of the training sample, mean ± standard deviation over the seeds.", ""]
    subjects = {"micro": "Micro-F1, all labels"} | {panel: f"Macro-F1, {of}" for panel, of in curves.panels.items()}
    for panel, subject in subjects.items():
        for decisions, how in (("tuned", "decisions tuned on dev"), ("half", "decisions at one half")):
            rows = {key: _figures(curves, key, decisions, panel) for key in curves.rows}
            lines += _table(curves, f"{subject}, {how}", rows)
    lines += _table(curves, "Seconds", {key: _seconds(curves, key) for key in curves.rows})
    if curves.missing:
        lines += ["## Missing", "", *(f"- {what}" for what in curves.missing), ""]
    if not RARE.keys().isdisjoint(curves.panels):
        counted = (
            "How often a label is in train is counted in the sample, so that at each size these are other labels; "
        )
        lines += [counted + "their Macro-F1 is over those that test has.", ""]
    if curves.command:
        lines += [f"Made by `{curves.command}`.", ""]
    return "\n".join(lines[:-1]) + "\n"


def _points(curves: Curves, key: str) -> list[Point | None]:
    return [curves.at(key, size) for size in curves.sizes]


def _figures(curves: Curves, key: str, decisions: str, panel: str) -> list[str]:
    """Return a row's figures by size, empty where there is none."""
    points = _points(curves, key)
    return ["" if point is None else _figure(point.scores[decisions].get(panel)) for point in points]


def _seconds(curves: Curves, key: str) -> list[str]:
    points = _points(curves, key)
    return ["" if point is None or point.seconds is None else f"{point.seconds.mean:,.0f}" for point in points]


def _figure(spread: Spread | None) -> str:
    if spread is None:
        return ""
    return f"{spread.mean:.1f}" + ("" if spread.sd is None else f" ± {spread.sd:.1f}")


def _table(curves: Curves, title: str, rows: Mapping[str, Sequence[str]]) -> list[str]:
    """Return a table under its title without rows that have no figure; nothing at all if none has."""
    filled = {key: cells for key, cells in rows.items() if any(cells)}
    if not filled:
        return []
    head = ["documents", *(size if size == ALL else f"{int(size):,}" for size in curves.sizes)]
    table = [head, ["---", *["---:"] * len(curves.sizes)]]
    table += [[curves.rows[key], *(cell or MISSING for cell in cells)] for key, cells in filled.items()]
    return [f"## {title}", "", *("| " + " | ".join(row) + " |" for row in table), ""]
