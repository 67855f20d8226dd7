"""Search for settings: every trial once, also in several processes and after a kill; on dev only."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from hgclr import tuning
from hgclr.errors import HGCLRError, InputError
from hgclr.training import RunConfig, train
from hgclr.tuning import read_space, tune, with_parameters
from support.crash_points import run_forked
from support.short_runs import die_after_checkpoint_in

WEIGHT, GAMMA = "model.contrastive_weight", "model.keep_threshold"
SPACE = {
    WEIGHT: FloatDistribution(0.003, 1.0, log=True),
    "model.keep_at_least": IntDistribution(0, 24, step=4),
    "model.positives": CategoricalDistribution(["hierarchy", "dropout"]),
}


@pytest.fixture(autouse=True)
def _quiet() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)


@pytest.fixture
def run(make_encoder, toy_data: Path, tmp_path: Path) -> RunConfig:
    return RunConfig.model_validate(
        {
            "data": {"path": toy_data},
            "model": {"encoder": make_encoder("bert"), "preset": "published", "label_heads": 4},
            "training": {"epochs": 1, "learning_rate": 3e-3, "seed": 3},
            "output": tmp_path / "search",
        }
    )


class Stub:
    """A training that follows a given curve of dev scores and leaves the files of a run."""

    def __init__(self, score: Callable[[RunConfig], float], epochs: int = 1) -> None:
        self.score, self.epochs = score, epochs
        self.runs: list[RunConfig] = []

    def __call__(self, run: RunConfig, *, resume: bool, callbacks: Any, score_test: bool) -> None:
        assert resume
        assert not score_test
        self.runs.append(run)
        (run.output / "checkpoints" / "checkpoint-1").mkdir(parents=True, exist_ok=True)
        final = self.score(run)

        class State:
            epoch = 0.0

        for epoch in range(1, self.epochs + 1):
            State.epoch = float(epoch)
            value = final * epoch / self.epochs
            for callback in callbacks:
                callback.on_evaluate(None, State, None, metrics={"eval_macro_f1": value, "eval_micro_f1": value})
        dev = {"macro": {"f1": final}, "micro": {"f1": final / 2}}
        (run.output / "metrics.json").write_text(json.dumps({"dev_at_0.5": dev}))


def weight_score(run: RunConfig) -> float:
    """A score with its maximum at lambda 0.1 that also depends on gamma and the seed."""
    settings = run.model.overrides
    gamma = settings.get("keep_threshold", 0.0)
    return 0.5 - abs(settings["contrastive_weight"] - 0.1) - gamma + 0.01 * run.training.seed


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Stub:
    stub = Stub(weight_score)
    monkeypatch.setattr(tuning, "train", stub)
    return stub


def choices(weights: list[float], gammas: list[float]) -> dict[str, Any]:
    return {WEIGHT: CategoricalDistribution(weights), GAMMA: CategoricalDistribution(gammas)}


def test_every_combination_is_trained_once(run: RunConfig, stub: Stub) -> None:
    space = choices([0.05, 0.1, 0.3], [0.001, 0.02])
    for _ in range(2):
        study = tune(run, space)
        assert sorted(tuple(trial.params.values()) for trial in study.trials) == [
            *[(0.05, 0.001), (0.05, 0.02), (0.1, 0.001), (0.1, 0.02), (0.3, 0.001), (0.3, 0.02)]
        ]
    assert len(stub.runs) == 6
    assert study.best_params == {WEIGHT: 0.1, GAMMA: 0.001}
    assert study.best_value == pytest.approx(0.5 - 0.001 + 0.03)
    best = RunConfig.read(run.output / "best.yaml")
    assert best == with_parameters(run, {**study.best_params, "training.seed": 3}, run.output / "best")
    assert "precision" not in best.training.model_fields_set  # so that the preset still decides
    assert not list(run.output.glob("trials/*/*/checkpoints"))


def test_optuna_chooses_the_same_trials_in_one_sitting_and_in_two(run: RunConfig, stub: Stub) -> None:
    """Twelve trials: ten drawn at random, two by the scores of the others."""
    whole = tune(run, SPACE, trials=12)
    run.output = run.output.parent / "again"
    tune(run, SPACE, trials=4)
    pieces = tune(run, SPACE, trials=12)
    assert [trial.params for trial in whole.trials] == [trial.params for trial in pieces.trials]
    assert len(stub.runs) == 24
    assert all(trial.params["model.keep_at_least"] in range(0, 25, 4) for trial in whole.trials)


def test_an_interrupted_trial_is_continued_with_its_settings(run: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Stub(weight_score)

    def train_until_the_fourth_run(*arguments: Any, **options: Any) -> None:
        broken(*arguments, **options)
        if len(broken.runs) == 4:  # the second seed of the second trial; its scores are not written
            (broken.runs[-1].output / "metrics.json").unlink()
            raise KeyboardInterrupt

    monkeypatch.setattr(tuning, "train", train_until_the_fourth_run)
    with pytest.raises(KeyboardInterrupt):
        tune(run, SPACE, trials=3, seeds=[1, 2])
    stub = Stub(weight_score)
    monkeypatch.setattr(tuning, "train", stub)
    study = tune(run, SPACE, trials=3, seeds=[1, 2])
    assert [each.training.seed for each in stub.runs] == [2, 1, 2]
    assert stub.runs[0] == broken.runs[3]
    assert [trial.state.name for trial in study.trials] == ["COMPLETE"] * 3


def test_a_second_process_takes_other_trials(run: RunConfig, stub: Stub) -> None:
    """Called while the first trial trains, as by another process, a search trains all the others."""
    space, inner = choices([0.05, 0.1, 0.3], [0.02]), Stub(weight_score)

    def search_within(settings: RunConfig) -> float:
        tuning.train = inner  # type: ignore[assignment]
        tune(run, space)
        return weight_score(settings)

    stub.score = search_within
    study = tune(run, space)
    assert (len(stub.runs), len(inner.runs)) == (1, 2)
    assert [trial.state.name for trial in study.trials] == ["COMPLETE"] * 3


def test_bad_trials_are_pruned(run: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first five get better and better, the sixth is worse than their median at every epoch."""
    scores = iter([0.5, 0.6, 0.7, 0.8, 0.9, 0.1])
    monkeypatch.setattr(tuning, "train", Stub(lambda _: next(scores), epochs=6))
    study = tune(run, SPACE, trials=6)
    assert [trial.state.name for trial in study.trials] == ["COMPLETE"] * 5 + ["PRUNED"]
    assert len(study.trials[-1].intermediate_values) == 3


