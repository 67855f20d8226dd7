"""Settings that all rows of a table share, settings of each run, and the runs, which are resumed and made once."""

from __future__ import annotations

import logging
import shutil
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedConfig, TrainerCallback

from hgclr.config import method_settings
from hgclr.data.folder import RowForm, row_form
from hgclr.data.tokens import sample_documents
from hgclr.decisions.settings import Decisions
from hgclr.errors import HGCLRError, InputError
from hgclr.files import atomic_file, read_json, write_json
from hgclr.inference import HierarchicalClassifier
from hgclr.paper.classical import run_classical
from hgclr.paper.models.hiagm import BaselineConfig
from hgclr.paper.systems import PRESETS_BY_CORPUS, SYSTEMS, System, Table
from hgclr.provenance import first_difference
from hgclr.remote import local
from hgclr.training import RunConfig, train
from hgclr.training.run_checks import CHECKPOINTS, MODEL, data_folder
from hgclr.training.settings import TrainingSettings

logger = logging.getLogger(__name__)
OPTIONS = {
    "data.path": "--data",
    "model.architecture": "--rows",
    "model.encoder": "--encoder",
    "model.preset": "--preset",
    "model.start": "--encoder",
    "training.precision": "--precision",
    "training.recipe": "--recipe",
    "training.seed": "--seeds",
    "output": "--output",
}
"""Settings that have their own option."""
PATIENCE = {"published": {"patience_metrics": ["macro_f1", "micro_f1"]}}
"""Metrics that early stopping watches, where a preset has its own; see ``configs/published``."""
SETTINGS = "settings.json"
"""File in the folder of a run with all its settings."""
RESUMED = "resumed"
"""Empty file in the folder of a run that was killed and resumed: its seconds are those of the last part."""
PREDICTIONS = "predictions.npz"
"""File in the folder of a run with the labels that it predicts on test, where they are kept."""
BUDGET_KEYS = ("documents", "length", "epochs", "dev", "test")
BUDGET_EXAMPLE = "documents=1500,length=64,epochs=8"


class NotYetError(Exception):
    """A system's settings depend on a run that has not been made."""


@dataclass(frozen=True)
class Budget:
    """Limits of all rows of a table; None is no limit.

    ``documents`` is the size of the random sample of training documents, drawn for each seed; ``length`` the tokens
    read of a text; ``dev`` and ``test`` the sizes of the samples scored, by default as many as ``documents``, or all
    with ``scores_all``. Systems that need more epochs get a multiple of them (``System.length``).
    """

    documents: int | None = None
    length: int | None = None
    epochs: int | None = None
    dev: int | None = None
    test: int | None = None
    scores_all: bool = False

    @classmethod
    def parse(cls, text: str) -> Budget:
        """Read ``key=number`` pairs with commas between them.

        Example:
            >>> Budget.parse("documents=1500, epochs=8")
            Budget(documents=1500, length=None, epochs=8, dev=None, test=None, scores_all=False)
        """
        values: dict[str, Any] = {}
        for part in text.split(","):
            key, _, value = (piece.strip() for piece in part.partition("="))
            if key not in BUDGET_KEYS:
                known = f"known are {', '.join(BUDGET_KEYS)}, as in {BUDGET_EXAMPLE}"
                raise InputError(f"--budget has no {key!r}", remedy=known)
            if key in values:
                raise InputError(f"--budget has {key!r} twice")
            if not value.isascii() or not value.isdigit() or int(value) < 1:
                remedy = f"give a whole number from 1, as in {BUDGET_EXAMPLE}"
                raise InputError(f"--budget: {key} is {value!r}", remedy=remedy)
            values[key] = int(value)
        return cls(**values)

    def settings(self) -> dict[str, dict[str, Any]]:
        """Return the limits as settings of a run, without those that are None."""
        scored = None if self.scores_all else self.documents
        data = {"limit": self.documents, "dev_limit": self.dev or scored, "test_limit": self.test or scored}
        sections = {"data": data, "model": {"max_length": self.length}, "training": {"epochs": self.epochs}}
        return {
            section: {name: value for name, value in values.items() if value is not None}
            for section, values in sections.items()
        }

    def __str__(self) -> str:
        """Describe the limits, for the title of a table."""
        words = {"documents": "document", "length": "token", "epochs": "epoch"}
        bounds = {word: bound for key, word in words.items() if (bound := getattr(self, key)) is not None}
        parts = [f"{bound:,} {word}{'' if bound == 1 else 's'}" for word, bound in bounds.items()]
        scored = [f"{split} {size:,}" for split, size in (("dev", self.dev), ("test", self.test)) if size is not None]
        return ", ".join([*parts, *(f"scored on {sample}" for sample in scored)])


