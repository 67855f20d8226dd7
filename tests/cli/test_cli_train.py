"""What hgclr train says: before, meanwhile, at the end, when it is stopped, and when it is started again."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import hgclr.training
from hgclr.cli.app import app
from support.short_runs import make_run


@pytest.fixture
def config(make_encoder, toy_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COLUMNS", "80")
    path = tmp_path / "my run.yaml"
    make_run(make_encoder("bert"), toy_data, tmp_path / "run", model__max_length=8).write(path)
    return path


def test_it_says_what_it_does_and_what_comes_next(config: Path, toy_data: Path) -> None:
    output = config.parent / "run"
    done = CliRunner().invoke(app, ["train", str(config), "--resume"])
    assert done.exit_code == 0, done.output
    said = done.stderr.splitlines()
    assert said[0] == f"nothing to resume in {output}: training starts from the beginning"
    assert said[1:3] == [
        "flat: 9 labels on 3 levels; documents: train 24, dev 24, test 2",
        "effort full: up to 3 epochs of 2 steps of 12 documents",
    ]
    assert said[3] == "rate 0.05, of the head 0.5; fp32 on cpu"
    assert said[4].startswith("texts are cut at 8 tokens: ")
    assert max(map(len, said[1:5])) <= 80
    assert [line.split("dev")[0].split() for line in said[5:]] == [["flat", "epoch", str(n)] for n in (1, 2, 3)]
    model = output / "model"
    assert done.stdout.splitlines()[-5:] == [
        f"model: {model}",
        "next:",
        f"  hgclr evaluate {model} {toy_data}",
        f"  hgclr predict {model} 'your text'",
        f"  hgclr serve {model}",
    ]

    again = CliRunner().invoke(app, ["train", str(config)])
    assert again.exit_code == 2
    assert f"error: {output}: holds a finished run" in again.stderr
    assert again.stderr.count("\n") == 1
    resumed = CliRunner().invoke(app, ["train", str(config), "--resume"])
    assert resumed.exit_code == 0
    assert resumed.stderr == f"nothing to resume in {output}: this run is finished\n"
    assert resumed.stdout == done.stdout
    other = CliRunner().invoke(app, ["train", str(config), "--resume", "--set", "training.seed=5"])
    assert other.exit_code == 2
    assert "holds a run with other settings: training.seed is 1 there and 5 here" in other.stderr
    assert other.stderr.count("\n") == 1


def test_the_share_of_texts_that_are_cut(make_encoder, toy_data: Path, tmp_path: Path) -> None:
    """Against a second way to count: every word of these texts is one token, and there are two special ones."""
    from hgclr.data.folder import DataFolder

    run = make_run(make_encoder("bert"), toy_data, tmp_path / "run", model__max_length=10, training__effort="head")
    run.data.limit = None
    plans = []
    hgclr.training.train(run, on_start=plans.append)
    lengths = [len(document.text.split()) + 2 for document in DataFolder(toy_data).documents("train")]
    assert plans[0].cut == sum(length >= 10 for length in lengths) / len(lengths)
    assert 0 < plans[0].cut < 1
    assert (plans[0].effort, plans[0].recipe, plans[0].max_length) == ("head", None, 10)


@pytest.mark.parametrize("given", [[], ["--resume"]])
def test_a_run_that_is_stopped_says_how_to_go_on(
    config: Path, monkeypatch: pytest.MonkeyPatch, given: list[str]
) -> None:
    checkpoint = config.parent / "run" / "checkpoints" / "checkpoint-2"

    def stop(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    def stop_later(*args: object, **kwargs: object) -> None:
        checkpoint.mkdir(parents=True)
        raise KeyboardInterrupt

    monkeypatch.setattr(sys, "argv", ["/bin/hgclr", "train", str(config), *given])
    for train, said in (
        (stop, "stopped before the first checkpoint: nothing is kept"),
        (stop_later, f"stopped; continue with: hgclr train '{config}' --resume"),
    ):
        monkeypatch.setattr(hgclr.training, "train", train)
        done = CliRunner().invoke(app, ["train", str(config), *given])
        assert done.exit_code == 130
        assert done.stderr.splitlines()[-1] == said
