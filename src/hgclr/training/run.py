"""Train a model as a run's settings say: read the documents, fit, save what is to be deployed."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import datasets
from transformers import PreTrainedTokenizerBase, TrainerCallback, set_seed

from hgclr.data.folder import DocumentSet
from hgclr.decisions.tuning import Calibrated
from hgclr.errors import InputError
from hgclr.files import read_json, write_json
from hgclr.hardware import machine
from hgclr.locks import locked
from hgclr.models import HierarchicalPreTrainedModel
from hgclr.models.base import save
from hgclr.provenance import first_difference
from hgclr.training.core import CHECKPOINTS, Fitted, fit
from hgclr.training.preparation import new_model, started_model, tokenize_all
from hgclr.training.settings import RunConfig

__all__ = ["TrainingResult", "check_output", "save_run", "state_of", "train"]

logger = logging.getLogger(__name__)
MODEL, TRAINING_MODEL, METRICS, CONFIG, DOCUMENTS = (
    "model",
    "training-model",
    "metrics.json",
    "config.yaml",
    "documents.json",
)
LOCK = ".hgclr-train.lock"


@dataclass(frozen=True)
class TrainingResult:
    """What a run leaves behind: folders, scores, and how decisions were tuned."""

    model: Path
    training_model: Path
    metrics: dict[str, Any]
    calibrated: Calibrated | None = None


def train(
    run: RunConfig,
    data: DocumentSet | None = None,
    *,
    resume: bool = False,
    callbacks: Sequence[TrainerCallback] = (),
    on_documents: Callable[[int], None] | None = None,
    score_test: bool = True,
) -> TrainingResult:
    """Train on ``train``, select the best epoch on ``dev``, score ``test`` once, save the result.

    Writes into ``run.output``: ``model`` (encoder and head, for prediction), ``training-model`` (with the label side,
    for training on and for explanations), ``metrics.json``, ``config.yaml``, ``documents.json`` (what it was trained
    on, by SHA-256), ``checkpoints``.

    Args:
        run: the settings.
        data: documents in memory, in the place of those in ``run.data.path``.
        resume: go on from the newest whole checkpoint in ``run.output``, if anything of this run is there; a finished
            run is returned as it is.
        callbacks: further Trainer callbacks, such as a progress bar.
        on_documents: called with the number of documents tokenised, as it grows.
        score_test: False while settings are still being chosen, so that the choice cannot lean on test.

    Raises:
        InputError: if settings, data or encoder do not fit together, the output folder holds another run, or another
            process is training there.
    """
    with locked(run.output / LOCK, "training", remedy="wait until it is done, or give another --output"):
        if not resume:
            check_output(run)
        elif (finished := check_resumed(run)) is not None:
            return finished
        return _train(run, data, resume, callbacks, on_documents, score_test)


def _train(
    run: RunConfig,
    data: DocumentSet | None,
    resume: bool,
    callbacks: Sequence[TrainerCallback],
    on_documents: Callable[[int], None] | None,
    score_test: bool,
) -> TrainingResult:
    """Train in a folder that is ours alone."""
    started, cpu_started = time.monotonic(), time.process_time()
    where = machine()  # now: the commit may be another one when training ends
    set_seed(run.training.seed)
    if run.model.start is None:
        model, tokenizer, data_read = new_model(run, data)
    else:
        model, tokenizer, data_read = started_model(run, run.model.start, data)
    tokens = tokenize_all(run, data_read, tokenizer, model.config.max_length, on_documents)
    documents = {name: {"documents": len(split), "sha256": digest(split)} for name, split in tokens.items()}
    if state_of(run.output) == "stopped":
        check_documents(run, documents)
    run.write(run.output / CONFIG)
    write_json(run.output / DOCUMENTS, documents)
    read = {"seconds": time.monotonic() - started, "cpu_seconds": time.process_time() - cpu_started}
    fitted = fit(
        model,
        tokenizer,
        tokens.get("train"),
        tokens.get("dev"),
        test=tokens.get("test") if score_test else None,
        settings=run.resolved_training,
        label_documents=run.uses_label_documents,
        continued=run.model.start is not None,
        output=run.output,
        resume=resume,
        callbacks=callbacks,
        on_documents=on_documents,
    )
    fitted.metrics.update({name: round(fitted.metrics[name] + spent, 1) for name, spent in read.items()})
    fitted.metrics["documents"] = {name: len(split) for name, split in tokens.items()}
    return save_run(run, model, tokenizer, fitted, where)


def state_of(output: Path) -> Literal["empty", "stopped", "finished"]:
    """Tell what of a run is in a folder: nothing to lose, what a run that did not come to its end left, or all."""
    if (output / METRICS).is_file() and (output / MODEL).is_dir():
        return "finished"
    left = [*(output / CHECKPOINTS).glob("checkpoint-*"), *(output / name for name in (MODEL, TRAINING_MODEL))]
    return "stopped" if any(path.exists() for path in left) else "empty"


def check_output(run: RunConfig) -> None:
    """Refuse an output folder that holds a run; say how far that has come."""
    state = state_of(run.output)
    if state == "finished":
        raise InputError(
            f"holds a finished run: {describe(read_json(run.output / METRICS))}",
            path=run.output,
            remedy=f"use it (hgclr predict {run.output / MODEL}), or give another --output",
        )
    if state == "stopped":
        raise InputError(
            "holds a run that was stopped", path=run.output, remedy="go on with --resume, or give another --output"
        )


def describe(metrics: Mapping[str, Any]) -> str:
    """Say in a few words what was trained, and how well it does."""
    try:
        run, split = metrics["run"], "test" if "test" in metrics else "dev"
        what = f"{run['model']['architecture']} on {run['data']['path']}, {metrics['labels']} labels"
        if split not in metrics:
            return what
        scores = metrics.get("tuned", {}).get("test") or metrics[split]
        micro, macro = (100 * scores[mean]["f1"] for mean in ("micro", "macro"))
        return f"{what}, {split} Micro-F1 {micro:.2f}, Macro-F1 {macro:.2f}"
    except (AttributeError, KeyError, TypeError):  # written by somebody else, or another version
        return "of another kind"


def check_resumed(run: RunConfig) -> TrainingResult | None:
    """Refuse to go on with a run of other settings; return the one that is finished, if it is."""
    state = state_of(run.output)
    if state == "empty":
        logger.info("nothing to resume in %s: training starts from the beginning", run.output)
        return None
    if not (run.output / CONFIG).is_file():
        raise InputError(f"holds a run without its {CONFIG}", path=run.output, remedy="give another --output")
    there, here = (
        each.model_dump(mode="json", exclude={"output"}) for each in (RunConfig.read(run.output / CONFIG), run)
    )
    if run.model.start is not None and "architecture" not in run.model.model_fields_set:  # it comes with the model
        del there["model"]["architecture"], here["model"]["architecture"]
    if (difference := first_difference(there, here)) is not None:
        place, before, now = difference
        raise InputError(
            f"holds a run with other settings: {place} is {before!r} there and {now!r} here",
            path=run.output,
            remedy="give the same settings, or another --output",
        )
    if state == "finished":
        logger.info("%s is finished, there is nothing to resume", run.output)
        metrics = read_json(run.output / METRICS)
        return TrainingResult(run.output / MODEL, run.output / TRAINING_MODEL, metrics)
    if run.training.effort == "full" and not any((run.output / CHECKPOINTS).glob("checkpoint-*")):
        raise InputError(
            "holds a model, and no checkpoint to go on from", path=run.output, remedy="give another --output"
        )
    return None


def check_documents(run: RunConfig, documents: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse to go on with a run that began with other documents."""
    if not (run.output / DOCUMENTS).is_file():
        return
    there = read_json(run.output / DOCUMENTS)
    if (difference := first_difference(there, documents)) is not None:
        split = difference.place.partition(".")[0]
        counts = [each.get(split, {}).get("documents", 0) for each in (there, documents)]
        raise InputError(
            f"holds a run that began with another {split}: {counts[0]} documents then, {counts[1]} now"
            + (", and not the same" if counts[0] == counts[1] else ""),
            path=run.output,
            remedy="give the same data, or another --output",
        )