@dataclass(frozen=True)
class Experiment:
    """Settings that all rows share.

    Args:
        output: folder of the tables and, in ``runs``, of the runs.
        preset: preset of all rows whose system has none: start of the head, pooling, loss, label documents, tuned
            decisions and, unless ``recipe`` is given, the recipe.
        corpus: the corpus of the paper that the data is, which decides λ and γ and the paper's scores beside ours.
        recipe: optimisation recipe of all rows; by default that of the paper under the paper's presets.
        overrides: settings ``section.key=value`` of all rows; settings of a row's system override them.
        keep_models: leave the trained models in the runs' folders.
        keep_predictions: write the labels predicted on test into the runs' folders (:func:`write_predictions`).
    """

    data: Path
    encoder: str
    output: Path
    preset: str = "default"
    corpus: str | None = None
    recipe: str | None = None
    precision: str = "fp32"
    budget: Budget | None = None
    overrides: tuple[str, ...] = ()
    keep_models: bool = False
    keep_predictions: bool = False

    @property
    def chosen_recipe(self) -> str:
        return self.recipe or ("default" if self.preset == "default" else "paper")

    def folder(self, system: System, seed: int) -> Path:
        """Return the folder of a run; each of the paper's presets has its own parent folder."""
        runs = "runs" if self.preset == "default" else f"runs-{self.preset}"
        return self.output / runs / f"{system.key}-{seed}"

    def base(self) -> RunConfig:
        """Return the settings that all runs share; refuse an override of a setting that has its own option."""
        budget = {} if self.budget is None else self.budget.settings()
        reserved = OPTIONS | {f"{section}.{name}": "--budget" for section, values in budget.items() for name in values}
        for override in self.overrides:
            key = override.partition("=")[0].strip()
            if key in reserved:
                raise InputError(f"--set {override!r}: {key} is decided by {reserved[key]}", remedy="use that option")
        tree: dict[str, Any] = {
            "data": {"path": str(self.data)},
            "model": {"encoder": self.encoder, "preset": self.preset},
            "training": {"recipe": self.chosen_recipe, "precision": self.precision},
            "output": str(self.output),
        }
        run = RunConfig.build(tree, self.overrides)
        method_settings(self.preset, run.model.overrides)
        return run

    def run(self, system: System, seed: int) -> RunConfig:
        """Return the settings of one run: the preset's, the corpus', the user's, the budget's, the row's.

        Raises:
            NotYetError: if they depend on a run that has not been made.
        """
        preset = system.preset or self.preset
        base = self.base().model_dump(exclude_unset=True, exclude={"output"})
        if self.budget is not None:
            base = {section: {**base[section], **values} for section, values in self.budget.settings().items()}
        own = system.published if preset == "published" and system.published is not None else system.model
        model = {**self.released(system), **base["model"], **own}
        if model.get("architecture") == "hgclr":
            model = {**PRESETS_BY_CORPUS.get((preset, self.corpus or ""), {}), **model}
        recipe = self.recipe_of(system)
        training = {**PATIENCE.get(preset, {}), **recipe, **base["training"], **system.training}
        training["seed"] = seed
        if system.length > 1:
            given = base["training"]
            if "patience" in given or "patience" not in recipe:
                training["patience"] = system.length * given.get("patience", TrainingSettings().patience)
            if "epochs" in given:
                training["epochs"] = system.length * given["epochs"]
            elif system.after is not None:  # else the recipe itself gives it as many
                training["epochs"] = system.length * self._before(system, seed)["recipe"]["epochs"]
        if model.get("positives") == "random":
            kept = kept_fraction(self._before(system, seed))
            if kept is None:
                raise InputError(f"the runs of {system.after!r} did not record the share of kept tokens")
            model |= {"keep_fraction": round(kept, 6), "keep_threshold": None}
        model["preset"] = preset
        data = {**base["data"], **system.data}
        if system.classical is not None:
            data["label_documents"] = False
            model = {"encoder": model["encoder"], "max_length": model.get("max_length")}
        sections = {"data": data, "model": model, "training": training, "output": self.folder(system, seed)}
        run = RunConfig.model_validate(sections)
        if system.classical is None:
            try:
                method_settings(preset, run.model.overrides)
            except InputError as error:
                raise InputError(f"row {system.key}: {error.what}", remedy=error.remedy) from None
        return run

    def released(self, system: System) -> dict[str, Any]:
        """Return the model settings with which a system's authors released it; {} under the preset ``default``."""
        if self.preset == "default":
            return {}
        return {**system.released, **system.released_on.get(self.corpus or "wos", {})}

    def recipe_of(self, system: System) -> Mapping[str, Any]:
        """Return the training settings of a system's paper; {} unless the recipe is ``paper``."""
        return system.recipe if self.chosen_recipe == "paper" else {}

    def _before(self, system: System, seed: int) -> dict[str, Any]:
        metrics = self.finished(SYSTEMS[str(system.after)], seed)
        if metrics is None:
            raise NotYetError
        return metrics

    def finished(self, system: System, seed: int) -> dict[str, Any] | None:
        """Return the metrics of a finished run, or None; its settings are not compared."""
        return _read_json(self.folder(system, seed) / "metrics.json")

    def finished_runs(self, system: System, seeds: Sequence[int]) -> dict[int, dict[str, Any]]:
        """Return by seed the metrics of a system's finished runs that have the settings of this experiment.

        Their ``settings`` are the record of the run; ``resumed`` tells whether it was killed and resumed.
        """
        runs = {}
        for seed in seeds:
            folder = self.folder(system, seed)
            metrics, made = self.finished(system, seed), _read_json(folder / SETTINGS)
            if metrics is None or made is None:
                continue
            try:
                wanted = record(system, self.run(system, seed))
            except (InputError, NotYetError):
                continue
            if first_difference(made, wanted, shared=True) is None:
                runs[seed] = metrics | {"settings": made, "resumed": (folder / RESUMED).exists()}
        return runs


