"""A thin Trainer: length-bucketed batches, two learning rates, loss terms one by one, scores by counters."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import datasets
import torch
from accelerate.data_loader import prepare_data_loader
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, Sampler
from transformers import (
    AttentionInterface,
    EvalPrediction,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Trainer,
    TrainingArguments,
)
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, flash_attention_mask
from transformers.trainer_utils import EvalLoopOutput, SchedulerType

from hgclr.data.folder import DocumentLike, read_documents
from hgclr.data.tokens import tokenize_documents
from hgclr.errors import HGCLRError, InputError
from hgclr.metrics.scores import MultiLabelScores
from hgclr.models import HierarchicalPreTrainedModel
from hgclr.models.base import HGCLRConfig
from hgclr.models.pretrained import absolute_positions
from hgclr.nn.attention import CPUDropout, dropout_attention
from hgclr.nn.draws import current_packing, drawn_for
from hgclr.nn.gathering import total, world_size
from hgclr.taxonomy import Taxonomy
from hgclr.training.batches import Collator, NumberedDocuments, SortedByLength, TrainingBatches, text_lengths
from hgclr.training.callbacks import BestCheckpoint
from hgclr.training.checkpoints import delete_checkpoint, delete_old, mark_complete
from hgclr.training.distributed import add_scores, add_up

__all__ = [
    "Documents",
    "HierarchicalTrainer",
    "NoNumberError",
    "StreamingScores",
    "accelerate_on_cpu",
    "as_tokens",
]

logger = logging.getLogger(__name__)
NAME = "hgclr_cpu"
POST_NORM = ("bert", "roberta", "xlm-roberta", "electra")
"""Encoders whose layers are made of the parts that BERT's have, norms behind them."""
Documents: TypeAlias = "Iterable[DocumentLike] | datasets.Dataset"
"""Documents, or a data set with the columns ``text`` and ``labels``, or one that is tokenised already."""


