"""A study on disk, and its trials: what comes next, the training of one run per seed, and how each trial ended."""

from __future__ import annotations

import os
import shutil
import statistics
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from hgclr.errors import HGCLRError, InputError, MissingExtraError, require_extra
from hgclr.files import locked, read_json
from hgclr.provenance import first_difference
from hgclr.training import RunConfig, train
from hgclr.tuning.space import Search, attributes, with_parameters

if TYPE_CHECKING:
    from optuna import Study, Trial
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial

__all__ = ["METRICS", "Metric", "Onlookers", "TrialRunner", "Turn", "Watcher", "next_trial", "open_study", "ranked"]

Metric = Literal["macro_f1", "micro_f1"]
METRICS = {"macro_f1": "Macro-F1", "micro_f1": "Micro-F1"}
RUNS = "trials"
_JOURNAL, _LOCK, _NAME, _ABOUT = "study.journal", "study.lock", "hgclr tune", "about"


@contextmanager
def open_study(folder: Path, about: Mapping[str, Any], *, pruning: bool) -> Iterator[Study]:
    """Open the study in ``folder``, or begin one; nobody else can open it in the meantime.

    A study is gone on with only if it is ``about`` the same. With ``pruning``, a trial is stopped that is below the
    median of the earlier ones at the same epoch.
    """
    require_extra("optuna", extra="tune", capability="Tuning")
    import optuna
    from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock, JournalStorage

    folder.mkdir(parents=True, exist_ok=True)
    journal = folder / _JOURNAL
    if (folder / RUNS).exists() and not journal.exists():
        raise InputError(f"{folder} holds {RUNS} but no {_JOURNAL}", remedy="give another --output")
    with locked(folder / _LOCK, "tuning", remedy="wait, or give another --output"):
        # We are alone here, so what a killed process left behind is of no use to anybody: Optuna's own lock, for which
        # it would wait, and half a line, which it would not get past.
        Path(f"{journal}.lock").unlink(missing_ok=True)
        _cut_half_line(journal)
        backend = JournalFileBackend(str(journal), lock_obj=JournalFileOpenLock(str(journal)))
        study = optuna.create_study(
            storage=JournalStorage(backend),
            study_name=_NAME,
            direction="maximize",
            pruner=optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=2)
            if pruning
            else optuna.pruners.NopPruner(),
            load_if_exists=True,
        )
        known = study.user_attrs.get(_ABOUT)
        if known is None:
            study.set_user_attr(_ABOUT, dict(about))
        elif difference := first_difference(known, about):
            raise InputError(
                f"{folder} holds another search: {difference.place} was {difference.before!r} there"
                f" and is {difference.now!r} now",
                remedy="give another --output",
            )
        yield study


def next_trial(study: Study, search: Search, total: int, running: Collection[int] = ()) -> Trial | None:
    """Return a trial that was interrupted, or a new one, or None after ``total`` trials; not one that is ``running``.

    The sampler begins anew with each trial from the trial's number, so that a search in two sittings tries the same
    settings as one in a single sitting.
    """
    import optuna

    trials = study.get_trials(deepcopy=False)
    interrupted = [trial for trial in trials if not trial.state.is_finished() and trial.number not in running]
    number = interrupted[0].number if interrupted else len(trials)
    if number >= total:
        return None
    samplers = optuna.samplers
    study.sampler = (
        samplers.TPESampler(seed=number) if search.points is None else samplers.GridSampler(search.points, seed=0)
    )
    # Optuna has no public way back into a trial; its own retry would list the trial twice.
    trial = optuna.Trial(study, interrupted[0]._trial_id) if interrupted else study.ask()
    for key, distribution in search.space.items():
        _suggest(trial, key, distribution)
    return trial


def _tell(study: Study, trial: Trial, value: float | None, state: str) -> None:
    """Record how a trial ended: COMPLETE with its value, PRUNED, or FAIL."""
    from optuna.samplers import GridSampler
    from optuna.trial import TrialState

    # After its last point GridSampler stops the search, which outside of Study.optimize raises; the result is stored.
    with suppress(RuntimeError) if isinstance(study.sampler, GridSampler) else nullcontext():
        study.tell(trial, value, TrialState[state])


def ranked(study: Study) -> list[FrozenTrial]:
    """Return the trials that were scored, the best first."""
    from optuna.trial import TrialState

    scored = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    return sorted(scored, key=lambda trial: (-(trial.value or 0.0), trial.number))


def _suggest(trial: Trial, key: str, distribution: BaseDistribution) -> None:
    """Draw one setting; one that was drawn before an interruption stays as it is."""
    from optuna.distributions import IntDistribution

    values = attributes(distribution)
    if "choices" in values:
        trial.suggest_categorical(key, values["choices"])
    else:
        suggest = trial.suggest_int if isinstance(distribution, IntDistribution) else trial.suggest_float
        suggest(key, values["low"], values["high"], step=values["step"], log=values["log"])


