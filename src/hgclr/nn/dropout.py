"""Dropout whose random bits come cheaply on a processor.

torch draws one random number per element from a serial generator; on a processor that is a visible share of a training
step. Here 16 bits per element come from numpy's SFC64, which is much faster, seeded by torch's own generator, so that
torch's seed still decides everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

__all__ = ["ProcessorDropout", "draw_seed", "keep_mask", "kept_share"]

STEPS = 2**16


def kept_share(rate: float) -> float:
    """Return the share of elements that :func:`keep_mask` keeps: 1 - rate, to 16 bits."""
    return 1 - round(rate * STEPS) / STEPS


def keep_mask(shape: Sequence[int], rate: float, seed: int | None = None, device: torch.device | None = None) -> Tensor:
    """Return a uint8 tensor in which each element is 0 with probability ``rate`` and else 1.

    The same ``seed`` gives the same mask; without one, torch's generator gives it. On a device other than the processor
    the bits are drawn there.
    """
    seed = draw_seed() if seed is None else seed
    if device is not None and device.type != "cpu":
        generator = torch.Generator(device).manual_seed(seed % 2**63)
        return (torch.rand(*shape, generator=generator, device=device) >= rate).to(torch.uint8)
    count = prod(shape)
    words = np.random.SFC64(seed).random_raw(-(-count // 4)).view(np.uint16)[:count]
    # numpy compares, and torch widens uint8, several times faster than torch does either with bools.
    return torch.from_numpy((words >= round(rate * STEPS)).view(np.uint8)).view(*shape)


def draw_seed() -> int:
    """Return a seed from torch's generator."""
    return int(torch.randint(2**63 - 1, ()))


class ProcessorDropout(nn.Dropout):
    """Drop elements as :class:`torch.nn.Dropout` does, with cheap random bits; on other devices it is that class."""

    def forward(self, values: Tensor) -> Tensor:
        """Return the values with a share of them set to 0 and the rest scaled up, in training mode."""
        if not self.training or self.p in (0, 1) or values.device.type != "cpu":
            return super().forward(values)
        dropped: Tensor = _Drop.apply(values, self.p)  # type: ignore[no-untyped-call]
        return dropped


class _Drop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, rate: float) -> Tensor:
        mask = keep_mask(values.shape, rate)
        ctx.save_for_backward(mask)  # a byte per element
        ctx.scale = 1 / kept_share(rate)
        return mask.to(values.dtype).mul_(values).mul_(ctx.scale)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (mask,) = ctx.saved_tensors
        return mask.to(gradient.dtype).mul_(gradient).mul_(ctx.scale), None
