"""Which documents share a batch, and which of them a rank takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import datasets
import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.utils.data import Dataset, Sampler
from transformers.trainer_pt_utils import get_length_grouped_indices

from hgclr.nn.gathering import rank, world_size

__all__ = ["Collator", "NumberedDocuments", "SortedByLength", "TrainingBatches", "deal", "text_lengths"]


def text_lengths(tokens: datasets.Dataset) -> NDArray[np.int32]:
    """Return how many tokens each document has, (N,), by way of Arrow: a Python number would take ten times as much."""
    lengths: NDArray[np.int32] = tokens.select_columns("length").with_format("arrow")[:].column("length").to_numpy()
    return lengths


class Collator:
    """Pad a batch to its longest text and turn label indices into 0/1 rows.

    A text without tokens gets the padding as its one token, as in prediction; ``cut_length`` is that of the model.
    """

    def __init__(self, labels: int, pad_token: int, cut_length: int | None = None) -> None:
        self.labels, self.pad_token, self.cut_length = labels, pad_token, cut_length

    def __call__(self, rows: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
        """Return ``input_ids`` and ``attention_mask``, (B, L), ``labels``, (B, K), and numbers of documents, if any."""
        texts = [torch.as_tensor(row["input_ids"][: self.cut_length] or [self.pad_token]) for row in rows]
        gold = torch.zeros(len(rows), self.labels)
        for document, row in enumerate(rows):
            gold[document, row["labels"]] = 1.0
        batch = {
            "input_ids": nn.utils.rnn.pad_sequence(texts, batch_first=True, padding_value=self.pad_token),
            "attention_mask": nn.utils.rnn.pad_sequence([torch.ones_like(text) for text in texts], batch_first=True),
            "labels": gold,
        }
        if "document" in rows[0]:
            batch["documents"] = torch.tensor([row["document"] for row in rows])
        return batch


class NumberedDocuments(Dataset[dict[str, Any]]):
    """A data set whose rows know their number, as ``document``."""

    def __init__(self, documents: datasets.Dataset) -> None:
        self.documents = documents

    def __len__(self) -> int:
        return len(self.documents)

    def __getitem__(self, number: int) -> dict[str, Any]:
        return {**self.documents[number], "document": number}

    def __getitems__(self, numbers: list[int]) -> list[dict[str, Any]]:
        rows = self.documents.__getitems__(numbers)
        return [{**row, "document": number} for row, number in zip(rows, numbers, strict=True)]


class SortedByLength(Sampler[int]):
    """Go through this rank's documents from the longest to the shortest, so that a batch has hardly any padding.

    Of N ranks each takes every N-th of all documents in this order, so that every document is taken once.
    """

    def __init__(self, lengths: ArrayLike) -> None:
        self.order = np.argsort(-np.asarray(lengths), kind="stable")[rank() :: world_size()]

    def __iter__(self) -> Iterator[int]:
        return iter(self.order.tolist())

    def __len__(self) -> int:
        return len(self.order)


class TrainingBatches(Sampler[list[int]]):
    """Draw batches anew in each epoch, and take this rank's part of each.

    Which documents share a batch depends on seed and epoch and not on the number of ranks. All ranks take equally many;
    of the last batch of an epoch fewer documents than there are ranks may stay behind.

    Args:
        lengths: tokens of each document.
        batch_size: documents of a batch, those of all ranks together.
        by_length: put texts of similar length into a batch.
        accumulation: so many batches in a row, the gradients of which are summed up, are of similar length too.
        seed: decides the order.
    """

    def __init__(
        self, lengths: ArrayLike, batch_size: int, *, by_length: bool, accumulation: int = 1, seed: int = 0
    ) -> None:
        self.lengths = np.asarray(lengths)
        self.batch_size, self.by_length, self.accumulation, self.seed = batch_size, by_length, accumulation, seed
        self.epoch = 0
        self.spread: list[float] = []

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        whole, rest = divmod(len(self.lengths), self.batch_size)
        return whole + (rest >= world_size())

    def __iter__(self) -> Iterator[list[int]]:
        self.spread = []
        order = self._order()
        for start in range(0, len(self) * self.batch_size, self.batch_size):
            documents = np.array(order[start : start + self.batch_size])
            if world_size() > 1:
                parts = deal(documents, self.lengths[documents], world_size())
                self.spread.append(imbalance([self.lengths[part] for part in parts]))
                documents = parts[rank()]
            yield documents.tolist()

    @property
    def imbalance(self) -> float:
        """By which share the rank with the most tokens has had more of them than the mean, in this epoch's batches."""
        return float(np.mean(self.spread)) if self.spread else 0.0

    def _order(self) -> list[int]:
        seed = np.random.SeedSequence((self.seed, self.epoch)).generate_state(1, np.uint64)[0]
        generator = torch.Generator().manual_seed(int(seed >> 1))
        if self.by_length:
            order: list[int] = get_length_grouped_indices(
                self.lengths.tolist(), self.batch_size * self.accumulation, generator=generator
            )
            return order
        return torch.randperm(len(self.lengths), generator=generator).tolist()


def deal(documents: NDArray[np.int64], lengths: NDArray[np.int64], ranks: int) -> list[NDArray[np.int64]]:
    """Deal documents out, equally many and nearly equally many tokens to each rank; some may be left over.

    From the longest on they go to the ranks in turn, there and back again.
    """
    longest_first = documents[np.argsort(-lengths, kind="stable")]
    rounds = longest_first[: len(documents) // ranks * ranks].reshape(-1, ranks)
    rounds[1::2] = rounds[1::2, ::-1]
    return list(rounds.T)


def imbalance(parts: Sequence[NDArray[np.int64]]) -> float:
    """Return by which share the part with the most tokens, padding included, has more than the mean."""
    tokens = [len(lengths) * int(lengths.max()) for lengths in parts]
    return max(tokens) / max(1.0, float(np.mean(tokens))) - 1
