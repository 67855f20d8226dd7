"""Write what a search found: a configuration to train with, a table, and everything as JSON."""

from __future__ import annotations

import csv
import json
import statistics
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from hgclr.files import atomic_file
from hgclr.hardware import machine
from hgclr.reproduction.provenance import command_line, portable
from hgclr.reproduction.tuning.parameters import describe, with_parameters
from hgclr.reproduction.tuning.study import ranked
from hgclr.training import RunConfig

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial

__all__ = ["METRICS", "write_results"]

METRICS = {"macro_f1": "Macro-F1", "micro_f1": "Micro-F1"}


def write_results(study: Study, run: RunConfig, about: Mapping[str, Any]) -> list[Path]:
    """Write ``trials.csv``, ``tuning.json`` and, once a trial was scored, ``best.yaml`` into ``run.output``.

    Args:
        study: the trials.
        run: the settings that all of them share.
        about: what the search depends on.
    """
    trials = study.get_trials(deepcopy=False)
    files = [run.output / "trials.csv", run.output / "tuning.json"]
    with atomic_file(files[0]) as path, path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        keys = list(about["space"])
        writer.writerow(["trial", "state", about["metric"], *keys, "seconds"])
        for trial in trials:
            values = [trial.params.get(key) for key in keys]
            writer.writerow([trial.number + 1, _state(trial), _value(trial), *values, trial.user_attrs.get("seconds")])
    best = next(iter(ranked(study)), None)
    report = {
        **about,
        "best": None if best is None else _entry(best),
        "trials": [_entry(trial) for trial in trials],
        "optuna": version("optuna"),
        "command": command_line(sys.argv),
        "machine": machine(),
    }
    with atomic_file(files[1]) as path:
        path.write_text(json.dumps(portable(report), indent=2) + "\n", encoding="utf-8")
    if best is not None:
        files.append(run.output / "best.yaml")
        with atomic_file(files[-1]) as path:
            path.write_text(_best_config(best, run, about, len(trials)), encoding="utf-8")
    return files


def _best_config(best: FrozenTrial, run: RunConfig, about: Mapping[str, Any], trials: int) -> str:
    """Return the YAML of a run with the best settings, which trains into the folder ``best``."""
    seeds = about["seeds"]
    settings = with_parameters(run, best.params, output=run.output / "best", seed=seeds[0])
    score = f"dev {METRICS[about['metric']]} {100 * (best.value or 0.0):.2f}"
    over = f"seed {seeds[0]}" if len(seeds) == 1 else f"mean of the seeds {', '.join(map(str, seeds))}"
    tree = yaml.safe_dump(settings.model_dump(mode="json", exclude_unset=True), sort_keys=False, allow_unicode=True)
    return f"# Trial {best.number + 1} of {trials}, {score} ({over}): {describe(best.params)}.\n{tree}"


def _entry(trial: FrozenTrial) -> dict[str, Any]:
    """Return a trial as JSON: its scores, means over seeds beside them, and the score of each epoch it reported."""
    runs = trial.user_attrs.get("runs", [])
    means = {name: statistics.fmean(run[name] for run in runs) for name in METRICS} if runs else {}
    entry = {
        "trial": trial.number + 1,
        "state": _state(trial),
        "value": _value(trial),
        "parameters": trial.params,
        **means,
        "runs": runs,
        "epochs": [trial.intermediate_values[step] for step in sorted(trial.intermediate_values)],
        "seconds": trial.user_attrs.get("seconds"),
        "sittings": trial.user_attrs.get("sittings"),
    }
    if "reason" in trial.user_attrs:
        entry["reason"] = trial.user_attrs["reason"]
    return entry


def _value(trial: FrozenTrial) -> float | None:
    """Return the score of a trial; what Optuna notes for one that was given up is that of an early epoch."""
    return trial.value if trial.state.name == "COMPLETE" else None


def _state(trial: FrozenTrial) -> str:
    return {"COMPLETE": "done", "PRUNED": "given up", "FAIL": "failed"}.get(trial.state.name, trial.state.name.lower())
