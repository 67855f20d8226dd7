"""Put texts of similar length together, so that little of the work is padding."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["batches_by_length", "pad", "windows"]

Item = TypeVar("Item")


def windows(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Yield consecutive lists of up to ``size`` items; never more than one of them is in memory."""
    iterator = iter(items)
    while window := list(islice(iterator, size)):
        yield window


def batches_by_length(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Yield lists of indices, the longest texts first, each batch within ``budget`` tokens once padded.

    A text longer than the budget gets a batch of its own.
    """
    batch: list[int] = []
    for index in np.argsort(-np.asarray(lengths), kind="stable").tolist():
        if batch and (len(batch) + 1) * lengths[batch[0]] > budget:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def pad(texts: Sequence[Sequence[int]], token: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return token ids and attention mask, (B, L), L the longest of the texts."""
    longest = max(len(text) for text in texts)
    ids = np.full((len(texts), longest), token, dtype=np.int64)
    mask = np.zeros_like(ids)
    for row, text in enumerate(texts):
        ids[row, : len(text)] = text
        mask[row, : len(text)] = 1
    return ids, mask
