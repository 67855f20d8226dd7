"""Searching for settings: every point once, the same search after a kill, dev only, and what it leaves behind."""

from __future__ import annotations

import csv
import itertools
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import optuna
import pytest
import yaml
from typer.testing import CliRunner

from hgclr.cli.app import app
from hgclr.errors import HGCLRError, InputError
from hgclr.training import RunConfig, train
from hgclr.tuning import search as searching
from hgclr.tuning import trials
from hgclr.tuning.search import tune
from hgclr.tuning.space import Search, grid, with_parameters
from support.crash_points import run_forked
from support.short_run import die_after_checkpoint_in

WEIGHT, GAMMA = "model.contrastive_weight", "model.keep_threshold"


@pytest.fixture(autouse=True)
def _quiet() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)


@pytest.fixture
def run(make_encoder, toy_data: Path, tmp_path: Path) -> RunConfig:
    return RunConfig.model_validate(
        {
            "data": {"path": toy_data},
            "model": {"encoder": make_encoder("bert"), "preset": "published", "label_heads": 4},
            "training": {"epochs": 1, "learning_rate": 3e-3, "precision": "fp32", "seed": 3},
            "output": tmp_path / "search",
        }
    )


class Stub:
    """Stands for training: counts its calls, follows a given curve of dev scores, leaves what training leaves."""

    def __init__(self, score: Callable[[RunConfig], float], epochs: int = 1) -> None:
        self.score, self.epochs = score, epochs
        self.runs: list[RunConfig] = []

    def __call__(self, run: RunConfig, *, resume: bool, callbacks: Any, on_documents: Any, score_test: bool) -> None:
        assert resume
        assert not score_test
        assert not list(run.output.parent.glob("*/model"))  # models of earlier seeds take room
        self.runs.append(run)
        for name in ("checkpoints/checkpoint-1", "model", "training-model"):
            (run.output / name).mkdir(parents=True, exist_ok=True)
        final = self.score(run)

        class State:
            epoch = 0.0

        for epoch in range(1, self.epochs + 1):
            State.epoch = float(epoch)
            value = final * epoch / self.epochs
            for callback in callbacks:
                callback.on_evaluate(None, State, None, metrics={"eval_macro_f1": value, "eval_micro_f1": value})
        dev = {"macro": {"f1": final}, "micro": {"f1": final / 2}}
        metrics = {"dev": dev, "history": [{}] * self.epochs, "seconds": 1.0}
        (run.output / "metrics.json").write_text(json.dumps(metrics))


def weight_score(run: RunConfig) -> float:
    """A score with its top at lambda 0.1 that also moves with gamma and the seed."""
    settings = run.model.overrides
    gamma = settings.get("keep_threshold", 0.0)
    return 0.5 - abs(settings["contrastive_weight"] - 0.1) - gamma + 0.01 * run.training.seed


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Stub:
    stub = Stub(weight_score)
    monkeypatch.setattr(trials, "train", stub)
    return stub


