"""Train a model as a run's settings say: read the documents, fit, save what is to be deployed."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
from transformers import PreTrainedTokenizerBase, TrainerCallback, set_seed

from hgclr.data.folder import DocumentSet
from hgclr.decisions.tuning import Calibrated
from hgclr.files import read_json, write_json
from hgclr.hardware import machine
from hgclr.locks import locked
from hgclr.models import HierarchicalPreTrainedModel
from hgclr.models.base import save
from hgclr.nn.gathering import rank
from hgclr.remote import local
from hgclr.training.core import Fitted, Plan, fit
from hgclr.training.distributed import on_first_rank, process_group
from hgclr.training.preparation import new_model, started_model, tokenize_once
from hgclr.training.run_folder import (
    CONFIG,
    DOCUMENTS,
    LOCK,
    METRICS,
    MODEL,
    TRAINING_MODEL,
    check_documents,
    check_output,
    check_resumed,
    restarted,
    state_of,
)
from hgclr.training.settings import RunConfig

__all__ = ["TrainingResult", "save_run", "train"]


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
    on_start: Callable[[Plan], None] | None = None,
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
        on_start: called with what is going to be done, once that is known.
        score_test: False while settings are still being chosen, so that the choice cannot lean on test.

    Raises:
        InputError: if settings, data or encoder do not fit together, the output folder holds another run, or another
            process is training there.
    """
    resume = resume or restarted()
    with process_group(), ExitStack() as stack:

        def enter() -> TrainingResult | None:
            lock = locked(run.output / LOCK, "training", remedy="wait until it is done, or give another --output")
            stack.enter_context(lock)
            if resume:
                check_resumed(run)
            else:
                check_output(run)
            return finished_run(run) if state_of(run.output) == "finished" else None

        if (finished := on_first_rank(enter)) is not None:
            return finished
        return _train(run, data, resume, callbacks, on_documents, on_start, score_test)


def finished_run(run: RunConfig) -> TrainingResult:
    """Return what a run has left behind."""
    return TrainingResult(run.output / MODEL, run.output / TRAINING_MODEL, read_json(run.output / METRICS))


def _train(
    run: RunConfig,
    data: DocumentSet | None,
    resume: bool,
    callbacks: Sequence[TrainerCallback],
    on_documents: Callable[[int], None] | None,
    on_start: Callable[[Plan], None] | None,
    score_test: bool,
) -> TrainingResult:
    """Train in a folder that is ours alone."""
    started, cpu_started = time.monotonic(), time.process_time()
    where = machine()  # now: the commit may be another one when training ends
    set_seed(run.training.seed)
    if run.model.start is None:
        model, tokenizer, data_read = new_model(run, data)
    else:
        model, tokenizer, data_read = started_model(run, local(run.model.start), data)
    tokens = tokenize_once(run, data_read, tokenizer, model.config.max_length, on_documents)
    on_first_rank(lambda: _note_documents(run, tokens))
    read = {"seconds": time.monotonic() - started, "cpu_seconds": time.process_time() - cpu_started}
    fitted = fit(
        model,
        tokenizer,
        tokens.get("train"),
        tokens.get("dev"),
        test=tokens.get("test") if score_test else None,
        settings=run.resolved_training,
        label_documents=run.uses_label_documents,
        lora=run.model.lora,
        continued=run.model.start is not None,
        output=run.output,
        resume=resume,
        callbacks=callbacks,
        on_documents=on_documents,
        on_start=on_start,
    )
    fitted.metrics.update({name: round(fitted.metrics[name] + spent, 1) for name, spent in read.items()})
    fitted.metrics["documents"] = {name: len(split) for name, split in tokens.items()}
    return save_run(run, model, tokenizer, fitted, where)


def _note_documents(run: RunConfig, tokens: Mapping[str, datasets.Dataset]) -> None:
    """Write down what a run is about to be trained on, or check it, if the run has begun before."""
    documents = {name: {"documents": len(split), "sha256": digest(split)} for name, split in tokens.items()}
    if state_of(run.output) == "stopped":
        check_documents(run, documents)
    run.write(run.output / CONFIG)
    write_json(run.output / DOCUMENTS, documents)


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
    metrics = {"run": run.model_dump(mode="json", exclude_none=True), **fitted.metrics, "machine": where or machine()}
    result = TrainingResult(run.output / MODEL, run.output / TRAINING_MODEL, metrics, fitted.calibrated)
    if rank() > 0:
        return result
    run.write(run.output / CONFIG)
    save(model.deployed(), tokenizer, result.model, fitted.decisions.write if "tuned" in metrics else None)
    save(model, tokenizer, result.training_model)
    write_json(run.output / METRICS, metrics)
    return result
