"""HGCLR against the flat model and the controls between them, until dev stops rising: one sample, several seeds."""

from __future__ import annotations

import hashlib
import math
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from hgclr.data.folder import SPLITS, DataFolder, Document, remembered, write_corpus
from hgclr.data.tokens import sample_documents
from hgclr.errors import HGCLRError, InputError
from hgclr.files import json_bytes, sha256, write_files
from hgclr.metrics.intervals import BootstrapScores, Resampled
from hgclr.paper.experiment import (
    PREDICTIONS,
    Budget,
    Experiment,
    NotYetError,
    Watch,
    check_runs,
    read_bits,
    run_systems,
    unwatched,
    write_bits,
)
from hgclr.paper.systems import SYSTEMS, TABLES, System
from hgclr.paper.tables import MISSING, Summary, markdown, markdown_table, rounded, summarise
from hgclr.presentation import COLOURS, Plot, draw, legend_above
from hgclr.provenance import first_difference
from hgclr.training import RunConfig, train
from hgclr.training.fitting import Plan
from hgclr.training.run_checks import data_folder

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FIRST = ("bert", "hgclr")
"""Arms that are run with every seed before the others."""
EPOCHS = 30
"""Epochs at most under the recipe ``default``; the paper's has its own."""
TRAINING = {
    "paper": ("training.batch_size=12", "training.patience_metrics=[macro_f1]", "training.calibrate=true"),
    "default": ("training.calibrate=true",),
}
"""By preset, settings of every arm where its preset or the recipe may have others."""
SAMPLE_SEED = 0
"""Decides which documents are drawn; training seeds do not."""
SCORES = ("macro_f1", "micro_f1")
RESAMPLES = 2000
"""Resamples of seeds and documents behind an interval."""
GAIN, NEGLIGIBLE = 2.0, 1.0
"""Points of Macro-F1: the mean gain that confirms the paper, and the largest one that is of no use."""
Z = statistics.NormalDist().inv_cdf(0.975)
"""Standard deviations in half of a 95 % interval."""
INTERVALS = (
    "Points of F1 on test, mean over seeds, and 95 % intervals: a bootstrap over seeds and documents with"
    f" {RESAMPLES:,} resamples; of one seed, over documents alone. The sd is of the paired differences in Macro-F1."
)
RULE = (
    f"A mean gain in Macro-F1 of {GAIN:g} or more with an interval above 0 is useful; of HGCLR over flat, under the"
    f" preset paper, it confirms the paper. An interval within ±{NEGLIGIBLE:g} is no useful effect at this size; all"
    " else is undecided. The number of seeds that decide is sd² / ((h / 1.96)² − v), with h the half-width that decides"
    " and v the variance over documents."
)
STEPS = 10
"""Steps of each arm that are timed before the first run."""
COLOUR_OF = {
    "bert": COLOURS[0],
    "hgclr": COLOURS[1],
    "two-passes": COLOURS[5],
    "random": COLOURS[4],
    "no-contrastive": COLOURS[3],
    "hgclr-published": COLOURS[2],
}


@dataclass(frozen=True)
class Difference:
    """How many points of F1 on test one arm is above another, with runs of both by the same seeds.

    Args:
        score: ``macro_f1`` or ``micro_f1``, ``decisions`` ``half`` or ``tuned``.
        values: the differences, seed by seed; ``mean`` and ``sd`` are theirs.
        low, high: ends of the 95 % interval over seeds and documents.
        document_sd: standard deviation of the mean over resamples of the documents alone.
        verdict: by the decision rule; None for Micro-F1 and for one seed.
        seeds_needed: how many seeds an undecided difference would take; None if more seeds would not decide it.
    """

    arm: str
    base: str
    score: str
    decisions: str
    seeds: list[int]
    values: list[float]
    mean: float
    low: float
    high: float
    sd: float | None
    document_sd: float
    verdict: str | None = None
    seeds_needed: int | None = None


@dataclass(frozen=True)
class Estimate:
    """Hours that the runs left of an arm will take; ``measured`` from a few steps, as if no run stopped early."""

    arm: str
    runs: int
    hours: float
    cpu_hours: float
    measured: bool


@dataclass(frozen=True)
class Regime:
    """Scores of the arms, the differences between them, and dev Macro-F1 in percent by arm, seed and epoch."""

    summary: Summary
    differences: list[Difference]
    dev_macro_f1: dict[str, dict[int, list[float]]]

    @property
    def answer(self) -> Difference | None:
        """The primary comparison: HGCLR against flat, Macro-F1 at 0.5."""
        return next((each for each in self.differences if each.arm == "hgclr" and each.base == "bert"), None)


