"""Search for settings on dev, go on where a killed search was, and draw what was found."""

from __future__ import annotations

import csv
import io
import statistics
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import yaml

from hgclr.errors import HGCLRError, InputError, first_line, require_extra
from hgclr.files import atomic_file, json_bytes, write_files
from hgclr.hardware import machine
from hgclr.provenance import command_line, portable
from hgclr.training import RunConfig
from hgclr.tuning.on_ray import run_on_ray
from hgclr.tuning.space import Search, check_one, describe, short_name, with_parameters
from hgclr.tuning.trials import METRICS, Metric, TrialRunner, Watcher, next_trial, open_study, ranked

if TYPE_CHECKING:
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from optuna import Study
    from optuna.trial import FrozenTrial

__all__ = ["TuningResult", "tune"]

FEW = 4
"""Trials from which on there is something to tell about settings."""


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
    files = {"trials.csv": table.getvalue().encode(), "tuning.json": json_bytes(portable(report))}
    if best is not None:
        files["best.yaml"] = _best_config(best, run, whole, about, len(entries)).encode()
    return write_files(run.output, files)


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


def draw_plots(study: Study, search: Search, metric: str, folder: Path) -> tuple[list[Path], list[str]]:
    """Draw as PNG and SVG: history, parallel coordinates, slices, importances, contours, the grid.

    Return the files, and for each plot that could not be drawn a note why.
    """
    require_extra("matplotlib", extra="tune", capability="Plots")
    import matplotlib as mpl
    from matplotlib import pyplot

    files: list[Path] = []
    notes: list[str] = []
    others = set(pyplot.get_fignums())
    name = f"dev {METRICS[metric]}, %"
    with mpl.rc_context(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Optuna's plots and their layout are marked experimental
        for title, draw in _plots(_readable(study), study, search, name).items():
            try:
                figure = draw()
            except (ValueError, RuntimeError, ImportError) as error:  # too few trials, all scores alike, no scipy
                notes.append(f"no plot of {title}: {first_line(error)}")
                continue
            mpl.rcParams["svg.hashsalt"] = "hgclr"  # the same study gives the same file
            for kind, options in (("png", {"dpi": 150}), ("svg", {"metadata": {"Date": None}})):
                file = folder / "plots" / f"{title.replace(' ', '-')}.{kind}"
                with atomic_file(file) as path:
                    figure.savefig(path, format=kind, bbox_inches="tight", **options)
                files.append(file)
    for number in set(pyplot.get_fignums()) - others:
        pyplot.close(number)
    return files, notes


def _plots(readable: Study, study: Study, search: Search, name: str) -> dict[str, Callable[[], Figure]]:
    """Return by title what draws each plot, or raises where there is nothing to draw."""
    from matplotlib.collections import LineCollection
    from matplotlib.ticker import MaxNLocator
    from optuna.importance import get_param_importances
    from optuna.visualization import matplotlib as visualization

    several, scored = len(search.space) > 1, len(ranked(study))

    def need(condition: bool, otherwise: str) -> None:
        if not condition:
            raise ValueError(otherwise)

    def history() -> Figure:
        axes = visualization.plot_optimization_history(readable, target_name=name)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.xaxis.set_major_formatter(_count_from_one)
        axes.legend([axes.collections[0], axes.lines[0]], ["a trial", "the best so far"], loc="lower right")
        axes.set(xlabel="trial")
        return _finished("Trials in their order", 7, 4)

    def parallel() -> Figure:
        need(several, "one setting was searched")
        axes = visualization.plot_parallel_coordinate(readable, target_name=name)
        axes.set_facecolor("white")
        lines = next(artist for artist in axes.collections if isinstance(artist, LineCollection))
        lines.set_cmap("viridis_r")  # the lowest score must not be white
        figure = _finished("Every trial, a line", 3 + 1.7 * len(search.space), 4.5)
        for scale in figure.axes:
            scale.grid(visible=False)
            scale.spines[["left", "right"]].set_color("#bbbbbb")
            for label in scale.get_yticklabels():
                label.set_bbox({"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 1})
        return figure

    def slices() -> Figure:
        visualization.plot_slice(readable, target_name=name)
        figure = _finished("Score by setting; darker: later trials", max(5, 2.8 * len(search.space)), 3.8)
        scale = figure.axes[-1].yaxis
        scale.set_major_locator(MaxNLocator(integer=True))
        scale.set_major_formatter(_count_from_one)
        return figure

    def importances() -> Figure:
        need(several, "one setting was searched")
        need(scored >= FEW, f"{scored} trials are too few to tell")
        axes = visualization.plot_param_importances(readable, target_name=name)
        axes.set(xlabel="importance, 1 in all", ylabel="")
        if legend := axes.get_legend():
            legend.remove()
        return _finished("What sets the best trials apart (PED-ANOVA)", 7, 1.2 + 0.5 * len(search.space))

    def contour() -> Figure:
        need(several, "one setting was searched")
        need(scored >= FEW, f"{scored} trials are too few")
        foremost = list(get_param_importances(readable))[:2]
        visualization.plot_contour(readable, params=foremost, target_name=name)
        return _finished("The score between the trials, interpolated", 7, 5)

    plots = {
        "history": history,
        "parallel coordinates": parallel,
        "slices": slices,
        "importances": importances,
        "contour": contour,
    }
    if search.points is not None:
        plots["grid"] = lambda: _grid(study, search.points or {}, name)
    return plots


def _grid(study: Study, points: dict[str, list[float]], name: str) -> Figure:
    """Draw the grid as a heat map with the values written in, the best one in a frame."""
    import numpy as np
    from matplotlib import pyplot
    from matplotlib.patches import Rectangle

    (row_key, rows), (column_key, columns) = ((key, sorted(values)) for key, values in points.items())
    values = np.full((len(rows), len(columns)), np.nan)
    best = ranked(study)
    for trial in best:
        place = rows.index(trial.params[row_key]), columns.index(trial.params[column_key])
        values[place] = 100 * (trial.value or 0.0)
    figure, axes = pyplot.subplots(figsize=(2.2 + 1.1 * len(columns), 1.6 + 0.7 * len(rows)))
    picture = axes.imshow(values, cmap="Blues", aspect="auto", origin="lower")
    middle = (np.nanmin(values) + np.nanmax(values)) / 2
    for (row, column), value in np.ndenumerate(values):
        text = "failed" if np.isnan(value) else f"{value:.2f}"
        axes.text(column, row, text, ha="center", va="center", color="white" if value > middle else "black")
    winner = rows.index(best[0].params[row_key]), columns.index(best[0].params[column_key])
    axes.add_patch(Rectangle((winner[1] - 0.5, winner[0] - 0.5), 1, 1, fill=False, linewidth=3, edgecolor="#d1495b"))
    axes.set_yticks(range(len(rows)), [f"{value:g}" for value in rows])
    axes.set_xticks(range(len(columns)), [f"{value:g}" for value in columns])
    axes.set(xlabel=short_name(column_key), ylabel=short_name(row_key))
    axes.grid(visible=False)
    figure.colorbar(picture).set_label(name)
    axes.set_title(f"{name}; framed: the best", loc="left")
    return figure


def _readable(study: Study) -> Study:
    """Return a copy with short names and scores in per cent, for people to read."""
    import optuna

    copy = optuna.create_study(direction="maximize")
    for trial in study.get_trials(deepcopy=False):
        copy.add_trial(
            optuna.trial.create_trial(
                state=trial.state,
                value=100 * trial.value if trial.value is not None else None,
                params={short_name(key): value for key, value in trial.params.items()},
                distributions={short_name(key): kind for key, kind in trial.distributions.items()},
            )
        )
    return copy


def _finished(title: str, width: float, height: float) -> Figure:
    """Return the figure that Optuna has just drawn, with our title, in the size that its content needs."""
    from matplotlib import pyplot

    figure = pyplot.gcf()
    figure.set_size_inches(width, height)
    for axes in figure.axes:
        axes.set_title("")
        for axis in (axes.xaxis, axes.yaxis):
            if axis.get_scale() == "log":
                _plain_numbers(axis)
    figure.suptitle("")
    figure.axes[0].set_title(title, loc="left")
    return figure


def _plain_numbers(axis: Axis) -> None:
    """Label a logarithmic axis with 0.1 instead of powers of ten, as often as there is room for."""
    from matplotlib.ticker import LogLocator, NullLocator

    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1.0,) if high > 100 * low else (1.0, 3.0) if high > 8 * low else (1, 2, 5)))
    axis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_minor_locator(NullLocator())


def _count_from_one(number: float, _: object) -> str:
    return f"{number + 1:.0f}"