def _cut_half_line(journal: Path) -> None:
    content = journal.read_bytes() if journal.exists() else b""
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        os.truncate(journal, whole)


@dataclass(frozen=True)
class Turn:
    """A run that is about to begin, of trial ``number`` of ``total``, and the best trial so far."""

    number: int
    total: int
    seed: int
    parameters: dict[str, Any]
    best: FrozenTrial | None


@dataclass(frozen=True)
class Outcome:
    """How a trial ended: COMPLETE, PRUNED, FAIL or, on a node of a cluster, REFUSED, as all others would be."""

    state: str
    scores: Sequence[Mapping[str, Any]] = ()
    reason: str | None = None


Onlookers = tuple[Sequence[TrainerCallback], Callable[[int], None] | None]
"""What looks on while a run trains: its callbacks, and what is told of documents; see :func:`hgclr.training.train`."""
NOBODY: Onlookers = (), None
Watcher = Callable[[Turn], AbstractContextManager[Onlookers]]


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
        import optuna

        started, folder = time.monotonic(), self.begin(trial)
        try:
            outcome = train_trial(self.base, trial.params, self.seeds, folder, partial(self._look_on, trial))
        except optuna.TrialPruned:
            outcome = Outcome("PRUNED")
        self.end(trial, outcome, time.monotonic() - started)

    def begin(self, trial: Trial) -> Path:
        """Note that a trial begins, or goes on, and return its folder."""
        folder = self.base.output / RUNS / f"{trial.number:04d}"
        trial.set_user_attr("seconds", sum(_scores(path)["seconds"] for path in folder.glob("*/metrics.json")))
        trial.set_user_attr("sittings", trial.user_attrs.get("sittings", 0) + 1)
        return folder

    def end(self, trial: Trial, outcome: Outcome, seconds: float) -> None:
        """Record how a trial ended."""
        _keep_scores_only(self.base.output / RUNS / f"{trial.number:04d}")
        if outcome.reason is not None:
            trial.set_user_attr("reason", outcome.reason)
        trial.set_user_attr("runs", list(outcome.scores))
        trial.set_user_attr("seconds", round(trial.user_attrs["seconds"] + seconds, 1))
        complete = outcome.state == "COMPLETE"
        value = statistics.fmean(score[self.metric] for score in outcome.scores) if complete else None
        _tell(self.study, trial, value, outcome.state)

    @contextmanager
    def _look_on(self, trial: Trial, seed: int) -> Iterator[Onlookers]:
        """Return what looks on while a trial trains with a seed; with the first, Optuna may give it up."""
        best = next(iter(ranked(self.study)), None)
        turn = Turn(trial.number + 1, self.total, seed, dict(trial.params), best)
        with nullcontext(NOBODY) if self.watch is None else self.watch(turn) as (callbacks, on_documents):
            report = [TrialReport(self.study, trial, self.metric)] if seed == self.seeds[0] else []
            yield [*callbacks, *report], on_documents


def train_trial(
    run: RunConfig,
    parameters: Mapping[str, Any],
    seeds: Sequence[int],
    folder: Path,
    look_on: Callable[[int], AbstractContextManager[Onlookers]] = lambda _: nullcontext(NOBODY),
) -> Outcome:
    """Train a trial with every seed, unless that was done before an interruption.

    Raises:
        InputError, MissingExtraError: as the next trial would; any other failure of ours is a finding about settings.
    """
    scores: list[dict[str, Any]] = []
    try:
        for seed in seeds:
            output = folder / f"seed-{seed}"
            if not (output / "metrics.json").exists():
                chosen = with_parameters(run, parameters, output=output, seed=seed)
                with look_on(seed) as (callbacks, on_documents):
                    train(chosen, resume=True, callbacks=callbacks, on_documents=on_documents, score_test=False)
            scores.append({"seed": seed, **_scores(output / "metrics.json")})
            _keep_scores_only(folder)
    except (InputError, MissingExtraError):
        raise
    except HGCLRError as error:  # such as a loss that is no number
        return Outcome("FAIL", scores, str(error))
    return Outcome("COMPLETE", scores)


def _keep_scores_only(folder: Path) -> None:
    for name in ("checkpoints", "model", "training-model"):
        for path in folder.glob(f"*/{name}"):
            shutil.rmtree(path)


def _scores(file: Path) -> dict[str, Any]:
    metrics = read_json(file)
    return {
        "micro_f1": metrics["dev"]["micro"]["f1"],
        "macro_f1": metrics["dev"]["macro"]["f1"],
        "epochs": len(metrics["history"]),
        "seconds": metrics["seconds"],
    }


class TrialReport(TrainerCallback):
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
        import optuna

        step = round(state.epoch or 0) - 1
        if step not in self.known:
            self.trial.report(kwargs["metrics"][f"eval_{self.metric}"], step)
        if self.trial.should_prune():
            raise optuna.TrialPruned