def shared_sample(experiment: Experiment, per_leaf: int | None = None) -> Experiment:
    """Write the documents that all runs share as a data folder, and return the experiment on it with all its settings.

    The budget's sizes choose dev, test and, without ``per_leaf``, train. With it, train has so many documents of each
    leaf, or all where there are fewer; the leaf of a document is its deepest label, the first of several.

    Raises:
        InputError: if the data lacks a split, or the output folder holds another sample.
    """
    base = experiment.base()
    source = data_folder(base, base.data.taxonomy)
    tree = source.taxonomy
    budget = experiment.budget or Budget()
    chosen = base.data.model_copy(update=budget.settings()["data"])
    limits = {"train": chosen.limit, "dev": chosen.dev_limit, "test": chosen.test_limit}
    if per_leaf is not None and limits["train"] is not None:
        raise InputError("both --per-leaf and the documents of --budget choose train", remedy="leave one of them out")
    settings = {
        "files": {split: sha256(source.split_path(split)) for split in SPLITS},
        "tree": hashlib.sha256(json_bytes([tree.ids, tree.names, tree.parents.tolist()])).hexdigest(),
        "reading": asdict(source.form),
        "per_leaf": per_leaf,
        "limits": limits,
        "seed": SAMPLE_SEED,
    }
    target = experiment.output / "data" / source.path.name
    if not (made := remembered(target, "settings")):
        with write_corpus(target, name="regime", settings=settings) as writer:
            writer.taxonomy = tree
            for split, limit in limits.items():
                sample = None if limit is None else (limit, SAMPLE_SEED)
                drawn = sample_documents(source, split, sample)
                if split == "train" and per_leaf is not None:
                    drawn = _leaf_sample(source, per_leaf)
                for document in drawn:
                    writer.add(split, document.text, [tree.ids[label] for label in document.labels])
    elif difference := first_difference(made, settings):
        place, before, now = difference
        raise InputError(
            f"holds another sample: {place} is {before!r:.80} there and {now!r:.80} here",
            path=target,
            remedy="give another --output",
        )
    recipe = experiment.recipe or "default"
    epochs = budget.epochs or (EPOCHS if recipe == "default" else None)
    # How documents are read and chosen has made the sample, and does not fit it.
    sampling = [f"data.{name}" for name in type(base.data).model_fields if name != "label_documents"]
    others = [each for each in experiment.overrides if each.partition("=")[0].strip() not in sampling]
    return replace(
        experiment,
        data=target,
        recipe=recipe,
        budget=Budget(length=budget.length, epochs=epochs),
        overrides=(*TRAINING[experiment.preset], *others),
        keep_predictions=True,
    )


def _leaf_sample(source: DataFolder, per_leaf: int) -> Iterator[Document]:
    """Yield so many random documents of each leaf, in the order of train."""
    depths, places = source.taxonomy.depths, defaultdict[int, list[int]](list)
    for place, document in enumerate(source.usable("train")):
        places[max(document.labels, key=lambda label: depths[label])].append(place)
    random = np.random.default_rng(SAMPLE_SEED)
    chosen: set[int] = set()
    for _, each in sorted(places.items()):
        chosen.update(random.permutation(each)[:per_leaf].tolist())
    for place, document in enumerate(source.usable("train")):
        if place in chosen:
            yield document


def difference_over_seeds(first: Sequence[Resampled], second: Sequence[Resampled], score: str) -> dict[str, Any]:
    """Return ``values``, ``mean``, ``low``, ``high``, ``sd`` and ``document_sd`` of a :class:`Difference`.

    The two are runs of two arms by the same seeds, on the same resamples of the same documents. With ``d_sb`` the
    difference of seed ``s`` in resample ``b`` and ``S_b`` n seeds drawn with replacement::

        D_b = mean over s of d_sb + √(n / (n - 1)) (mean over S_b of d_sb - mean over s of d_sb)

    The root makes up for the variance of n values drawn from n, which is too small. The interval lies between quantiles
    of the ``D_b``, moved so that their mean is the difference: labels missing from a resample lower its Macro-F1.
    """
    values = np.array(
        [100 * (one.scores[score] - other.scores[score]) for one, other in zip(first, second, strict=True)]
    )
    samples = np.array(
        [100 * (one.samples[score] - other.samples[score]) for one, other in zip(first, second, strict=True)]
    )  # (n, B)
    seeds, resamples = samples.shape
    drawn = np.random.default_rng(SAMPLE_SEED).integers(seeds, size=samples.shape)
    over_documents = samples.mean(axis=0)  # (B,)
    over_both = samples[drawn, np.arange(resamples)].mean(axis=0)
    both = over_documents + math.sqrt(seeds / max(seeds - 1, 1)) * (over_both - over_documents)
    low, high = np.quantile(both - both.mean() + values.mean(), [0.025, 0.975]).tolist()
    return {
        "values": values.tolist(),
        "mean": float(values.mean()),
        "low": low,
        "high": high,
        "sd": float(values.std(ddof=1)) if seeds > 1 else None,
        "document_sd": float(over_documents.std(ddof=1)),
    }