def kept_fraction(metrics: dict[str, Any]) -> float | None:
    """Return the share of tokens that positive samples kept, over all epochs; None if there were none."""
    kept = [epoch["kept"] for epoch in metrics["history"] if "kept" in epoch]
    return min(1.0, statistics.fmean(kept)) if kept else None


def record(system: System, run: RunConfig) -> dict[str, Any]:
    """Return all settings that decide a run, defaults included.

    Settings of the method have the values of their preset, because a preset may change.
    """
    sections = run.model_dump(mode="json", exclude={"output"})
    chosen_form = {field.name: getattr(run.data, field.name) for field in fields(RowForm)}
    form = asdict(row_form(local(run.data.path), **chosen_form))
    settings: dict[str, Any] = {
        "data": sections["data"] | form | {"label_documents": run.uses_label_documents},
        "training": sections["training"] | {"calibrate": run.tunes_decisions, "refit_head": run.refits_head},
    }
    if system.classical is not None:
        length = run.model.overrides["max_length"]
        encoder = None if length is None else run.model.encoder  # whose tokens are counted
        return settings | {"model": {"classifier": system.classical, "encoder": encoder, "max_length": length}}
    method = BaselineConfig(**method_settings(run.model.preset, run.model.overrides))
    names = {field.name for field in fields(BaselineConfig)} - {field.name for field in fields(PreTrainedConfig)}
    names -= {"encoder_config", "label_name_length", "special_token_ids"}  # not settings, as the label tree:
    names -= {f"label_{kind}" for kind in ("parents", "names", "descriptions", "alternatives", "codes", "more_parents")}
    chosen = {name: value for name, value in sections["model"].items() if name not in names}
    return settings | {"model": chosen | {name: getattr(method, name) for name in sorted(names)}}


