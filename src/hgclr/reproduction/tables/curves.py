"""Learning curves: the table of systems at several sizes of the training sample."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from hgclr.errors import InputError
from hgclr.files import write_files
from hgclr.reproduction.tables.budget import Budget
from hgclr.reproduction.tables.curve_plot import draw_curves
from hgclr.reproduction.tables.curve_points import ALL, RARE, Curves, Point, collect, size_name
from hgclr.reproduction.tables.experiment import Experiment
from hgclr.reproduction.tables.layout import TABLES
from hgclr.reproduction.tables.runner import Watch, check_runs, reproduce, unwatched
from hgclr.reproduction.tables.summary import Spread, Summary
from hgclr.reproduction.tables.writing import MISSING, rounded

__all__ = ["ROWS", "SEEDED", "parse_sizes", "run_curves", "write_curves"]

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
