"""The paper's tables: run their rows, and write the scores beside the paper's as Markdown and JSON."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from hgclr.config import method_settings
from hgclr.data.check import describe
from hgclr.data.folder import DataFolder, remembered
from hgclr.files import json_bytes, write_files
from hgclr.paper.experiment import Experiment, Watch, check_runs, kept_fraction, run_systems, unwatched
from hgclr.paper.systems import CORPORA, LITERATURE, SYSTEMS, SystemRow, Table
from hgclr.provenance import portable

MISSING = "—"
AVERAGES = ("micro", "macro")
WHOLE = 0.95
"""Share of tokens from which a positive sample hardly differs from the text."""
Runs = Mapping[int, dict[str, Any]]
"""Metrics by seed."""


@dataclass(frozen=True)
class Spread:
    """Values of several runs, their mean, and their sample standard deviation: None for one run."""

    values: list[float]
    mean: float
    sd: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread | None:
        """Return the spread of values, None if there are none."""
        if not values:
            return None
        return cls(list(values), statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None)


@dataclass(frozen=True)
class TableLine:
    """A row of the table; scores are in percent, by ``micro`` and ``macro``.

    ``ours`` is at a probability of 0.5, ``tuned`` with decisions tuned on dev (of dev itself, on the halves that were
    not tuned on). Gains are over the base row, ours seed by seed. Seconds are of training, without resumed runs.
    ``kept`` is the share of tokens in positive samples, ``refused`` by seed why a row could not be run, ``runs`` each
    seed's numbers, ``settings`` those of the first run without the seed.
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


def reproduce(
    table: Table,
    seeds: Sequence[int],
    experiment: Experiment,
    *,
    rows: Sequence[str] | None = None,
    command: str = "",
    watch: Watch = unwatched,
    on_table: Callable[[Summary], None] | None = None,
) -> Summary:
    """Run rows of a table with every seed and write the table after each run, into ``experiment.output``.

    ``rows`` are keys, by default all but the extra ones; ``command`` is the command line, for the record; ``on_table``
    is called each time that the table has been written. Input is checked before anything is run
    (:func:`~hgclr.paper.experiment.check_runs`).
    """
    chosen = table.choose(rows)
    systems = check_runs(table, seeds, experiment, rows)
    refused: dict[tuple[str, int], str] = {}

    def written() -> Summary:
        summary = summarise(table, chosen, seeds, experiment, refused, command)
        # The lines are called rows in the file, as on the command line.
        content = {"rows" if name == "lines" else name: value for name, value in asdict(summary).items()}
        files = {"md": markdown(summary).encode(), "json": json_bytes(rounded(content))}
        write_files(experiment.output, {f"{summary.name}.{suffix}": each for suffix, each in files.items()})
        if on_table is not None:
            on_table(summary)
        return summary

    for refused in run_systems(systems, seeds, experiment, watch):  # noqa: B007 - ``written`` reads it
        written()
    return written()


def summarise(
    table: Table,
    chosen: Sequence[SystemRow],
    seeds: Sequence[int],
    experiment: Experiment,
    refused: Mapping[tuple[str, int], str],
    command: str,
) -> Summary:
    """Return a table of the chosen rows, and of other rows with finished runs in the same settings.

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
    parts = [experiment.data.name]
    if done := next((line for line in lines if line.documents is not None), None):
        sizes = ", ".join(f"{split} {size:,}" for split, size in (done.documents or {}).items())
        parts.append(f"{done.labels:,} labels, documents: {sizes}")
    preset = "" if table.key == "systems" else f"preset {experiment.preset}, "
    parts += [Path(experiment.encoder).name, f"{preset}recipe {experiment.chosen_recipe}, {experiment.precision}"]
    parts.append(f"{table.split} scores, seeds {', '.join(map(str, seeds))}")
    return Summary(
        name=table.key if experiment.preset == "default" else f"{table.key}-{experiment.preset}",
        title=table.title + ("" if experiment.budget is None else f" (budget: {experiment.budget})"),
        setting="; ".join(parts),
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
    """Return ``seconds`` and ``cpu_seconds`` of training, without runs that were killed and resumed."""
    whole = [run for run in runs.values() if not run["resumed"]]
    return {name: Spread.of([run[name] for run in whole if name in run]) for name in ("seconds", "cpu_seconds")}


def scores_of(run: Mapping[str, Any], split: str, *, tuned: bool) -> Mapping[str, Any]:
    """Return a run's scores on a split, at 0.5 or with tuned decisions; {} if it has none."""
    at_half = f"{split}_at_0.5"
    if at_half not in run:  # a run of version 0.2
        return ((run.get("tuned") or {}).get(split) if tuned else run.get(split)) or {}
    if not tuned:
        return run[at_half]  # type: ignore[no-any-return]
    # The effort names is neither tuned nor scored at 0.5.
    return run[split] if "tuned" in run or run[split] != run[at_half] else {}


