"""Train on texts in memory: write them as a data folder, run the training, load what it leaves, and clear up."""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from hgclr.data import DataFolder
from hgclr.decisions.decoding import FORMER_RULES, RULES, Rule
from hgclr.decisions.settings import Decisions
from hgclr.decisions.tuning import calibrate
from hgclr.encoders import TEXTRCNN, resolve_encoder
from hgclr.errors import InputError
from hgclr.estimator.storage import alone, pack, quiet_libraries, shown_log
from hgclr.hardware import choose_precision
from hgclr.inference import HierarchicalClassifier
from hgclr.inference.outputs import read_outputs
from hgclr.taxonomy import Taxonomy

__all__ = ["Deciding", "fit_model"]


@dataclass(frozen=True)
class Deciding:
    """How labels are to be decided.

    Args:
        rule: the decoding rule, or ``auto``.
        threshold: probability from which on a label is given; None takes one half, or what calibration finds.
        paths: k of ``top-k-paths``.
        calibrate: calibrate probabilities and tune rule and thresholds on the documents held out.
        one_path: every text is to get exactly one path.
    """

    rule: str
    threshold: float | None
    paths: int
    calibrate: bool
    one_path: bool

    def check(self, taxonomy: Taxonomy, allow_inner_nodes: bool) -> Decisions:
        """Return the decisions without calibration.

        Raises:
            InputError: if a value does not fit.
        """
        if self.rule not in ("auto", *RULES, *FORMER_RULES):
            raise InputError(f"unknown decoding rule {self.rule!r}", remedy=f"choose auto, {', '.join(RULES)}")
        if self.one_path and self.rule not in ("auto", "best-path"):
            raise InputError(
                f"y has one path for each document, and decode={self.rule!r} may give a text none or several",
                remedy="give a list of paths for each document, or decode='auto'",
            )
        threshold = 0.5 if self.threshold is None else self.threshold
        return Decisions(taxonomy, self._fixed_rule, threshold, paths=self.paths, allow_inner_nodes=allow_inner_nodes)

    @property
    def _fixed_rule(self) -> Rule:
        if self.rule == "auto":
            return "best-path" if self.one_path else "closure"
        return self.rule  # type: ignore[return-value]  # checked to be one

    def find(self, classifier: HierarchicalClassifier, folder: DataFolder, without: Decisions, seed: int) -> Decisions:
        """Return the decisions that are best for Macro-F1 on the documents held out, or those without calibration."""
        found = calibrate(
            read_outputs(classifier, folder, "dev"),
            without,
            rule="auto" if self.rule == "auto" and not self.one_path else self._fixed_rule,
            scope="auto" if self.threshold is None else "none",
            metric="macro",
            paths=self.paths,
            seed=seed,
        )
        return found.decisions.changed(threshold=self.threshold)


@dataclass(frozen=True, eq=False)
class Fitted:
    """A trained model in memory, the files of its folder but for the weights, and its scores by epoch."""

    classifier: HierarchicalClassifier
    files: dict[str, bytes]
    history: list[dict[str, float]]


def fit_model(
    texts: Sequence[str],
    label_sets: Sequence[Sequence[int]],
    taxonomy: Taxonomy,
    *,
    model: dict[str, Any],
    training: dict[str, Any],
    deciding: Deciding,
    validation_fraction: float,
    output: str | Path | None,
    verbose: int,
) -> Fitted:
    """Train a model.

    Args:
        texts: the documents.
        label_sets: the indices of their labels, with all ancestors.
        taxonomy: the label tree.
        model: the section ``model`` of a run.
        training: its section ``training``, with the seed.
        deciding: how labels are to be decided.
        validation_fraction: share of the documents on which the best epoch is chosen.
        output: folder that keeps the run; None keeps nothing on disk.
        verbose: 1 logs a line for each epoch.

    Raises:
        InputError: if documents and settings do not fit together.
    """
    from hgclr.training import RunConfig, train

    decisions = deciding.check(taxonomy, _ends_inside(label_sets, taxonomy))
    with tempfile.TemporaryDirectory(prefix="hgclr-", ignore_cleanup_errors=True) as name:
        temporary = Path(name)
        tree = {
            "data": {"path": str(temporary / "data")},
            "model": model,
            "training": training,
            "output": str(temporary / "run" if output is None else output),
        }
        run = RunConfig.build(tree)
        held_out = _held_out(len(texts), validation_fraction, run.training.seed, 2 if deciding.calibrate else 1)
        _write_data(temporary / "data", texts, label_sets, taxonomy, held_out)
        with shown_log(verbose), quiet_libraries():
            # What other fits need as well goes into the user's cache: the encoder, and what this machine can do.
            if run.model.encoder != TEXTRCNN:
                run.model.encoder = resolve_encoder(run.model.encoder)
            choose_precision(run.training.precision)
            with alone(temporary / "cache"):
                result = train(run, callbacks=[EpochLog()], score_test=False)
            classifier = HierarchicalClassifier.from_pretrained(result.model)
            if deciding.calibrate:
                decisions = deciding.find(classifier, DataFolder(temporary / "data"), decisions, run.training.seed)
            decisions.write(result.model)
            classifier.decisions = decisions
            return Fitted(classifier, pack(result.model, weights=False), result.metrics["history"])


def _held_out(documents: int, share: float, seed: int, least: int) -> set[int]:
    """Return the documents to validate on: a random share, but at least ``least``, and never all."""
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < 1:
        raise InputError(f"validation_fraction is {share!r}", remedy="give a share between 0 and 1")
    number = max(least, round(share * documents))
    if number >= documents:
        raise InputError(
            f"{documents} documents are too few: {number} are held out to choose the best epoch on",
            remedy=f"give more than {max(number, least)}, or a smaller validation_fraction",
        )
    return set(np.random.default_rng(seed).permutation(documents)[:number].tolist())


def _write_data(
    folder: Path, texts: Sequence[str], label_sets: Sequence[Sequence[int]], taxonomy: Taxonomy, held_out: set[int]
) -> None:
    folder.mkdir()
    taxonomy.write(folder / "taxonomy.json")
    with (
        (folder / "train.jsonl").open("w", encoding="utf-8") as train,
        (folder / "dev.jsonl").open("w", encoding="utf-8") as dev,
    ):
        for number, (text, labels) in enumerate(zip(texts, label_sets, strict=True)):
            row = {"text": text, "labels": [taxonomy.ids[label] for label in labels]}
            (dev if number in held_out else train).write(json.dumps(row) + "\n")


def _ends_inside(label_sets: Sequence[Sequence[int]], taxonomy: Taxonomy) -> bool:
    """Tell whether some document has a label with children and none of them."""
    parents, leaves = taxonomy.parents.tolist(), set(taxonomy.leaves.tolist())
    return any(not leaves.issuperset(set(labels) - {parents[label] for label in labels}) for labels in label_sets)


logger = logging.getLogger(__name__)


class EpochLog(TrainerCallback):
    """Log the scores of each epoch on the documents held out."""

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:  # noqa: ARG002 (the Trainer decides the arguments)
        """Log the scores of this epoch."""
        metrics = kwargs["metrics"]
        logger.info(
            "epoch %.0f of %.0f: validation Micro-F1 %.2f %%, Macro-F1 %.2f %%",
            state.epoch or 0,
            args.num_train_epochs,
            100 * metrics["eval_micro_f1"],
            100 * metrics["eval_macro_f1"],
        )
