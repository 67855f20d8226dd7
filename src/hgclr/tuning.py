"""Search for the settings with the best dev score, with an Optuna study in a SQLite file that processes can share."""

from __future__ import annotations

import itertools
import shutil
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import yaml
from filelock import FileLock, Timeout
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from hgclr.config import method_fields
from hgclr.errors import HGCLRError, InputError, MissingExtraError, require_extra
from hgclr.files import read_json, write_files
from hgclr.provenance import first_difference
from hgclr.training import RunConfig, TrainingSettings, train

if TYPE_CHECKING:
    from optuna import Study, Trial
    from optuna.distributions import BaseDistribution

Metric = Literal["macro_f1", "micro_f1"]
Space = dict[str, "BaseDistribution"]
Watcher = Callable[[str], AbstractContextManager[TrainerCallback]]
STUDY, LOCK, RUNS = "study.db", "study.lock", "trials"
DEFAULT_SPACE = {"training.learning_rate": {"low": 1e-5, "high": 1e-3, "log": True}}
HGCLR_SPACE = DEFAULT_SPACE | {
    "model.contrastive_weight": {"low": 0.003, "high": 1.0, "log": True},
    "model.contrastive_temperature": {"low": 0.05, "high": 1.0, "log": True},
    "model.keep_fraction": {"low": 0.3, "high": 1.0},
}


def tune(
    run: RunConfig,
    space: Space,
    *,
    trials: int | None = None,
    seeds: Sequence[int] | None = None,
    metric: Metric = "macro_f1",
    watch: Watcher | None = None,
) -> Study:
    """Search for the settings with the best dev score and write them to ``best.yaml``; test is not scored.

    A trial's value is the dev score at 0.5 of the best epoch, averaged over the seeds. Processes that call this at the
    same time share the study in ``run.output``; a later call continues it, and resumes interrupted trials from their
    checkpoints. With ``trials``, a trial is pruned if its first seed falls below the median of earlier trials.

    Args:
        run: the settings that all trials share; its output is the folder of the search.
        space: the values of each setting; see :func:`read_space`.
        trials: number of trials, those of earlier calls included; by default every combination of choices.
        seeds: seeds of every trial; by default the seed of ``run``.
        metric: the dev score to maximise.
        watch: called with the title of each run, returns a callback for the Trainer.

    Raises:
        InputError: if settings or data are wrong, or ``run.output`` holds another search.
        HGCLRError: if no trial finished.
    """
    require_extra("optuna", extra="tune", capability="Tuning")
    import optuna

    seeds, combinations = list(seeds or [run.training.seed]), []
    if trials is None:
        if not all("choices" in vars(distribution) for distribution in space.values()):
            raise InputError("a range has no end", remedy="give --trials, or choices for every setting")
        values = (distribution.choices for distribution in space.values())  # type: ignore[attr-defined]
        combinations = [dict(zip(space, point, strict=True)) for point in itertools.product(*values)]
    about = {
        "settings": run.model_dump(mode="json", exclude_none=True, exclude={"output": True, "training": {"seed"}}),
        "space": {key: str(distribution) for key, distribution in space.items()},
        "seeds": seeds,
        "metric": metric,
    }
    (run.output / RUNS).mkdir(parents=True, exist_ok=True)
    with FileLock(run.output / LOCK):
        study = optuna.create_study(
            storage=f"sqlite:///{run.output / STUDY}",
            study_name="hgclr",
            direction="maximize",
            pruner=optuna.pruners.MedianPruner(5, 2) if trials else optuna.pruners.NopPruner(),
            load_if_exists=True,
        )
        known = study.user_attrs.get("about", about)
        if difference := first_difference(known, about):
            raise InputError(
                f"holds another search: {difference.place} was {difference.before!r} and is {difference.now!r} now",
                path=run.output,
                remedy="give another --output",
            )
        study.set_user_attr("about", about)
        for combination in combinations:
            study.enqueue_trial(combination, skip_if_exists=True)
    while True:
        with _next_trial(study, space, trials or len(combinations), run.output) as trial:
            if trial is None:
                break
            _train_trial(study, trial, run, seeds, metric, watch)
        if any(trial.state.name == "COMPLETE" for trial in study.get_trials(deepcopy=False)):
            best = study.best_trial
            settings = with_parameters(run, {**best.params, "training.seed": seeds[0]}, run.output / "best")
            text = yaml.safe_dump(settings.model_dump(mode="json", exclude_unset=True), sort_keys=False)
            write_files(run.output, {"best.yaml": f"# Trial {best.number + 1}, dev {best.value:.4f}\n{text}".encode()})
    if not (run.output / "best.yaml").exists():
        reasons = {str(trial.user_attrs.get("reason", "pruned")) for trial in study.get_trials(deepcopy=False)}
        raise HGCLRError(f"no trial finished: {'; '.join(sorted(reasons))}")
    return study


