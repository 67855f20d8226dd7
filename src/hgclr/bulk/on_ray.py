"""Label on a Ray cluster, or with Ray on this machine.

This process reads the files, sends chunks of texts to tasks, and writes the results in order, so that they equal those
of the local engine and nodes need the model only. Tasks, not actors, hold the model: Ray keeps the processes that tasks
run in, so that a process loads the model once, and the work of a lost node moves to any other node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from hgclr.bulk.files import Answer
from hgclr.cluster import connected
from hgclr.errors import HGCLRError

KEPT = "finished files"


@contextmanager
def on_ray(
    work: Callable[[list[str]], list[Answer]], *, on_gpu: bool, workers: int | None, address: str | None
) -> Iterator[tuple[Callable[[list[str]], Future[list[Answer]]], int]]:
    """Yield a function that submits texts, and how many chunks keep the cluster busy.

    ``work`` runs on any node and loads the model there. GPUs are used if allowed and if the cluster has any. Without an
    address, Ray is started on this machine, and stopped at the end.
    """
    with connected(address, kept=KEPT):
        import ray

        cluster: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        on_gpu = on_gpu and cluster.get("GPU", 0) >= 1
        # By default, Ray ends a process that had a GPU after each call, and with it the loaded model.
        needs: dict[str, Any] = {"num_gpus": 1, "num_cpus": 0, "max_calls": 0} if on_gpu else {"num_cpus": 1}
        task, shared = ray.remote(**needs)(_call), ray.put(work)
        running = max(1, int(cluster["GPU" if on_gpu else "CPU"]))
        try:
            yield lambda texts: task.remote(shared, texts).future(), workers or 3 * running
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, HGCLRError):
                raise HGCLRError(f"on a node of the cluster: {error.cause} ({KEPT} are kept)") from error
            raise


def _call(work: Callable[[list[str]], list[Answer]], texts: list[str]) -> list[Answer]:
    return work(texts)
