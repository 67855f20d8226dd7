"""Train a model on documents in memory, keep the best epoch, and tune decisions on dev."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase, PrinterCallback, TrainerCallback, TrainingArguments

from hgclr.data.folder import label_documents as tree_documents
from hgclr.data.split import hold_out
from hgclr.data.tokens import SplitWords, tokenize_documents
from hgclr.decisions.settings import Decisions, LeafSoftmax
from hgclr.decisions.tuning import Calibrated
from hgclr.errors import InputError, require_extra
from hgclr.metrics.scores import by_frequency
from hgclr.models import FlatForSequenceClassification, HierarchicalPreTrainedModel, architecture_of
from hgclr.models.pretrained import quiet_libraries
from hgclr.nn.gathering import rank, world_size
from hgclr.provenance import Stopwatch
from hgclr.registry import is_pretrained
from hgclr.training.checkpoints import EarlyStop, TimedCheckpoints, find_checkpoint, tensorboard
from hgclr.training.distributed import from_first_rank, share_weights
from hgclr.training.head import (
    LEAST,
    MANY_STRENGTH,
    STRENGTH,
    choose_head,
    final_scores,
    fit_head,
    refit_head,
    tune_decisions,
    tuned_on,
)
from hgclr.training.recipe import MANY_DOCUMENTS, Precision, Recipe, choose_precision, make_recipe
from hgclr.training.run_checks import CHECKPOINTS
from hgclr.training.settings import LoraSettings, TrainingSettings
from hgclr.training.trainer import (
    Collator,
    Documents,
    HierarchicalTrainer,
    accelerate_on_cpu,
    as_tokens,
    text_lengths,
)

logger = logging.getLogger(__name__)
HELD_OUT = 0.1
"""Share of train that is held out as dev if there is none."""
FROZEN_LENGTH = 5.0
"""Initial length of the rows of a head on frozen vectors; shorter rows stay far below a probability of 0.5."""
NAMES_TEMPERATURE = 0.25
"""Temperature of the softmax over leaves of the effort ``names``; a compromise between four data sets."""
PROJECTIONS = (
    ("query", "key", "value", "attention.output.dense"),  # BERT, RoBERTa, ELECTRA
    ("q", "k", "v", "o"),  # MPNet
    ("q_lin", "k_lin", "v_lin", "out_lin"),  # DistilBERT
    ("query_proj", "key_proj", "value_proj", "attention.output.dense"),  # DeBERTa
    ("attn.Wqkv", "attn.Wo"),  # ModernBERT
)
"""Names of the linear layers of attention, by encoder."""


@dataclass(frozen=True, eq=False)
class Fitted:
    """Result of training; the model itself is trained in place.

    Args:
        decisions: the decisions for the model.
        calibrated: a report of how they were tuned, or None.
        metrics: recipe, precision, scores of each epoch; ``dev`` and ``test`` are the scores with ``decisions``,
            ``dev_at_0.5`` and ``test_at_0.5`` those at a threshold of 0.5.
    """

    decisions: Decisions
    calibrated: Calibrated | None
    metrics: dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """Plan passed to ``on_start``.

    Args:
        recipe: None if only a head is fitted.
        cut: share of the texts in train that are truncated at ``max_length`` tokens.
        lora: description of the adapters that are trained instead of the encoder.
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


