"""Train a model on documents in memory: recipe, trainer, the best epoch, decisions tuned on dev."""

from __future__ import annotations

import json
import logging
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase, PrinterCallback, TrainerCallback, TrainingArguments

from hgclr.data.folder import label_documents as tree_documents
from hgclr.data.split import hold_out
from hgclr.data.tokens import tokenize_documents
from hgclr.decisions.settings import Decisions
from hgclr.decisions.tuning import Calibrated
from hgclr.errors import HGCLRError, InputError
from hgclr.files import write_files
from hgclr.hardware import Precision, choose_precision
from hgclr.metrics.scores import by_frequency
from hgclr.models import FlatForSequenceClassification, HierarchicalPreTrainedModel, architecture_of
from hgclr.nn.gathering import rank, world_size
from hgclr.registry import is_pretrained
from hgclr.taxonomy import Taxonomy
from hgclr.training.batches import Collator, text_lengths
from hgclr.training.callbacks import CollapseWatch, EarlyStop, TimedCheckpoints, tensorboard
from hgclr.training.checkpoints import find_checkpoint
from hgclr.training.distributed import first_rank_first, from_first_rank, share_weights
from hgclr.training.frozen import final_scores, fit_head, refit_head, tune_decisions
from hgclr.training.memory import add_adapters, check_batch, checkpoint_layers, describe_adapters, merge_adapters
from hgclr.training.recipe import MANY_DOCUMENTS, Recipe, make_recipe
from hgclr.training.run_checks import CHECKPOINTS
from hgclr.training.settings import LoraSettings, TrainingSettings
from hgclr.training.trainer import Documents, HierarchicalTrainer, NoNumberError, accelerate_on_cpu, as_tokens

__all__ = ["Fitted", "Plan", "base_rates", "count_parameters", "fit", "label_counts"]

logger = logging.getLogger(__name__)
HELD_OUT = 0.1
"""Share of train that is held out where no dev is given."""
BAD_BATCH = "bad-batch.jsonl"
"""Where the documents are written at which the loss stopped being a number."""
BATCH_COLUMNS = ("input_ids", "attention_mask", "labels")
FROZEN_LENGTH = 5.0
"""Length of the rows that a head on frozen vectors starts from: without it, one half is far above what they reach."""


@dataclass(frozen=True, eq=False)
class Fitted:
    """How a model was trained and how well it does; the model itself was trained in place.

    Args:
        decisions: how it should decide.
        calibrated: how its decisions were tuned, if they were.
        metrics: recipe, precision, scores of each epoch, and of dev and test at the end.
    """

    decisions: Decisions
    calibrated: Calibrated | None
    metrics: dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """What is going to be done, for whoever looks on.

    Args:
        recipe: None where nothing but a head is fitted.
        max_length: tokens of a text that are read.
        cut: share of the texts of train that are that long, or longer.
        lora: what is trained in the place of the encoder, if anything.
    """

    documents: Mapping[str, int]
    labels: int
    levels: int
    effort: str
    recipe: Recipe | None
    device: str
    precision: Precision
    max_length: int
    cut: float
    lora: str | None = None


