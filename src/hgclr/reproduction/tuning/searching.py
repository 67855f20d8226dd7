"""Search for settings on dev, and go on where a killed search was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hgclr.errors import HGCLRError, InputError
from hgclr.reproduction.tuning.parameters import check_one
from hgclr.reproduction.tuning.plots import draw_plots
from hgclr.reproduction.tuning.results import write_results
from hgclr.reproduction.tuning.spaces import Search
from hgclr.reproduction.tuning.study import next_trial, open_study, ranked
from hgclr.reproduction.tuning.trials import Metric, TrialRunner, Watcher
from hgclr.training import RunConfig

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

__all__ = ["TuningResult", "tune"]


@dataclass(frozen=True)
class TuningResult:
    """What a search leaves behind.

    Args:
        best: the trials that were scored, the best first.
        unscored: how many were given up early or could not be trained.
        config: YAML file with the best settings, for ``hgclr train``.
        files: everything that was written.
        notes: which plots could not be drawn, and why.
    """

    best: list[FrozenTrial]
    unscored: int
    config: Path
    files: list[Path]
    notes: list[str]


def tune(
    run: RunConfig,
    search: Search,
    *,
    trials: int | None = None,
    seeds: Sequence[int] | None = None,
    metric: Metric = "macro_f1",
    watch: Watcher | None = None,
) -> TuningResult:
    """Search for the settings with the best dev score; the test split is not scored.

    A trial's value is the dev score of the epoch that training selects (by Macro-F1), averaged over the seeds.
    Calling it again with the same settings goes on with the search in ``run.output``: trials that are done stay, an
    interrupted one is taken up from its checkpoint. Where trials are Optuna's to choose, one whose first seed falls
    below the median of the earlier trials is given up.

    Writes into ``run.output``: ``best.yaml``, ``trials.csv``, ``tuning.json``, plots, the journal of the study, and
    under ``trials`` the scores of every run.

    Args:
        run: the settings that all trials share; its output is the folder of the search.
        search: what to turn.
        trials: how many trials in all, those of earlier calls included; by default a grid's size.
        seeds: train every trial with each of these; by default the seed of ``run``.
        metric: the dev score to raise.
        watch: called before each run, returns what looks on.

    Raises:
        InputError: if settings or data do not fit, or ``run.output`` holds another search.
        HGCLRError: if no trial could be trained to its end.
    """
    seeds = [run.training.seed] if seeds is None else list(seeds)
    for seed in seeds:
        check_one(run, "training.seed", seed)
    if not seeds or len(set(seeds)) < len(seeds):
        raise InputError(f"the seeds are {seeds}", remedy="give each seed once")
    total = min((number for number in (search.size, trials) if number is not None), default=0)
    if total < 1:
        raise InputError(f"{total} trials are to be made", remedy="give the number of trials, from 1")
    about = {
        "settings": run.model_dump(mode="json", exclude_none=True, exclude={"output": True, "training": {"seed"}}),
        "search": "grid" if search.points is not None else "trials",
        "space": search.to_json(),
        "seeds": seeds,
        "metric": metric,
    }
    with open_study(run.output, about, pruning=search.points is None) as study:
        runner = TrialRunner(study, run, total, seeds, metric, watch)
        while (trial := next_trial(study, search, total)) is not None:
            runner.run(trial)
            write_results(study, run, about)
        best = ranked(study)
        if not best:
            reasons = {trial.user_attrs.get("reason", "given up") for trial in study.get_trials(deepcopy=False)}
            raise HGCLRError(f"no trial of {total} was trained to its end: {'; '.join(sorted(reasons))}")
        files = write_results(study, run, about)
        plots, notes = draw_plots(study, search, metric, run.output)
        unscored = len(study.get_trials(deepcopy=False)) - len(best)
    return TuningResult(best, unscored, run.output / "best.yaml", [*files, *plots], notes)