@quiet_libraries()
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
    on_stage: Callable[[str, int | None], None] | None = None,
) -> Fitted:
    """Train a model on ``train``, keep the best epoch on ``dev``, tune decisions there, score ``test`` once.

    A document is a :class:`~hgclr.data.folder.Document`, a pair ``(text, labels)`` or a mapping with the keys ``text``
    and ``labels``; labels are ids, names or paths. An iterator is consumed.

    Args:
        model: trained in place.
        tokenizer: the encoder's tokenizer.
        train: None only with ``settings.effort`` ``names``.
        dev: None holds out a tenth of train.
        test: documents to score at the end.
        settings: effort, recipe, seed and others; decisions are tuned unless ``calibrate`` is False.
        label_documents: also train on names, paths and descriptions of labels.
        lora: train low-rank adapters instead of the encoder, and merge them into it at the end.
        continued: the model is already trained, so its head is not initialised.
        output: folder for checkpoints and TensorBoard; None keeps neither.
        resume: continue from the newest complete checkpoint in ``output``.
        callbacks: further callbacks of the Trainer, such as a progress bar.
        on_documents: called with the number of documents encoded since the last call, except by the Trainer.
        on_start: called with the plan before training starts.
        on_stage: called with the name of each stage and, if known, its number of documents.

    Raises:
        InputError: if model, documents and settings do not fit together, or memory runs out.
    """
    settings, stopwatch = settings or TrainingSettings(), Stopwatch()
    taxonomy, effort = model.config.taxonomy, settings.effort
    splits = {"train": train, "dev": dev, "test": test}
    tokens = {
        name: tokenised
        for name, documents in splits.items()
        if (tokenised := as_tokens(documents, model.config, tokenizer)) is not None
    }
    if effort != "names" and "train" not in tokens:
        raise InputError(f"training.effort is {effort}, but there are no training documents", remedy="give train")
    if effort != "full" and lora is not None:
        raise InputError(f"training.effort is {effort}, but lora trains the encoder", remedy="omit lora")
    flat = model if isinstance(model, FlatForSequenceClassification) else None
    if effort != "full" and flat is None:
        what = f"training.effort is {effort}, but {architecture_of(model)} has other layers than a head to train"
        raise InputError(what, remedy="set training.effort=full, or model.architecture=flat")
    if effort != "names" and "dev" not in tokens:
        kept, held_out = hold_out(len(tokens["train"]), HELD_OUT, settings.seed)
        tokens |= {"train": tokens["train"].select(kept), "dev": tokens["train"].select(held_out)}

    def begin(stage: str, total: int | None = None) -> None:
        if on_stage is not None:
            on_stage(stage, total)

    begin("preparing labels")
    if "train" in tokens:
        model.config.split_words = asdict(SplitWords.measure(tokens["train"], tokenizer.backend_tokenizer))
    counts = label_counts(tokens.get("train"), len(taxonomy))
    rates = base_rates(counts, len(tokens.get("train", ())))
    parts = [tokens["train"]] if "train" in tokens else []
    if label_documents or not parts:
        own = tree_documents(taxonomy)
        parts.append(tokenize_documents(own, tokenizer, max_length=model.config.max_length))
        logger.info("added %d label documents to train", len(parts[-1]))
    learned = datasets.concatenate_datasets(parts)
    collator = Collator(len(taxonomy), tokenizer.pad_token_id, model.config.cut_length, on_documents)
    from_names = not continued and flat is not None and model.config.classifier_start == "names"
    if flat is not None and from_names:
        flat.start_from_names(tokenizer, length=FROZEN_LENGTH if effort == "head" else 1.0)

    def tell(recipe: Recipe | None, precision: Precision, device: torch.device, lora: str | None = None) -> None:
        if on_start is not None:
            sizes = {name: len(split) for name, split in tokens.items()}
            most = model.config.max_length
            cut = float(np.mean(text_lengths(tokens["train"]) >= most)) if sizes.get("train") else 0.0
            on_start(
                Plan(sizes, len(taxonomy), taxonomy.depth, effort, recipe, str(device), precision, most, cut, lora)
            )

    how: dict[str, Any] = {"recipe": {}, "precision": "fp32", "history": []}
    tuned: Calibrated | None = None
    with _memory_errors():
        if effort == "full":
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
            if recipe.base_rate_bias and not continued:
                model.set_base_rates(rates)
            how = _train(
                model, tokenizer, learned, tokens["dev"], settings, recipe, lora, output, resume, callbacks, tell
            )
            refits = len(learned) >= MANY_DOCUMENTS if settings.refit_head is None else settings.refit_head
            if refits and flat is not None:
                begin("refitting the head", len(learned) + 2 * tuned_on(tokens["dev"], len(taxonomy)))
                how["recipe"]["refit_head"], tuned = refit_head(
                    flat, learned, tokens["dev"], collator, seed=settings.seed
                )
        elif flat is not None:
            tell(None, "fp32", model.device)
            if effort == "head":
                flat.set_base_rates(rates)
                many = len(learned) >= MANY_DOCUMENTS
                if many or len(tokens["dev"]) < LEAST:
                    begin("fitting the head", len(learned))
                    strength = MANY_STRENGTH if many else STRENGTH
                    how["recipe"] = fit_head(flat, learned, collator, strength=strength)
                else:
                    begin("fitting the head", len(learned) + len(tokens["dev"]))
                    how["recipe"] = choose_head(
                        flat,
                        learned,
                        tokens["dev"],
                        collator,
                        documents=len(tokens["train"]),
                        tuned=settings.calibrate is not False,
                        seed=settings.seed,
                    )
            else:
                flat.classify_by_names(tokenizer)
        metrics: dict[str, Any] = {
            **how,
            "documents": {name: len(split) for name, split in tokens.items()},
            "label_documents": len(learned) - len(tokens.get("train", ())),
            "labels": len(taxonomy),
        }
        # Tune decisions on dev, and score dev and test with them and at 0.5.
        best = half = Decisions(taxonomy, thresholds=model.config.threshold)
        if effort == "names":  # nothing to tune on; similarities become probabilities
            half = replace(half, calibration=LeafSoftmax(taxonomy, NAMES_TEMPERATURE))
            best = replace(half, rule="best-path", thresholds=0.5, allow_inner_nodes=False)
        elif settings.calibrate is False:
            tuned = None
        elif tuned is None:
            begin("tuning decisions", tuned_on(tokens["dev"], len(taxonomy)))
            tuned = tune_decisions(model, tokens["dev"], collator, seed=settings.seed)
        if tuned is not None:
            best = tuned.decisions
            metrics["tuned"] = tuning_summary(tuned)
        metrics |= score_splits(model, tokens, collator, {"": best, "_at_0.5": half}, counts, begin)
    return Fitted(best, tuned, metrics | stopwatch.read())


