"""A thin Trainer: length-bucketed batches, two learning rates, loss terms one by one, scores by counters."""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import datasets
import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Sampler
from transformers import (
    AttentionInterface,
    EvalPrediction,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, flash_attention_mask
from transformers.trainer_callback import ExportableState
from transformers.trainer_utils import SchedulerType

from hgclr.data.folder import DocumentLike, read_documents
from hgclr.data.tokens import tokenize_documents
from hgclr.errors import HGCLRError, InputError, require_extra
from hgclr.metrics.scores import MultiLabelScores
from hgclr.models import HierarchicalPreTrainedModel
from hgclr.models.configuration import HierarchicalConfig
from hgclr.nn.attention import CPUDropout, dropout_attention
from hgclr.taxonomy import Taxonomy
from hgclr.training.checkpoints import delete_checkpoint, delete_old, mark_complete

__all__ = [
    "BestCheckpoint",
    "CollapseWatch",
    "Collator",
    "Documents",
    "EarlyStop",
    "HierarchicalTrainer",
    "NoNumberError",
    "SortedByLength",
    "StreamingScores",
    "accelerate_on_cpu",
    "as_tokens",
    "tensorboard",
]

logger = logging.getLogger(__name__)
NAME = "hgclr_cpu"
Documents: TypeAlias = "Iterable[DocumentLike] | datasets.Dataset"
"""Documents, or a data set with the columns ``text`` and ``labels``, or one that is tokenised already."""


def accelerate_on_cpu(model: PreTrainedModel, encoder: PreTrainedModel) -> None:
    """Replace the dropout layers of ``model``, and the attention of its ``encoder`` where the encoder lets us.

    Nothing that is saved changes: dropout has no weights, and the attention's name is no part of a saved model.
    """
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if type(child) is nn.Dropout:
                setattr(parent, name, CPUDropout(child.p))
    AttentionInterface.register(NAME, cpu_attention)
    AttentionMaskInterface.register(NAME, flash_attention_mask)
    try:
        encoder.set_attn_implementation(NAME)
    except ValueError as error:
        logger.info("the encoder keeps its own attention: %s", error)


def cpu_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attend in the way transformers' encoders expect; (B, heads, L, d) in, (B, L, heads, d) out.

    Args:
        attention_mask: 1 on real tokens, (B, L), or None where all are real.
    """
    if not dropout or query.device.type != "cpu":  # torch's own kernels are at their best without dropout
        if attention_mask is not None:
            attention_mask = attention_mask[:, None, None, :].bool()
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, is_causal=False, **kwargs
        )
    lengths = [query.shape[2]] * len(query) if attention_mask is None else attention_mask.sum(1).tolist()
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    with torch.autocast("cpu", enabled=False):
        output = dropout_attention(query, key, value, lengths=lengths, scale=scale, dropout=dropout)
    return output.transpose(1, 2).contiguous(), None


class EarlyStop(TrainerCallback, ExportableState):
    """Stop when no watched dev score has improved for ``patience`` evaluations.

    The paper watches Macro-F1; the published program starts counting anew when Macro- or Micro-F1 improves.
    The counter and the best scores survive a resume.
    """

    def __init__(self, patience: int, metrics: list[str]) -> None:
        self.patience, self.metrics = patience, metrics
        self.best: dict[str, float] = {}
        self.waited = 0

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Count this evaluation."""
        metrics = kwargs["metrics"]
        better = [name for name in self.metrics if metrics[f"eval_{name}"] > self.best.get(name, -math.inf)]
        for name in better:
            self.best[name] = metrics[f"eval_{name}"]
        self.waited = 0 if better else self.waited + 1
        if self.waited >= self.patience:
            control.should_training_stop = True

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint must remember."""
        return {
            "args": {"patience": self.patience, "metrics": self.metrics},
            "attributes": {"best": self.best, "waited": self.waited},
        }


class BestCheckpoint(TrainerCallback):
    """Look for the best checkpoint beside the others: the run may have been moved since its path was noted."""

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Note its path anew, which the Trainer takes for gone where there is nothing any more."""
        if state.best_global_step:
            state.best_model_checkpoint = str(Path(str(args.output_dir)) / f"checkpoint-{state.best_global_step}")


class NoNumberError(HGCLRError):
    """A loss that is no number: nothing that comes after it would be one.

    Args:
        loss: what it is.
        step: after how many steps.
        batch: what the model was given.
    """

    def __init__(self, loss: float, step: int, batch: Mapping[str, Tensor]) -> None:
        super().__init__(f"the loss is {loss} after step {step}")
        self.batch = batch


class CollapseWatch(TrainerCallback):
    """Warn when the model predicts nothing although training goes on."""

    def __init__(self, contrastive_weight: float) -> None:
        self.contrastive_weight = contrastive_weight
        self.empty = 0
        self.terms: dict[str, float] = {}

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Remember the terms of the loss."""
        logs = kwargs["logs"]
        self.terms = {name: logs[name] for name in ("loss_original", "loss_contrastive") if name in logs} or self.terms

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Warn at the second evaluation in a row at which nothing is predicted right."""
        self.empty = self.empty + 1 if kwargs["metrics"]["eval_micro_f1"] == 0 else 0
        if self.empty != 2:
            return
        ratio = self.contrastive_weight * self.terms.get("loss_contrastive", 0.0) / self.terms.get("loss_original", 1.0)
        if ratio > 1:
            cause = f"the contrastive term is {ratio:.0f} times the classification loss: lower model.contrastive_weight"
        else:
            cause = "raise training.learning_rate, set training.base_rate_bias, or train longer"
        logger.warning("no label has been predicted right for two evaluations; %s", cause)


def tensorboard(folder: Path) -> TrainerCallback:
    """Return a callback that writes everything logged into ``folder``, for TensorBoard."""
    require_extra("tensorboard", extra="tensorboard", capability="Logging for TensorBoard")
    from torch.utils.tensorboard import SummaryWriter
    from transformers.integrations.integration_utils import TensorBoardCallback

    return TensorBoardCallback(SummaryWriter(str(folder)))


class Collator:
    """Pad a batch to its longest text and turn label indices into 0/1 rows.

    A text without tokens gets the padding as its one token, as in prediction.
    """

    def __init__(self, labels: int, pad_token: int) -> None:
        self.labels, self.pad_token = labels, pad_token

    def __call__(self, rows: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
        """Return ``input_ids`` and ``attention_mask``, (B, L), and ``labels``, (B, K)."""
        texts = [torch.as_tensor(row["input_ids"] or [self.pad_token]) for row in rows]
        gold = torch.zeros(len(rows), self.labels)
        for document, row in enumerate(rows):
            gold[document, row["labels"]] = 1.0
        return {
            "input_ids": nn.utils.rnn.pad_sequence(texts, batch_first=True, padding_value=self.pad_token),
            "attention_mask": nn.utils.rnn.pad_sequence([torch.ones_like(text) for text in texts], batch_first=True),
            "labels": gold,
        }


class StreamingScores:
    """Score predictions batch by batch, for ``batch_eval_metrics``; memory is O(K) whatever the number of documents."""

    def __init__(self, taxonomy: Taxonomy, threshold: float) -> None:
        self.taxonomy, self.threshold = taxonomy, threshold
        self.running = MultiLabelScores(taxonomy)
        self.last = self.running

    def __call__(self, batch: EvalPrediction, compute_result: bool) -> dict[str, float]:
        """Count a batch; after the last one return Micro- and Macro-F1 and begin anew."""
        predicted = torch.sigmoid(torch.as_tensor(batch.predictions)) > self.threshold
        self.running.update(predicted.cpu().numpy(), torch.as_tensor(batch.label_ids).bool().cpu().numpy())
        if not compute_result:
            return {}
        self.last, self.running = self.running, MultiLabelScores(self.taxonomy)
        return {"micro_f1": self.last.micro().f1, "macro_f1": self.last.macro().f1}


def as_tokens(
    documents: Documents | None, config: HierarchicalConfig, tokenizer: PreTrainedTokenizerBase | None
) -> datasets.Dataset | None:
    """Return documents as token ids, unless they are that already.

    Raises:
        InputError: if they are not, and there is no tokenizer; or if a document cannot be used.
    """
    if documents is None or (isinstance(documents, datasets.Dataset) and "input_ids" in documents.column_names):
        return documents
    if tokenizer is None:
        raise InputError("documents that are not tokenised need a tokenizer", remedy="give it as processing_class")
    return tokenize_documents(read_documents(documents, config.taxonomy), tokenizer, max_length=config.max_length)


class SortedByLength(Sampler[int]):
    """Go through the documents from the longest to the shortest, so that a batch has hardly any padding."""

    def __init__(self, lengths: Sequence[int]) -> None:
        self.order = np.argsort(-np.asarray(lengths), kind="stable")

    def __iter__(self) -> Iterator[int]:
        return iter(self.order.tolist())

    def __len__(self) -> int:
        return len(self.order)


class HierarchicalTrainer(Trainer):
    """Train a model of :mod:`hgclr.models`; everything else is as in :class:`transformers.Trainer`.

    Collator and metrics (Micro- and Macro-F1) come by default. Data sets are either tokenised, with the columns
    ``input_ids``, ``labels`` (indices) and ``length``, or documents as :func:`hgclr.training.fit` takes them, which
    are then tokenised with ``processing_class``.

    Example:
        >>> trainer = HierarchicalTrainer(  # doctest: +SKIP
        ...     model, TrainingArguments("out", eval_strategy="epoch"), processing_class=tokenizer,
        ...     train_dataset=[("a lens made of ice", ["science", "physics"])], eval_dataset=documents,
        ... )

    Args:
        model: the model.
        args: the Trainer's own settings.
        data_collator: makes batches; by default texts are padded and labels become rows of 0 and 1.
        train_dataset: documents.
        eval_dataset: documents.
        processing_class: the tokenizer.
        head_learning_rate: rate of every layer that is not the pretrained encoder's; by default a multiple of
            ``args.learning_rate`` that the model knows.
        options: everything else that :class:`transformers.Trainer` takes.
    """

    def __init__(
        self,
        model: HierarchicalPreTrainedModel,
        args: TrainingArguments | None = None,
        *,
        data_collator: Any = None,
        train_dataset: Documents | None = None,
        eval_dataset: Documents | None = None,
        processing_class: PreTrainedTokenizerBase | None = None,
        head_learning_rate: float | None = None,
        **options: Any,
    ) -> None:
        args = args or TrainingArguments("trainer_output")
        args.remove_unused_columns, args.label_names = False, ["labels"]
        if "compute_metrics" not in options:
            options["compute_metrics"] = StreamingScores(model.config.taxonomy, model.config.threshold)
            args.batch_eval_metrics = True  # scores are counted batch by batch
        if data_collator is None:
            if processing_class is None:
                raise InputError(
                    "without a data_collator the tokenizer is needed", remedy="give it as processing_class"
                )
            data_collator = Collator(len(model.config.taxonomy), processing_class.pad_token_id)
        super().__init__(
            model,
            args,
            data_collator,
            as_tokens(train_dataset, model.config, processing_class),
            as_tokens(eval_dataset, model.config, processing_class),
            processing_class,
            **options,
        )
        self.add_callback(BestCheckpoint)
        # The Trainer would delete an old checkpoint before the new one is marked.
        self.checkpoint_limit, self.args.save_total_limit = self.args.save_total_limit, None
        self.head_learning_rate = head_learning_rate or model.head_rate * args.learning_rate
        self._terms: defaultdict[str, list[Tensor]] = defaultdict(list)

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        """Group parameters by learning rate and weight decay; AdamW without decay is the paper's Adam."""
        if self.optimizer is None:
            model = model or self.model
            assert model is not None
            decayed = set(self.get_decay_parameter_names(model))
            groups: dict[tuple[bool, bool], list[nn.Parameter]] = {}
            for name, parameter in model.named_parameters():
                if parameter.requires_grad:
                    groups.setdefault((name.startswith("encoder."), name in decayed), []).append(parameter)
            self.optimizer = torch.optim.AdamW(
                [
                    {
                        "params": parameters,
                        "lr": self.args.learning_rate if pretrained else self.head_learning_rate,
                        "weight_decay": self.args.weight_decay if decays else 0.0,
                    }
                    for (pretrained, decays), parameters in groups.items()
                ],
                fused=True,
            )
        return self.optimizer

    def create_scheduler(
        self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None
    ) -> torch.optim.lr_scheduler.LRScheduler:
        """Let a constant rate after warm-up begin above 0, as the authors do: transformers wastes the first step."""
        if self.lr_scheduler is not None or self.args.lr_scheduler_type != SchedulerType.CONSTANT_WITH_WARMUP:
            return super().create_scheduler(num_training_steps, optimizer)
        warmup = max(1, self.args.get_warmup_steps(num_training_steps))
        optimizer = optimizer or self.optimizer
        assert optimizer is not None
        self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / warmup))
        self._created_lr_scheduler = True
        return self.lr_scheduler

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Tensor | Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """Return the model's loss and remember its terms for the log."""
        output = model(**inputs)
        if not torch.isfinite(output.loss).all():  # in evaluation as well, before a checkpoint is written
            raise NoNumberError(float(output.loss.mean()), self.state.global_step, inputs)
        if model.training:
            for name, value in output.terms.items():
                self._terms[name].append(value.detach())
        return (output.loss, output) if return_outputs else output.loss

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Put the mean of each loss term since the last log beside the loss."""
        if "loss" in logs:
            for name, values in self._terms.items():
                if values:
                    logs[name] = torch.stack(values).mean().item()
                    values.clear()
        super().log(logs, start_time)

    def _get_eval_sampler(self, eval_dataset: Any) -> Sampler[int]:
        return SortedByLength(eval_dataset["length"])

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        checkpoint = Path(str(self.args.output_dir)) / f"checkpoint-{self.state.global_step}"
        if self.args.should_save and checkpoint.exists():  # it was passed over, or it would have been gone on from
            delete_checkpoint(checkpoint)
        self.accelerator.wait_for_everyone()
        super()._save_checkpoint(model, trial)
        self.accelerator.wait_for_everyone()  # each process writes its own random state
        if self.args.should_save:
            mark_complete(checkpoint)
            best = self.state.best_model_checkpoint
            delete_old(checkpoint, None if best is None else Path(best), self.checkpoint_limit)
