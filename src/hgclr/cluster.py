"""Tasks on a Ray cluster, or on Ray started on this machine."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

from hgclr.errors import HGCLRError, first_line, require_extra

Part = TypeVar("Part")
Answer = TypeVar("Answer")
OBJECT_STORE = 2**29
"""Bytes of shared memory for Ray, if hgclr starts it."""
NEEDS = "install hgclr on every node, and give all nodes access to the same model and files"


@contextmanager
def connected(address: str | None, *, kept: str) -> Iterator[None]:
    """Connect to the cluster at an address, or start Ray here and stop it at the end; use an existing connection.

    A failure of Ray becomes an `HGCLRError` that names the results that are ``kept``, such as ``finished files``; an
    error in the code of a task keeps its traceback.
    """
    require_extra("ray", extra="ray", capability="The engine ray")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray reads it on import
    import ray

    connecting = not ray.is_initialized()
    if connecting:
        logging.getLogger("ray").setLevel(logging.ERROR)
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if address is None:
            options |= {"include_dashboard": False, "object_store_memory": OBJECT_STORE}
        try:
            ray.init(address or "local", **options)
        except (ConnectionError, OSError, RuntimeError, ValueError) as error:
            raise HGCLRError(f"no Ray cluster at {address or 'this machine'}: {first_line(error)}") from error
    try:
        yield
    except ray.exceptions.UserCodeException:
        raise
    except ray.exceptions.RayError as error:
        raise HGCLRError(f"Ray failed: {first_line(error)}; {NEEDS} ({kept} are kept)") from error
    finally:
        if connecting:
            ray.shutdown()


@contextmanager
def tasks(
    work: Callable[[Part], Answer], *, on_gpu: bool, workers: int | None, address: str | None, kept: str
) -> Iterator[tuple[Callable[[Part], Future[Answer]], int]]:
    """Yield a function that submits a part of the work, and the number of parts that keep the cluster busy.

    ``work`` runs on any node, in tasks instead of actors: Ray reuses the processes of tasks, so a process loads a model
    once, and the work of a lost node moves to another. GPUs are used if ``on_gpu`` and if the cluster has any. For
    ``address`` and ``kept`` see :func:`connected`.
    """
    with connected(address, kept=kept):
        import ray

        cluster: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        on_gpu = on_gpu and cluster.get("GPU", 0) >= 1
        # By default, Ray ends a process with a GPU after each call, and the loaded model is lost.
        needs: dict[str, Any] = {"num_gpus": 1, "num_cpus": 0, "max_calls": 0} if on_gpu else {"num_cpus": 1}
        task: Any = ray.remote(**needs)(lambda work, part: work(part))
        shared = ray.put(work)
        running = max(1, int(cluster["GPU" if on_gpu else "CPU"]))
        try:
            yield lambda part: task.remote(shared, part).future(), workers or 3 * running
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, HGCLRError):
                raise HGCLRError(f"on a node of the cluster: {error.cause} ({kept} are kept)") from error
            raise