def test_settings_that_cannot_be_trained_are_a_failed_trial(run: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    def score(settings: RunConfig) -> float:
        if settings.model.overrides["contrastive_weight"] > 0.2:
            raise HGCLRError("the loss is NaN")
        return 0.5

    monkeypatch.setattr(tuning, "train", Stub(score))
    study = tune(run, choices([0.1, 0.3], [0.02]))
    assert [trial.state.name for trial in study.trials] == ["COMPLETE", "FAIL"]
    run.output = run.output.parent / "other"
    with pytest.raises(HGCLRError, match="the loss is NaN"):
        tune(run, choices([0.3], [0.02]))


def test_bad_data_stops_the_search(run: RunConfig, tmp_path: Path) -> None:
    run.data.path = tmp_path / "nowhere"
    with pytest.raises(InputError, match="nowhere"):
        tune(run, choices([0.3], [0.02]))


def test_another_search_in_the_same_folder_is_refused(run: RunConfig, stub: Stub) -> None:
    space = choices([0.1], [0.02])
    tune(run, space)
    other = run.model_copy(deep=True)
    other.training.epochs = 7
    for changed in (
        lambda: tune(other, space),
        lambda: tune(run, choices([0.1], [0.03])),
        lambda: tune(run, space, seeds=[1, 2]),
        lambda: tune(run, space, metric="micro_f1"),
    ):
        with pytest.raises(InputError) as refused:
            changed()
        assert refused.value.path == run.output
    assert len(stub.runs) == 1


def test_a_space_is_read_with_the_kind_of_each_setting(run: RunConfig) -> None:
    space = read_space(
        {
            "training.learning_rate": {"low": "3e-5", "high": 1, "log": True},
            "training.batch_size": {"low": 8, "high": 32, "step": 8},
            "model.keep_fraction": {"choices": [0.5, 1]},
            WEIGHT: {"low": 0, "high": 1},
        },
        run,
    )
    assert list(space.values()) == [
        FloatDistribution(3e-5, 1.0, log=True),
        IntDistribution(8, 32, step=8),
        CategoricalDistribution([0.5, 1]),
        FloatDistribution(0.0, 1.0),
    ]
    assert WEIGHT in read_space(None, run)
    assert list(read_space(None, RunConfig(data={"path": "d"}, output="o"))) == ["training.learning_rate"]


@pytest.mark.parametrize(
    "tree",
    [
        {},
        ["model.keep_fraction"],
        {"data.limit": {"low": 1, "high": 9}},
        {"training.seed": {"choices": [1, 2]}},
        {"training.unknown": {"choices": [1, 2]}},
        {"model.unknown": {"low": 1, "high": 2}},
        {WEIGHT: {"low": -1, "high": 1}},
        {WEIGHT: {"low": 2, "high": 1}},
        {WEIGHT: {"low": 0, "high": 1, "log": True}},
        {WEIGHT: {"low": 0}},
        {WEIGHT: {"low": "a", "high": 1}},
        {WEIGHT: {"low": 0, "high": 1, "extra": 1}},
        {WEIGHT: 0.1},
        {"model.positives": {"low": 0, "high": 1}},
        {"model.positives": {"choices": ["unknown"]}},
        {"model.positives": {"choices": []}},
    ],
    ids=str,
)
def test_spaces_that_do_not_fit_are_refused(run: RunConfig, tree: Any) -> None:
    with pytest.raises(InputError) as refused:
        read_space(tree, run, Path("space.yaml"))
    assert refused.value.path == Path("space.yaml")


@pytest.mark.slow
def test_a_killed_search_continues_to_the_same_result(run: RunConfig, tmp_path: Path) -> None:
    """SIGKILL in the middle of the second trial, after its first checkpoint; test is never scored."""
    run.training.epochs, run.data.limit = 2, 24
    space = choices([0.1], [0.02, 0.1])
    second = run.output / "trials" / "0001" / "seed-3"

    def search() -> None:
        die_after_checkpoint_in(second)
        tune(run, space)

    assert run_forked(search, tmp_path / "log") == -signal.SIGKILL, (tmp_path / "log").read_text()
    assert not (second / "metrics.json").exists()
    first = run.output / "trials" / "0000" / "seed-3" / "metrics.json"
    before = first.stat().st_mtime_ns
    cut = tune(run, space)
    assert first.stat().st_mtime_ns == before
    assert "test" not in json.loads(first.read_text())
    run.output = tmp_path / "whole"
    whole = tune(run, space)
    for one, other in zip(cut.trials, whole.trials, strict=True):
        assert (one.params, one.value, one.intermediate_values) == (
            other.params,
            other.value,
            other.intermediate_values,
        )
    trained = train(RunConfig.read(run.output / "best.yaml"))
    assert trained.metrics["dev_at_0.5"]["macro"]["f1"] == whole.best_value
