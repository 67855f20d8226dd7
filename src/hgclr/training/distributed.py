"""Training by several processes, started by torchrun, accelerate or Ray: each has a part of every batch.

All do the same and the first one alone speaks and writes; see :mod:`hgclr.nn.gathering` for the loss and
:mod:`hgclr.nn.draws` for what is random. Nothing here does anything in a single process.
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

__all__ = [
    "FirstRankError",
    "add_scores",
    "add_up",
    "first_rank_first",
    "from_first_rank",
    "gather_objects",
    "on_first_rank",
    "process_group",
    "share_weights",
]

T = TypeVar("T")
PATIENCE = timedelta(hours=6)
"""For ranks that wait while the first one tokenises; the end of another process is noticed at once."""


class FirstRankError(HGCLRError):
    """What the first rank has stopped at, on the others."""


@contextmanager
def process_group() -> Iterator[None]:
    """Join the processes that were started with this one, if any, until the block ends."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or torch.distributed.is_initialized():
        yield
        return
    PartialState(cpu=not torch.accelerator.is_available(), timeout=PATIENCE, **_meeting_place())
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, torch.distributed.DistError) and "gloo" not in str(error):
            raise
        raise HGCLRError(f"rank {rank()} lost another one: {str(error).splitlines()[0]}") from error
    finally:
        torch.distributed.destroy_process_group()


def _meeting_place() -> dict[str, Any]:
    """Return what keeps the processes that torchrun has started anew from meeting those that they replace.

    All attempts of a node use one store of addresses (torch 2.13), and an old address is as good as a new one there.
    Nodes count their attempts apart: with several of them docs/how-to/distributed.md names the switch for torchrun.
    """
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT")
    if attempt is None or os.environ.get("GROUP_WORLD_SIZE") != "1":
        return {}
    store, number, size = next(rendezvous("env://", timeout=PATIENCE))
    store = torch.distributed.PrefixStore(f"attempt {attempt}", store)  # type: ignore[attr-defined]
    return {"store": store, "rank": number, "world_size": size}


@contextmanager
def first_rank_first() -> Iterator[None]:
    """Let the first rank through, then the first one of every other node, then all: what one writes, the others find.

    An error on one rank does not keep the others waiting.
    """
    turn = 0 if rank() == 0 else 1 if os.environ.get("LOCAL_RANK") == "0" else 2
    for _ in range(turn if world_size() > 1 else 0):
        torch.distributed.barrier()
    try:
        yield
    finally:
        for _ in range(2 - turn if world_size() > 1 else 0):
            torch.distributed.barrier()


def from_first_rank(value: T) -> T:
    """Return what the first rank has for a value."""
    if world_size() == 1:
        return value
    box = [value]
    torch.distributed.broadcast_object_list(box)
    return box[0]


def on_first_rank(work: Callable[[], T]) -> T:
    """Do something on the first rank alone, and return what comes of it on all.

    Raises:
        HGCLRError: on all ranks, if it does on the first; on the others a :class:`FirstRankError`.
    """
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
    """Return the scores of what all ranks have counted."""
    if world_size() > 1:
        parts = gather_objects(scores.counters())
        scores = MultiLabelScores(scores.taxonomy)
        for part in parts:
            scores.add(part)
    return scores


def gather_objects(value: T) -> list[T]:
    """Return what every rank has for a value, in their order."""
    if world_size() == 1:
        return [value]
    parts: list[Any] = [None] * world_size()
    torch.distributed.all_gather_object(parts, value)
    return parts


def add_up(values: Tensor) -> None:
    """Add a tensor of the CPU up over all ranks, in place."""
    if world_size() > 1:
        device = "cpu" if torch.distributed.get_backend() == "gloo" else torch.accelerator.current_accelerator()
        there = values.to(device)
        torch.distributed.all_reduce(there)
        values.copy_(there)


def share_weights(model: nn.Module) -> None:
    """Give all ranks the first one's weights: the others may not see the folder that the best ones are loaded from."""
    if world_size() > 1:
        for value in model.state_dict().values():
            torch.distributed.broadcast(value, 0)