def _line(
    row: SystemRow,
    base: SystemRow | None,
    split: str,
    corpus: str | None,
    all_runs: Mapping[str, Runs],
    refused: dict[int, str],
    machines: list[dict[str, Any]],
) -> TableLine:
    """Return a line; ``base`` is the row that gains are measured from, None for that row itself."""
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
    """Return Micro- and Macro-F1, and their gains over the base's by seed; None if no run has them."""
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
    """Return the F1 of a run in percent; tuned F1 on dev is that of the halves that were not tuned on."""
    if tuned and split == "dev":
        halves = (run.get("tuned") or {}).get("dev")
        return None if halves is None else float(100 * halves["after"][f"{average}_f1"])
    scores = scores_of(run, split, tuned=tuned)
    return float(100 * scores[average]["f1"]) if scores else None


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


def _notes(table: Table, experiment: Experiment, lines: Sequence[TableLine], base: SystemRow) -> list[str]:
    """Return notes on the meaning of scores, on refused and on resumed runs."""
    notes = list(table.notes)
    if experiment.corpus is not None and any(line.paper for line in lines):
        notes += table.figure_notes
        notes.append(
            f"The paper's scores: {CORPORA[experiment.corpus]}, all documents, bert-base-uncased, one seed. With other "
            f"data, another encoder or a budget, compare the gains over {base.title}, not the scores."
        )
    systems = [(line, SYSTEMS[line.key]) for line in lines if line.key in SYSTEMS]
    scratch = any(system.length == 5 for _, system in systems)
    if scratch and (experiment.chosen_recipe == "default" or (experiment.budget and experiment.budget.epochs)):
        notes.append("TextRCNN has no pretrained weights: its rows have five times the others' epochs and patience.")
    if experiment.preset != "default":
        chosen = method_settings(experiment.preset, {})
        over = " (over TextRCNN the maximum over time)" if scratch else ""
        own = [line.title for line, system in systems if system.preset not in (None, experiment.preset)]
        tuned = any(line.tuned for line in lines)
        notes.append(
            f"All rows{' but ' * bool(own)}{', '.join(own)} have the preset {experiment.preset}: a head that starts "
            f"from {chosen['classifier_start']} weights, pooling {chosen['pooling']}{over}, classification loss "
            f"{chosen['classification_loss']}, no label documents{'' if tuned else ', decisions at 0.5'}."
        )
    for line, system in systems:
        parts = [("recipe", experiment.recipe_of(system)), ("model", experiment.released(system))]
        listed = "; ".join(
            f"{name}: {', '.join(f'{key} {value}' for key, value in settings.items())}"
            for name, settings in parts
            if settings
        )
        if listed:
            notes.append(f"{line.title} has the settings of its authors, unless set otherwise: {listed}.")
    kept = [
        f"{line.title} {line.kept.mean:.1%}{', almost the whole text' if line.kept.mean >= WHOLE else ''}"
        for line in lines
        if line.kept is not None
    ]
    if kept:
        notes.append(f"Share of tokens that positive samples kept: {'; '.join(kept)}.")
    if any(len(line.runs) > 1 for line in lines):
        notes.append("± is the standard deviation over seeds; gains are differences between runs with the same seed.")
    for line in lines:
        notes.extend(f"{line.title}, seed {seed}, could not be run: {reason}" for seed, reason in line.refused.items())
    if resumed := [line.title for line in lines if any(run["resumed"] for run in line.runs)]:
        notes.append(f"The seconds leave out runs that were killed and resumed, of {', '.join(resumed)}.")
    return notes