def digest(tokens: datasets.Dataset) -> str:
    """Return the SHA-256 of documents as tokens, with their labels."""
    whole = hashlib.sha256()
    for batch in tokens.select_columns(["input_ids", "labels"]).with_format("arrow").iter(batch_size=10_000):
        for column in batch.columns:
            rows = column.combine_chunks()
            whole.update(rows.value_lengths().to_numpy(zero_copy_only=False).tobytes())
            whole.update(rows.flatten().to_numpy(zero_copy_only=False).tobytes())
    return whole.hexdigest()


def save_run(
    run: RunConfig,
    model: HierarchicalPreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    fitted: Fitted,
    where: dict[str, Any] | None = None,
) -> TrainingResult:
    """Write settings, the model as it is deployed and as it was trained, and its metrics into ``run.output``."""
    run.write(run.output / CONFIG)
    metrics = {"run": run.model_dump(mode="json", exclude_none=True), **fitted.metrics, "machine": where or machine()}
    result = TrainingResult(run.output / MODEL, run.output / TRAINING_MODEL, metrics, fitted.calibrated)
    save(model.deployed(), tokenizer, result.model, fitted.decisions.write if "tuned" in metrics else None)
    save(model, tokenizer, result.training_model)
    write_json(run.output / METRICS, metrics)
    return result
