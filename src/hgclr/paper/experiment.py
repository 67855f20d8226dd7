"""What all rows of a table share, the settings of each run that follow from it, and what was run before."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from transformers import PreTrainedConfig

from hgclr.config import method_settings
from hgclr.data.folder import row_form
from hgclr.data.rows import RowForm
from hgclr.errors import InputError
from hgclr.files import read_json
from hgclr.models import HGCLRConfig
from hgclr.paper.systems import PRESETS_BY_CORPUS, SYSTEMS, System
from hgclr.provenance import first_difference
from hgclr.remote import local
from hgclr.training import RunConfig
from hgclr.training.settings import TrainingSettings

__all__ = ["RESUMED", "SETTINGS", "Budget", "Experiment", "NotYetError", "kept_fraction", "record"]

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
"""Settings that are decided by an option of their own."""
PATIENCE = {"published": {"patience_metrics": ["macro_f1", "micro_f1"]}}
"""What keeps training going, where a preset is particular about it; see ``configs/published``."""
SETTINGS = "settings.json"
"""File in the folder of a run with all that decides it."""
RESUMED = "resumed"
"""Empty file in the folder of a run that was killed and went on: its seconds are those of the last sitting."""
BUDGET_KEYS = ("documents", "length", "epochs", "dev", "test")
BUDGET_EXAMPLE = "documents=1500,length=64,epochs=8"


class NotYetError(Exception):
    """A system's settings depend on a run that has not been made."""


@dataclass(frozen=True)
class Budget:
    """What the rows of a table may spend; None is no bound.

    Args:
        documents: size of the random sample of training documents, another one for each seed.
        length: tokens of a text that are read.
        epochs: epochs; systems that take longer by nature get a multiple, see ``System.length``.
        dev: size of the sample of dev documents scored, by default as many as ``documents``.
        test: size of the sample of test documents scored, by default as many as ``documents``.
        scores_all: by default dev and test are scored whole instead.
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
        """Return the budget as settings of a run; nothing stands there for what has no bound."""
        scored = None if self.scores_all else self.documents
        data = {"limit": self.documents, "dev_limit": self.dev or scored, "test_limit": self.test or scored}
        sections = {"data": data, "model": {"max_length": self.length}, "training": {"epochs": self.epochs}}
        return {
            section: {name: value for name, value in values.items() if value is not None}
            for section, values in sections.items()
        }

    def __str__(self) -> str:
        """Say it in words, for the title of a table."""
        words = {"documents": "document", "length": "token", "epochs": "epoch"}
        bounds = {word: bound for key, word in words.items() if (bound := getattr(self, key)) is not None}
        parts = [f"{bound:,} {word}{'' if bound == 1 else 's'}" for word, bound in bounds.items()]
        scored = [f"{split} {size:,}" for split, size in (("dev", self.dev), ("test", self.test)) if size is not None]
        return ", ".join([*parts, *(f"scored on {sample}" for sample in scored)])


@dataclass(frozen=True)
class Experiment:
    """What all rows share.

    Args:
        output: folder of the tables and, in ``runs``, of the runs.
        preset: preset of all rows but those that have one of their own: where heads start, pooling, loss, documents of
            the label tree, tuned decisions, and, unless ``recipe`` is given, the recipe.
        corpus: which of the paper's corpora the data stands for: its λ and γ, and its figures beside ours.
        recipe: optimisation recipe of all rows; by default that of the paper under the paper's presets.
        overrides: settings ``section.key=value`` of all rows, under those that make a row what it is.
        keep_models: leave the trained models in the runs' folders.
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

    @property
    def chosen_recipe(self) -> str:
        return self.recipe or ("default" if self.preset == "default" else "paper")

    def folder(self, system: System, seed: int) -> Path:
        """Return the folder of a run; those of the paper's presets stand apart."""
        runs = "runs" if self.preset == "default" else f"runs-{self.preset}"
        return self.output / runs / f"{system.key}-{seed}"

    def base(self) -> RunConfig:
        """Return the settings of a run before a row's own; an override of what an option decides is refused."""
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
        training |= {**self._length(system, base["training"], recipe, seed), "seed": seed}
        if model.get("positives") == "random":
            kept = kept_fraction(self._before(system, seed))
            if kept is None:
                raise InputError(f"the runs of {system.after!r} say nothing of the tokens they kept")
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
        """Return the model settings that a system has of its authors: under the paper's presets, else none."""
        if self.preset == "default":
            return {}
        return {**system.released, **system.released_on.get(self.corpus or "wos", {})}

    def recipe_of(self, system: System) -> Mapping[str, Any]:
        """Return what a system's own paper says of training, where the recipe is that of papers."""
        return system.recipe if self.chosen_recipe == "paper" else {}

    def _length(self, system: System, given: Mapping[str, Any], recipe: Mapping[str, Any], seed: int) -> dict[str, int]:
        """Return the epochs and the patience of a system that takes a multiple of what others are given."""
        lengths: dict[str, int] = {}
        if system.length == 1:
            return lengths
        if "patience" in given or "patience" not in recipe:
            lengths["patience"] = system.length * given.get("patience", TrainingSettings().patience)
        if "epochs" in given:
            lengths["epochs"] = system.length * given["epochs"]
        elif system.after is not None:  # else the recipe itself gives it as many
            lengths["epochs"] = system.length * self._before(system, seed)["recipe"]["epochs"]
        return lengths

    def _before(self, system: System, seed: int) -> dict[str, Any]:
        metrics = self.finished(SYSTEMS[str(system.after)], seed)
        if metrics is None:
            raise NotYetError
        return metrics

    def finished(self, system: System, seed: int) -> dict[str, Any] | None:
        """Return the metrics of a run that was made to its end, or None; nothing is compared.

        They have the form of the committed results: ``dev`` and ``test`` at 0.5, ``tuned.test`` with tuned decisions.
        """
        metrics = _read_json(self.folder(system, seed) / "metrics.json")
        for split in ("dev", "test"):
            if metrics is not None and f"{split}_at_0.5" in metrics:
                saved, metrics[split] = metrics[split], metrics.pop(f"{split}_at_0.5")
                if split == "test" and ("tuned" in metrics or metrics["run"]["training"]["effort"] == "names"):
                    metrics.setdefault("tuned", {})["test"] = saved
        return metrics

    def settings_of(self, system: System, seed: int) -> dict[str, Any] | None:
        return _read_json(self.folder(system, seed) / SETTINGS)

    def finished_runs(self, system: System, seeds: Sequence[int]) -> dict[int, dict[str, Any]]:
        """Return the metrics of a system's finished runs by seed, as far as they have the settings of this experiment.

        Their ``settings`` are the record of the run, and ``resumed`` says whether it was killed and went on.
        """
        runs = {}
        for seed in seeds:
            metrics, made = self.finished(system, seed), self.settings_of(system, seed)
            if metrics is None or made is None:
                continue
            try:
                wanted = record(system, self.run(system, seed))
            except (InputError, NotYetError):
                continue
            if first_difference(made, wanted, shared=True) is None:
                resumed = (self.folder(system, seed) / RESUMED).exists()
                runs[seed] = metrics | {"settings": made, "resumed": resumed}
        return runs