def judge(difference: Difference, preset: str = "paper") -> Difference:
    """Return the difference with its verdict by the decision rule, fixed in ``benchmarks/notes/hgclr-regime.md``.

    An undecided one says how many seeds it would take, ``n = sd² / ((h / 1.96)² - document_sd²)``, with h the
    half-width that decides: the mean, if it is 2 or more, else 1 less its size.
    """
    if difference.sd is None:
        return difference
    mean, low, high = difference.mean, difference.low, difference.high
    if mean >= GAIN and low > 0:
        of_paper = preset == "paper" and difference.base == "bert" and difference.arm.startswith("hgclr")
        return replace(difference, verdict="confirms the paper" if of_paper else "a useful gain")
    if low >= -NEGLIGIBLE and high <= NEGLIGIBLE:
        return replace(difference, verdict="no useful effect at this size")
    half_width = mean if mean >= GAIN else NEGLIGIBLE - abs(mean)
    room = (half_width / Z) ** 2 - difference.document_sd**2
    needed = None
    if half_width > 0 and room > 0:
        needed = max(len(difference.values) + 1, math.ceil(difference.sd**2 / room))
    return replace(difference, verdict="undecided", seeds_needed=needed)


def compare_arms(runs: Mapping[str, Mapping[int, Mapping[str, Resampled]]], preset: str) -> list[Difference]:
    """Compare every arm with flat, and HGCLR with every other arm; Macro-F1 at 0.5 of HGCLR and flat comes first.

    The last pair, HGCLR with λ = 0 and flat with two passes, has the effect of the tokens that are left out.

    ``runs`` are resampled scores by arm, seed and decisions, ``preset`` that of the experiment.
    """
    pairs = [("hgclr", "bert"), *((arm, "bert") for arm in runs if arm not in FIRST)]
    pairs += [*(("hgclr", arm) for arm in runs if arm not in FIRST), ("no-contrastive", "two-passes")]
    differences = []
    for arm, base in pairs:
        seeds = [seed for seed in runs.get(arm, ()) if seed in runs.get(base, ())]
        for score in SCORES:
            for decisions in ("half", "tuned") if seeds else ():
                first, second = ([runs[key][seed][decisions] for seed in seeds] for key in (arm, base))
                numbers = difference_over_seeds(first, second, score)
                difference = Difference(arm, base, score, decisions, seeds, **numbers)
                differences.append(judge(difference, preset) if score == "macro_f1" else difference)
    return differences


class _MeasuredError(Exception):
    """Enough steps were timed."""


class _Stopwatch(TrainerCallback):
    """Time a few steps and one evaluation of dev, in seconds and CPU seconds, (2,), and end the run."""

    def __init__(self) -> None:
        self.times: list[NDArray[np.float64]] = []

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self.times.append(np.array([time.monotonic(), time.process_time()]))
        control.should_evaluate = len(self.times) > STEPS

    on_train_begin = on_step_end

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        steps = self.times[1:] if len(self.times) > 2 else self.times  # without the first step, which is slow
        self.step = (steps[-1] - steps[0]) / (len(steps) - 1)
        self.evaluation = np.array([time.monotonic(), time.process_time()]) - self.times[-1]
        raise _MeasuredError


def measure_run(run: RunConfig) -> NDArray[np.float64]:
    """Return seconds and CPU seconds, (2,), that a run takes if it does not stop early: some of it is run and timed."""
    watch, plans = _Stopwatch(), list[Plan]()
    with tempfile.TemporaryDirectory(prefix="hgclr-") as folder, suppress(_MeasuredError):
        train(run.model_copy(update={"output": Path(folder)}), callbacks=[watch], on_start=plans.append)
    recipe, documents = plans[0].recipe, plans[0].documents
    assert recipe is not None
    epochs = recipe.epochs * (recipe.steps_per_epoch * watch.step + watch.evaluation)
    # At the end dev is tuned on and scored, test scored and predicted.
    seconds: NDArray[np.float64] = epochs + 2 * (1 + documents["test"] / documents["dev"]) * watch.evaluation
    return seconds