def tuning_summary(tuned: Calibrated) -> dict[str, Any]:
    """Return rule and thresholds, and the scores on dev before and after tuning."""
    return {
        "rule": tuned.decisions.rule,
        "thresholds": tuned.decisions.provenance["thresholds"],
        "dev": {"before": asdict(tuned.before), "after": asdict(tuned.after)},
    }


def score_splits(
    model: HierarchicalPreTrainedModel,
    tokens: Mapping[str, datasets.Dataset],
    collator: Collator,
    decisions: Mapping[str, Decisions],
    counts: Tensor,
    begin: Callable[[str, int], None],
) -> dict[str, Any]:
    """Return the scores on dev and test, if they are there, with each of several decisions.

    The keys are the split and the name of the decisions; ``counts`` are the documents of each label in train.
    """
    metrics = {}
    for name in ("dev", "test"):
        if name in tokens:
            begin(f"scoring {name}", len(tokens[name]))
            for suffix, scores in final_scores(model, tokens[name], collator, decisions).items():
                frequency = by_frequency(scores, counts.numpy())
                metrics[name + suffix] = {**scores.to_json(), "by_frequency": frequency}
    return metrics


def _train(
    model: HierarchicalPreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    learned: datasets.Dataset,
    dev: datasets.Dataset,
    settings: TrainingSettings,
    recipe: Recipe,
    lora: LoraSettings | None,
    output: Path | None,
    resume: bool,
    callbacks: Sequence[TrainerCallback],
    tell: Callable[..., None],
) -> dict[str, Any]:
    """Train encoder and head with a recipe; return recipe, precision, and the scores of each epoch."""
    if recipe.batch_size % world_size():
        raise InputError(
            f"a batch of {recipe.batch_size} documents cannot be divided among {world_size()} processes",
            remedy=f"set training.batch_size to a multiple of {world_size()}",
        )
    attention = model.encoder.config._attn_implementation
    adapters = None if lora is None else add_adapters(model.encoder, lora)
    if not torch.accelerator.is_available():
        accelerate_on_cpu(model)
    if settings.gradient_checkpointing:
        checkpoint_layers(model.encoder)
    precision = choose_precision(settings.precision)
    logger.info("training %s with %s", architecture_of(model), recipe)
    with ExitStack() as stack:
        if (folder := output) is None:
            own = stack.enter_context(tempfile.TemporaryDirectory(prefix="hgclr-"))
            folder = Path(from_first_rank(own))
        trainer = HierarchicalTrainer(
            model,
            trainer_arguments(settings, recipe, precision, folder / CHECKPOINTS),
            data_collator=Collator(model.config.label_count, tokenizer.pad_token_id, model.config.cut_length),
            train_dataset=learned,
            eval_dataset=dev,
            callbacks=[
                EarlyStop(settings.patience, list(settings.patience_metrics)),
                TimedCheckpoints(),
                *([tensorboard(folder / "tensorboard")] if settings.tensorboard and rank() == 0 else []),
                *callbacks,
            ],
            head_learning_rate=recipe.head_learning_rate,
        )
        trainer.remove_callback(PrinterCallback)
        sizes = dict.fromkeys((True, False), 0)
        for parameter in model.encoder.parameters():
            sizes[parameter.requires_grad] += parameter.numel()
        adapted = f"LoRA: {sizes[True] / 1e6:.3g} M trained and {sizes[False] / 1e6:.3g} M frozen parameters"
        tell(recipe, precision, trainer.args.device, None if adapters is None else adapted)
        checkpoint = None
        if resume and rank() == 0:
            checkpoint = find_checkpoint(folder / CHECKPOINTS)
            if checkpoint is None and any((folder / CHECKPOINTS).glob("checkpoint-*")):
                logger.warning("no checkpoint in %s is complete: training starts from the beginning", folder)
        checkpoint = from_first_rank(checkpoint)
        trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    # From here on compute in full precision, as the saved model does.
    trainer.accelerator.unwrap_model(model, keep_fp32_wrapper=False)
    share_weights(model)
    if settings.gradient_checkpointing:
        model.encoder.gradient_checkpointing_disable()
    if adapters is not None:  # W + alpha / rank · B A
        adapters.merge_and_unload()
        model.encoder.requires_grad_(True)
    model.encoder.set_attn_implementation(attention)
    return {"recipe": asdict(recipe), "precision": precision, "history": history(trainer.state.log_history)}


