"""A table: what the runs of its rows come to, beside the paper's figures; as people read it, and as files."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hgclr.config import method_settings
from hgclr.files import json_bytes, write_files
from hgclr.paper.experiment import Experiment, kept_fraction
from hgclr.paper.systems import CORPORA, SYSTEMS, SystemRow, Table
from hgclr.provenance import portable

__all__ = [
    "MISSING",
    "Spread",
    "Summary",
    "csv_bytes",
    "machines_of",
    "markdown_table",
    "rounded",
    "summarise",
    "table_cells",
    "time_shown",
    "training_time",
    "write_table",
]

MISSING = "—"
AVERAGES = ("micro", "macro")
SPREAD = {"mean": "sd", "gain": "gain_sd", "tuned_mean": "tuned_sd", "tuned_gain": "tuned_gain_sd"}
"""Columns of the CSV over several runs, and those of their standard deviations."""
WHOLE = 0.95
"""Share of tokens from which a positive sample hardly differs from the text."""
Runs = Mapping[int, dict[str, Any]]
"""Metrics by seed."""


@dataclass(frozen=True)
class Spread:
    """Values of several runs, their mean and their standard deviation (of a sample: n - 1), which one run has not."""

    values: list[float]
    mean: float
    sd: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread | None:
        """Sum values up; None if there are none."""
        if not values:
            return None
        return cls(list(values), statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None)


@dataclass(frozen=True)
class TableLine:
    """A row of the table; scores are in percent, by ``micro`` and ``macro``.

    Args:
        paper: the paper's F1.
        ours: ours on the split that the table shows, where a label is given from a probability of one half.
        difference: mean of ours minus the paper's.
        paper_gain: the paper's F1 minus that of its base row.
        gain: ours minus that of the base row, seed by seed.
        tuned: ours with decisions tuned on dev (of dev itself, on the halves that were not tuned on).
        tuned_gain: that minus that of the base row, seed by seed.
        seconds, cpu_seconds: of training; runs that were killed and went on are left out.
        kept: share of tokens in positive samples.
        refused: why it could not be run, by seed.
        runs: each seed's scores on dev and test, seconds, recipe, machine (place in the summary's ``machines``).
        settings: all settings of its first run but the seed.
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
    cpu_seconds: Spread | None
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
    corpus: str | None
    base: str
    seeds: list[int]
    lines: list[TableLine]
    notes: list[str]
    machines: list[dict[str, Any]]
    command: str

    def to_json(self) -> dict[str, Any]:
        """Return everything in plain Python types; the lines are called ``rows``, as on the command line."""
        return {"rows" if name == "lines" else name: value for name, value in asdict(self).items()}


def summarise(
    table: Table,
    chosen: Sequence[SystemRow],
    seeds: Sequence[int],
    experiment: Experiment,
    refused: Mapping[tuple[str, int], str],
    command: str,
) -> Summary:
    """Sum up the chosen rows, and other rows of the table that are done with the same settings.

    ``refused`` tells why a row could not be run, by its key and the seed.
    """
    runs = {
        row.system: {} if row.printed else experiment.finished_runs(SYSTEMS[row.system], seeds) for row in table.rows
    }
    base = next(row for row in table.rows if row.system == table.base)
    shown = [
        row
        for row in table.rows
        if row in chosen or runs[row.system] or (row.printed and experiment.corpus in row.paper)
    ]
    machines = machines_of(runs[row.system] for row in shown)
    lines = []
    for row in shown:
        reasons = {seed: refused[row.system, seed] for seed in seeds if (row.system, seed) in refused}
        lines.append(_line(row, None if row == base else base, table.split, experiment.corpus, runs, reasons, machines))
    budget = "" if experiment.budget is None else f" (budget: {experiment.budget})"
    return Summary(
        name=table.key if experiment.preset == "default" else f"{table.key}-{experiment.preset}",
        title=table.title + budget,
        setting=_setting(table, experiment, lines, seeds),
        split=table.split,
        corpus=experiment.corpus,
        base=base.title,
        seeds=list(seeds),
        lines=lines,
        notes=_notes(table, experiment, lines, base),
        machines=machines,
        command=command,
    )


def machines_of(rows: Iterable[Runs]) -> list[dict[str, Any]]:
    """Return the machines that the runs of rows were made on, each once."""
    machines: list[dict[str, Any]] = []
    for run in (run for runs in rows for run in runs.values()):
        if run["machine"] not in machines:
            machines.append(run["machine"])
    return machines