@contextmanager
def _next_trial(study: Study, space: Space, total: int, folder: Path) -> Iterator[Trial | None]:
    """Lock and yield an interrupted trial or a new one; yield None after ``total`` trials.

    A lock ends with its process, so a running trial without a lock was interrupted.
    """
    import optuna

    trial = None
    with ExitStack() as stack:
        with FileLock(folder / LOCK):
            started = [trial for trial in study.get_trials(deepcopy=False) if trial.state.name != "WAITING"]
            for running in (each for each in started if each.state.name == "RUNNING"):
                with suppress(Timeout):
                    stack.enter_context(FileLock(folder / RUNS / f"{running.number:04d}.lock", timeout=0))
                    trial = optuna.Trial(study, running._trial_id)  # Optuna has no public way to resume a trial
                    break
            if trial is None and len(started) < total:
                # One seed per trial, so that a continued search tries the same settings as an uninterrupted one.
                study.sampler = optuna.samplers.TPESampler(seed=len(started), constant_liar=True)
                trial = study.ask()
                stack.enter_context(FileLock(folder / RUNS / f"{trial.number:04d}.lock"))
            if trial is not None:
                for key, distribution in space.items():
                    trial._suggest(key, distribution)  # keeps a value drawn before an interruption
        yield trial


def _train_trial(
    study: Study, trial: Trial, run: RunConfig, seeds: Sequence[int], metric: Metric, watch: Watcher | None
) -> None:
    """Train a trial with every seed that has no result yet, and record its score."""
    from optuna import TrialPruned
    from optuna.trial import TrialState

    folder = run.output / RUNS / f"{trial.number:04d}"
    value, state, scores = None, TrialState.COMPLETE, []
    try:
        for seed in seeds:
            output = folder / f"seed-{seed}"
            if not (output / "metrics.json").exists():
                chosen = with_parameters(run, {**trial.params, "training.seed": seed}, output)
                title = f"trial {trial.number + 1}, seed {seed}: {describe(trial.params)}"
                with watch(title) if watch is not None else nullcontext(TrainerCallback()) as watcher:
                    report = [EpochReport(trial, metric)] if seed == seeds[0] else []
                    train(chosen, resume=True, callbacks=[watcher, *report], score_test=False)
            scores.append(read_json(output / "metrics.json")["dev_at_0.5"][metric.removesuffix("_f1")]["f1"])
        value = statistics.fmean(scores)
    except TrialPruned:
        state = TrialState.PRUNED
    except (InputError, MissingExtraError):  # the next trial would fail, too
        raise
    except HGCLRError as error:  # such as a NaN loss
        state = TrialState.FAIL
        trial.set_user_attr("reason", str(error))
    study.tell(trial, value, state)
    for name in ("checkpoints", "model", "training-model"):
        for path in folder.glob(f"*/{name}"):
            shutil.rmtree(path)


class EpochReport(TrainerCallback):
    """Report the dev score of every epoch to Optuna, which may prune the trial."""

    def __init__(self, trial: Trial, metric: Metric) -> None:
        self.trial, self.metric = trial, metric

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        from optuna import TrialPruned

        self.trial.report(kwargs["metrics"][f"eval_{self.metric}"], round(state.epoch or 0) - 1)
        if self.trial.should_prune():
            raise TrialPruned


def describe(parameters: Mapping[str, Any]) -> str:
    """Return parameters in one line, such as ``learning_rate 0.0003, keep_fraction 0.5``."""
    values = {key: f"{value:.3g}" if isinstance(value, float) else value for key, value in parameters.items()}
    return ", ".join(f"{key.rpartition('.')[2]} {value}" for key, value in values.items())


def with_parameters(run: RunConfig, parameters: Mapping[str, Any], output: Path | None = None) -> RunConfig:
    """Return ``run`` with parameters such as ``{"model.keep_fraction": 0.5}``; recipe and preset set the others."""
    tree = run.model_dump(mode="json", exclude_unset=True) | ({} if output is None else {"output": str(output)})
    for key, value in parameters.items():
        section, _, name = key.partition(".")
        tree.setdefault(section, {})[name] = value
    return RunConfig.build(tree)


def read_space(tree: Any, run: RunConfig, path: Path | None = None) -> Space:
    """Return Optuna's form of settings, each with ``low`` and ``high`` (also ``log``, ``step``) or ``choices``.

    None is the default: the learning rate and, for HGCLR, settings of the contrastive loss. Raises an `InputError` if
    a setting is unknown or cannot be searched, or a value is invalid.
    """
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if tree is None:
        tree = HGCLR_SPACE if run.model.architecture == "hgclr" else DEFAULT_SPACE
    if not isinstance(tree, dict) or not tree:
        remedy = "write for example model.keep_fraction: {low: 0.3, high: 1}"
        raise InputError("expected settings with their ranges", path=path, remedy=remedy)
    space: Space = {}
    for key, entry in tree.items():
        section, _, name = str(key).partition(".")
        if section not in ("model", "training") or name == "seed":
            raise InputError(f"{key} cannot be searched", path=path, remedy="search settings of model and training")
        field = TrainingSettings.model_fields.get(name) if section == "training" else None
        kind = field.annotation if field else getattr(method_fields().get(name), "type", None)
        number: type[int] | type[float] = int if int in (kind, *get_args(kind)) else float
        try:
            if "choices" in entry:
                space[key], values = CategoricalDistribution(**entry), entry["choices"]
            else:
                values = [number(entry["low"]), number(entry["high"])]
                distribution = IntDistribution if number is int else FloatDistribution
                space[key] = distribution(**entry | {"low": values[0], "high": values[1]})
            for value in values:
                with_parameters(run, {key: value})
        except InputError as error:
            raise InputError(f"{key}: {error.what}", path=path, remedy=error.remedy) from None
        except (TypeError, ValueError, KeyError) as error:
            remedy = "give low and high, on request with log: true or a step, or give choices"
            raise InputError(f"{key}: {entry!r} is not a range ({error})", path=path, remedy=remedy) from None
    return space
