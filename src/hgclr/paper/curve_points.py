"""Learning curves in numbers: what the runs of the table of systems come to at each size of the training sample."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hgclr.paper.experiment import Budget, Experiment
from hgclr.paper.summary import Spread, machines_of, training_time
from hgclr.paper.systems import SYSTEMS, SystemRow

__all__ = ["ALL", "RARE", "Curves", "Point", "collect_curves", "size_name"]

ALL = "all"
RARE = {"unseen": "labels not in train", "1-5": "labels 1 to 5 times in train"}
"""Groups of labels by frequency in the training sample that have a panel of their own, and its title."""
Plans = Mapping[int | None, tuple[Sequence[int], Experiment]]
"""By size, None being all documents: the seeds, and what all rows share."""


@dataclass(frozen=True)
class Point:
    """A system at one size; F1 on test in percent over the seeds.

    Args:
        size: the size that was asked for, or ``all``; ``documents`` is how many were read.
        seeds: those that are done.
        scores: by ``half`` or ``tuned``, then by panel: Macro-F1, but ``micro`` is Micro-F1 over all labels.
        seconds, cpu_seconds: of training; runs that were killed and went on are left out.
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

    Args:
        title: data, encoder and budget.
        sizes: those that were asked for, from few to many.
        rows: titles of the systems by key.
        panels: titles of the groups of labels that Macro-F1 is averaged over; the first is all of them.
        points: by the key of a system, from few documents to many.
        missing: what could not be run, or has not been yet, in words.
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
    plans: Plans, rows: Sequence[SystemRow], refused: Mapping[tuple[int | None, str, int], str], command: str
) -> Curves:
    """Read what the runs left behind; ``refused`` tells by size, system and seed why one could not be made."""
    points: dict[str, list[Point]] = {row.system: [] for row in rows}
    missing, made = [], []
    for size, (seeds, plan) in plans.items():
        documents = "all documents" if size is None else f"{size:,} documents"
        for row in rows:
            runs = plan.finished_runs(SYSTEMS[row.system], seeds)
            missing += [
                f"{row.title}, {documents}, seed {seed}: {refused.get((size, row.system, seed), 'not run yet')}"
                for seed in seeds
                if seed not in runs
            ]
            if runs:
                points[row.system].append(_point(size, runs))
                made.append(runs)
    plan = next(iter(plans.values()))[1]
    budget = str(replace(plan.budget or Budget(), documents=None))
    return Curves(
        title=", ".join([plan.data.name, Path(plan.encoder).name, *([budget] if budget else [])]),
        sizes=[size_name(size) for size in plans],
        rows={row.system: row.title for row in rows},
        panels=_panels([point for each in points.values() for point in each]),
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
            test = run["test"] if decisions == "half" else run.get("tuned", {}).get("test", {})
            for panel, value in _values(test):
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


def _panels(points: Sequence[Point]) -> dict[str, str]:
    """Return the titles of the panels that have a value: all labels, levels from the top, rare labels."""
    present = {panel for point in points for each in point.scores.values() for panel in each}
    levels = sorted((panel for panel in present if panel.startswith("level ")), key=lambda panel: int(panel.split()[1]))
    titles = {"macro": "all labels"} | {level: level for level in levels} | RARE
    return {panel: title for panel, title in titles.items() if panel in present}
