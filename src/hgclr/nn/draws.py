"""Random numbers of training: cheap on a CPU, and, in a Trainer's step, each document's own.

While :func:`drawn_for` names the documents of a batch, what is drawn for a document depends on the step, on which draw
of the step it is, and on the document: neither on the documents beside it, nor on its padding, nor on the process that
computes it. What is drawn for labels is the same in all processes. So a batch has the same loss and gradient, whether
one process has it or several have a part each, and whether its texts are padded or :func:`packed`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = [
    "Packing",
    "current_packing",
    "document_seeds",
    "documents_of_batch",
    "draw_seed",
    "drawn_for",
    "drawn_for_labels",
    "gumbel_noise",
    "keep_mask",
    "keep_masks",
    "kept_share",
    "packed",
    "uniform",
]

STEPS = 2**16
MASK = 2**64 - 1
Seed = int | tuple[int, ...]
"""What decides a stream of random numbers."""

# No context variables: autograd's threads must see them.
_documents: Sequence[int] | None = None
_packing: Packing | None = None


class Packing(NamedTuple):
    """Where the texts of a batch are in one row of all their tokens, one text after the other, without padding.

    Args:
        rows: which row of the batch each text is.
        lengths: how many tokens it has.
    """

    rows: Sequence[int]
    lengths: Sequence[int]

    @classmethod
    def of(cls, lengths: Sequence[int]) -> Packing:
        """Pack rows of these lengths, the shortest first, so that texts of one length are neighbours."""
        rows = sorted(range(len(lengths)), key=lengths.__getitem__)
        return cls(rows, [lengths[row] for row in rows])


@contextmanager
def drawn_for(documents: Sequence[int], *key: int) -> Iterator[None]:
    """Let the rows of a batch draw as these documents, in a step that the ``key`` names, until its gradients are there.

    Rows of a batch of B documents, or of 2B, where row B + i is once more document i, are documents; others are not.
    The key is all that makes this step another than others: the seed of the run, the number of the step.
    """
    torch.default_generator.manual_seed(_mix(key) >> 1)
    with _set(documents):
        yield


@contextmanager
def drawn_for_labels() -> Iterator[None]:
    """Draw for labels, in the same way in all processes, although there may be as many labels as documents."""
    with _set(None):
        yield


@contextmanager
def _set(documents: Sequence[int] | None) -> Iterator[None]:
    global _documents
    before, _documents = _documents, documents
    try:
        yield
    finally:
        _documents = before


def documents_of_batch() -> Sequence[int] | None:
    """Return the numbers of the batch's documents, or None where nobody has named them."""
    return _documents


@contextmanager
def packed(packing: Packing | None) -> Iterator[None]:
    """Let tensors (1, T, …) be packed texts."""
    global _packing
    before, _packing = _packing, packing
    try:
        yield
    finally:
        _packing = before


def current_packing() -> Packing | None:
    """Return how texts are packed, or None where they are padded."""
    return _packing


def draw_seed() -> int:
    """Return a seed from torch's generator."""
    return int(torch.randint(2**63 - 1, ()))


