"""The study: Optuna's record of a search in a journal file that survives a kill."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hgclr.errors import InputError, require_extra
from hgclr.reproduction.comparing import first_difference
from hgclr.reproduction.tuning.spaces import Search, attributes

if TYPE_CHECKING:
    from optuna import Study, Trial
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler
    from optuna.trial import FrozenTrial

__all__ = ["RUNS", "next_trial", "open_study", "ranked", "tell"]

RUNS = "trials"
_JOURNAL, _NAME, _ABOUT = "study.journal", "hgclr tune", "about"


@contextmanager
def open_study(folder: Path, about: Mapping[str, Any], *, pruning: bool) -> Iterator[Study]:
    """Open the study in ``folder``, or begin one; nobody else can open it in the meantime.

    Args:
        folder: where the journal is or will be.
        about: what the search depends on; a study is gone on with only if it is the same.
        pruning: stop a trial that is below the median of the earlier ones at the same epoch.

    Raises:
        InputError: if the folder holds another search, naming the difference, or another process is at work there.
    """
    require_extra("optuna", extra="tune", capability="Tuning")
    import optuna
    from optuna.storages.journal import JournalFileBackend, JournalStorage

    folder.mkdir(parents=True, exist_ok=True)
    journal = folder / _JOURNAL
    if (folder / RUNS).exists() and not journal.exists():
        raise InputError(f"{folder} holds {RUNS} but no {_JOURNAL}", remedy="give another --output")
    with journal.open("a+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(
                f"another process is tuning in {folder}", remedy="wait, or give another --output"
            ) from None
        # We are alone here, so what a killed process left behind is of no use to anybody: Optuna's own lock, for which
        # it would wait, and half a line, which it would not get past.
        Path(f"{journal}.lock").unlink(missing_ok=True)
        _cut_half_line(journal)
        study = optuna.create_study(
            storage=JournalStorage(JournalFileBackend(str(journal))),
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


def next_trial(study: Study, search: Search, total: int) -> Trial | None:
    """Return the trial that was interrupted, or a new one, or None after ``total`` trials.

    The sampler begins anew with each trial from the trial's number, so that a search in two sittings tries the same
    settings as one in a single sitting.
    """
    import optuna

    trials = study.get_trials(deepcopy=False)
    interrupted = [trial for trial in trials if not trial.state.is_finished()]
    number = interrupted[0].number if interrupted else len(trials)
    if number >= total:
        return None
    study.sampler = _sampler(search, number)
    # Optuna has no public way back into a trial; its own retry would list the trial twice.
    trial = optuna.Trial(study, interrupted[0]._trial_id) if interrupted else study.ask()
    for key, distribution in search.space.items():
        _suggest(trial, key, distribution)
    return trial


def tell(study: Study, trial: Trial, value: float | None, state: str = "COMPLETE") -> None:
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


def _sampler(search: Search, number: int) -> BaseSampler:
    from optuna.samplers import GridSampler, TPESampler

    return GridSampler(search.points, seed=0) if search.points is not None else TPESampler(seed=number)


def _suggest(trial: Trial, key: str, distribution: BaseDistribution) -> None:
    """Draw one setting; one that was drawn before an interruption stays as it is."""
    from optuna.distributions import IntDistribution

    values = attributes(distribution)
    if "choices" in values:
        trial.suggest_categorical(key, values["choices"])
    elif isinstance(distribution, IntDistribution):
        trial.suggest_int(key, values["low"], values["high"], step=values["step"], log=values["log"])
    else:
        trial.suggest_float(key, values["low"], values["high"], step=values["step"], log=values["log"])


def _cut_half_line(journal: Path) -> None:
    """Cut off what follows the last whole line."""
    content = journal.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        os.truncate(journal, whole)