def accelerate_on_cpu(model: PreTrainedModel, encoder: PreTrainedModel) -> None:
    """Replace the dropout layers of ``model``, and the attention of its ``encoder`` where the encoder lets us.

    Nothing that is saved changes: dropout has no weights, and the attention's name is no part of a saved model. Where
    the encoder knows of a token's place by its position alone, batches are then packed.
    """
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if type(child) is nn.Dropout:
                setattr(parent, name, CPUDropout(child.p))
    if any(
        getattr(module, "is_causal", False) or getattr(module, "sliding_window", None) for module in encoder.modules()
    ):
        logger.info("the encoder keeps its own attention, which is not to all tokens")
        return
    AttentionInterface.register(NAME, cpu_attention)
    AttentionMaskInterface.register(NAME, flash_attention_mask)
    try:
        encoder.set_attn_implementation(NAME)
    except ValueError as error:
        logger.info("the encoder keeps its own attention: %s", error)
        return
    if isinstance(model, HierarchicalPreTrainedModel):
        model.padding_free = absolute_positions(encoder)
        model.first_token_alone = encoder.config.model_type in POST_NORM


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

    The mask is 1 on real tokens, (B, L), or None where all are real, or packed.
    """
    packing = current_packing()
    # Without dropout torch's own kernels are at their best.
    if (packing is None and not dropout) or query.device.type != "cpu":
        if attention_mask is not None:
            attention_mask = attention_mask[:, None, None, :].bool()
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, is_causal=False, **kwargs
        )
    if packing is not None:
        lengths = packing.lengths
    elif attention_mask is None:
        lengths = [query.shape[2]] * len(query)
    else:
        lengths = attention_mask.sum(1).tolist()
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    with torch.autocast("cpu", enabled=False):
        output = dropout_attention(query, key, value, lengths=lengths, scale=scale, dropout=dropout)
    return output.transpose(1, 2).contiguous(), None


class NoNumberError(HGCLRError):
    """A loss that is no number: nothing that comes after it would be one."""

    def __init__(self, loss: float, step: int, batch: Mapping[str, Tensor]) -> None:
        super().__init__(f"the loss is {loss} after step {step}")
        self.batch = batch


class StreamingScores:
    """Score predictions batch by batch, for ``batch_eval_metrics``; memory is O(K) whatever the number of documents."""

    def __init__(self, taxonomy: Taxonomy, threshold: float) -> None:
        self.taxonomy, self.threshold = taxonomy, threshold
        self.running = MultiLabelScores(taxonomy)
        self.last = self.running

    def __call__(self, batch: EvalPrediction, compute_result: bool) -> dict[str, float]:
        """Count a batch; after the last one return Micro- and Macro-F1 and begin anew."""
        self.count(torch.as_tensor(batch.predictions), torch.as_tensor(batch.label_ids))
        return self.result() if compute_result else {}

    def count(self, logits: Tensor, gold: Tensor) -> None:
        """Count a batch of logits and gold labels, (B, K)."""
        predicted = torch.sigmoid(logits) > self.threshold
        self.running.update(predicted.cpu().numpy(), gold.bool().cpu().numpy())

    def result(self) -> dict[str, float]:
        """Return the scores of what all ranks have counted, and begin anew."""
        self.last, self.running = add_scores(self.running), MultiLabelScores(self.taxonomy)
        return {"micro_f1": self.last.micro().f1, "macro_f1": self.last.macro().f1}


def as_tokens(
    documents: Documents | None, config: HGCLRConfig, tokenizer: PreTrainedTokenizerBase | None
) -> datasets.Dataset | None:
    """Return documents as token ids, unless they are that already."""
    if documents is None or (isinstance(documents, datasets.Dataset) and "input_ids" in documents.column_names):
        return documents
    if tokenizer is None:
        raise InputError("documents that are not tokenised need a tokenizer", remedy="give it as processing_class")
    return tokenize_documents(read_documents(documents, config.taxonomy), tokenizer, max_length=config.max_length)


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
            config = model.config
            data_collator = Collator(len(config.taxonomy), processing_class.pad_token_id, config.cut_length)
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
        self._batches: TrainingBatches | None = None
        self._drawn = (-1, 0)  # for which step, and how many batches of it

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

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Return the batches, of which several ranks take a part each; other ways to draw them are transformers'."""
        args, documents = self.args, self.train_dataset
        strategies = {"random": False, "group_by_length": True}
        if not isinstance(documents, datasets.Dataset) or args.train_sampling_strategy not in strategies:
            return super().get_train_dataloader()
        self._batches = TrainingBatches(
            text_lengths(documents),
            args.train_batch_size * world_size(),
            by_length=strategies[args.train_sampling_strategy],
            accumulation=args.gradient_accumulation_steps,
            seed=args.seed,
        )
        ours = isinstance(self.data_collator, Collator)
        return self._loader(NumberedDocuments(documents) if ours else documents, self._batches)

    def get_eval_dataloader(self, eval_dataset: Any = None) -> DataLoader[Any]:
        """Return the batches to score, of several ranks this one's."""
        if world_size() == 1 or not isinstance(self.compute_metrics, StreamingScores):
            return super().get_eval_dataloader(eval_dataset)
        documents = self.eval_dataset if eval_dataset is None else eval_dataset
        sampler = BatchSampler(self._get_eval_sampler(documents), self.args.eval_batch_size, drop_last=False)
        return self._loader(documents, sampler)

    def _loader(self, documents: Any, batches: Sampler[list[int]]) -> DataLoader[Any]:
        """Return a loader of batches that are this rank's already."""
        loader: DataLoader[Any] = DataLoader(
            documents,
            batch_sampler=batches,
            collate_fn=self.data_collator,
            num_workers=self.args.dataloader_num_workers,
            pin_memory=self.args.dataloader_pin_memory,
        )
        prepared: DataLoader[Any] = prepare_data_loader(
            loader, self.args.device, num_processes=1, process_index=0, put_on_device=True
        )
        return prepared

    def training_step(
        self, model: nn.Module, inputs: dict[str, Tensor | Any], num_items_in_batch: Tensor | int | None = None
    ) -> Tensor:
        """Compute a batch's gradient, with random numbers that are its documents' own."""
        documents = inputs.pop("documents", None)
        if documents is None:
            return super().training_step(model, inputs, num_items_in_batch)
        step, number = self.state.global_step, self._drawn[1]
        self._drawn = (step, number + 1 if step == self._drawn[0] else 0)
        with drawn_for(documents.tolist(), self.args.seed, *self._drawn):
            return super().training_step(model, inputs, num_items_in_batch)

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
        """Put the mean of each loss term since the last log beside the loss, and how unequal the ranks' batches are."""
        if "loss" in logs:
            for name, values in self._terms.items():
                if values:
                    logs[name] = (total(torch.stack(values).mean()) / world_size()).item()
                    values.clear()
            if world_size() > 1 and self._batches is not None:
                logs["imbalance"] = round(self._batches.imbalance, 4)
        super().log(logs, start_time)

    def evaluation_loop(
        self,
        dataloader: DataLoader[Any],
        description: str,
        prediction_loss_only: bool | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> EvalLoopOutput:
        """Score documents; of several ranks each scores its part, and their counters are added up.

        Transformers' own loop would send the logits of all documents to all ranks.
        """
        if world_size() == 1 or not isinstance(self.compute_metrics, StreamingScores):
            return super().evaluation_loop(
                dataloader, description, prediction_loss_only, ignore_keys, metric_key_prefix
            )
        assert self.model is not None
        self.model.eval()
        self.callback_handler.eval_dataloader = dataloader
        losses = torch.zeros(2)  # their sum, and the number of documents
        for inputs in dataloader:
            loss, logits, gold = self.prediction_step(self.model, inputs, False)
            self.compute_metrics.count(logits, gold)
            losses += torch.tensor([len(gold) * loss.item(), len(gold)])
            self.control = self.callback_handler.on_prediction_step(self.args, self.state, self.control)
        add_up(losses)
        scores = {"loss": (losses[0] / losses[1]).item(), **self.compute_metrics.result()}
        metrics = {f"{metric_key_prefix}_{name}": value for name, value in scores.items()}
        return EvalLoopOutput(predictions=None, label_ids=None, metrics=metrics, num_samples=int(losses[1]))

    def _get_eval_sampler(self, eval_dataset: Any) -> Sampler[int]:
        return SortedByLength(text_lengths(eval_dataset))

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