def trainer_arguments(
    settings: TrainingSettings, recipe: Recipe, precision: Precision, checkpoints: Path
) -> TrainingArguments:
    """Return the Trainer's arguments for a recipe."""
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
        include_num_input_tokens_seen="non_padding",  # for the time left
        restore_callback_states_from_checkpoint=True,
        seed=settings.seed,
        use_cpu=not torch.accelerator.is_available(),
        bf16=precision == "bf16",
        fp16=precision == "fp16",
        ddp_find_unused_parameters=True,  # gradient checkpointing would turn the default off
        report_to=[],
        disable_tqdm=True,
        dataloader_pin_memory=torch.cuda.is_available(),
    )


@contextmanager
def _memory_errors() -> Iterator[None]:
    """Turn a failed allocation into an error that names the settings to change."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError | torch.OutOfMemoryError) and "DefaultCPUAllocator" not in str(error):
            raise
        raise InputError(
            "out of memory: model and batches are too large for this machine",
            remedy="lower training.batch_size (and raise training.gradient_accumulation) or model.max_length,"
            " set training.gradient_checkpointing=true or model.lora={}, or choose a smaller encoder",
        ) from error


def label_counts(train: datasets.Dataset | None, labels: int) -> Tensor:
    """Return the number of documents in train with each label, (K,)."""
    counts = torch.zeros(labels, dtype=torch.long)
    for batch in () if train is None else train.select_columns("labels").iter(batch_size=10_000):
        for row in batch["labels"]:
            counts[row] += 1
    return counts


def base_rates(counts: Tensor, documents: int) -> Tensor:
    """Return the smoothed frequency of each label, (K,), with a pseudocount of 0.5."""
    return (counts + 0.5) / (documents + 1)


def count_parameters(encoder: nn.Module) -> int:
    """Return the encoder's number of parameters without word embeddings, which do not affect the learning rate."""
    words = encoder.get_input_embeddings().weight.numel()  # type: ignore[operator]
    return sum(parameter.numel() for parameter in encoder.parameters()) - int(words)


def history(log: list[dict[str, float]]) -> list[dict[str, float]]:
    """Return one row per epoch: the dev scores, and the latest loss terms."""
    rows: list[dict[str, float]] = []
    terms: dict[str, float] = {}
    for entry in log:
        if "loss" in entry:
            terms = {name: value for name, value in entry.items() if name.startswith("loss") or name == "kept"}
        elif "eval_macro_f1" in entry:
            scores = {name: entry[f"eval_{name}"] for name in ("micro_f1", "macro_f1")}
            rows.append({"epoch": round(entry["epoch"], 2), **scores, **terms})
    return rows


def checkpoint_layers(encoder: PreTrainedModel) -> None:
    """Turn on gradient checkpointing: keep only the inputs of layers, and recompute the rest in the backward pass."""
    try:
        encoder.gradient_checkpointing_enable({"use_reentrant": False})
    except ValueError:
        raise InputError(
            f"transformers has no gradient checkpointing for a {encoder.config.model_type} encoder",
            remedy="set training.gradient_checkpointing=false and lower training.batch_size, or choose another encoder",
        ) from None
    encoder.disable_input_require_grads()  # only reentrant checkpointing needs it


def add_adapters(encoder: PreTrainedModel, lora: LoraSettings) -> Any:
    """Add low-rank adapters to linear layers of an encoder and freeze its weights; return peft's model.

    A layer then computes ``W x + alpha / rank · B A x``. W is frozen, A has ``rank`` random rows, and B starts as 0.

    Raises:
        InputError: if the encoder does not have the layers to adapt.
    """
    require_extra("peft", extra="lora", capability="Training with model.lora")
    from peft import LoraConfig, LoraModel

    linear = [name for name, module in encoder.named_modules() if isinstance(module, nn.Linear)]

    def known(target: str) -> bool:
        return any(f".{name}".endswith(f".{target}") for name in linear)

    targets = list(lora.targets)
    if lora.targets == "auto":
        targets = next((list(layers) for layers in PROJECTIONS if all(map(known, layers))), ["auto"])
    if not all(map(known, targets)):
        wrong = next(target for target in targets if not known(target))
        raise InputError(
            f"model.lora.targets is {wrong!r}, but no linear layer of a {encoder.config.model_type} encoder matches",
            remedy=f"choose from {', '.join(sorted({name.rpartition('.')[2] for name in linear}))}",
        )
    config = LoraConfig(r=lora.rank, lora_alpha=lora.alpha, lora_dropout=lora.dropout, target_modules=targets)
    return LoraModel(encoder, {"default": config}, "default")