def training_time(runs: Runs) -> dict[str, Spread | None]:
    """Return ``seconds`` and ``cpu_seconds`` of training, without runs that were killed and went on.

    Runs made before CPU time was noted have none of it.
    """
    whole = [run for run in runs.values() if not run["resumed"]]
    return {name: Spread.of([run[name] for run in whole if name in run]) for name in ("seconds", "cpu_seconds")}


def _line(
    row: SystemRow,
    base: SystemRow | None,
    split: str,
    corpus: str | None,
    all_runs: Mapping[str, Runs],
    refused: dict[int, str],
    machines: list[dict[str, Any]],
) -> TableLine:
    """Sum up one row; ``base`` is the row that gains are measured from, None for that row itself."""
    runs, base_runs = all_runs[row.system], {} if base is None else all_runs[base.system]
    ours, gain = _scores_and_gains(runs, base_runs, split, tuned=False)
    tuned, tuned_gain = _scores_and_gains(runs, base_runs, split, tuned=True)
    paper, base_paper = (
        dict(zip(AVERAGES, each.paper[str(corpus)], strict=True)) if each and corpus in each.paper else None
        for each in (row, base)
    )
    first: dict[str, Any] = next(iter(runs.values()), {})
    settings: dict[str, Any] | None = None
    if first:
        training = {name: value for name, value in first["settings"]["training"].items() if name != "seed"}
        settings = portable(first["settings"] | {"training": training})
    return TableLine(
        key=row.system,
        title=row.title,
        paper=paper,
        ours=ours,
        difference={average: ours[average].mean - paper[average] for average in AVERAGES} if paper and ours else None,
        paper_gain={average: paper[average] - base_paper[average] for average in AVERAGES}
        if paper and base_paper
        else None,
        gain=gain,
        tuned=tuned,
        tuned_gain=tuned_gain,
        **training_time(runs),
        kept=Spread.of([kept for run in runs.values() if (kept := kept_fraction(run)) is not None]),
        refused=refused,
        runs=[_run(seed, run, machines) for seed, run in runs.items()],
        settings=settings,
        documents=first.get("documents"),
        labels=first.get("labels"),
    )


def _scores_and_gains(
    runs: Runs, base_runs: Runs, split: str, *, tuned: bool
) -> tuple[dict[str, Spread] | None, dict[str, Spread] | None]:
    """Return Micro- and Macro-F1, and what they gain over the base's seed by seed; None where no run has them."""
    scores, gains = {}, {}
    for average in AVERAGES:
        own, of_base = (
            {seed: value for seed, run in some.items() if (value := _f1(run, split, average, tuned=tuned)) is not None}
            for some in (runs, base_runs)
        )
        if (spread := Spread.of(list(own.values()))) is not None:
            scores[average] = spread
        if (spread := Spread.of([value - of_base[seed] for seed, value in own.items() if seed in of_base])) is not None:
            gains[average] = spread
    return scores or None, gains or None


def _f1(run: Mapping[str, Any], split: str, average: str, *, tuned: bool) -> float | None:
    """Return the F1 of a run in percent, at one half or with tuned decisions; on dev, that of halves not tuned on."""
    scores = (run.get("tuned") or {}) if tuned else run
    if split not in scores:
        return None
    of_halves = tuned and split == "dev"
    return float(100 * (scores["dev"]["after"][f"{average}_f1"] if of_halves else scores[split][average]["f1"]))


def _run(seed: int, run: dict[str, Any], machines: list[dict[str, Any]]) -> dict[str, Any]:
    splits: list[str] = [split for split in ("dev", "test") if split in run]
    half, tuned = (
        {split: {average: _f1(run, split, average, tuned=is_tuned) for average in AVERAGES} for split in splits}
        for is_tuned in (False, True)
    )
    return {
        "seed": seed,
        **half,
        "tuned": {**tuned, **{name: run["tuned"].get(name) for name in ("rule", "thresholds")}}
        if "tuned" in run
        else None,
        "seconds": run["seconds"],
        "cpu_seconds": run.get("cpu_seconds"),
        "resumed": run["resumed"],
        "kept": kept_fraction(run),
        "label_documents": run.get("label_documents", 0),
        "epochs": len(run["history"]),
        "precision": run["precision"],
        "recipe": run["recipe"],
        "commit": run["machine"]["commit"],
        "machine": machines.index(run["machine"]),
    }