def _read_json(path: Path) -> dict[str, Any] | None:
    return read_json(path) if path.exists() else None


@dataclass(frozen=True)
class Step:
    """The current run: row ``number`` of ``total``, which includes the rows that others depend on."""

    number: int
    total: int
    seed: int
    system: str


Watch = Callable[[Step], AbstractContextManager[tuple[Sequence[TrainerCallback], Callable[[int], None] | None]]]
"""Open a display of a run: callbacks of the trainer, and a function to call with the number of documents read."""


@contextmanager
def unwatched(step: Step) -> Iterator[tuple[Sequence[TrainerCallback], None]]:
    """Log the run, and show no progress."""
    logger.info("row %d of %d, seed %d: %s", step.number, step.total, step.seed, step.system)
    yield (), None


def run_systems(
    systems: Sequence[System],
    seeds: Sequence[int],
    experiment: Experiment,
    watch: Watch = unwatched,
    refused: dict[tuple[str, int], str] | None = None,
) -> Iterator[dict[tuple[str, int], str]]:
    """Run systems with every seed; yield after each run why some could not be run, by system and seed.

    Seeds are the outer loop, so that every system has a score after the first seed. If a system cannot be run (memory,
    data, a missing extra), the others continue. ``refused`` are the runs that an earlier call could not make.
    """
    refused = {} if refused is None else refused
    for seed in seeds:
        for number, system in enumerate(systems, 1):
            if system.after is not None and (reason := refused.get((system.after, seed))) is not None:
                refused[system.key, seed] = f"it needs a run of {system.after}, which was refused: {reason}"
                continue
            try:
                _run(system, experiment, Step(number, len(systems), seed, system.key), watch)
            except HGCLRError as error:
                refused[system.key, seed] = str(error)
            yield refused


def check_runs(
    table: Table, seeds: Sequence[int], experiment: Experiment, rows: Sequence[str] | None = None
) -> list[System]:
    """Return the systems to run for rows of a table, each after the system that it depends on.

    Raises:
        InputError: if a row is unknown, the data lacks a split, or ``experiment.output`` holds runs with other
            settings.
    """
    needed = [key for row in table.choose(rows) for key in (SYSTEMS[row.system].after, row.system) if key is not None]
    systems = [SYSTEMS[key] for key in dict.fromkeys(needed)]
    if not seeds or len(set(seeds)) < len(seeds):
        raise InputError(f"the seeds are {', '.join(map(str, seeds)) or 'none'}", remedy="give each seed once")
    base = experiment.base()
    may_hold_out = table.split == "dev" and base.data.dev_share is not None
    if not may_hold_out and table.split not in data_folder(base, base.data.taxonomy).splits:
        hold_out = ", or hold out a tenth of train with --set data.dev_share=0.1" if table.split == "dev" else ""
        raise InputError(
            f"{table.key} shows scores on {table.split}, and there is no such split",
            path=base.data.path,
            remedy=f"add {table.split}.jsonl{hold_out}",
        )
    for seed in seeds:
        for system in systems:
            try:
                _check_place(system, seed, experiment)
            except NotYetError:  # checked again when its turn comes
                continue
    return systems


