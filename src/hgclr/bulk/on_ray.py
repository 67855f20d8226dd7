"""Label on a Ray cluster, or with Ray on this machine.

This process reads the files, sends chunks of texts to tasks, and writes the results in order, so that they equal those
of the local engine and nodes need the model only. Tasks, not actors, hold the model: Ray keeps the processes that tasks
run in, so that a process loads the model once, and the work of a lost node moves to any other node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from hgclr.bulk.engines import CHUNKS_AHEAD, BulkJob, Label, read_ahead
from hgclr.bulk.files import Answer
from hgclr.cluster import NEEDS, connected
from hgclr.errors import HGCLRError
from hgclr.inference import HierarchicalClassifier

KEPT = "finished files"


@contextmanager
def on_ray(job: BulkJob, *, workers: int | None, address: str | None) -> Iterator[Label]:
    """Label with tasks of Ray.

    Args:
        job: every node must be able to load its model.
        workers: tasks at a time; by default as many as the cluster has GPUs or cores.
        address: of a running cluster; by default Ray is started on this machine, and stopped at the end.
    """
    with connected(address, kept=KEPT):
        import ray

        cluster: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        on_gpu = cluster.get("GPU", 0) >= 1 and not job.onnx
        # By default, Ray ends a process that had a GPU after each call, and with it the loaded model.
        needs: dict[str, Any] = {"num_gpus": 1, "num_cpus": 0, "max_calls": 0} if on_gpu else {"num_cpus": 1}
        task = ray.remote(**needs)(_answers)
        shared = ray.put(job)
        running = workers or max(1, int(cluster["GPU" if on_gpu else "CPU"]))

        def submit(texts: list[str]) -> Callable[[], list[Answer]]:
            reference = task.remote(shared, texts)

            def result() -> list[Answer]:
                answers = ray.get(reference)
                if isinstance(answers, str):
                    raise HGCLRError(f"on a node of the cluster: {answers} ({NEEDS}; {KEPT} are kept)")
                return answers

            return result

        yield read_ahead(job, submit, running - 1 if workers else CHUNKS_AHEAD * running)


def _answers(job: BulkJob, texts: list[str]) -> list[Answer] | str:
    """Return the answers to texts, or the message of an error; runs on any node."""
    try:
        return job.answers(_opened(job.model), texts)
    except HGCLRError as error:
        return str(error)


@lru_cache(maxsize=1)
def _opened(model: str) -> HierarchicalClassifier:
    return HierarchicalClassifier.load(model)