def kept_fraction(metrics: dict[str, Any]) -> float | None:
    """Return the share of tokens that positive samples kept, over all epochs; None if there were none."""
    kept = [epoch["kept"] for epoch in metrics["history"] if "kept" in epoch]
    return min(1.0, statistics.fmean(kept)) if kept else None


def record(system: System, run: RunConfig) -> dict[str, Any]:
    """Return all that decides a run, defaults included, to be kept beside it.

    The choices of the method are listed with what the preset made of them, for a preset may change.
    """
    sections = run.model_dump(mode="json", exclude={"output"})
    told = {field.name: getattr(run.data, field.name) for field in fields(RowForm)}
    form = asdict(row_form(local(run.data.path), **told))
    settings: dict[str, Any] = {
        "data": sections["data"] | form | {"label_documents": run.uses_label_documents},
        "training": sections["training"] | {"calibrate": run.tunes_decisions, "refit_head": run.refits_head},
    }
    if system.classical is not None:
        length = run.model.overrides["max_length"]
        encoder = None if length is None else run.model.encoder  # whose tokens are counted
        return settings | {"model": {"classifier": system.classical, "encoder": encoder, "max_length": length}}
    method = HGCLRConfig(**method_settings(run.model.preset, run.model.overrides))
    names = {field.name for field in fields(HGCLRConfig)} - {field.name for field in fields(PreTrainedConfig)}
    names -= {"encoder_config", "label_name_length", "special_token_ids"}  # no choices, and neither is the label tree:
    names -= {"label_parents", "label_names", "label_descriptions"}
    chosen = {name: value for name, value in sections["model"].items() if name not in names}
    return settings | {"model": chosen | {name: getattr(method, name) for name in sorted(names)}}


def _read_json(path: Path) -> dict[str, Any] | None:
    return read_json(path) if path.exists() else None
