"""Training with several processes, started by torchrun, accelerate or Ray; each has a part of every batch.

Only the first rank logs and writes. :mod:`hgclr.nn.gathering` has the functions for the loss.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed
from accelerate import PartialState
from torch import Tensor, nn
from torch.distributed.rendezvous import rendezvous

from hgclr.errors import HGCLRError
from hgclr.metrics.scores import MultiLabelScores
from hgclr.nn.gathering import rank, world_size

T = TypeVar("T")
PATIENCE = timedelta(hours=6)
"""Ranks wait this long while the first one tokenises; a process that ends is noticed at once."""


class FirstRankError(HGCLRError):
    """An error of the first rank, raised on the others."""


@contextmanager
def process_group() -> Iterator[None]:
    """Join the processes that were started together, if there are several, until the block ends."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or torch.distributed.is_initialized():
        yield
        return
    PartialState(cpu=not torch.accelerator.is_available(), timeout=PATIENCE, **_meeting_place())
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, torch.distributed.DistError) and "gloo" not in str(error):
            raise
        raise HGCLRError(f"rank {rank()} lost the connection to another rank: {str(error).splitlines()[0]}") from error
    finally:
        torch.distributed.destroy_process_group()


def _meeting_place() -> dict[str, Any]:
    """Separate the key-value store of a restarted torchrun attempt from the previous one (torch 2.13).

    Only for one node, because each node counts its own attempts; for several, see docs/guides/distributed.md.
    """
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT")
    if attempt is None or os.environ.get("GROUP_WORLD_SIZE") != "1":
        return {}
    store, number, size = next(rendezvous("env://", timeout=PATIENCE))
    store = torch.distributed.PrefixStore(f"attempt {attempt}", store)  # type: ignore[attr-defined]
    return {"store": store, "rank": number, "world_size": size}


@contextmanager
def first_rank_first() -> Iterator[None]:
    """Run the block on the first rank, then on the first rank of every other node, then on all others."""
    turn = 0 if rank() == 0 else 1 if os.environ.get("LOCAL_RANK") == "0" else 2
    for _ in range(turn if world_size() > 1 else 0):
        torch.distributed.barrier()
    try:
        yield
    finally:
        for _ in range(2 - turn if world_size() > 1 else 0):
            torch.distributed.barrier()


def from_first_rank(value: T) -> T:
    """Return the first rank's value."""
    if world_size() == 1:
        return value
    box = [value]
    torch.distributed.broadcast_object_list(box)
    return box[0]


def on_first_rank(work: Callable[[], T]) -> T:
    """Call ``work`` on the first rank only, and return its result, or raise its error, on all ranks."""
    value: Any = None
    error: HGCLRError | None = None
    if rank() == 0:
        try:
            value = work()
        except HGCLRError as raised:
            error = raised
    value, problem = from_first_rank((value, None if error is None else str(error)))
    if problem is not None:
        raise error or FirstRankError(f"the first rank: {problem}")
    result: T = value
    return result


def add_scores(scores: MultiLabelScores) -> MultiLabelScores:
    """Return the scores over all ranks."""
    if world_size() > 1:
        parts = gather_objects(scores.counters())
        scores = MultiLabelScores(scores.taxonomy)
        for part in parts:
            scores.add(part)
    return scores


def gather_objects(value: T) -> list[T]:
    """Return the values of all ranks in order."""
    if world_size() == 1:
        return [value]
    parts: list[Any] = [None] * world_size()
    torch.distributed.all_gather_object(parts, value)
    return parts


def add_up(values: Tensor) -> None:
    """Sum a CPU tensor over all ranks, in place."""
    if world_size() > 1:
        device = "cpu" if torch.distributed.get_backend() == "gloo" else torch.accelerator.current_accelerator()
        there = values.to(device)
        torch.distributed.all_reduce(there)
        values.copy_(there)


def share_weights(model: nn.Module) -> None:
    """Send the first rank's weights to all ranks, which may not see the folder with the best checkpoint."""
    if world_size() > 1:
        for value in model.state_dict().values():
            torch.distributed.broadcast(value, 0)
