"""What is in an output folder, and what may go on there: the same run, with the same documents, by one process."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import TrainerCallback

from hgclr.errors import InputError
from hgclr.training import train
from support.short_runs import make_run


class StopAfterSaving(TrainerCallback):
    def __init__(self, step: int) -> None:
        self.step = step

    def on_save(self, args, state, control, **kwargs) -> None:
        if state.global_step == self.step:
            raise KeyboardInterrupt


@pytest.fixture(scope="module")
def encoder(make_encoder) -> str:
    return make_encoder("bert")


@pytest.fixture(scope="module")
def finished(encoder: str, toy_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("finished") / "run"
    history = train(make_run(encoder, toy_data, output)).metrics["history"]
    assert max(history, key=lambda epoch: epoch["macro_f1"])["epoch"] == 2
    return output


@pytest.fixture(scope="module")
def stopped(encoder: str, toy_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with all its checkpoints, killed before it saved its model."""
    output = tmp_path_factory.mktemp("stopped") / "run"
    with pytest.raises(KeyboardInterrupt):
        train(make_run(encoder, toy_data, output), callbacks=[StopAfterSaving(6)])
    return output


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


OTHER = {"training__seed": 4, "model__max_length": 9, "data__limit": 20}


@pytest.mark.slow
@pytest.mark.parametrize("changed", OTHER)
@pytest.mark.parametrize("state", ["stopped", "finished"])
def test_other_settings_are_refused_with_the_first_difference(
    encoder: str, toy_data: Path, request: pytest.FixtureRequest, state: str, changed: str
) -> None:
    output = request.getfixturevalue(state)
    before = files(output)
    with pytest.raises(InputError, match=rf"{changed.replace('__', '.')} .* {OTHER[changed]}"):
        train(make_run(encoder, toy_data, output, **{changed: OTHER[changed]}), resume=True)
    assert files(output) == before


@pytest.mark.slow
def test_other_documents_are_refused(encoder: str, toy_data: Path, stopped: Path, tmp_path: Path) -> None:
    data, output = shutil.copytree(toy_data, tmp_path / "data"), shutil.copytree(stopped, tmp_path / "run")
    same = make_run(encoder, data, output)
    same.write(output / "config.yaml")
    with gzip.open(data / "dev.jsonl.gz", "rt") as file:
        lines = file.read().splitlines()
    rows = [json.loads(line) for line in lines]
    rows[0]["text"] = "a"
    (data / "dev.jsonl.gz").unlink()
    (data / "dev.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(InputError, match=r"dev.* 24 .*24"):
        train(same, resume=True)
    (data / "dev.jsonl").write_text("\n".join(lines[:-1]))
    with pytest.raises(InputError, match=r"dev.* 24 .*23"):
        train(same, resume=True)
    assert not (output / "model").exists()


@pytest.mark.slow
def test_a_run_that_was_moved_ends_with_its_best_epoch(
    encoder: str, toy_data: Path, stopped: Path, finished: Path, tmp_path: Path
) -> None:
    """The Trainer records the path of the best checkpoint, and continues without it if the path is wrong."""
    moved = shutil.copytree(stopped, tmp_path / "elsewhere")
    away = stopped.with_name("away")
    stopped.rename(away)
    try:
        result = train(make_run(encoder, toy_data, moved), resume=True)
    finally:
        away.rename(stopped)
    found, expected = (load_file(folder / "model.safetensors") for folder in (result.model, finished / "model"))
    last = load_file(moved / "checkpoints" / "checkpoint-6" / "model.safetensors")
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert not torch.equal(found["classifier.weight"], last["classifier.weight"])


@pytest.mark.slow
def test_a_finished_run_is_returned_as_it_is(encoder: str, toy_data: Path, finished: Path, tmp_path: Path) -> None:
    output = shutil.copytree(finished, tmp_path / "run")
    shutil.rmtree(output / "checkpoints")  # to save space
    before = files(output)
    result = train(make_run(encoder, toy_data, output), resume=True)
    assert result.metrics == json.loads((finished / "metrics.json").read_text())
    assert files(output) == before


@pytest.mark.slow
def test_a_model_without_checkpoints_is_not_replaced(encoder: str, toy_data: Path, finished: Path, tmp_path: Path):
    output = tmp_path / "run"
    shutil.copytree(finished / "model", output / "model")
    with pytest.raises(InputError, match=r"config\.yaml"):
        train(make_run(encoder, toy_data, output), resume=True)
    shutil.copy(finished / "config.yaml", output)
    with pytest.raises(InputError, match="checkpoint"):
        train(make_run(encoder, toy_data, output), resume=True)


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_a_run_that_was_stopped_within_an_epoch_ends_with_the_same_weights(
    encoder: str, toy_data: Path, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    monkeypatch.setattr("hgclr.training.checkpoints.SECONDS_BETWEEN", 0)
    run = make_run(encoder, toy_data, tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        train(run, callbacks=[StopAfterSaving(step)])
    result = train(run, resume=True)
    found, expected = (load_file(folder / "model.safetensors") for folder in (result.model, finished / "model"))
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    scores = [epoch["macro_f1"] for epoch in json.loads((finished / "metrics.json").read_text())["history"]]
    assert [epoch["macro_f1"] for epoch in result.metrics["history"]] == scores


@pytest.mark.slow
def test_checkpoints_are_written_by_the_clock_within_an_epoch_and_not_before_its_evaluation(
    encoder: str, toy_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Saved(TrainerCallback):
        def __init__(self) -> None:
            self.steps: list[tuple[int, int]] = []

        def on_save(self, args, state, control, **kwargs) -> None:
            self.steps.append((state.global_step, sum("eval_loss" in entry for entry in state.log_history)))

    due, saved = Saved(), Saved()
    with monkeypatch.context() as patch:
        patch.setattr("hgclr.training.checkpoints.SECONDS_BETWEEN", 0)
        train(make_run(encoder, toy_data, tmp_path / "due", training__epochs=2), callbacks=[due])
    assert due.steps == [(1, 0), (2, 1), (3, 1), (4, 2)]
    train(make_run(encoder, toy_data, tmp_path / "run", training__epochs=2), callbacks=[saved])
    assert saved.steps == [(2, 1), (4, 2)]


@pytest.mark.slow
def test_without_a_whole_checkpoint_training_starts_with_a_warning(
    encoder: str, toy_data: Path, finished: Path, stopped: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    output = shutil.copytree(stopped, tmp_path / "run")
    for checkpoint in (output / "checkpoints").iterdir():
        (checkpoint / "optimizer.pt").unlink()
    result = train(make_run(encoder, toy_data, output), resume=True)
    assert "checkpoint-6" in caplog.text
    assert "optimizer.pt" in caplog.text
    assert "is complete" in caplog.text
    found, expected = (load_file(folder / "model.safetensors") for folder in (result.model, finished / "model"))
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_two_trainings_in_one_folder_are_one_too_many(encoder: str, toy_data: Path, tmp_path: Path) -> None:
    run = make_run(encoder, toy_data, tmp_path / "run", training__epochs=1)

    class Second(TrainerCallback):
        def on_train_begin(self, args, state, control, **kwargs) -> None:
            for resume in (False, True):
                with pytest.raises(InputError, match=r"process \d+ on .* has been training here since .*; wait until"):
                    train(run, resume=resume)

    train(run, callbacks=[Second()])
    assert not list((tmp_path / "run").glob(".*.lock"))
