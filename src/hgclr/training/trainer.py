"""The Trainer: batches of similar length, two learning rates, loss terms in the log, streaming scores."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import datasets
import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.utils.data import Sampler
from transformers import AttentionInterface, EvalPrediction, PreTrainedTokenizerBase, Trainer, TrainingArguments
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, flash_attention_mask
from transformers.trainer_pt_utils import get_length_grouped_indices
from transformers.trainer_utils import SchedulerType

from hgclr.data.folder import DocumentLike, read_documents
from hgclr.data.tokens import tokenize_documents
from hgclr.errors import HGCLRError, InputError
from hgclr.metrics.scores import MultiLabelScores
from hgclr.models import HierarchicalPreTrainedModel
from hgclr.models.base import HGCLRConfig
from hgclr.nn.fast import CPUDropout, dropout_attention
from hgclr.nn.gathering import total, world_size
from hgclr.taxonomy import Taxonomy
from hgclr.training.checkpoints import BestCheckpoint, delete_checkpoint, delete_old, mark_complete

logger = logging.getLogger(__name__)
NAME = "hgclr_cpu"
"""Name under which our attention is registered in transformers; not saved with a model."""
Documents: TypeAlias = "Iterable[DocumentLike] | datasets.Dataset"
"""Documents, a data set with the columns ``text`` and ``labels``, or a tokenised data set."""


def text_lengths(tokens: datasets.Dataset) -> NDArray[np.int32]:
    """Return the number of tokens of each document, (N,); a list would need ten times the memory."""
    lengths: NDArray[np.int32] = tokens.select_columns("length").with_format("arrow")[:].column("length").to_numpy()
    return lengths


class Collator:
    """Pad a batch to its longest text, and convert label indices to rows of targets.

    The target of a label is 1 if the document has it, 0 if not, and NaN if it is in the column ``unsure``, which only
    documents with partial labels need; the loss leaves it out. A text without tokens gets one padding token, as in
    prediction; ``cut_length`` is the model's. ``on_documents`` is called with the number of documents in each batch,
    over all ranks.
    """

    def __init__(
        self,
        labels: int,
        pad_token: int,
        cut_length: int | None = None,
        on_documents: Callable[[int], None] | None = None,
    ) -> None:
        self.labels, self.pad_token, self.cut_length, self.on_documents = labels, pad_token, cut_length, on_documents

    def __call__(self, rows: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
        """Return ``input_ids`` and ``attention_mask``, (B, L), and ``labels``, (B, K)."""
        texts = [torch.as_tensor(row["input_ids"][: self.cut_length] or [self.pad_token]) for row in rows]
        gold = torch.zeros(len(rows), self.labels)
        for document, row in enumerate(rows):
            gold[document, row["labels"]] = 1.0
            gold[document, row.get("unsure", [])] = torch.nan
        if self.on_documents is not None:
            self.on_documents(len(rows) * world_size())
        return {
            "input_ids": nn.utils.rnn.pad_sequence(texts, batch_first=True, padding_value=self.pad_token),
            "attention_mask": nn.utils.rnn.pad_sequence([torch.ones_like(text) for text in texts], batch_first=True),
            "labels": gold,
        }


class EpochOrder(Sampler[int]):
    """Draw a new order of the documents in each epoch, from seed and epoch only, so that a run can be resumed.

    With ``by_length``, each ``group`` of consecutive documents, those of one step, has similar lengths. Several ranks
    then divide the same batches as one process has.
    """

    def __init__(self, lengths: ArrayLike, group: int, *, by_length: bool, seed: int) -> None:
        self.lengths = np.asarray(lengths)
        self.group, self.by_length, self.seed, self.epoch = group, by_length, seed, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[int]:
        seed = np.random.SeedSequence((self.seed, self.epoch)).generate_state(1, np.uint64)[0]
        generator = torch.Generator().manual_seed(int(seed >> 1))
        if self.by_length:
            return iter(get_length_grouped_indices(self.lengths.tolist(), self.group, generator=generator))
        return iter(torch.randperm(len(self.lengths), generator=generator).tolist())


def longest_first(lengths: ArrayLike) -> NDArray[np.int64]:
    """Return the order of documents with the least padding in batches, (N,)."""
    return np.argsort(-np.asarray(lengths), kind="stable")


def accelerate_on_cpu(model: nn.Module) -> None:
    """Compute batches in length groups; replace dropout and, if the encoder allows it, attention by faster versions.

    Saved files do not change.
    """
    if isinstance(model, HierarchicalPreTrainedModel):
        model.length_groups = True
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if type(child) is nn.Dropout:
                setattr(parent, name, CPUDropout(child.p))
    encoder: Any = getattr(model, "encoder", model)
    if any(getattr(part, "is_causal", False) or getattr(part, "sliding_window", None) for part in encoder.modules()):
        return  # it does not attend to all tokens
    AttentionInterface.register(NAME, cpu_attention)
    AttentionMaskInterface.register(NAME, flash_attention_mask)
    try:
        encoder.set_attn_implementation(NAME)
    except (AttributeError, ValueError) as error:
        logger.info("the encoder keeps its attention: %s", error)


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
    """Compute transformers' attention, (B, heads, L, d) to (B, L, heads, d); the mask is 1 on real tokens, (B, L)."""
    absent = None if attention_mask is None else attention_mask == 0
    if not dropout or query.device.type != "cpu":
        mask = None if absent is None else ~absent[:, None, None, :]
        return sdpa_attention_forward(
            module, query, key, value, mask, dropout=dropout, scaling=scaling, is_causal=False, **kwargs
        )
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    with torch.autocast("cpu", enabled=False):
        output = dropout_attention(query, key, value, absent=absent, scale=scale, dropout=dropout)
    return output.transpose(1, 2).contiguous(), None


