"""Connect to a Ray cluster, or start Ray on this machine; what all that run on Ray share."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hgclr.errors import HGCLRError, first_line, require_extra

__all__ = ["NEEDS", "connected"]

OBJECT_STORE = 2**29
"""Bytes of shared memory for data on their way, where Ray is started by us."""
NEEDS = "every node needs hgclr and must see the same model and files"
PATIENCE = 60.0
"""Seconds that threads of ours have to end; it takes next to none, unless the machine is very busy."""


@contextmanager
def connected(address: str | None, *, kept: str) -> Iterator[None]:
    """Connect to the cluster at an address, or start Ray here and stop it in the end.

    A failure of Ray itself becomes one line, which says what of the work is ``kept``, such as ``finished files``; an
    error in our own code stays what it is, with its traceback.
    """
    require_extra("ray", extra="ray", capability="The engine ray")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # is read when Ray is imported
    import ray

    with _started(address):
        try:
            yield
        except ray.exceptions.UserCodeException:
            raise
        except ray.exceptions.RayError as error:
            raise HGCLRError(f"Ray: {first_line(error)} ({NEEDS}; {kept} are kept)") from error


@contextmanager
def _started(address: str | None) -> Iterator[None]:
    import ray

    if ray.is_initialized():  # the caller's own
        yield
        return
    logging.getLogger("ray").setLevel(logging.ERROR)
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address is None:
        options |= {"include_dashboard": False, "object_store_memory": OBJECT_STORE}
    try:
        ray.init(address or "local", **options)
    except (ConnectionError, OSError, RuntimeError, ValueError) as error:
        raise HGCLRError(f"no Ray cluster at {address or 'this machine'}: {first_line(error)}") from error
    before = set(threading.enumerate())
    try:
        yield
    finally:
        _wait_for_end(before)
        ray.shutdown()


def _wait_for_end(before: set[threading.Thread]) -> None:
    """Wait for the threads of a pipeline: one that asks Ray for something after its shutdown ends the process."""
    end = time.monotonic() + PATIENCE
    for thread in threading.enumerate():
        if thread not in before and thread is not threading.current_thread():
            thread.join(max(0.0, end - time.monotonic()))
