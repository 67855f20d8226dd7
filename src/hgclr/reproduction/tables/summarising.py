"""Sum up the runs of a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hgclr.errors import InputError
from hgclr.reproduction.comparing import first_difference
from hgclr.reproduction.provenance import portable
from hgclr.reproduction.tables.experiment import (
    RESUMED,
    Experiment,
    NotYetError,
    kept_fraction,
    record,
)
from hgclr.reproduction.tables.layout import Row, Table
from hgclr.reproduction.tables.notes import notes_of, setting_of
from hgclr.reproduction.tables.summary import AVERAGES, Line, Spread, Summary
from hgclr.reproduction.tables.systems import SYSTEMS

__all__ = ["finished_runs", "half_f1", "summarise", "tuned_f1"]


def summarise(
    table: Table,
    chosen: Sequence[Row],
    seeds: Sequence[int],
    experiment: Experiment,
    refused: Mapping[tuple[str, int], str],
    command: str,
) -> Summary:
    """Sum up the chosen rows, and other rows of the table that are done with the same settings.

    Args:
        table: which table.
        chosen: its rows that are being run.
        seeds: the seeds to show.
        experiment: what all rows share.
        refused: why a row could not be run, by its key and the seed.
        command: the command line, for the record.
    """
    runs = {row.system: {} if row.printed else finished_runs(row, seeds, experiment) for row in table.rows}
    base = next(row for row in table.rows if row.system == table.base)
    shown = [
        row
        for row in table.rows
        if row in chosen or runs[row.system] or (row.printed and experiment.corpus in row.paper)
    ]
    machines: list[dict[str, Any]] = []
    for metrics in (metrics for row in shown for metrics in runs[row.system].values()):
        if metrics["machine"] not in machines:
            machines.append(metrics["machine"])
    lines = [
        _line(
            row,
            base,
            table.split,
            experiment,
            runs[row.system],
            runs[base.system],
            {seed: refused[row.system, seed] for seed in seeds if (row.system, seed) in refused},
            machines,
        )
        for row in shown
    ]
    budget = "" if experiment.budget is None else f" (budget: {experiment.budget})"
    return Summary(
        name=table.key if experiment.preset == "default" else f"{table.key}-{experiment.preset}",
        title=table.title + budget,
        setting=setting_of(table, experiment, lines, seeds),
        split=table.split,
        corpus=experiment.corpus,
        base=base.title,
        seeds=list(seeds),
        lines=lines,
        notes=notes_of(table, experiment, lines, base),
        machines=machines,
        command=command,
    )


def finished_runs(row: Row, seeds: Sequence[int], experiment: Experiment) -> dict[int, dict[str, Any]]:
    """Return the metrics of a row's finished runs by seed, as far as they have the settings of this experiment."""
    system, found = SYSTEMS[row.system], {}
    for seed in seeds:
        metrics = experiment.finished(system, seed)
        if metrics is None:
            continue
        try:
            wanted = record(system, experiment.run(system, seed))
        except (InputError, NotYetError):
            continue
        made = experiment.settings_of(system, seed)
        if made is not None and first_difference(made, wanted, shared=True) is None:
            found[seed] = metrics | {
                "settings": made,
                "resumed": (experiment.folder(system, seed) / RESUMED).exists(),
            }
    return found


def _line(
    row: Row,
    base: Row,
    split: str,
    experiment: Experiment,
    runs: Mapping[int, dict[str, Any]],
    base_runs: Mapping[int, dict[str, Any]],
    refused: dict[int, str],
    machines: list[dict[str, Any]],
) -> Line:
    paper, base_paper = row.paper.get(experiment.corpus), base.paper.get(experiment.corpus)
    scores, gains = _scores_and_gains(half_f1, split, runs, base_runs)
    tuned, tuned_gains = _scores_and_gains(tuned_f1, split, runs, base_runs)
    if row == base:
        gains = tuned_gains = None
    figures = None if paper is None else dict(zip(AVERAGES, paper, strict=True))
    above = None
    if paper is not None and base_paper is not None and row != base:
        above = {average: of - at for average, of, at in zip(AVERAGES, paper, base_paper, strict=True)}
    first = next(iter(runs.values()), None)
    return Line(
        key=row.system,
        title=row.title,
        paper=figures,
        ours=scores,
        difference={name: scores[name].mean - value for name, value in figures.items()} if figures and scores else None,
        paper_gain=above,
        gain=gains,
        tuned=tuned,
        tuned_gain=tuned_gains,
        seconds=Spread.of([run["seconds"] for run in runs.values() if not run["resumed"]]),
        kept=Spread.of([kept for run in runs.values() if (kept := kept_fraction(run)) is not None]),
        refused=refused,
        runs=[_run(seed, run, machines) for seed, run in runs.items()],
        settings=None if first is None else _without_seed(first["settings"]),
        documents=None if first is None else first["documents"],
        labels=None if first is None else first["labels"],
    )


def _scores_and_gains(
    f1: Callable[[Mapping[str, Any], str, str], float | None],
    split: str,
    runs: Mapping[int, dict[str, Any]],
    base_runs: Mapping[int, dict[str, Any]],
) -> tuple[dict[str, Spread] | None, dict[str, Spread] | None]:
    """Return Micro- and Macro-F1, and what they gain over the base's seed by seed; None where no run has them."""
    scores, gains = {}, {}
    for average in AVERAGES:
        of = {seed: value for seed, run in runs.items() if (value := f1(run, split, average)) is not None}
        at = {seed: value for seed, run in base_runs.items() if (value := f1(run, split, average)) is not None}
        scores[average] = Spread.of(list(of.values()))
        gains[average] = Spread.of([value - at[seed] for seed, value in of.items() if seed in at])
    spreads = [{name: spread for name, spread in each.items() if spread is not None} for each in (scores, gains)]
    return spreads[0] or None, spreads[1] or None


def _run(seed: int, run: dict[str, Any], machines: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what is kept of one run."""
    splits: list[str] = [split for split in ("dev", "test") if split in run]
    scores = {split: {average: half_f1(run, split, average) for average in AVERAGES} for split in splits}
    tuned: dict[str, Any] | None = None
    if "tuned" in run:
        tuned = {split: {average: tuned_f1(run, split, average) for average in AVERAGES} for split in splits}
        tuned |= {name: run["tuned"].get(name) for name in ("rule", "thresholds")}
    return {
        "seed": seed,
        **scores,
        "tuned": tuned,
        "seconds": run["seconds"],
        "resumed": run["resumed"],
        "kept": kept_fraction(run),
        "label_documents": run.get("label_documents", 0),
        "epochs": len(run["history"]),
        "precision": run["precision"],
        "recipe": run["recipe"],
        "commit": run["machine"]["commit"],
        "machine": machines.index(run["machine"]),
    }


def half_f1(run: Mapping[str, Any], split: str, average: str) -> float | None:
    """Return the F1 of a run in percent, where a label is given from a probability of one half."""
    return float(100 * run[split][average]["f1"]) if split in run else None


def tuned_f1(run: Mapping[str, Any], split: str, average: str) -> float | None:
    """Return the F1 of a run in percent with decisions tuned on dev; on dev, that of halves not tuned on."""
    tuned = run.get("tuned")
    if tuned is None or split not in tuned:
        return None
    return float(100 * (tuned["dev"]["after"][f"{average}_f1"] if split == "dev" else tuned[split][average]["f1"]))


def _without_seed(settings: dict[str, Any]) -> dict[str, Any]:
    training = {name: value for name, value in settings["training"].items() if name != "seed"}
    kept: dict[str, Any] = portable(settings | {"training": training})
    return kept
