"""A thin Trainer: length-bucketed batches, two learning rates, loss terms one by one, scores by counters."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Sampler
from transformers import EvalPrediction, Trainer

from hgclr.evaluation.metrics import MultiLabelScores
from hgclr.taxonomy import Taxonomy
from hgclr.training.checkpoints import mark_complete

__all__ = ["Collator", "HierarchicalTrainer", "SortedByLength", "StreamingScores"]


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


class SortedByLength(Sampler[int]):
    """Go through the documents from the longest to the shortest, so that a batch has hardly any padding."""

    def __init__(self, lengths: Sequence[int]) -> None:
        self.order = np.argsort(-np.asarray(lengths), kind="stable")

    def __iter__(self) -> Iterator[int]:
        return iter(self.order.tolist())

    def __len__(self) -> int:
        return len(self.order)


class HierarchicalTrainer(Trainer):
    """Train a model of :mod:`hgclr.models`.

    Args:
        head_learning_rate: rate of every layer that is not the pretrained encoder's.
    """

    def __init__(self, *args: Any, head_learning_rate: float, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.head_learning_rate = head_learning_rate
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

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Tensor | Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """Return the model's loss and remember its terms for the log."""
        output = model(**inputs)
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
        super()._save_checkpoint(model, trial)
        mark_complete(Path(str(self.args.output_dir)) / f"checkpoint-{self.state.global_step}")
