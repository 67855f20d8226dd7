"""Train a model from its settings: tokens, recipe, trainer, the best epoch, the deployable result."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import datasets
import torch
from torch import Tensor
from transformers import PrinterCallback, TrainerCallback, TrainingArguments, set_seed

from hgclr.decisions.settings import Decisions
from hgclr.decisions.tuning import Calibrated
from hgclr.encoders import TEXTRCNN
from hgclr.errors import InputError
from hgclr.files import atomic_file
from hgclr.hardware import Precision, choose_precision, machine
from hgclr.metrics.frequency import by_frequency
from hgclr.metrics.scores import MultiLabelScores
from hgclr.models import FlatForSequenceClassification, HierarchicalPreTrainedModel
from hgclr.models.base import save
from hgclr.models.memory import check_batch
from hgclr.training.frozen import final_scores, fit_head, tune_decisions
from hgclr.training.preparation import (
    base_rates,
    count_parameters,
    label_counts,
    new_model,
    started_model,
    tokenize_all,
    with_label_documents,
)
from hgclr.training.settings import Recipe, RunConfig, make_recipe
from hgclr.training.trainer import (
    CollapseWatch,
    Collator,
    EarlyStop,
    HierarchicalTrainer,
    StreamingScores,
    accelerate_on_cpu,
    latest_complete,
    tensorboard,
)

__all__ = ["TrainingResult", "train"]

logger = logging.getLogger(__name__)

CHECKPOINTS = "checkpoints"


@dataclass(frozen=True)
class TrainingResult:
    """What a run leaves behind: folders, scores, and how decisions were tuned."""

    model: Path
    training_model: Path
    metrics: dict[str, Any]
    calibrated: Calibrated | None = None


def train(
    run: RunConfig,
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
        resume: go on from the newest whole checkpoint in ``run.output``.
        callbacks: further Trainer callbacks, such as a progress bar.
        on_documents: called with the number of documents tokenised, as it grows.
        score_test: False while settings are still being chosen, so that the choice cannot lean on test.

    Raises:
        InputError: if settings, data or encoder do not fit together, or the output folder holds another run.
    """
    started, where = time.monotonic(), machine()  # now: the commit may be another one when training ends
    if not resume and any((run.output / name).exists() for name in (CHECKPOINTS, "model")):
        raise InputError(
            f"{run.output} holds a run already", remedy="give --resume to go on with it, or another --output"
        )
    set_seed(run.training.seed)
    model, tokenizer, folder = new_model(run) if run.model.start is None else started_model(run, run.model.start)
    tokens = tokenize_all(run, folder, tokenizer, model.config.max_length, on_documents)
    counts = label_counts(tokens.get("train"), len(folder.taxonomy))
    learned = with_label_documents(run, folder.taxonomy, tokenizer, model.config.max_length, tokens)
    run.output.mkdir(parents=True, exist_ok=True)
    run.write(run.output / "config.yaml")
    collator = Collator(len(folder.taxonomy), tokenizer.pad_token_id)
    how: dict[str, Any] = {"recipe": {}, "precision": "fp32", "history": []}
    if run.training.effort == "full":
        how = _train_all(run, model, learned, tokens, counts, collator, callbacks=callbacks, resume=resume)
    else:
        assert isinstance(model, FlatForSequenceClassification)  # the settings allow no other
        if run.training.effort == "head":
            rates = base_rates(counts, len(tokens["train"]))
            how["recipe"] = fit_head(model, learned, rates, collator, on_documents=on_documents)
        else:
            model.classify_by_names(tokenizer)
    trained = time.monotonic() - started

    metrics: dict[str, Any] = {
        "run": run.model_dump(mode="json", exclude_none=True),
        **how,
        "documents": {name: len(split) for name, split in tokens.items()},
        "label_documents": len(learned) - len(tokens.get("train", ())),
        "labels": len(folder.taxonomy),
        "seconds": round(trained, 1),
        "machine": where,
    }
    decisions = {"half": Decisions(folder.taxonomy, thresholds=model.config.threshold)}
    if run.training.effort == "names":  # names can be compared with each other, not with a threshold
        decisions["tuned"] = Decisions(folder.taxonomy, "best-path", allow_inner_nodes=False)
        metrics["tuned"] = {}
    found = None
    if run.tunes_decisions:
        found = tune_decisions(model, tokens["dev"], collator, seed=run.training.seed)
        if found is not None:
            decisions["tuned"] = found.decisions
            metrics["tuned"] = {
                "rule": found.decisions.rule,
                "thresholds": found.decisions.provenance["thresholds"],
                "dev": {"before": asdict(found.before), "after": asdict(found.after)},
            }
    for name in ("dev", "test") if score_test else ("dev",):
        if name in tokens:
            scores = final_scores(model, tokens[name], collator, decisions)
            metrics[name] = _score_json(scores["half"], counts)
            if name == "test" and "tuned" in scores:  # on dev, which they were fitted to, they look too good
                metrics["tuned"]["test"] = _score_json(scores["tuned"], counts)
    result = TrainingResult(run.output / "model", run.output / "training-model", metrics, found)
    save(model.deployed(), tokenizer, result.model, decisions["tuned"].write if "tuned" in decisions else None)
    save(model, tokenizer, result.training_model)
    with atomic_file(run.output / "metrics.json") as path:
        path.write_text(json.dumps(metrics, indent=2) + "\n", encoding="utf-8")
    return result


