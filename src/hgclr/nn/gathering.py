"""Gather a batch that is distributed over several processes.

Each process computes the loss of its part of the documents. The mean over the processes is the loss of the batch. Its
gradient is the mean of the gradients, which DistributedDataParallel computes. All processes must have equally many
documents. In a single process, ``gather`` and ``total`` return their argument.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed
from torch import Tensor


def world_size() -> int:
    """Return the number of processes that train together."""
    return torch.distributed.get_world_size() if _together() else 1


def rank() -> int:
    """Return the index of this process among them."""
    return torch.distributed.get_rank() if _together() else 0


def _together() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def gather(part: Tensor) -> Tensor:
    """Return the parts of all P processes in order, (P B, …), from the part of this process, (B, …).

    The gradient of a part is the sum of its gradients in the losses of all processes.
    """
    if world_size() == 1:
        return part
    gathered: Tensor = _Gather.apply(part)  # type: ignore[no-untyped-call]
    return gathered


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, part: Tensor) -> Tensor:
        ctx.size = len(part)
        parts = part.new_empty(world_size() * len(part), *part.shape[1:])
        torch.distributed.all_gather(list(parts.split(len(part))), part.contiguous())
        return parts

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        gradient = gradient.contiguous()
        torch.distributed.all_reduce(gradient)
        return gradient[rank() * ctx.size :][: ctx.size]


def total(count: Tensor) -> Tensor:
    """Return the sum of a number over all processes, without gradient."""
    if world_size() > 1:
        count = count.clone()
        torch.distributed.all_reduce(count)
    return count
