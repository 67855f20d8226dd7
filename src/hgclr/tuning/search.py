"""Search for settings on dev, and go on where a killed search was."""

from __future__ import annotations

import csv
import io
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import yaml

from hgclr.errors import HGCLRError, InputError
from hgclr.files import write_files
from hgclr.hardware import machine
from hgclr.provenance import command_line, portable
from hgclr.training import RunConfig
from hgclr.tuning.on_ray import run_on_ray
from hgclr.tuning.plots import draw_plots
from hgclr.tuning.space import Search, check_one, describe, with_parameters
from hgclr.tuning.trials import METRICS, Metric, TrialRunner, Watcher, next_trial, open_study, ranked

if TYPE_CHECKING:
    from optuna import Study
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
    whole: RunConfig | None = None,
    watch: Watcher | None = None,
    engine: Literal["local", "ray"] = "local",
    workers: int | None = None,
    ray_address: str | None = None,
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
        whole: what ``best.yaml`` is made from, where the trials have cut data or epochs; by default ``run``.
        watch: called before each run, returns what looks on; not on Ray.
        engine: ``local`` trains here, one trial after the other, ``ray`` on a cluster, several at a time; see
            :func:`~hgclr.tuning.on_ray.run_on_ray`.
        workers: with Ray, trials at a time.
        ray_address: with Ray, the address of a running cluster.

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
        if engine == "ray":
            run_on_ray(
                runner,
                partial(next_trial, study, search, total),
                workers=workers,
                address=ray_address,
                on_end=lambda: _write_results(study, run, whole or run, about),
            )
        while (trial := next_trial(study, search, total)) is not None:
            runner.run(trial)
            _write_results(study, run, whole or run, about)
        best = ranked(study)
        if not best:
            reasons = {trial.user_attrs.get("reason", "given up") for trial in study.get_trials(deepcopy=False)}
            raise HGCLRError(f"no trial of {total} was trained to its end: {'; '.join(sorted(reasons))}")
        files = _write_results(study, run, whole or run, about)
        plots, notes = draw_plots(study, search, metric, run.output)
        unscored = len(study.get_trials(deepcopy=False)) - len(best)
    return TuningResult(best, unscored, run.output / "best.yaml", [*files, *plots], notes)


def _write_results(study: Study, run: RunConfig, whole: RunConfig, about: Mapping[str, Any]) -> list[Path]:
    """Write ``trials.csv``, ``tuning.json`` and, once a trial was scored, ``best.yaml`` into ``run.output``."""
    entries = [_entry(trial) for trial in study.get_trials(deepcopy=False)]
    table = io.StringIO()
    writer, keys = csv.writer(table), list(about["space"])
    writer.writerow(["trial", "state", about["metric"], *keys, "seconds"])
    for entry in entries:
        values = [entry["parameters"].get(key) for key in keys]
        writer.writerow([entry["trial"], entry["state"], entry["value"], *values, entry["seconds"]])
    best = next(iter(ranked(study)), None)
    report = {
        **about,
        "best": None if best is None else _entry(best),
        "trials": entries,
        "optuna": version("optuna"),
        "command": command_line(sys.argv),
        "machine": machine(),
    }
    files = {"trials.csv": table.getvalue(), "tuning.json": json.dumps(portable(report), indent=2) + "\n"}
    if best is not None:
        files["best.yaml"] = _best_config(best, run, whole, about, len(entries))
    return write_files(run.output, {name: text.encode() for name, text in files.items()})


def _best_config(best: FrozenTrial, run: RunConfig, whole: RunConfig, about: Mapping[str, Any], trials: int) -> str:
    """Return the YAML of a run with the best settings, which trains into the folder ``best``."""
    seeds = about["seeds"]
    settings = with_parameters(whole, best.params, output=run.output / "best", seed=seeds[0])
    score = f"dev {METRICS[about['metric']]} {100 * (best.value or 0.0):.2f}"
    over = f"seed {seeds[0]}" if len(seeds) == 1 else f"mean of the seeds {', '.join(map(str, seeds))}"
    tree = yaml.safe_dump(settings.model_dump(mode="json", exclude_unset=True), sort_keys=False, allow_unicode=True)
    return f"# Trial {best.number + 1} of {trials}, {score} ({over}): {describe(best.params)}.\n{tree}"


def _entry(trial: FrozenTrial) -> dict[str, Any]:
    """Return a trial as JSON: its scores, means over seeds beside them, and the score of each epoch it reported."""
    runs, state = trial.user_attrs.get("runs", []), trial.state.name
    means = {name: statistics.fmean(run[name] for run in runs) for name in METRICS} if runs else {}
    return {
        "trial": trial.number + 1,
        "state": {"COMPLETE": "done", "PRUNED": "given up", "FAIL": "failed"}.get(state, state.lower()),
        # What Optuna notes for a trial that was given up is the score of an early epoch.
        "value": trial.value if state == "COMPLETE" else None,
        "parameters": trial.params,
        **means,
        "runs": runs,
        "epochs": [trial.intermediate_values[step] for step in sorted(trial.intermediate_values)],
        "seconds": trial.user_attrs.get("seconds"),
        "sittings": trial.user_attrs.get("sittings"),
        **{name: value for name, value in trial.user_attrs.items() if name == "reason"},
    }