def fit(
    model: HierarchicalPreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    train: Documents | None,
    dev: Documents | None = None,
    *,
    test: Documents | None = None,
    settings: TrainingSettings | None = None,
    label_documents: bool = True,
    lora: LoraSettings | None = None,
    continued: bool = False,
    output: Path | None = None,
    resume: bool = False,
    callbacks: Sequence[TrainerCallback] = (),
    on_documents: Callable[[int], None] | None = None,
    on_start: Callable[[Plan], None] | None = None,
) -> Fitted:
    """Train a model on ``train``, keep the best epoch on ``dev``, tune decisions there, score ``test`` once.

    A document is a :class:`~hgclr.data.folder.Document`, a pair ``(text, labels)`` or a mapping with the keys ``text``
    and ``labels``; labels are ids, names or paths. An iterator is read to its end.

    Args:
        model: is trained in place.
        tokenizer: of its encoder.
        train: None only with ``settings.effort`` ``names``, which needs none.
        dev: None holds a tenth of train out.
        test: what is scored at the end, if anything.
        settings: effort, recipe, seed and the rest; ``calibrate`` is on unless it is off there.
        label_documents: train on the label tree's own documents, too: names, paths and descriptions.
        lora: train adapters of low rank in the place of the encoder; they are merged into it at the end.
        continued: the model was trained before; its head stays as it is.
        output: folder that keeps checkpoints and what TensorBoard reads; None keeps nothing.
        resume: go on from the newest whole checkpoint in ``output``.
        callbacks: further callbacks of the Trainer, such as a progress bar.
        on_documents: called with the number of documents encoded to fit a head to, as it grows.
        on_start: called with what is going to be done, once that is known.

    Raises:
        InputError: if model, documents and settings do not fit together.
    """
    settings, started, cpu_started = settings or TrainingSettings(), time.monotonic(), time.process_time()
    taxonomy, effort = model.config.taxonomy, settings.effort
    splits = {"train": train, "dev": dev, "test": test}
    tokens = {
        name: tokenised
        for name, documents in splits.items()
        if (tokenised := as_tokens(documents, model.config, tokenizer)) is not None
    }
    if effort != "names" and "train" not in tokens:
        raise InputError(f"there are no documents to train on, and training.effort is {effort}")
    if effort != "full" and lora is not None:
        raise InputError(f"adapters are to be trained, and training.effort is {effort}", remedy="leave lora out")
    if effort != "names" and "dev" not in tokens:
        kept, held_out = hold_out(len(tokens["train"]), HELD_OUT, settings.seed)
        tokens |= {"train": tokens["train"].select(kept), "dev": tokens["train"].select(held_out)}
    counts = label_counts(tokens.get("train"), len(taxonomy))
    learned = with_label_documents(tokens.get("train"), model, tokenizer, wanted=label_documents)
    collator = Collator(len(taxonomy), tokenizer.pad_token_id, model.config.cut_length)
    from_names = False
    if not continued and model.config.classifier_start == "names" and isinstance(model, FlatForSequenceClassification):
        model.start_from_names(tokenizer, length=FROZEN_LENGTH if effort == "head" else 1.0)
        from_names = True
    how: dict[str, Any] = {"recipe": {}, "precision": "fp32", "history": []}
    tuned: Calibrated | None = None

    def tell(recipe: Recipe | None, precision: Precision, device: torch.device, lora: str | None = None) -> None:
        if on_start is not None:
            sizes = {name: len(split) for name, split in tokens.items()}
            most = model.config.max_length
            cut = float(np.mean(text_lengths(tokens["train"]) >= most)) if sizes.get("train") else 0.0
            on_start(
                Plan(sizes, len(taxonomy), taxonomy.depth, effort, recipe, str(device), precision, most, cut, lora)
            )

    if effort == "full":
        rates = base_rates(counts, len(tokens["train"]))
        attention = model.encoder.config._attn_implementation
        with ExitStack() as stack:
            temporary = output is None
            if output is None:
                own = stack.enter_context(tempfile.TemporaryDirectory(prefix="hgclr-"))
                output = Path(from_first_rank(own))
            if not continued:
                model.prepare(tokens["train"])
            recipe = make_recipe(
                settings,
                documents=len(learned),
                encoder_parameters=count_parameters(model.encoder),
                mean_length=float(text_lengths(learned).mean()),
                pretrained=is_pretrained(model.config.text_encoder.model_type),
                head_rate=model.head_rate,
                from_names=from_names,
                lora=lora is not None,
            )
            adapters = None if lora is None else add_adapters(model.encoder, lora)
            trainer = _make_trainer(
                model,
                collator,
                learned,
                tokens["dev"],
                settings,
                recipe,
                output,
                None if continued else rates,
                callbacks,
            )
            adapted = None if adapters is None else describe_adapters(model.encoder, adapters)
            tell(recipe, _precision(trainer), trainer.args.device, adapted)
            checkpoint = find_checkpoint(output / CHECKPOINTS) if resume and rank() == 0 else None
            if resume and rank() == 0 and checkpoint is None and any((output / CHECKPOINTS).glob("checkpoint-*")):
                logger.warning("no checkpoint in %s is whole: training starts from the beginning", output)
            checkpoint = from_first_rank(checkpoint)
            try:
                trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
            except NoNumberError as error:
                raise no_number(error, None if temporary else output, tokenizer, taxonomy) from None
        # What follows is computed in full precision, as the saved model will run, whatever it was trained in.
        trainer.accelerator.unwrap_model(model, keep_fp32_wrapper=False)
        share_weights(model)
        if settings.gradient_checkpointing:
            model.encoder.gradient_checkpointing_disable()
        if adapters is not None:
            merge_adapters(model.encoder, adapters)
        model.encoder.set_attn_implementation(attention)
        how = {
            "recipe": asdict(recipe),
            "precision": _precision(trainer),
            "history": history(trainer.state.log_history),
        }
        refits = len(learned) >= MANY_DOCUMENTS if settings.refit_head is None else settings.refit_head
        if refits and isinstance(model, FlatForSequenceClassification):
            how["recipe"]["refit_head"], tuned = refit_head(
                model, learned, tokens["dev"], collator, seed=settings.seed, on_documents=on_documents
            )
    else:
        if not isinstance(model, FlatForSequenceClassification):
            raise InputError(f"training.effort is {effort}, and {architecture_of(model)} has more to train than a head")
        tell(None, "fp32", model.device)
        if effort == "head":
            model.set_base_rates(base_rates(counts, len(tokens["train"])))
            how["recipe"] = fit_head(model, learned, collator, on_documents=on_documents)
        else:
            model.classify_by_names(tokenizer)
    metrics: dict[str, Any] = {
        **how,
        "documents": {name: len(split) for name, split in tokens.items()},
        "label_documents": len(learned) - len(tokens.get("train", ())),
        "labels": len(taxonomy),
        "seconds": round(time.monotonic() - started, 1),
        "cpu_seconds": round(time.process_time() - cpu_started, 1),
    }
    return _decide_and_score(model, tokens, collator, counts, settings, metrics, tuned)


