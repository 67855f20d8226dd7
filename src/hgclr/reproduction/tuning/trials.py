"""Train the runs of a trial, one per seed, and record how it ended."""

from __future__ import annotations

import json
import shutil
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from hgclr.errors import HGCLRError, InputError, MissingExtraError
from hgclr.reproduction.tuning.parameters import with_parameters
from hgclr.reproduction.tuning.study import RUNS, ranked, tell
from hgclr.training import RunConfig, train

if TYPE_CHECKING:
    from optuna import Study, Trial
    from optuna.trial import FrozenTrial

__all__ = ["Metric", "TrialRunner", "Turn", "Watch", "Watcher"]

Metric = Literal["macro_f1", "micro_f1"]


@dataclass(frozen=True)
class Turn:
    """A run that is about to begin.

    Args:
        number: which trial, counted from 1.
        total: how many trials there will be.
        seed: the run's seed.
        parameters: the trial's settings.
        best: the best trial so far.
    """

    number: int
    total: int
    seed: int
    parameters: dict[str, Any]
    best: FrozenTrial | None


class Watch(NamedTuple):
    """What looks on while a run trains; see :func:`hgclr.training.train`."""

    callbacks: Sequence[TrainerCallback] = ()
    on_documents: Callable[[int], None] | None = None


Watcher = Callable[[Turn], AbstractContextManager[Watch]]


@dataclass(frozen=True)
class TrialRunner:
    """Train trials of a study, of whose runs only the scores are kept.

    Args:
        study: where a trial's end is recorded.
        base: the settings that all trials share; its output is the folder of the search.
        total: how many trials there will be.
        seeds: train every trial with each of these.
        metric: the dev score whose mean over the seeds is a trial's value.
        watch: called before each run, returns what looks on.
    """

    study: Study
    base: RunConfig
    total: int
    seeds: Sequence[int]
    metric: Metric
    watch: Watcher | None

    def run(self, trial: Trial) -> None:
        """Train a trial with every seed."""
        import optuna

        started = time.monotonic()
        folder = self.base.output / RUNS / f"{trial.number:04d}"
        earlier = sum(_scores(path)["seconds"] for path in folder.glob("*/metrics.json"))
        trial.set_user_attr("sittings", trial.user_attrs.get("sittings", 0) + 1)
        scores: list[dict[str, Any]] = []
        value, state = None, "COMPLETE"
        try:
            for seed in self.seeds:
                scores.append({"seed": seed, **self._score(trial, seed, folder / f"seed-{seed}")})
                _keep_scores_only(folder)
            value = statistics.fmean(score[self.metric] for score in scores)
        except optuna.TrialPruned:
            state = "PRUNED"
        except (InputError, MissingExtraError):  # the next trial would fare no better
            raise
        except HGCLRError as error:  # such as a loss that is no number: bad settings, which is a finding
            state = "FAIL"
            trial.set_user_attr("reason", str(error))
        _keep_scores_only(folder)
        trial.set_user_attr("runs", scores)
        trial.set_user_attr("seconds", round(earlier + time.monotonic() - started, 1))
        tell(self.study, trial, value, state)

    def _score(self, trial: Trial, seed: int, output: Path) -> dict[str, Any]:
        """Return the scores of one run, which is trained, or trained on, unless it was done before an interruption."""
        done = output / "metrics.json"
        if not done.exists():
            best = next(iter(ranked(self.study)), None)
            turn = Turn(trial.number + 1, self.total, seed, dict(trial.params), best)
            with nullcontext(Watch()) if self.watch is None else self.watch(turn) as looking_on:
                report = [Report(self.study, trial, self.metric)] if seed == self.seeds[0] else []
                train(
                    with_parameters(self.base, trial.params, output=output, seed=seed),
                    resume=True,
                    callbacks=[*looking_on.callbacks, *report],
                    on_documents=looking_on.on_documents,
                    score_test=False,
                )
        return _scores(done)


def _keep_scores_only(folder: Path) -> None:
    """Delete checkpoints and models of a trial's runs."""
    for name in ("checkpoints", "model", "training-model"):
        for path in folder.glob(f"*/{name}"):
            shutil.rmtree(path)


def _scores(file: Path) -> dict[str, Any]:
    """Return what a search wants to know of a run's ``metrics.json``."""
    metrics = json.loads(file.read_text(encoding="utf-8"))
    return {
        "micro_f1": metrics["dev"]["micro"]["f1"],
        "macro_f1": metrics["dev"]["macro"]["f1"],
        "epochs": len(metrics["history"]),
        "seconds": metrics["seconds"],
    }


class Report(TrainerCallback):
    """Tell Optuna the dev score of every epoch, and give the trial up where Optuna says so."""

    def __init__(self, study: Study, trial: Trial, metric: Metric) -> None:
        self.trial, self.metric = trial, metric
        self.known = set(study.get_trials(deepcopy=False)[trial.number].intermediate_values)

    def on_evaluate(
        self,
        args: TrainingArguments,  # noqa: ARG002
        state: TrainerState,
        control: TrainerControl,  # noqa: ARG002
        **kwargs: Any,
    ) -> None:
        """Report the epoch that has just been scored, unless that was done before an interruption."""
        import optuna

        step = round(state.epoch or 0) - 1
        if step not in self.known:
            self.trial.report(kwargs["metrics"][f"eval_{self.metric}"], step)
        if self.trial.should_prune():
            raise optuna.TrialPruned
