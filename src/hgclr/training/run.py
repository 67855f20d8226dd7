"""Train a model as a run's settings say: read the documents, fit, save what is to be deployed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase, TrainerCallback, set_seed

from hgclr.data.folder import DocumentSet
from hgclr.decisions.tuning import Calibrated
from hgclr.errors import InputError
from hgclr.files import write_json
from hgclr.hardware import machine
from hgclr.models import HierarchicalPreTrainedModel
from hgclr.models.base import save
from hgclr.training.core import CHECKPOINTS, Fitted, fit
from hgclr.training.preparation import new_model, started_model, tokenize_all
from hgclr.training.settings import RunConfig

__all__ = ["TrainingResult", "check_output", "save_run", "train"]


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
    for training on and for explanations), ``metrics.json``, ``config.yaml``, ``checkpoints``.

    Args:
        run: the settings.
        data: documents in memory, in the place of those in ``run.data.path``.
        resume: go on from the newest whole checkpoint in ``run.output``.
        callbacks: further Trainer callbacks, such as a progress bar.
        on_documents: called with the number of documents tokenised, as it grows.
        score_test: False while settings are still being chosen, so that the choice cannot lean on test.

    Raises:
        InputError: if settings, data or encoder do not fit together, or the output folder holds another run.
    """
    started, cpu_started = time.monotonic(), time.process_time()
    where = machine()  # now: the commit may be another one when training ends
    if not resume:
        check_output(run)
    set_seed(run.training.seed)
    if run.model.start is None:
        model, tokenizer, data_read = new_model(run, data)
    else:
        model, tokenizer, data_read = started_model(run, run.model.start, data)
    tokens = tokenize_all(run, data_read, tokenizer, model.config.max_length, on_documents)
    run.output.mkdir(parents=True, exist_ok=True)
    run.write(run.output / "config.yaml")
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


def check_output(run: RunConfig) -> None:
    """Refuse an output folder that holds a run."""
    if any((run.output / name).exists() for name in (CHECKPOINTS, "model")):
        raise InputError(
            f"{run.output} holds a run already", remedy="give --resume to go on with it, or another --output"
        )


def save_run(
    run: RunConfig,
    model: HierarchicalPreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    fitted: Fitted,
    where: dict[str, Any] | None = None,
) -> TrainingResult:
    """Write settings, the model as it is deployed and as it was trained, and its metrics into ``run.output``."""
    run.output.mkdir(parents=True, exist_ok=True)
    run.write(run.output / "config.yaml")
    metrics = {"run": run.model_dump(mode="json", exclude_none=True), **fitted.metrics, "machine": where or machine()}
    result = TrainingResult(run.output / "model", run.output / "training-model", metrics, fitted.calibrated)
    save(model.deployed(), tokenizer, result.model, fitted.decisions.write if "tuned" in metrics else None)
    save(model, tokenizer, result.training_model)
    write_json(run.output / "metrics.json", metrics)
    return result