def document_seeds(rows: int, seed: int) -> list[tuple[int, ...]] | None:
    """Return a seed for each of the rows of a batch, as it is packed, or None if they are not its documents'."""
    if _documents is None or rows not in (len(_documents), 2 * len(_documents)):
        return None
    order = range(rows) if _packing is None else _packing.rows
    return [(seed, _documents[row % len(_documents)], row // len(_documents)) for row in order]


def _streams(shape: Sequence[int], seed: int) -> list[tuple[Seed, int]]:
    """Return what to fill a tensor from, in its order: for each document, or for all of it, a seed and a number."""
    lengths = [1] * shape[0] if _packing is None else _packing.lengths
    seeds = document_seeds(len(lengths), seed)
    if seeds is None:
        return [(seed, prod(shape))]
    unit = prod(shape) // sum(lengths)
    return [(own, length * unit) for own, length in zip(seeds, lengths, strict=True)]


def _mix(key: Sequence[int]) -> int:
    """Return 64 bits in which each bit of the key has its part (the finaliser of splitmix64, number by number)."""
    mixed = 0
    for number in key:
        mixed = (mixed + number + 0x9E3779B97F4A7C15) & MASK
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & MASK
        mixed ^= mixed >> 31
    return mixed


class _Bits(threading.local):
    """Streams of random 64-bit words by numpy's SFC64, in each thread by a generator of its own.

    To begin another stream is ten times as fast as to make a generator.
    """

    def __init__(self) -> None:
        self._generator = np.random.SFC64(0)
        self._state: Any = dict(self._generator.state)

    def words(self, count: int, seed: Seed) -> NDArray[np.uint64]:
        first = _mix(seed if isinstance(seed, tuple) else (seed,))
        second = _mix((first,))
        # The last of the four is a counter. The generator's author lets twelve words pass before the first is used.
        self._state["state"]["state"][:] = (first, second, _mix((second,)), 1)
        self._generator.state = self._state
        self._generator.random_raw(12, output=False)
        return self._generator.random_raw(count)


_bits = _Bits()


def kept_share(rate: float) -> float:
    """Return the share of elements that :func:`keep_mask` keeps: 1 - rate, to 16 bits."""
    return 1 - round(rate * STEPS) / STEPS


def keep_mask(
    shape: Sequence[int], rate: float, seed: Seed | None = None, device: torch.device | None = None
) -> Tensor:
    """Return a uint8 tensor in which each element is 0 with probability ``rate`` and else 1.

    The same ``seed`` gives the same mask. Without one, torch's generator gives it, and rows that are documents have a
    mask of their own each, the beginning of which does not depend on how long the row is; packed documents have that
    beginning. On a device other than the CPU the bits are drawn there.
    """
    if seed is None:
        seed = draw_seed()
        streams = _streams(shape, seed)
    else:
        streams = [(seed, prod(shape))]
    if device is not None and device.type != "cpu":
        return (torch.rand(*shape, generator=_generator(seed, device), device=device) >= rate).to(torch.uint8)
    return _drawn_mask(shape, rate, streams)


def keep_masks(shape: Sequence[int], rate: float, seeds: Sequence[Seed]) -> Tensor:
    """Return the masks that :func:`keep_mask` gives for each of the seeds, (number of seeds, *shape), on the CPU."""
    return _drawn_mask((len(seeds), *shape), rate, [(seed, prod(shape)) for seed in seeds])


def _drawn_mask(shape: Sequence[int], rate: float, streams: Sequence[tuple[Seed, int]]) -> Tensor:
    mask, start = np.empty(prod(shape), dtype=np.bool_), 0
    for own, count in streams:
        # numpy compares, and torch widens uint8, several times faster than torch does either with bools.
        words = _bits.words(-(-count // 4), own).view(np.uint16)[:count]
        np.greater_equal(words, round(rate * STEPS), out=mask[start : start + count])
        start += count
    return torch.from_numpy(mask.view(np.uint8)).view(*shape)


def gumbel_noise(shape: tuple[int, ...], seed: Seed, device: torch.device) -> Tensor:
    """Return standard Gumbel noise, ``-log(-log u)``, the same for the same seed.

    On a CPU the uniform u has 23 bits of numpy's SFC64: torch's own generator is serial, and slow.
    """
    if device.type != "cpu":
        return -torch.empty(shape, device=device).exponential_(generator=_generator(seed, device)).log_()
    count = prod(shape)
    bits = torch.from_numpy(_bits.words(-(-count // 2), seed).view(np.int32)[:count])
    between = bits.bitwise_and_(2**23 - 1).to(torch.float32).add_(0.5).mul_(2**-23)  # 0 and 1
    return between.log_().neg_().log_().neg_().view(shape)


def uniform(shape: Sequence[int], device: torch.device) -> Tensor:
    """Return numbers from [0, 1), single precision, for rows that are documents; see :func:`keep_mask`."""
    seeds = document_seeds(shape[0], draw_seed())
    if seeds is None:
        return torch.rand(*shape, device=device)
    count = prod(shape[1:])
    rows = [_bits.words(count, seed) >> np.uint64(40) for seed in seeds]  # 24 bits are what a float has
    return torch.from_numpy(np.stack(rows).astype(np.float32) * np.float32(2**-24)).view(*shape).to(device)


def _generator(seed: Seed, device: torch.device) -> torch.Generator:
    return torch.Generator(device).manual_seed(_mix(seed if isinstance(seed, tuple) else (seed,)) >> 1)
