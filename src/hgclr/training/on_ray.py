"""Train on a Ray cluster."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path
from typing import Any

import torch.distributed

from hgclr.cluster import NEEDS, connected
from hgclr.errors import HGCLRError, first_line
from hgclr.files import write_files
from hgclr.registry import is_pretrained
from hgclr.training.distributed import FirstRankError
from hgclr.training.recipe import make_recipe
from hgclr.training.run import TrainingResult, finished_run, train
from hgclr.training.settings import RunConfig

logger = logging.getLogger(__name__)
FAILURES = 3
"""How often a run resumes after the loss of a node."""
STORAGE, PROBLEM = "ray", "problem.txt"


def train_on_ray(
    run: RunConfig, *, workers: int | None = None, address: str | None = None, resume: bool = False
) -> TrainingResult:
    """Train on a cluster as :func:`hgclr.training.train` does on this machine; all nodes must see the same files.

    The default is a worker for each GPU, or else for each core, reduced to a number that divides the batch. Without an
    ``address``, Ray is started on this machine, and stopped at the end. After the loss of a node, the run resumes from
    a checkpoint.

    Raises:
        HGCLRError: as :func:`~hgclr.training.train`, or if there is no cluster, or it fails.
    """
    if (finished := finished_run(run, resume=resume)) is not None:
        return finished
    with connected(address, kept="checkpoints"):
        import ray
        from ray.train import FailureConfig, ScalingConfig
        from ray.train import RunConfig as Storage
        from ray.train.torch import TorchTrainer

        logging.getLogger("ray.train").setLevel(logging.CRITICAL)
        cluster: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        use_gpu = cluster.get("GPU", 0) >= 1
        workers = workers or most_workers(run, int(cluster["GPU" if use_gpu else "CPU"]))
        logger.info("training on Ray: %d workers, %s", workers, "a GPU each" if use_gpu else "a core each")
        storage = (run.output / STORAGE).absolute()
        trainer = TorchTrainer(
            _work,
            train_loop_config={"run": run.model_dump(mode="json", exclude_unset=True), "folder": str(Path.cwd())},
            scaling_config=ScalingConfig(num_workers=workers, use_gpu=use_gpu),
            run_config=Storage(
                name=STORAGE, storage_path=str(storage), failure_config=FailureConfig(max_failures=FAILURES)
            ),
        )
        problem = storage / PROBLEM
        try:
            trainer.fit()
        except ray.train.TrainingFailedError as error:
            if not problem.is_file():
                raise HGCLRError(f"Ray: {first_line(error)} ({NEEDS}; checkpoints are kept)") from error
        found = problem.read_text(encoding="utf-8") if problem.is_file() else None
        shutil.rmtree(storage, ignore_errors=True)
    result = finished_run(run, resume=True) if found is None else None
    if result is None:
        raise HGCLRError(found or f"{run.output}: Ray ended without a result; run the command again with --resume")
    return result


def most_workers(run: RunConfig, room: int) -> int:
    """Return the largest number of workers, up to ``room``, that divides a batch."""
    pretrained = is_pretrained(run.model.encoder)
    size = make_recipe(run.training, documents=1, encoder_parameters=1, pretrained=pretrained).batch_size
    return max((number for number in range(1, min(room, size) + 1) if size % number == 0), default=1)


def _work(settings: dict[str, Any]) -> None:
    """Train as one of several workers; write an `HGCLRError` to a file, because Ray would retry after a failure."""
    os.chdir(settings["folder"])
    run = RunConfig.model_validate(settings["run"])
    try:
        train(run, resume=True)
    except FirstRankError:
        return
    except HGCLRError as error:
        problem = run.output / STORAGE / PROBLEM
        write_files(problem.parent, {problem.name: str(error).encode()})
        torch.distributed.destroy_process_group()  # so that the others do not wait