def _check_place(system: System, seed: int, experiment: Experiment) -> dict[str, object]:
    """Return the record of a run; raise an InputError if its folder holds another run."""
    folder = experiment.folder(system, seed)
    wanted = record(system, experiment.run(system, seed))
    finished = experiment.finished(system, seed) is not None
    if not finished and not (folder / CHECKPOINTS).exists():  # a row that was refused, or killed early, left nothing
        return wanted
    remedy = "give another --output, or delete that folder"
    there = _read_json(folder / SETTINGS)
    if there is None:
        raise InputError(f"{folder} holds a run that hgclr reproduce did not make", remedy=remedy)
    if difference := first_difference(there, wanted, shared=True):
        place, before, now = difference
        raise InputError(
            f"{folder} holds a run with other settings: {place} is {before!r} there and {now!r} here", remedy=remedy
        )
    if finished and experiment.keep_models and system.classical is None and not (folder / "training-model").is_dir():
        raise InputError(f"the run in {folder} is finished, and its models were not kept", remedy=remedy)
    if finished and experiment.keep_predictions and not any((folder / name).exists() for name in (PREDICTIONS, MODEL)):
        raise InputError(f"the run in {folder} is finished, and its predictions were not kept", remedy=remedy)
    return wanted


def _run(system: System, experiment: Experiment, step: Step, watch: Watch) -> None:
    """Make or resume one run; a finished run stays."""
    wanted = _check_place(system, step.seed, experiment)
    folder = experiment.folder(system, step.seed)
    checkpoints = folder / CHECKPOINTS
    if experiment.finished(system, step.seed) is None:
        write_json(folder / SETTINGS, wanted)
        if checkpoints.exists():
            (folder / RESUMED).touch()
        run = experiment.run(system, step.seed)
        with watch(step) as (callbacks, on_documents):
            if system.classical is not None:
                run_classical(system.classical, run, on_documents=on_documents)
            else:
                train(run, resume=True, callbacks=callbacks, on_documents=on_documents)
    elif not checkpoints.exists():  # predictions are written and models deleted
        return
    if experiment.keep_predictions and not (folder / PREDICTIONS).exists():
        write_predictions(experiment.run(system, step.seed), folder)
    if not experiment.keep_models:
        for name in ("model", "training-model"):
            shutil.rmtree(folder / name, ignore_errors=True)
    shutil.rmtree(checkpoints, ignore_errors=True)


def write_predictions(run: RunConfig, folder: Path) -> None:
    """Write the labels that the model of a run predicts on test, (N, K): at 0.5 as ``half``, and as ``tuned``."""
    classifier = HierarchicalClassifier.load(folder / MODEL)
    data, limit = data_folder(run, classifier.taxonomy), run.data.test_limit
    documents = sample_documents(data, "test", None if limit is None else (limit, run.training.seed))
    logits = classifier.outputs(documents).logits
    decisions = {"half": Decisions(classifier.taxonomy), "tuned": classifier.decisions}
    predicted = {name: each.decide(each.probabilities(logits)).predicted for name, each in decisions.items()}
    write_bits(folder / PREDICTIONS, **predicted)


def write_bits(path: Path, **matrices: NDArray[np.bool_]) -> None:
    """Write bool matrices of one shape, (N, K), each as its name with rows packed into bits; ``labels`` is K."""
    bits: dict[str, Any] = {name: np.packbits(matrix, axis=1) for name, matrix in matrices.items()}
    with atomic_file(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, labels=next(iter(matrices.values())).shape[1], **bits)


def read_bits(path: Path) -> dict[str, NDArray[np.bool_]]:
    """Return the matrices that :func:`write_bits` wrote."""
    with np.load(path) as file:
        packed, labels = {name: file[name] for name in file.files if name != "labels"}, int(file["labels"])
    return {name: np.unpackbits(rows, axis=1, count=labels).view(np.bool_) for name, rows in packed.items()}
