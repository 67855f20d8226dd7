"""Sum up the runs of a table."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hgclr.config import method_settings
from hgclr.errors import InputError
from hgclr.paper.experiment import RESUMED, Experiment, NotYetError, kept_fraction, record
from hgclr.paper.systems import CORPORA, SYSTEMS, Row, Table
from hgclr.provenance import first_difference, portable

__all__ = ["AVERAGES", "Line", "Spread", "Summary", "finished_runs", "summarise"]

AVERAGES = ("micro", "macro")


@dataclass(frozen=True)
class Spread:
    """Values of several runs, their mean and their standard deviation (of a sample: n - 1), which one run has not."""

    values: list[float]
    mean: float
    sd: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread | None:
        """Sum up values; None if there are none."""
        if not values:
            return None
        return cls(list(values), statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None)


@dataclass(frozen=True)
class Line:
    """A row of the table; scores are in percent, by ``micro`` and ``macro``.

    Args:
        key: the row's key.
        title: what the table calls it.
        paper: the paper's F1.
        ours: ours on the split that the table shows, where a label is given from a probability of one half.
        difference: mean of ours minus the paper's.
        paper_gain: the paper's F1 minus that of its base row.
        gain: ours minus that of the base row, seed by seed.
        tuned: ours with decisions tuned on dev (of dev itself, on the halves that were not tuned on).
        tuned_gain: that minus that of the base row, seed by seed.
        seconds: of training; runs that were killed and went on are left out.
        kept: share of tokens in positive samples.
        refused: why it could not be run, by seed.
        runs: each seed's scores on dev and test, seconds, recipe, machine (place in the summary's ``machines``).
        settings: all settings of its first run but the seed.
        documents, labels: sizes.
    """

    key: str
    title: str
    paper: dict[str, float] | None
    ours: dict[str, Spread] | None
    difference: dict[str, float] | None
    paper_gain: dict[str, float] | None
    gain: dict[str, Spread] | None
    tuned: dict[str, Spread] | None
    tuned_gain: dict[str, Spread] | None
    seconds: Spread | None
    kept: Spread | None
    refused: dict[int, str]
    runs: list[dict[str, Any]]
    settings: dict[str, Any] | None
    documents: dict[str, int] | None
    labels: int | None


@dataclass(frozen=True)
class Summary:
    """A table, ready to be written."""

    name: str
    title: str
    setting: str
    split: str
    corpus: str
    base: str
    seeds: list[int]
    lines: list[Line]
    notes: list[str]
    machines: list[dict[str, Any]]
    command: str

    def to_json(self) -> dict[str, Any]:
        """Return everything in plain Python types; the lines are called ``rows``, as on the command line."""
        content = asdict(self)
        return {"rows" if name == "lines" else name: value for name, value in content.items()}


WHOLE = 0.95
"""Share of tokens from which a positive sample hardly differs from the text."""


def setting_of(table: Table, experiment: Experiment, lines: Sequence[Line], seeds: Sequence[int]) -> str:
    """Return a line on what the table was made from."""
    done = [line for line in lines if line.documents is not None]
    parts = [experiment.data.name]
    if done:
        documents = done[0].documents or {}
        sizes = ", ".join(f"{split} {size:,}" for split, size in documents.items())
        parts.append(f"{done[0].labels:,} labels, documents: {sizes}")
    parts.append(Path(experiment.encoder).name)
    preset = "" if table.key == "systems" else f"preset {experiment.preset}, "
    parts.append(f"{preset}recipe {experiment.chosen_recipe}, {experiment.precision}")
    parts.append(f"{table.split} scores, seeds {', '.join(map(str, seeds))}")
    return "; ".join(parts)


def notes_of(table: Table, experiment: Experiment, lines: Sequence[Line], base: Row) -> list[str]:
    """Return what the figures mean, and what went otherwise than planned."""
    notes = list(table.notes)
    if any(line.paper for line in lines):
        corpus = CORPORA[experiment.corpus]
        notes.append(
            f"The paper's figures: {corpus}, all documents, bert-base-uncased, one seed. Where data, encoder or budget "
            f"are others, the difference from them means little; the gains over {base.title}, the paper's and ours, "
            "can be compared."
        )
    systems = [(line, SYSTEMS[line.key]) for line in lines if line.key in SYSTEMS]
    if any(system.length == 5 for _, system in systems):
        notes.append(
            "TextRCNN learns from scratch: its rows have five times the epochs and the patience of the others."
        )
    if experiment.preset != "default":
        chosen = method_settings(experiment.preset, {})
        notes.append(
            f"The preset {experiment.preset} holds for all rows: a head that starts from "
            f"{chosen['classifier_start']} weights, pooling {chosen['pooling']}, classification loss "
            f"{chosen['classification_loss']}, no documents of the label tree, decisions at one half."
        )
    if experiment.chosen_recipe == "paper":
        for line, system in systems:
            if own := system.recipe:
                listed = ", ".join(f"{name} {value}" for name, value in own.items())
                notes.append(f"{line.title} has the recipe of its own paper: {listed}.")
    if positives := [_positives(line) for line in lines if line.kept is not None]:
        notes.append(f"Share of tokens that positive samples kept: {'; '.join(positives)}.")
    if any(len(line.runs) > 1 for line in lines):
        notes.append("± is the standard deviation over the seeds; gains are taken seed by seed, on the same documents.")
    for line in lines:
        notes.extend(f"{line.title}, seed {seed}, could not be run: {reason}" for seed, reason in line.refused.items())
    resumed = [line.title for line in lines if any(run["resumed"] for run in line.runs)]
    if resumed:
        notes.append(f"Killed and resumed, left out of the seconds: runs of {', '.join(resumed)}.")
    return notes


def _positives(line: Line) -> str:
    """Say what the positive samples of a row were."""
    assert line.kept is not None
    text = "" if line.kept.mean < WHOLE else ", as good as the text itself"
    return f"{line.title} {line.kept.mean:.1%}{text}"


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