def _setting(table: Table, experiment: Experiment, lines: Sequence[TableLine], seeds: Sequence[int]) -> str:
    parts = [experiment.data.name]
    if done := next((line for line in lines if line.documents is not None), None):
        sizes = ", ".join(f"{split} {size:,}" for split, size in (done.documents or {}).items())
        parts.append(f"{done.labels:,} labels, documents: {sizes}")
    parts.append(Path(experiment.encoder).name)
    preset = "" if table.key == "systems" else f"preset {experiment.preset}, "
    parts.append(f"{preset}recipe {experiment.chosen_recipe}, {experiment.precision}")
    parts.append(f"{table.split} scores, seeds {', '.join(map(str, seeds))}")
    return "; ".join(parts)


def _notes(table: Table, experiment: Experiment, lines: Sequence[TableLine], base: SystemRow) -> list[str]:
    """Return what the figures mean, and what went otherwise than planned."""
    notes = list(table.notes)
    if experiment.corpus is not None and any(line.paper for line in lines):
        notes += table.figure_notes
        notes.append(
            f"The paper's figures: {CORPORA[experiment.corpus]}, all documents, bert-base-uncased, one seed. Where "
            f"data, encoder or budget are others, the difference from them means little; the gains over {base.title}, "
            "the paper's and ours, can be compared."
        )
    systems = [(line, SYSTEMS[line.key]) for line in lines if line.key in SYSTEMS]
    scratch = any(system.length == 5 for _, system in systems)
    if scratch and experiment.chosen_recipe == "default":
        notes.append(
            "TextRCNN learns from scratch: its rows have five times the epochs and the patience of the others."
        )
    elif scratch and experiment.budget is not None and experiment.budget.epochs is not None:
        notes.append("TextRCNN learns from scratch: its rows have five times the epochs of the budget.")
    if experiment.preset != "default":
        chosen = method_settings(experiment.preset, {})
        over = " (over TextRCNN the maximum over time)" if scratch else ""
        notes.append(
            f"The preset {experiment.preset} holds for all rows: a head that starts from "
            f"{chosen['classifier_start']} weights, pooling {chosen['pooling']}{over}, classification loss "
            f"{chosen['classification_loss']}, no documents of the label tree, decisions at one half."
        )
    for line, system in systems:
        parts = [("recipe", experiment.recipe_of(system)), ("model", experiment.released(system))]
        listed = "; ".join(
            f"{name}: {', '.join(f'{key} {value}' for key, value in settings.items())}"
            for name, settings in parts
            if settings
        )
        if listed:
            notes.append(f"{line.title} is as its own authors released it, unless set otherwise: {listed}.")
    kept = [
        f"{line.title} {line.kept.mean:.1%}{', as good as the text itself' if line.kept.mean >= WHOLE else ''}"
        for line in lines
        if line.kept is not None
    ]
    if kept:
        notes.append(f"Share of tokens that positive samples kept: {'; '.join(kept)}.")
    if any(len(line.runs) > 1 for line in lines):
        notes.append("± is the standard deviation over the seeds; gains are taken seed by seed, on the same documents.")
    for line in lines:
        notes.extend(f"{line.title}, seed {seed}, could not be run: {reason}" for seed, reason in line.refused.items())
    if resumed := [line.title for line in lines if any(run["resumed"] for run in line.runs)]:
        notes.append(f"Killed and resumed, left out of the seconds: runs of {', '.join(resumed)}.")
    return notes


def write_table(summary: Summary, folder: Path) -> list[Path]:
    """Write a table into ``folder`` as Markdown, CSV and JSON, each whole or not at all, and return the files."""
    files = {
        "md": markdown(summary).encode(),
        "csv": csv_bytes([_numbers(line) for line in summary.lines]),
        "json": json_bytes(rounded(summary.to_json())),
    }
    return write_files(folder, {f"{summary.name}.{suffix}": content for suffix, content in files.items()})