def estimate_hours(systems: Sequence[System], seeds: Sequence[int], experiment: Experiment) -> list[Estimate]:
    """Return how long the runs that are left will take, by arm: as its finished runs did, else by measured steps."""
    estimates = []
    for system in systems:
        finished = experiment.finished_runs(system, seeds)
        left = [seed for seed in seeds if seed not in finished]
        whole = [(run["seconds"], run["cpu_seconds"]) for run in finished.values() if not run["resumed"]]
        if not left:
            continue
        try:
            run = experiment.run(system, left[0])
        except NotYetError:  # it costs what the arm does that decides its settings
            run = experiment.run(SYSTEMS[str(system.after)], left[0])
        try:
            seconds = np.mean(whole, axis=0) if whole else measure_run(run)
        except HGCLRError:  # it is reported when its turn comes
            continue
        hours, cpu_hours = (len(left) * seconds / 3600).tolist()
        estimates.append(Estimate(system.key, len(left), hours, cpu_hours, not whole))
    return estimates


def run_regime(
    seeds: Sequence[int],
    experiment: Experiment,
    *,
    per_leaf: int | None = None,
    rows: Sequence[str] | None = None,
    command: str = "",
    watch: Watch = unwatched,
    on_estimate: Callable[[list[Estimate]], None] | None = None,
) -> Regime:
    """Run the arms and write ``regime.json``, ``.md`` and ``.svg`` after each run: flat and HGCLR with all seeds first.

    The arguments are those of :func:`~hgclr.paper.tables.reproduce`; ``per_leaf`` is that of :func:`shared_sample`.
    The experiment's preset is ``paper`` or, in files named ``regime-default``, ``default``.
    ``on_estimate`` is called with the time that the runs will take, before the first one; without it nothing is
    measured. Finished runs stay, killed ones are resumed.
    """
    table, name = TABLES["regime"], "regime" if experiment.preset == "paper" else f"regime-{experiment.preset}"
    arms = table.choose(rows)
    experiment = shared_sample(experiment, per_leaf)
    systems = check_runs(table, seeds, experiment, rows)
    if on_estimate is not None:
        on_estimate(estimate_hours(systems, seeds, experiment))
    data = DataFolder(experiment.data)
    tree, gold_rows = data.taxonomy, [document.labels for document in data.usable("test")]
    gold = np.zeros((len(gold_rows), len(tree)), dtype=np.bool_)
    for row, labels in enumerate(gold_rows):
        gold[row, list(labels)] = True
    write_bits(experiment.output / "gold.npz", gold=gold)
    refused: dict[tuple[str, int], str] = {}
    resampled: dict[str, dict[int, dict[str, Resampled]]] = {row.system: {} for row in table.rows}
    last: Regime | None = None

    def written() -> Regime:
        nonlocal last
        summary = replace(summarise(table, arms, seeds, experiment, refused, command), name=name)
        dev: dict[str, dict[int, list[float]]] = {}
        for key, scores in resampled.items():
            system, runs = SYSTEMS[key], experiment.finished_runs(SYSTEMS[key], seeds)
            for seed in runs:
                kept = experiment.folder(system, seed) / PREDICTIONS
                if seed not in scores and kept.exists():  # else it was killed, and is completed when its turn comes
                    scores[seed] = {}
                    for decisions, predicted in read_bits(kept).items():
                        bootstrap = BootstrapScores(tree, RESAMPLES)
                        bootstrap.update(predicted, gold)
                        scores[seed][decisions] = bootstrap.resampled()
            if runs:
                dev[key] = {seed: [100 * each["macro_f1"] for each in run["history"]] for seed, run in runs.items()}
        regime = Regime(summary, compare_arms(resampled, experiment.preset), dev)
        if regime == last:  # a run that was there already changes nothing
            return regime
        content = {"rows" if key == "lines" else key: value for key, value in asdict(summary).items()}
        content |= {"differences": [asdict(each) for each in regime.differences], "dev_macro_f1": dev}
        files = {f"{name}.json": json_bytes(rounded(content)), f"{name}.md": regime_markdown(regime).encode()}
        if dev:
            files[f"{name}.svg"] = draw_regime(regime).svg
        write_files(experiment.output, files)
        last = regime
        return regime

    for first in (True, False):
        some = [system for system in systems if (system.key in FIRST) == first]
        for _ in run_systems(some, seeds, experiment, watch, refused):
            written()
    return written()


