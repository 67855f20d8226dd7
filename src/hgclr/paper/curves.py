"""Learning curves: the table of systems at several sizes of the training sample."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from hgclr.errors import InputError
from hgclr.files import write_files
from hgclr.paper.curve_points import ALL, RARE, Curves, Point, collect_curves, size_name
from hgclr.paper.curves_figure import draw_curves
from hgclr.paper.experiment import Budget, Experiment
from hgclr.paper.output import MISSING, markdown_table, rounded, time_shown
from hgclr.paper.runner import Watch, check_runs, reproduce, unwatched
from hgclr.paper.summary import Summary
from hgclr.paper.systems import TABLES

__all__ = ["ROWS", "parse_sizes", "run_curves"]

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
        command, watch: as for :func:`~hgclr.paper.runner.reproduce`.
    """
    if experiment.budget is not None and experiment.budget.documents is not None:
        raise InputError("--budget has documents, which --sizes decides", remedy="leave them out of --budget")
    table, chosen = TABLES["systems"], list(rows or ROWS)
    plans: dict[int | None, tuple[Sequence[int], Experiment]] = {}
    for size in sizes:
        some = seeds if size is not None and size <= SEEDED else seeds[:1]
        budget = replace(experiment.budget or Budget(), documents=size, scores_all=True)
        plans[size] = some, replace(experiment, output=experiment.output / size_name(size), budget=budget)
        check_runs(table, some, plans[size][1], chosen)
    refused: dict[tuple[int | None, str, int], str] = {}

    last: Curves | None = None

    def written() -> Curves:
        nonlocal last
        curves = collect_curves(plans, table.choose(chosen), refused, command)
        if curves != last:  # a run that was there already changes nothing
            _write(curves, experiment.output)
            last = curves
        return curves

    for size, (some, plan) in plans.items():

        def on_table(summary: Summary, size: int | None = size) -> None:
            refused.update(
                {(size, line.key, seed): reason for line in summary.lines for seed, reason in line.refused.items()}
            )
            written()

        reproduce(table, some, plan, rows=chosen, command=command, watch=watch, on_table=on_table)
    return written()


def _write(curves: Curves, folder: Path) -> None:
    """Write ``curves.json``, ``curves.md`` and, once there is something to draw, ``curves.svg``."""
    content = json.dumps(rounded(asdict(curves)), indent=2, ensure_ascii=False) + "\n"
    files = {"curves.json": content.encode(), "curves.md": _markdown(curves).encode()}
    if curves.panels:
        files["curves.svg"] = draw_curves(curves, "svg")
    write_files(folder, files)


def _markdown(curves: Curves) -> str:
    """Return tables of all figures, and what is missing."""
    lines = [f"# Learning curves: {curves.title}", ""]
    lines += ["![Macro-F1 against training documents](curves.svg)", ""] if curves.panels else []
    lines += ["F1 on test in percent by the size of the training sample, mean ± standard deviation over the seeds.", ""]
    subjects = {"micro": "Micro-F1, all labels"} | {panel: f"Macro-F1, {of}" for panel, of in curves.panels.items()}
    for panel, subject in subjects.items():
        for decisions, how in (("tuned", "decisions tuned on dev"), ("half", "decisions at one half")):

            def f1(point: Point, decisions: str = decisions, panel: str = panel) -> str:
                spread = point.scores[decisions].get(panel)
                if spread is None:
                    return ""
                return f"{spread.mean:.1f}" + ("" if spread.sd is None else f" ± {spread.sd:.1f}")

            lines += _table(curves, f"{subject}, {how}", f1)
    time, unit = time_shown(point for points in curves.points.values() for point in points)
    lines += _table(
        curves,
        unit[0].upper() + unit[1:],
        lambda point: "" if (spent := getattr(point, time)) is None else f"{spent.mean:,.0f}",
    )
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
