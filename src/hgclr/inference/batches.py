"""Put texts of similar length together, so that little of the work is padding, and have the next ones ready in time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["batches_by_length", "longest_first", "one_ahead", "pad", "windows"]

Item = TypeVar("Item")
Made = TypeVar("Made")

PADDING = 32
"""One in so many tokens of a full batch may be padding: of 1,024 tokens 32, which cost on a processor about as much as
one more batch (with MiniLM-L6 20 do in torch, 8 in ONNX)."""


def windows(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Yield consecutive lists of up to ``size`` items; never more than one of them is in memory."""
    iterator = iter(items)
    while window := list(islice(iterator, size)):
        yield window


def one_ahead(make: Callable[[Item], Made], items: Sequence[Item]) -> Iterator[Made]:
    """Yield ``make(item)`` for each item in order; while the caller works on one, a thread makes the next.

    Only ``make`` runs in the thread, and never more than one call of it: what is asked of it must take a bounded time,
    because a caller that stops early waits for the call under way. An exception in it reaches the caller in the place
    of its result.
    """
    if not items:
        return
    with ThreadPoolExecutor(1, thread_name_prefix="one_ahead") as thread:  # starts no thread until one is needed
        made = make(items[0])
        for item in items[1:]:
            coming = thread.submit(make, item)
            yield made
            made = coming.result()
        yield made


def longest_first(lengths: Sequence[int]) -> list[int]:
    """Return the indices of the lengths, the longest first, equal ones in their order."""
    order: list[int] = np.argsort(-np.asarray(lengths, dtype=np.int64), kind="stable").tolist()
    return order


def batches_by_length(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Yield lists of indices, the longest texts first, each batch within ``budget`` tokens once padded.

    A batch also ends where its padding would cost more than a batch of its own for what follows: above one token in
    :data:`PADDING` of the budget.
    A text longer than the budget gets a batch of its own.
    """
    batch: list[int] = []
    real = 0  # tokens of the batch that are not padding
    for index in longest_first(lengths):
        if batch:
            padded = (len(batch) + 1) * lengths[batch[0]]
            if padded > budget or padded - real - lengths[index] > budget // PADDING:
                yield batch
                batch, real = [], 0
        batch.append(index)
        real += lengths[index]
    if batch:
        yield batch


def pad(texts: Sequence[Sequence[int]], token: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return token ids and attention mask, (B, L), L the longest of the texts.

    A text without tokens, which only a tokenizer without special tokens makes, gets the padding as its one token.
    """
    texts = [text or [token] for text in texts]
    lengths = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
    real = np.arange(lengths.max()) < lengths[:, np.newaxis]  # (B, L)
    ids = np.full(real.shape, token, dtype=np.int64)
    ids[real] = np.fromiter(chain.from_iterable(texts), dtype=np.int64, count=int(lengths.sum()))
    return ids, real.astype(np.int64)
