"""Share work among processes, with few results waiting at any time."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from hgclr.errors import HGCLRError

__all__ = ["in_order", "limited", "usable_cores"]

Job = TypeVar("Job")
Result = TypeVar("Result")


def usable_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def in_order(work: Callable[[Job], Result], jobs: Sequence[Job], workers: int) -> Generator[Result, None, None]:
    """Yield the results of ``jobs`` in their order; close the generator to end the processes.

    Args:
        work: what is done with a job; it and the jobs are sent to other processes.
        jobs: what there is to do.
        workers: how many processes; with 1, everything is done in this one.

    Raises:
        HGCLRError: if a process ended by itself.
        Exception: whatever ``work`` raised.
    """
    workers = min(workers, len(jobs))
    if workers <= 1:
        yield from map(work, jobs)
        return
    # Not forked: the progress bar of the command line is a thread, and a forked copy of a thread's lock stays locked.
    spawning = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=spawning, initializer=_leave_interrupts_to_the_parent)
    try:
        yield from limited(lambda job: pool.submit(work, job), jobs, ahead=workers + 2)
    except BrokenProcessPool:
        raise HGCLRError("a worker process ended by itself, perhaps for want of memory; try --workers 1") from None
    finally:
        pool.shutdown(cancel_futures=True)


def limited(
    submit: Callable[[Job], Future[Result]], jobs: Iterable[Job], *, ahead: int
) -> Generator[Result, None, None]:
    """Yield the results in order, with at most ``ahead`` jobs submitted whose results were not taken yet."""
    pending: deque[Future[Result]] = deque()
    for job in jobs:
        pending.append(submit(job))
        if len(pending) == ahead:
            yield pending.popleft().result()
    while pending:
        yield pending.popleft().result()


def _leave_interrupts_to_the_parent() -> None:
    """Ignore Ctrl-C, which reaches all processes: the parent ends the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