class StreamingScores:
    """Score predictions batch by batch, for ``batch_eval_metrics``; memory is O(K) for any number of documents."""

    def __init__(self, taxonomy: Taxonomy, threshold: float) -> None:
        self.taxonomy, self.threshold = taxonomy, threshold
        self.running = MultiLabelScores(taxonomy)

    def __call__(self, batch: EvalPrediction, compute_result: bool) -> dict[str, float]:
        """Count a batch of all ranks; after the last one return Micro- and Macro-F1 and reset the counters."""
        predicted = torch.sigmoid(torch.as_tensor(batch.predictions)) > self.threshold
        self.running.update(predicted.cpu().numpy(), torch.as_tensor(batch.label_ids).bool().cpu().numpy())
        if not compute_result:
            return {}
        scores, self.running = self.running, MultiLabelScores(self.taxonomy)
        return {"micro_f1": scores.micro().f1, "macro_f1": scores.macro().f1}


def as_tokens(
    documents: Documents | None, config: HGCLRConfig, tokenizer: PreTrainedTokenizerBase | None
) -> datasets.Dataset | None:
    """Return tokenised documents; tokenised ones are returned unchanged."""
    if documents is None or (isinstance(documents, datasets.Dataset) and "input_ids" in documents.column_names):
        return documents
    if tokenizer is None:
        raise InputError("the documents are not tokenised", remedy="give the tokenizer as processing_class")
    return tokenize_documents(read_documents(documents, config.taxonomy), tokenizer, max_length=config.max_length)


class HierarchicalTrainer(Trainer):
    """A :class:`transformers.Trainer` for models of :mod:`hgclr.models`.

    Collator and metrics (Micro- and Macro-F1) have defaults. Data sets are either tokenised, with the columns
    ``input_ids``, ``labels`` (indices) and ``length``, or documents as for :func:`hgclr.training.fit`, which the
    tokenizer ``processing_class`` tokenises. ``head_learning_rate`` is the rate of all layers on top of the encoder; by
    default the model's ``head_rate`` times ``args.learning_rate``.

    Example:
        >>> trainer = HierarchicalTrainer(  # doctest: +SKIP
        ...     model, TrainingArguments("out", eval_strategy="epoch"), processing_class=tokenizer,
        ...     train_dataset=[("a lens made of ice", ["science", "physics"])], eval_dataset=documents,
        ... )
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
            args.batch_eval_metrics = True
        if data_collator is None:
            if processing_class is None:
                raise InputError("there is no data_collator", remedy="give the tokenizer as processing_class")
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
        # The Trainer would delete an old checkpoint before the new one is marked complete.
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
        """Start the warm-up of a constant rate above 0, as the paper's authors do; transformers starts it at 0."""
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
        """Return the model's loss, and store its terms for the log."""
        output = model(**inputs)
        if not torch.isfinite(output.loss).all():  # in evaluation as well, before a checkpoint is written
            loss, step = output.loss.mean().item(), self.state.global_step
            raise HGCLRError(
                f"the loss is {loss} after step {step}; lower training.learning_rate or set training.precision=fp32"
            )
        if model.training:
            for name, value in output.terms.items():
                self._terms[name].append(value.detach())
        return (output.loss, output) if return_outputs else output.loss

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add the mean of each loss term since the last log to the log."""
        if "loss" in logs:
            for name, values in self._terms.items():
                if values:
                    logs[name] = (total(torch.stack(values).mean()) / world_size()).item()
                    values.clear()
        super().log(logs, start_time)

    def _get_train_sampler(self, train_dataset: Any = None) -> Sampler[int] | None:
        documents, strategy = train_dataset or self.train_dataset, self.args.train_sampling_strategy
        if not isinstance(documents, datasets.Dataset) or strategy not in ("random", "group_by_length"):
            return super()._get_train_sampler(train_dataset)
        group = self.args.train_batch_size * world_size() * self.args.gradient_accumulation_steps
        by_length = strategy == "group_by_length"
        return EpochOrder(text_lengths(documents), group, by_length=by_length, seed=self.args.seed)

    def _get_eval_sampler(self, eval_dataset: Any) -> Any:
        return longest_first(text_lengths(eval_dataset)).tolist()  # a list is a sampler

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        checkpoint = Path(str(self.args.output_dir)) / f"checkpoint-{self.state.global_step}"
        if self.args.should_save and checkpoint.exists():  # incomplete: otherwise training would have resumed from it
            delete_checkpoint(checkpoint)
        self.accelerator.wait_for_everyone()
        super()._save_checkpoint(model, trial)
        self.accelerator.wait_for_everyone()  # each process writes its own random state
        if self.args.should_save:
            mark_complete(checkpoint)
            best = self.state.best_model_checkpoint
            delete_old(checkpoint, None if best is None else Path(best), self.checkpoint_limit)