def table_cells(summary: Summary) -> list[list[str]]:
    """Return the headings and then each row's cells; columns for which no row has a figure are left out."""
    paper = any(line.paper is not None for line in summary.lines)
    tuned = any(line.tuned is not None for line in summary.lines)
    gain = f"gain over {summary.base}"
    columns: dict[str, Callable[[TableLine], str]] = {"Micro / Macro-F1": lambda line: line.title}
    if paper:
        columns["paper"] = lambda line: _pair(line.paper)
    columns["at one half" if tuned else "ours"] = lambda line: (
        "refused" if line.ours is None and line.refused else _pair(line.ours)
    )
    if paper:
        columns["ours − paper"] = lambda line: _pair(line.difference, signed=True)
        columns[f"{gain}, paper"] = lambda line: _pair(line.paper_gain, signed=True)
    columns[f"{gain}, ours" if paper else gain] = lambda line: _pair(line.gain, signed=True)
    if tuned:
        columns["tuned on dev"] = lambda line: _pair(line.tuned)
        columns["gain, tuned"] = lambda line: _pair(line.tuned_gain, signed=True)
    columns["seeds"] = lambda line: str(len(line.runs))
    time, unit = time_shown(summary.lines)
    columns[unit] = lambda line: MISSING if (spent := getattr(line, time)) is None else f"{spent.mean:,.0f}"
    columns["kept"] = lambda line: MISSING if line.kept is None else f"{line.kept.mean:.1%}"
    return [list(columns), *([cell(line) for cell in columns.values()] for line in summary.lines)]


def time_shown(timed: Iterable[Any]) -> tuple[str, str]:
    """Return which time of training to show, as a name and in words: CPU time, if all have it, else that of the clock.

    A busy machine makes the clock's longer. ``timed`` have both, as lines of a table and points of a curve do.
    """
    if all(one.cpu_seconds is not None for one in timed if one.seconds is not None):
        return "cpu_seconds", "CPU seconds"
    return "seconds", "seconds"


def _pair(values: Mapping[str, float | Spread] | None, *, signed: bool = False) -> str:
    return MISSING if values is None else " / ".join(_number(values[average], signed) for average in AVERAGES)


def _number(value: float | Spread, signed: bool) -> str:
    mean, sd = value, ""
    if isinstance(value, Spread):
        mean, sd = value.mean, f" ± {MISSING if value.sd is None else f'{value.sd:.2f}'}"
    return (f"{mean:+.2f}" if signed else f"{mean:.2f}") + sd


def markdown(summary: Summary) -> str:
    """Return the table with its title, what it was made from, and its notes."""
    lines = [f"# {summary.title}", "", summary.setting + ".", "", *markdown_table(table_cells(summary)), ""]
    notes = list(summary.notes)
    for facts in summary.machines:
        commit = MISSING if facts["commit"] is None else str(facts["commit"])[:10]
        changed = " with changes" if facts["modified"] else ""
        packages = ", ".join(f"{name} {facts['packages'].get(name)}" for name in ("torch", "transformers"))
        notes.append(f"Commit {commit}{changed}; {facts['processor']}, {facts['threads']} threads; {packages}.")
    lines += [f"- {note}" for note in dict.fromkeys(notes)]
    if summary.command:
        lines += ["", f"Made by `{summary.command}`."]
    return "\n".join(lines) + "\n"


def markdown_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table whose first row are headings and whose first column is text, the others numbers."""
    ruled = [rows[0], ["---", *["---:"] * (len(rows[0]) - 1)], *rows[1:]]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in ruled]


def csv_bytes(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Return a table as a CSV file with the keys of its rows as headings; a cell for None is empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def _numbers(line: TableLine) -> dict[str, Any]:
    """Return the cells of a row of the CSV by column, one number in each."""
    row: dict[str, Any] = {"key": line.key, "title": line.title, "seeds": len(line.runs)}
    for average in AVERAGES:
        for name, value in (
            ("paper", line.paper),
            ("mean", line.ours),
            ("difference", line.difference),
            ("paper_gain", line.paper_gain),
            ("gain", line.gain),
            ("tuned_mean", line.tuned),
            ("tuned_gain", line.tuned_gain),
        ):
            number = None if value is None else value[average]
            row[f"{average}_{name}"] = number.mean if isinstance(number, Spread) else number
            if name in SPREAD:
                row[f"{average}_{SPREAD[name]}"] = number.sd if isinstance(number, Spread) else None
    for name in ("seconds", "cpu_seconds", "kept"):
        spread: Spread | None = getattr(line, name)
        row[name] = None if spread is None else spread.mean
    row["refused"] = "; ".join(line.refused.values())
    return {name: round(value, 4) if isinstance(value, float) else value for name, value in row.items()}


def rounded(value: Any) -> Any:
    """Return the same with numbers short enough to read; more digits than any score is sure of."""
    if isinstance(value, dict):
        return {str(name): rounded(inside) for name, inside in value.items()}
    if isinstance(value, list):
        return [rounded(inside) for inside in value]
    return round(value, 6) if isinstance(value, float) and abs(value) > 0.01 else value