@pytest.fixture
def no_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plots take longer than everything else here."""
    monkeypatch.setattr(searching, "draw_plots", lambda *_: ([], []))


def points(result: Any) -> list[tuple[float, ...]]:
    return sorted(tuple(trial.params.values()) for trial in result.best)


@pytest.mark.usefixtures("no_plots")
def test_a_grid_is_gone_through_once_in_one_sitting_or_in_several(run: RunConfig, stub: Stub) -> None:
    search = grid(run, lambdas=[0.05, 0.1, 0.3], gammas=[0.001, 0.02])
    for sitting in (2, 3):
        assert len(tune(run, search, trials=sitting).best) == sitting
    result = tune(run, search)
    every = sorted(itertools.product([0.05, 0.1, 0.3], [0.001, 0.02]))
    assert points(result) == every
    trained = [(r.model.overrides["contrastive_weight"], r.model.overrides["keep_threshold"]) for r in stub.runs]
    assert sorted(trained) == every
    assert points(tune(run, search)) == every
    assert len(stub.runs) == 6
    assert result.best[0].params == {WEIGHT: 0.1, GAMMA: 0.001}
    assert result.best[0].value == pytest.approx(0.5 - 0.001 + 0.03)


SPACE = Search(
    {
        WEIGHT: optuna.distributions.FloatDistribution(0.003, 1.0, log=True),
        "model.keep_at_least": optuna.distributions.IntDistribution(0, 24, step=4),
        "model.positives": optuna.distributions.CategoricalDistribution(["hierarchy", "dropout"]),
    }
)


@pytest.mark.usefixtures("no_plots")
def test_optuna_chooses_the_same_trials_in_one_sitting_and_in_two(run: RunConfig, stub: Stub) -> None:
    """Twelve trials: ten drawn at random, two by what the others have scored."""
    whole = tune(run, SPACE, trials=12)
    run.output = run.output.parent / "again"
    tune(run, SPACE, trials=4)
    pieces = tune(run, SPACE, trials=12)
    assert [trial.params for trial in whole.best] == [trial.params for trial in pieces.best]
    assert len({tuple(trial.params.values()) for trial in whole.best}) == len(whole.best)
    assert len(stub.runs) == 24
    for trial in whole.best:
        assert 0.003 <= trial.params[WEIGHT] <= 1
        assert trial.params["model.keep_at_least"] in range(0, 25, 4)


@pytest.mark.usefixtures("no_plots")
def test_an_interrupted_trial_is_taken_up_with_its_settings_and_its_finished_seeds(
    run: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Stub(weight_score)

    def train_until_the_fourth_run(*arguments: Any, **options: Any) -> None:
        broken(*arguments, **options)
        if len(broken.runs) == 4:  # the second seed of the second trial; its scores are not written
            (broken.runs[-1].output / "metrics.json").unlink()
            raise KeyboardInterrupt

    monkeypatch.setattr(trials, "train", train_until_the_fourth_run)
    with pytest.raises(KeyboardInterrupt):
        tune(run, SPACE, trials=3, seeds=[1, 2])
    assert len(json.loads((run.output / "tuning.json").read_text())["trials"]) == 1
    stub = Stub(weight_score)
    monkeypatch.setattr(trials, "train", stub)
    result = tune(run, SPACE, trials=3, seeds=[1, 2])
    assert [r.training.seed for r in stub.runs] == [2, 1, 2]
    assert stub.runs[0] == broken.runs[3]
    assert len(result.best) == 3
    report = json.loads((run.output / "tuning.json").read_text())
    assert [entry["sittings"] for entry in report["trials"]] == [1, 2, 1]
    assert [entry["state"] for entry in report["trials"]] == ["done"] * 3


@pytest.mark.usefixtures("no_plots")
def test_a_value_is_the_mean_over_the_seeds(run: RunConfig, stub: Stub) -> None:
    search = grid(run, lambdas=[0.1], gammas=[0.001])
    (trial,) = tune(run, search, seeds=[1, 2, 6]).best
    assert trial.value == pytest.approx(0.5 - 0.001 + 0.03)
    (entry,) = json.loads((run.output / "tuning.json").read_text())["trials"]
    assert [r["seed"] for r in entry["runs"]] == [1, 2, 6]
    assert entry["macro_f1"] == pytest.approx(0.529)
    assert entry["micro_f1"] == pytest.approx(0.529 / 2)


@pytest.mark.usefixtures("no_plots")
def test_the_other_score_can_be_raised(run: RunConfig, stub: Stub) -> None:
    (trial,) = tune(run, grid(run, lambdas=[0.1], gammas=[0.001]), metric="micro_f1").best
    assert trial.value == pytest.approx((0.5 - 0.001 + 0.03) / 2)


@pytest.mark.usefixtures("no_plots")
@pytest.mark.parametrize("with_grid", [False, True])
def test_bad_trials_are_given_up_early_but_no_point_of_a_grid(
    run: RunConfig, monkeypatch: pytest.MonkeyPatch, with_grid: bool
) -> None:
    """The first five get better and better, the sixth is worse than their median at every epoch."""
    scores = iter([0.5, 0.6, 0.7, 0.8, 0.9, 0.1])
    stub = Stub(lambda _: next(scores), epochs=6)
    monkeypatch.setattr(trials, "train", stub)
    search = grid(run, lambdas=[0.1, 0.2, 0.3], gammas=[0.01, 0.02]) if with_grid else SPACE
    result = tune(run, search, trials=6)
    last = json.loads((run.output / "tuning.json").read_text())["trials"][-1]
    assert last["state"] == ("done" if with_grid else "given up")
    assert last["value"] == (0.1 if with_grid else None)
    assert len(last["epochs"]) == (6 if with_grid else 3)
    assert result.unscored == (0 if with_grid else 1)
    assert [trial.value for trial in result.best][:5] == [0.9, 0.8, 0.7, 0.6, 0.5]
    assert not list(run.output.glob("trials/*/*/checkpoints"))


@pytest.mark.usefixtures("no_plots")
def test_settings_that_cannot_be_trained_are_a_finding(run: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    def score(settings: RunConfig) -> float:
        if settings.model.overrides["contrastive_weight"] > 0.2:
            raise HGCLRError("the loss is nan at step 7")
        return 0.5

    monkeypatch.setattr(trials, "train", Stub(score))
    result = tune(run, grid(run, lambdas=[0.1, 0.3], gammas=[0.02]))
    assert points(result) == [(0.1, 0.02)]
    states = {t["state"]: t.get("reason") for t in json.loads((run.output / "tuning.json").read_text())["trials"]}
    assert states == {"done": None, "failed": "the loss is nan at step 7"}
    run.output = run.output.parent / "other"
    with pytest.raises(HGCLRError, match="no trial of 1 was trained to its end: the loss is nan at step 7"):
        tune(run, grid(run, lambdas=[0.3], gammas=[0.02]))


def test_bad_data_stops_the_search(run: RunConfig, tmp_path: Path) -> None:
    run.data.path = tmp_path / "nowhere"
    with pytest.raises(InputError, match="nowhere"):
        tune(run, grid(run))


@pytest.mark.usefixtures("no_plots")
def test_another_search_in_the_same_folder_is_refused(run: RunConfig, stub: Stub) -> None:
    search = grid(run, lambdas=[0.1], gammas=[0.02])
    tune(run, search)
    other = run.model_copy(deep=True)
    other.training.epochs = 7
    with pytest.raises(InputError, match=r"holds another search: settings\.training\.epochs was 1 there and is 7 now"):
        tune(other, search)
    with pytest.raises(InputError, match=r"space\.model\.keep_threshold was \[0\.02\] there and is \[0\.03\] now"):
        tune(run, grid(run, lambdas=[0.1], gammas=[0.03]))
    with pytest.raises(InputError, match=r"seeds was \[3\] there and is \[1, 2\] now; give another --output"):
        tune(run, search, seeds=[1, 2])
    with pytest.raises(InputError, match="metric was 'macro_f1' there and is 'micro_f1' now"):
        tune(run, search, metric="micro_f1")
    assert len(stub.runs) == 1


@pytest.mark.usefixtures("no_plots")
def test_runs_without_their_journal_are_not_taken_for_ours(run: RunConfig, stub: Stub) -> None:
    search = grid(run, lambdas=[0.1], gammas=[0.02])
    tune(run, search)
    (run.output / "study.journal").unlink()
    with pytest.raises(InputError, match=r"holds trials but no study\.journal; give another --output"):
        tune(run, search)


def test_two_processes_do_not_search_in_one_folder(run: RunConfig, stub: Stub, monkeypatch) -> None:
    def tune_within(_: RunConfig) -> float:
        tune(run, grid(run))
        raise AssertionError

    stub.score = tune_within
    with pytest.raises(InputError, match=r"process \d+ on .* has been tuning here since .*; wait, or give"):
        tune(run, grid(run))


def test_a_study_is_opened_where_the_system_has_no_fcntl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    windows, held = ModuleType("msvcrt"), set()

    def locking(descriptor: int, mode: int, length: int) -> None:
        place = os.fstat(descriptor).st_ino, os.lseek(descriptor, 0, os.SEEK_CUR)
        if place in held:
            raise PermissionError
        held.add(place)

    windows.LK_NBLCK, windows.locking = 2, locking
    monkeypatch.setitem(sys.modules, "fcntl", None)  # as outside Unix
    monkeypatch.setitem(sys.modules, "msvcrt", windows)
    with trials.open_study(tmp_path, {"a": 1}, pruning=False) as study:
        study.set_user_attr("opened", True)
        with (
            pytest.raises(InputError, match="has been tuning here since"),
            trials.open_study(tmp_path, {"a": 1}, pruning=False),
        ):
            pass
    held.clear()  # as when a descriptor is closed
    with trials.open_study(tmp_path, {"a": 1}, pruning=False) as study:
        assert study.user_attrs["opened"]


@pytest.mark.usefixtures("no_plots")
@pytest.mark.parametrize("torn", [b'{"op_co', b'{"op_code": 4, "worker_id": "x"'])
def test_a_torn_journal_and_a_lock_left_behind_do_not_hold_a_search_up(run: RunConfig, stub: Stub, torn: bytes) -> None:
    search = grid(run, lambdas=[0.1, 0.2], gammas=[0.02])
    tune(run, search, trials=1)
    with (run.output / "study.journal").open("ab") as file:
        file.write(torn)
    (run.output / "study.journal.lock").symlink_to("study.journal")
    started = time.monotonic()
    assert points(tune(run, search)) == [(0.1, 0.02), (0.2, 0.02)]
    assert time.monotonic() - started < 20  # Optuna would wait for half a minute


@pytest.mark.parametrize("seeds", [[], [1, 1], [-1]])
def test_bad_seeds_are_refused(run: RunConfig, seeds: list[int]) -> None:
    with pytest.raises(InputError, match="seed"):
        tune(run, grid(run), seeds=seeds)


@pytest.mark.slow
def test_the_files(run: RunConfig, stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one test with the heat map's values because plots take long to draw."""
    monkeypatch.setattr(sys, "argv", ["/usr/bin/hgclr", "tune", "/a/b/c.yaml", "--set", "data.path=/d/e", "--grid"])
    result = tune(run, grid(run, lambdas=[0.3, 0.1], gammas=[0.02, 0.01]))
    with (run.output / "trials.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["trial", "state", "macro_f1", WEIGHT, GAMMA, "seconds"]
    for row in rows:
        expected = 0.53 - abs(float(row[WEIGHT]) - 0.1) - float(row[GAMMA])
        assert float(row["macro_f1"]) == pytest.approx(expected)
    report = json.loads((run.output / "tuning.json").read_text())
    assert report["command"] == "hgclr tune c.yaml --set data.path=e --grid"
    assert report["settings"]["data"]["path"] == run.data.path.name
    assert str(run.output.parent) not in json.dumps(report)
    assert {"commit", "packages", "processor"} <= set(report["machine"])
    assert report["optuna"] == optuna.__version__
    assert report["best"]["parameters"] == {WEIGHT: 0.1, GAMMA: 0.01}
    kinds = ("history", "parallel-coordinates", "slices", "importances", "contour", "grid")
    for name, suffix in itertools.product(kinds, ("png", "svg")):
        assert (run.output / "plots" / f"{name}.{suffix}").stat().st_size > 1000
    assert result.notes == []
    assert set(result.files) == {
        path
        for path in run.output.rglob("*")
        if path.is_file() and path.name not in ("metrics.json", "study.journal", "study.lock")
    }
    picture = (run.output / "plots" / "grid.svg").read_text()
    written = [picture.index(f"<!-- {text} -->") for text in ("52.00", "51.00", "32.00", "31.00")]
    assert written == sorted(written)  # row by row from the lowest lambda, in each from the lowest gamma


def test_a_plot_that_cannot_be_drawn_is_a_note(run: RunConfig, stub: Stub) -> None:
    space = Search({WEIGHT: SPACE.space[WEIGHT]})
    notes = tune(run, space, trials=2).notes
    assert "no plot of parallel coordinates: one setting was searched" in notes
    assert not (run.output / "plots" / "contour.png").exists()
    assert (run.output / "plots" / "history.png").exists()


def test_keeping_by_share_takes_the_threshold_away(run: RunConfig) -> None:
    by_threshold = with_parameters(run, {GAMMA: 0.02})
    by_share = with_parameters(by_threshold, {"model.keep_fraction": 0.5})
    assert by_share.model.overrides == {"label_heads": 4, "keep_fraction": 0.5}
    assert with_parameters(by_share, {GAMMA: 0.02}).model.overrides == {"label_heads": 4, "keep_threshold": 0.02}


@pytest.mark.slow
@pytest.mark.usefixtures("no_plots")
def test_trials_are_scored_on_dev_only_and_the_best_config_trains(run: RunConfig, monkeypatch) -> None:
    """Real training: no number about test in what a search leaves, and none of its models."""
    from hgclr.training import core, trainer

    scored: list[int] = []
    score, score_at_the_end = trainer.StreamingScores.__call__, core.final_scores

    def counting(self: Any, batch: Any, compute_result: bool) -> dict[str, float]:
        scored.append(len(batch.predictions))
        return score(self, batch, compute_result)

    def counting_at_the_end(model: Any, tokens: Any, *others: Any) -> Any:
        scored.append(len(tokens))
        return score_at_the_end(model, tokens, *others)

    monkeypatch.setattr(trainer.StreamingScores, "__call__", counting)
    monkeypatch.setattr(core, "final_scores", counting_at_the_end)
    run.data.dev_limit, run.data.test_limit = 20, 23
    result = tune(run, grid(run, lambdas=[0.1], gammas=[0.02, 0.1]))
    assert scored == [20] * 4  # after the epoch, and the best epoch again
    folders = sorted((run.output / "trials").glob("*/*"))
    assert [str(path.relative_to(run.output)) for path in folders] == ["trials/0000/seed-3", "trials/0001/seed-3"]
    for folder in folders:
        assert {"metrics.json", "config.yaml"} <= {path.name for path in folder.iterdir()}
        assert not [path for path in folder.iterdir() if path.is_dir() or path.stat().st_size > 20_000]
        metrics = json.loads((folder / "metrics.json").read_text())
        assert "test" not in metrics
        assert metrics["dev"]["documents"] == 20
    best = RunConfig.read(result.config)
    assert best.output == run.output / "best"
    assert best.model.overrides == {"label_heads": 4, "contrastive_weight": 0.1, "keep_threshold": best_gamma(result)}
    assert yaml.safe_load(result.config.read_text())["training"] == run.training.model_dump(exclude_unset=True)
    trained = train(best)
    assert trained.metrics["dev"]["macro"]["f1"] == result.best[0].value
    assert trained.metrics["test"]["documents"] == 23


def best_gamma(result: Any) -> float:
    return float(result.best[0].params[GAMMA])


@pytest.mark.slow
@pytest.mark.usefixtures("no_plots")
def test_a_killed_search_goes_on_to_the_same_result(run: RunConfig, tmp_path: Path) -> None:
    """SIGKILL in the middle of the second trial, after its first checkpoint; then the same command again."""
    run.training.epochs, run.data.limit = 2, 24
    config = tmp_path / "run.yaml"
    run.write(config)
    options = ["--grid", "--lambdas", ".1", "--gammas", ".02,.1"]
    command = ["tune", str(config), "--output", str(tmp_path / "cut"), *options]
    second = tmp_path / "cut" / "trials" / "0001" / "seed-3"

    def search() -> None:
        die_after_checkpoint_in(second)
        app(command, prog_name="hgclr")

    assert run_forked(search, tmp_path / "log") == -signal.SIGKILL, (tmp_path / "log").read_text()
    assert not (second / "metrics.json").exists()
    first = tmp_path / "cut" / "trials" / "0000" / "seed-3" / "metrics.json"
    before = first.stat().st_mtime_ns
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert "trial 1 of 2" not in done.stderr
    assert first.stat().st_mtime_ns == before
    assert "epoch  1" not in done.stderr  # it went on from its checkpoint
    cut = json.loads((tmp_path / "cut" / "tuning.json").read_text())
    assert [trial["sittings"] for trial in cut["trials"]] == [1, 2]

    run.output = tmp_path / "whole"
    tune(RunConfig.read(config, output=run.output), grid(run, lambdas=[0.1], gammas=[0.02, 0.1]))
    expected = json.loads((tmp_path / "whole" / "tuning.json").read_text())
    for one, other in zip(cut["trials"], expected["trials"], strict=True):
        for name in ("parameters", "value", "epochs"):
            assert one[name] == other[name]