def table_cells(summary: Summary) -> list[list[str]]:
    """Return the headings and then each row's cells, without columns that no row has a value for."""
    paper = any(line.paper is not None for line in summary.lines)
    tuned = any(line.tuned is not None for line in summary.lines)
    gain = f"gain over {summary.base}"
    columns: dict[str, Callable[[TableLine], str]] = {"Micro / Macro-F1": lambda line: line.title}
    if paper:
        columns["paper"] = lambda line: _pair(line.paper)
    columns["at 0.5" if tuned else "ours"] = lambda line: (
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
    columns["CPU seconds"] = lambda line: MISSING if line.cpu_seconds is None else f"{line.cpu_seconds.mean:,.0f}"
    columns["kept"] = lambda line: MISSING if line.kept is None else f"{line.kept.mean:.1%}"
    return [list(columns), *([cell(line) for cell in columns.values()] for line in summary.lines)]


def _pair(values: Mapping[str, float | Spread] | None, *, signed: bool = False) -> str:
    """Return Micro and Macro as a cell shows them."""
    if values is None:
        return MISSING
    cells = []
    for value in (values[average] for average in AVERAGES):
        mean, sd = value, ""
        if isinstance(value, Spread):
            mean, sd = value.mean, f" ± {MISSING if value.sd is None else f'{value.sd:.2f}'}"
        cells.append((f"{mean:+.2f}" if signed else f"{mean:.2f}") + sd)
    return " / ".join(cells)


def markdown(summary: Summary) -> str:
    """Return the table with title, setting, notes and command."""
    lines = [f"# {summary.title}", "", summary.setting + ".", "", *markdown_table(table_cells(summary)), ""]
    notes = list(summary.notes)
    for facts in summary.machines:
        commit = MISSING if facts["commit"] is None else str(facts["commit"])[:10]
        changed = " with changes" if facts["modified"] else ""
        packages = ", ".join(f"{name} {facts['packages'].get(name)}" for name in ("torch", "transformers"))
        threads = "1 thread" if facts["threads"] == 1 else f"{facts['threads']} threads"
        notes.append(f"Commit {commit}{changed}; {facts['processor']}, {threads}; {packages}.")
    lines += [f"- {note}" for note in dict.fromkeys(notes)]
    if summary.command:
        lines += ["", f"Made by `{summary.command}`."]
    return "\n".join(lines) + "\n"


def markdown_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table whose first row are headings and whose first column is text, the others numbers."""
    ruled = [rows[0], ["---", *["---:"] * (len(rows[0]) - 1)], *rows[1:]]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in ruled]


def rounded(value: Any) -> Any:
    """Return the value with numbers rounded to six decimals, except those below 0.01."""
    if isinstance(value, dict):
        return {str(name): rounded(inside) for name, inside in value.items()}
    if isinstance(value, list):
        return [rounded(inside) for inside in value]
    return round(value, 6) if isinstance(value, float) and abs(value) > 0.01 else value


class CorpusFigures(NamedTuple):
    """A line of table 1; None for an absent split. Labels per document include all ancestors."""

    labels: int
    depth: int
    labels_per_document: float
    train: int | None
    dev: int | None
    test: int | None


PRINTED = {
    "wos": CorpusFigures(141, 2, 2.0, 30_070, 7_518, 9_397),
    "nyt": CorpusFigures(166, 8, 7.6, 23_345, 5_834, 7_292),
    "rcv1": CorpusFigures(103, 4, 3.24, 20_833, 2_316, 781_265),
}
"""The paper's table 1."""
HEAD = ["Dataset", "|Y|", "Depth", "Avg(|y|)", "Train", "Dev", "Test"]


def count_corpus(folder: Path, progress: Callable[[int], None] | None = None) -> CorpusFigures:
    """Count a data folder."""
    counted = describe(DataFolder(folder), progress=progress)
    sizes = {split: survey.documents for split, survey in counted.splits.items()}
    taxonomy, splits = counted.taxonomy, (sizes.get(split) for split in ("train", "dev", "test"))
    return CorpusFigures(len(taxonomy), taxonomy.depth, counted.labels_per_document, *splits)


def other_than_literature(folder: Path) -> list[str]:
    """Return options of ``hgclr data prepare`` that differ from those of published scores.

    It is empty for a folder that another program made.
    """
    wanted, settings = LITERATURE.get(str(remembered(folder).get("corpus")), {}), remembered(folder, "settings")
    return [
        f"prepared with --{option.replace('_', '-')} {settings.get(option)}; published scores are based on {value}"
        for option, value in wanted.items()
        if settings and settings.get(option) != value
    ]


def figure_cells(corpora: Mapping[str, CorpusFigures]) -> list[list[str]]:
    """Return the headings, and two rows for each corpus: the paper's and ours."""
    rows = [HEAD]
    for corpus, ours in corpora.items():
        for whose, figures in (("paper", PRINTED[corpus]), ("ours", ours)):
            sizes = (MISSING if size is None else f"{size:,}" for size in figures[3:])
            average = f"{figures.labels_per_document:.2f}"
            rows.append([f"{CORPORA[corpus]}, {whose}", str(figures.labels), str(figures.depth), average, *sizes])
    return rows


def write_table1(
    corpora: Mapping[str, CorpusFigures], notes: Mapping[str, Sequence[str]], output: Path, command: str
) -> list[Path]:
    """Write ``table1.md`` and ``table1.json``, and return the files."""
    text = ["# Table 1: the paper's corpora", "", *markdown_table(figure_cells(corpora)), ""]
    text += ["Labels are |Y|; Avg(|y|) is the mean number of labels of a document, ancestors counted.", ""]
    if listed := [f"- {CORPORA[corpus]}: {note}." for corpus, each in notes.items() for note in each]:
        text += [*listed, ""]
    text += [f"Made by `{command}`.", ""]
    content = {
        "corpora": {
            corpus: {"paper": PRINTED[corpus]._asdict(), "ours": ours._asdict(), "notes": list(notes[corpus])}
            for corpus, ours in corpora.items()
        },
        "command": command,
    }
    return write_files(output, {"table1.md": "\n".join(text).encode(), "table1.json": json_bytes(content)})
