"""Train the trials of a search on a Ray cluster, several at a time."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hgclr.cluster import connected
from hgclr.errors import InputError, MissingExtraError
from hgclr.training import RunConfig
from hgclr.tuning.trials import Outcome, TrialRunner, train_trial

if TYPE_CHECKING:
    from optuna import Trial

__all__ = ["run_on_ray"]


def run_on_ray(
    runner: TrialRunner,
    next_trial: Callable[[list[int]], Trial | None],
    *,
    workers: int | None,
    address: str | None,
    on_end: Callable[[], Any],
) -> None:
    """Train all trials of a study.

    Optuna chooses a trial when there is room for it, from those that have ended until then. A trial whose node is lost
    goes on from its checkpoint on another; none is given up early.

    Args:
        runner: where trials begin and end.
        next_trial: returns the next one beside those that are running, by their numbers, or None.
        workers: trials at a time; by default as many as the cluster has room for: a GPU each where there are any, else
            a core.
        address: of a running cluster; by default Ray is started on this machine, and stopped in the end.
        on_end: called when a trial has ended.

    Raises:
        InputError: if the settings of a trial are refused.
        HGCLRError: if there is no cluster, or it fails, or Ray is not installed.
    """
    with connected(address, kept="finished trials and checkpoints"):
        import ray

        cluster: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        resource = "GPU" if cluster.get("GPU", 0) >= 1 else "CPU"
        workers = workers or max(1, int(cluster.get(resource, 1)))
        needed: dict[str, Any] = {"num_gpus": 1} if resource == "GPU" else {"num_cpus": 1}
        work = ray.remote(max_retries=-1, **needed)(_work)
        base = runner.base.model_dump(mode="json", exclude_unset=True)
        running: dict[Any, tuple[Trial, float]] = {}
        while True:
            while len(running) < workers:
                trial = next_trial([other.number for other, _ in running.values()])
                if trial is None:
                    break
                folder = runner.begin(trial)
                task = work.remote(base, dict(trial.params), list(runner.seeds), str(folder), str(Path.cwd()))
                running[task] = (trial, time.monotonic())
            if not running:
                return
            (done, *_), _ = ray.wait(list(running))
            trial, started = running.pop(done)
            outcome: Outcome = ray.get(done)
            if outcome.state == "REFUSED":
                raise InputError(outcome.reason or "the settings were refused")
            runner.end(trial, outcome, time.monotonic() - started)
            on_end()


def _work(base: dict[str, Any], parameters: dict[str, Any], seeds: list[int], folder: str, cwd: str) -> Outcome:
    os.chdir(cwd)
    try:
        return train_trial(RunConfig.model_validate(base), parameters, seeds, Path(folder))
    except (InputError, MissingExtraError) as error:
        return Outcome("REFUSED", reason=str(error))