def difference_cells(regime: Regime) -> list[list[str]]:
    """Return the headings and then the cells of each pair of arms and kind of decisions."""
    titles = {line.key: line.title for line in regime.summary.lines}
    macro, micro = ([each for each in regime.differences if each.score == score] for score in SCORES)
    return [
        ["difference", "decisions", "Macro-F1", "sd", "Micro-F1", "seeds", "verdict"],
        *(
            [
                f"{titles[one.arm]} − {titles[one.base]}",
                "at 0.5" if one.decisions == "half" else "tuned",
                _interval(one),
                MISSING if one.sd is None else f"{one.sd:.2f}",
                _interval(other),
                str(len(one.seeds)),
                in_words(one),
            ]
            for one, other in zip(macro, micro, strict=True)
        ),
    ]


def _interval(difference: Difference) -> str:
    return f"{difference.mean:+.2f} ({difference.low:+.2f} to {difference.high:+.2f})"


def in_words(difference: Difference) -> str:
    """Return the verdict on a difference, with what an undecided one would take."""
    if difference.verdict != "undecided":
        return difference.verdict or "none from one seed"
    if difference.high < 0 or difference.low > 0:
        what, side = ("a loss", "below") if difference.high < 0 else ("a gain", "above")
        return f"undecided by the rule; {what}, because the whole interval is {side} 0"
    if difference.seeds_needed is not None:
        return f"undecided; about {difference.seeds_needed} seeds would decide"
    if -NEGLIGIBLE < difference.mean < NEGLIGIBLE or difference.mean >= GAIN:
        return "undecided; it takes more test documents"
    return "undecided; more seeds would not decide at this mean"


def answer_line(regime: Regime) -> str:
    """Return the primary comparison with its verdict."""
    if (answer := regime.answer) is None:
        return "HGCLR and flat have no seed in common yet."
    return f"HGCLR − flat, test Macro-F1 at 0.5: {_interval(answer)}. Verdict: {in_words(answer)}."


def regime_markdown(regime: Regime) -> str:
    """Return the verdict, the table of the arms, the differences with their intervals, and the plot."""
    title, _, table = markdown(regime.summary).partition("\n\n")
    lines = [title, "", f"**{answer_line(regime)}**", "", table]
    if regime.differences:
        lines += ["## Differences", "", *markdown_table(difference_cells(regime)), ""]
        lines += ["The primary comparison is the one above; all others are secondary.", "", INTERVALS, "", RULE, ""]
    if regime.dev_macro_f1:
        lines += ["## Dev Macro-F1 by epoch", "", f"![Dev Macro-F1 by epoch and arm]({regime.summary.name}.svg)", ""]
    return "\n".join(lines)


def draw_epochs(
    axes: Axes, dev_macro_f1: Mapping[str, Mapping[Any, Sequence[float]]], titles: Mapping[str, str]
) -> None:
    """Draw dev Macro-F1 against epochs: thin lines are seeds, thick ones their mean while all of them train.

    ``dev_macro_f1`` is by arm, seed and epoch, ``titles`` by arm.
    """
    for arm, seeds in dev_macro_f1.items():
        colour, curves = COLOUR_OF[arm], list(seeds.values())
        for curve in curves:
            axes.plot(range(1, len(curve) + 1), curve, color=colour, linewidth=0.6, alpha=0.35)
        mean = [statistics.fmean(epoch) for epoch in zip(*curves, strict=False)]
        axes.plot(range(1, len(mean) + 1), mean, color=colour, linewidth=2, label=titles[arm])
    axes.set_xlabel("epoch")
    axes.locator_params("x", integer=True)
    axes.set_ylim(bottom=0)


def draw_regime(regime: Regime) -> Plot:
    """Plot dev Macro-F1 at 0.5 against epochs, with one colour for each arm."""
    titles = {line.key: line.title for line in regime.summary.lines}

    def fill(figure: Figure) -> str:
        axes = figure.subplots()
        draw_epochs(axes, regime.dev_macro_f1, titles)
        axes.set_title("Dev Macro-F1 at 0.5, %")
        axes.grid(visible=True)
        legend_above(axes, 3)
        return f"dev Macro-F1 by epoch: {regime.summary.setting}"

    return draw("regime", fill)