def no_number(
    error: NoNumberError, output: Path | None, tokenizer: PreTrainedTokenizerBase, taxonomy: Taxonomy
) -> HGCLRError:
    """Return the error to end training with; the batch is written into ``output``, if there is one, for a look."""
    where = ""
    if output is not None:
        rows = [
            {
                "text": tokenizer.decode(ids[mask.bool()], skip_special_tokens=True),
                "labels": [taxonomy.ids[label] for label in gold.nonzero()[:, 0].tolist()],
                "tokens": ids[mask.bool()].tolist(),
            }
            for ids, mask, gold in zip(*(error.batch[name].cpu() for name in BATCH_COLUMNS), strict=True)
        ]
        write_files(output, {BAD_BATCH: "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()})
        where = f", with the documents in {output / BAD_BATCH}"
    return HGCLRError(f"{error}{where}; lower training.learning_rate or set training.precision=fp32")


def with_label_documents(
    train: datasets.Dataset | None,
    model: HierarchicalPreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    *,
    wanted: bool,
) -> datasets.Dataset:
    """Return what is trained on: the documents of train, and the label tree's own if wanted, or if there are no others.

    Dev and test never hold any.
    """
    parts = [] if train is None else [train]
    if wanted or not parts:
        own = tree_documents(model.config.taxonomy)
        parts.append(tokenize_documents(own, tokenizer, max_length=model.config.max_length))
        logger.info("the label tree adds %d documents to train: names and descriptions of labels", len(parts[-1]))
    return datasets.concatenate_datasets(parts)


def label_counts(train: datasets.Dataset | None, labels: int) -> Tensor:
    """Return how many documents of train have each label, (K,)."""
    counts = torch.zeros(labels, dtype=torch.long)
    for batch in () if train is None else train.select_columns("labels").iter(batch_size=10_000):
        for row in batch["labels"]:
            counts[row] += 1
    return counts


def base_rates(counts: Tensor, documents: int) -> Tensor:
    """Return how often each label occurs, (K,), as if each had been seen half a time more."""
    return (counts + 0.5) / (documents + 1)


def count_parameters(encoder: torch.nn.Module) -> int:
    """Return the encoder's size without word embeddings, which do not make it harder to train."""
    words = encoder.get_input_embeddings().weight.numel()  # type: ignore[operator]
    return sum(parameter.numel() for parameter in encoder.parameters()) - int(words)


def _make_trainer(
    model: HierarchicalPreTrainedModel,
    collator: Collator,
    learned: datasets.Dataset,
    dev: datasets.Dataset,
    settings: TrainingSettings,
    recipe: Recipe,
    output: Path,
    rates: Tensor | None,
    callbacks: Sequence[TrainerCallback],
) -> HierarchicalTrainer:
    """Return the trainer that follows a recipe; ``rates`` are where the bias of a new head starts."""
    if not torch.accelerator.is_available():
        accelerate_on_cpu(model, model.encoder)
    if settings.gradient_checkpointing:
        checkpoint_layers(model.encoder)
    architecture, ranks = architecture_of(model), world_size()
    if recipe.batch_size % ranks:
        raise InputError(
            f"a batch of {recipe.batch_size} documents cannot be shared by {ranks} processes",
            remedy=f"set training.batch_size to a multiple of {ranks}",
        )
    longest = int(text_lengths(learned).max(initial=0))
    check_batch(architecture, model, batch_size=recipe.batch_size // ranks, length=longest)
    if rates is not None and recipe.base_rate_bias:
        model.set_base_rates(rates)
    logger.info("training %s with %s", architecture, recipe)
    with first_rank_first():  # the others find in the cache what it has tried
        precision = choose_precision(settings.precision)
    trainer = HierarchicalTrainer(
        model,
        trainer_arguments(settings, recipe, from_first_rank(precision), output / CHECKPOINTS),
        data_collator=collator,
        train_dataset=learned,
        eval_dataset=dev,
        callbacks=[
            EarlyStop(settings.patience, list(settings.patience_metrics)),
            CollapseWatch(model.config.contrastive_weight),
            TimedCheckpoints(),
            *([tensorboard(output / "tensorboard")] if settings.tensorboard and rank() == 0 else []),
            *callbacks,
        ],
        head_learning_rate=recipe.head_learning_rate,
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def trainer_arguments(
    settings: TrainingSettings, recipe: Recipe, precision: Precision, checkpoints: Path
) -> TrainingArguments:
    """Translate the recipe into the Trainer's arguments."""
    return TrainingArguments(
        output_dir=str(checkpoints),
        num_train_epochs=recipe.epochs,
        per_device_train_batch_size=recipe.batch_size // world_size(),
        per_device_eval_batch_size=64,
        gradient_accumulation_steps=settings.gradient_accumulation,
        learning_rate=recipe.learning_rate,
        lr_scheduler_type="linear" if recipe.schedule == "linear" else "constant_with_warmup",
        warmup_steps=recipe.warmup,
        weight_decay=recipe.weight_decay,
        max_grad_norm=recipe.max_gradient_norm,
        train_sampling_strategy="random" if settings.batching == "uniform" else "group_by_length",
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=2,
        load_best_model_at_end=True,
        metric_for_best_model="macro_f1",
        greater_is_better=True,
        logging_steps=min(50, recipe.steps_per_epoch),
        logging_nan_inf_filter=False,
        restore_callback_states_from_checkpoint=True,
        seed=settings.seed,
        use_cpu=not torch.accelerator.is_available(),
        bf16=precision == "bf16",
        fp16=precision == "fp16",
        ddp_find_unused_parameters=True,  # else gradient checkpointing would turn it off
        report_to=[],
        disable_tqdm=True,
        dataloader_pin_memory=torch.cuda.is_available(),
    )


def _precision(trainer: HierarchicalTrainer) -> Precision:
    return "bf16" if trainer.args.bf16 else "fp16" if trainer.args.fp16 else "fp32"


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


def _decide_and_score(
    model: HierarchicalPreTrainedModel,
    tokens: Mapping[str, datasets.Dataset],
    collator: Collator,
    counts: Tensor,
    settings: TrainingSettings,
    metrics: dict[str, Any],
    calibrated: Calibrated | None,
) -> Fitted:
    """Tune decisions on dev, unless they are, and score dev and test with them and at 0.5."""
    taxonomy = model.config.taxonomy
    half = Decisions(taxonomy, thresholds=model.config.threshold)
    decisions = {"": half, "_at_0.5": half}
    if settings.effort == "names":  # names can be compared with each other, not with a threshold
        decisions[""] = Decisions(taxonomy, "best-path", allow_inner_nodes=False)
    elif settings.calibrate is False:
        calibrated = None
    elif calibrated is None:
        calibrated = tune_decisions(model, tokens["dev"], collator, seed=settings.seed)
    if calibrated is not None:
        decisions[""] = calibrated.decisions
        metrics["tuned"] = {
            "rule": calibrated.decisions.rule,
            "thresholds": calibrated.decisions.provenance["thresholds"],
            "dev": {"before": asdict(calibrated.before), "after": asdict(calibrated.after)},
        }
    for name in ("dev", "test"):
        if name in tokens:
            for suffix, scores in final_scores(model, tokens[name], collator, decisions).items():
                frequency = by_frequency(scores, counts.numpy())
                metrics[name + suffix] = {**scores.to_json(), "by_frequency": frequency}
    return Fitted(decisions[""], calibrated, metrics)