def _train_all(
    run: RunConfig,
    model: HierarchicalPreTrainedModel,
    learned: datasets.Dataset,
    tokens: dict[str, datasets.Dataset],
    counts: Tensor,
    collator: Collator,
    *,
    callbacks: Sequence[TrainerCallback],
    resume: bool,
) -> dict[str, Any]:
    """Train encoder and head, select the best epoch on dev, and return how: recipe, precision, history."""
    if not torch.accelerator.is_available():
        accelerate_on_cpu(model, model.encoder)
    recipe = make_recipe(
        run.training,
        documents=len(learned),
        encoder_parameters=count_parameters(model.encoder),
        pretrained=model.config.text_encoder.model_type != TEXTRCNN,
        head_rate=model.head_rate,
    )
    longest = max(learned["length"], default=0)
    check_batch(run.model.architecture, model, batch_size=recipe.batch_size, length=longest)
    if run.model.start is None:
        model.prepare(tokens["train"])
        if recipe.base_rate_bias:
            model.set_base_rates(base_rates(counts, len(tokens["train"])))
    precision = choose_precision(run.training.precision)
    checkpoints = run.output / CHECKPOINTS
    trainer = HierarchicalTrainer(
        model=model,
        args=trainer_arguments(run, recipe, precision, checkpoints),
        data_collator=collator,
        train_dataset=learned,
        eval_dataset=tokens["dev"],
        compute_metrics=StreamingScores(model.config.taxonomy, model.config.threshold),
        callbacks=[
            EarlyStop(run.training.patience, list(run.training.patience_metrics)),
            CollapseWatch(model.config.contrastive_weight),
            *([tensorboard(run.output / "tensorboard")] if run.training.tensorboard else []),
            *callbacks,
        ],
        head_learning_rate=recipe.head_learning_rate,
    )
    trainer.remove_callback(PrinterCallback)
    checkpoint = latest_complete(checkpoints) if resume else None
    logger.info("training %s with %s", run.model.architecture, recipe)
    trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    # What follows is computed in full precision, as the saved model will run, whatever it was trained in.
    trainer.accelerator.unwrap_model(model, keep_fp32_wrapper=False)
    return {"recipe": asdict(recipe), "precision": precision, "history": history(trainer.state.log_history)}


def _score_json(scores: MultiLabelScores, counts: Tensor) -> dict[str, Any]:
    """Return scores in plain types, those of labels that train has few documents of, or none, apart."""
    return {**scores.to_json(), "by_frequency": by_frequency(scores, counts.numpy())}


def trainer_arguments(run: RunConfig, recipe: Recipe, precision: Precision, checkpoints: Path) -> TrainingArguments:
    """Translate the recipe into the Trainer's arguments."""
    return TrainingArguments(
        output_dir=str(checkpoints),
        num_train_epochs=recipe.epochs,
        per_device_train_batch_size=recipe.batch_size,
        per_device_eval_batch_size=64,
        gradient_accumulation_steps=run.training.gradient_accumulation,
        learning_rate=recipe.learning_rate,
        lr_scheduler_type="linear" if recipe.schedule == "linear" else "constant_with_warmup",
        warmup_steps=recipe.warmup,
        weight_decay=recipe.weight_decay,
        max_grad_norm=recipe.max_gradient_norm,
        train_sampling_strategy="group_by_length",
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=2,
        load_best_model_at_end=True,
        metric_for_best_model="macro_f1",
        greater_is_better=True,
        batch_eval_metrics=True,
        label_names=["labels"],
        logging_steps=min(50, recipe.steps_per_epoch),
        logging_nan_inf_filter=False,
        restore_callback_states_from_checkpoint=True,
        seed=run.training.seed,
        use_cpu=not torch.accelerator.is_available(),
        bf16=precision == "bf16",
        fp16=precision == "fp16",
        report_to=[],
        disable_tqdm=True,
        dataloader_pin_memory=torch.cuda.is_available(),
        remove_unused_columns=False,
    )


def history(log: list[dict[str, float]]) -> list[dict[str, float]]:
    """Return one row per epoch: the dev scores, and the loss terms of the last log before them."""
    rows: list[dict[str, float]] = []
    terms: dict[str, float] = {}
    for entry in log:
        if "loss" in entry:
            terms = {name: value for name, value in entry.items() if name.startswith("loss") or name == "kept"}
        elif "eval_macro_f1" in entry:
            scores = {name: entry[f"eval_{name}"] for name in ("micro_f1", "macro_f1")}
            rows.append({"epoch": round(entry["epoch"], 2), **scores, **terms})
    return rows
