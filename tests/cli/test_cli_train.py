"""``hgclr train``, ``settings``, ``tune`` and ``quickstart``: what they print, write and refuse."""

from __future__ import annotations

import inspect
import json
import re
import sys
from pathlib import Path
from typing import get_args

import pytest
from typer.testing import CliRunner

import hgclr.training
from hgclr.cli import train as cli
from hgclr.cli.app import app
from hgclr.config import PRESETS, method_fields
from hgclr.data.folder import CorpusSummary
from hgclr.errors import InputError
from hgclr.training.settings import COMMON, DataSettings, LoraSettings, ModelSettings, RunConfig, TrainingSettings
from support.short_runs import make_run


def run(*arguments: object, columns: int = 200):
    return CliRunner(env={"COLUMNS": str(columns)}).invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def config(make_encoder, toy_data: Path, tmp_path: Path) -> Path:
    path = tmp_path / "my run.yaml"
    make_run(make_encoder("bert"), toy_data, tmp_path / "run", model__max_length=8).write(path)
    return path


def test_a_run_is_trained_once(config: Path, toy_data: Path) -> None:
    done = run("train", config, columns=80)
    assert done.exit_code == 0, done.output
    assert "train 24, dev 24, test 2" in done.stderr
    epochs = [line.split("dev")[0].split() for line in done.stderr.splitlines() if line.startswith("epoch ")]
    assert epochs == [["epoch", str(n)] for n in (1, 2, 3)]
    model = config.parent / "run" / "model"
    assert [line.split()[1:3] for line in done.stdout.splitlines()[-3:]] == [
        [command, str(model)] for command in ("evaluate", "predict", "serve")
    ]
    assert run("train", config).exit_code == 2  # there is a finished run
    resumed = run("train", config, "--resume", columns=80)
    assert resumed.exit_code == 0
    assert resumed.stdout == done.stdout
    other = run("train", config, "--resume", "--set", "training.seed=5")
    assert other.exit_code == 2
    assert "training.seed" in other.stderr


def test_the_preset_hgclr_trains_hgclr_and_shows_its_loss_terms(make_encoder, toy_data: Path, tmp_path: Path) -> None:
    given = {"model.encoder": make_encoder("bert"), "data.limit": 24, "training.epochs": 2, "training.batch_size": 12}
    chosen = [word for name, value in given.items() for word in ("--set", f"{name}={value}")]
    done = run("train", toy_data, "--preset", "hgclr", *chosen, "--output", tmp_path / "run", columns=80)
    assert done.exit_code == 0, done.output
    history = json.loads((tmp_path / "run" / "metrics.json").read_text("utf-8"))["history"]
    shown = [line for line in done.stderr.splitlines() if line.startswith("  loss: ")]
    assert len(shown) == len(history) == 2
    for line, epoch in zip(shown, history, strict=True):
        assert len(line) <= 80
        terms = [f"{epoch[f'loss_{name}']:.3g}" for name in ("original", "positive", "contrastive")]
        assert re.findall(r"\w+ ([\d.e+-]+)(?:,|;)", line) == terms
        assert line.endswith(f" {epoch['kept']:.0%}")
    assert "preset: hgclr" in (tmp_path / "run" / "config.yaml").read_text("utf-8")


def test_the_effort_is_an_option(toy_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    annotation = inspect.signature(cli.train, eval_str=True).parameters["effort"].annotation
    assert set(get_args(get_args(get_args(annotation)[0])[0])) == set(
        get_args(TrainingSettings.model_fields["effort"].annotation)
    )
    both = run("train", toy_data, "--effort", "head", "--set", "training.effort=full", "--output", tmp_path / "run")
    assert both.exit_code == 2
    assert not (tmp_path / "run").exists()
    efforts: list[str] = []

    def stop(run_: RunConfig) -> None:
        efforts.append(run_.training.effort)
        raise InputError("stopped")

    monkeypatch.setattr("hgclr.training.run_checks.check_run", stop)
    assert run("train", toy_data, "--effort", "head", "--output", tmp_path / "run").exit_code == 2
    assert efforts == ["head"]


def test_presets_on_the_command_line_are_those_of_the_settings(toy_data: Path, tmp_path: Path) -> None:
    annotation = inspect.signature(cli.train, eval_str=True).parameters["preset"].annotation
    assert get_args(get_args(get_args(annotation)[0])[0]) == tuple(PRESETS)
    assert get_args(ModelSettings.model_fields["preset"].annotation) == tuple(PRESETS)
    both = run("train", toy_data, "--preset", "hgclr", "--set", "model.preset=paper", "--output", tmp_path / "run")
    assert both.exit_code == 2
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("given", [[], ["--resume"]])
def test_a_stopped_run_names_the_command_to_continue(
    config: Path, monkeypatch: pytest.MonkeyPatch, given: list[str]
) -> None:
    checkpoint = config.parent / "run" / "checkpoints" / "checkpoint-2"

    def stop(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    def stop_later(*args: object, **kwargs: object) -> None:
        checkpoint.mkdir(parents=True)
        raise KeyboardInterrupt

    monkeypatch.setattr(sys, "argv", ["/bin/hgclr", "train", str(config), *given])
    for train, named in ((stop, False), (stop_later, True)):
        monkeypatch.setattr(hgclr.training, "train", train)
        done = run("train", config, *given)
        assert done.exit_code == 130
        assert (f"hgclr train '{config}' --resume" in done.stderr) == named


def test_training_on_nothing_is_refused() -> None:
    assert run("train").exit_code == 2


# settings


def test_every_setting_has_a_meaning(tmp_path: Path) -> None:
    result = run("settings", "--all", "--json", tmp_path / "settings.json")
    assert result.exit_code == 0, result.output
    listed = {setting["name"]: setting for setting in json.loads((tmp_path / "settings.json").read_text("utf-8"))}
    sections = {"data": DataSettings, "model": ModelSettings, "training": TrainingSettings}
    sections["model.lora"] = LoraSettings
    known = {f"{name}.{key}" for name, section in sections.items() for key in section.model_fields}
    assert set(listed) == known | {f"model.{name}" for name in method_fields()}
    assert all(len(setting["meaning"]) > 10 for setting in listed.values())
    assert listed["training.effort"]["kind"] == "names | head | full"
    assert (listed["training.patience"]["default"], listed["data.path"]["required"]) == (6, True)
    assert (listed["model.lora"]["default"], listed["model.lora.rank"]["default"]) == (None, 16)
    assert listed["model.classification_loss"]["presets"] == {"paper": "sum", "published": "mean"}
    for name in listed:
        assert name in result.stdout
    short = run("settings").stdout
    assert sum(f"{name}  " in short for name in listed) == len(COMMON)


# tune


def test_a_search_leaves_a_study_and_the_best_settings(make_encoder, toy_data: Path, tmp_path: Path) -> None:
    config, output, space = tmp_path / "toy.yaml", tmp_path / "search", tmp_path / "space.yaml"
    config.write_text(
        f"data:\n  path: {toy_data}\n  limit: 24\n  dev_limit: 12\n"
        f"model:\n  encoder: {make_encoder('bert')}\ntraining:\n  effort: head\n"
    )
    space.write_text("model.pooling: {choices: [cls, mean]}\n")
    result = run("tune", config, "--space", space, "--output", output, "--seeds", "1,2")
    assert result.exit_code == 0, result.output
    assert (output / "study.db").is_file()
    assert (output / "best.yaml").is_file()
    assert len(list(output.glob("trials/*/*/metrics.json"))) == 4


@pytest.mark.parametrize(
    "options", [[], ["--trials", 3, "--seeds", "1.5"], ["--trials", 3, "--space", "x.yaml"]], ids=str
)
def test_bad_options_of_a_search_are_refused(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[object]
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("tune", config, *options)
    assert result.exit_code == 2
    assert isinstance(result.exception, SystemExit)
    assert not (tmp_path / "runs").exists()


# quickstart


@pytest.mark.parametrize(("options", "levels"), [([], 2), (["--categories"], 3)])
def test_quickstart_builds_these_levels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], levels: int
) -> None:
    asked = []

    def build(output: Path, **choices: object) -> None:
        asked.append((output, choices["levels"]))
        raise InputError("enough")

    monkeypatch.setattr("hgclr.data.icd10cm.build_icd10cm", build)
    monkeypatch.setattr("hgclr.encoders.cached_encoder", lambda _: tmp_path)
    assert run("quickstart", "--output", tmp_path, *options).exit_code == 2
    assert asked == [(tmp_path / "icd10cm", levels)]


def test_quickstart_trains_four_models_and_shows_positive_samples(
    make_encoder, toy_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hgclr.data.icd10cm.build_icd10cm", lambda *_, **__: CorpusSummary(toy_data))
    monkeypatch.setattr("hgclr.encoders.cached_encoder", lambda _: Path(make_encoder("bert")))
    done = run("quickstart", "--output", tmp_path / "out", "--epochs", 1, columns=80)
    assert done.exit_code == 0, done.output
    scores = json.loads((tmp_path / "out" / "scores.json").read_text("utf-8"))
    assert list(scores) == ["names", "head", "full", "hgclr"]
    assert [scores[name]["run"]["model"]["architecture"] for name in scores] == ["flat", "flat", "flat", "hgclr"]
    for name, metrics in scores.items():
        (row,) = (line for line in done.stdout.splitlines() if line.startswith(f"{name} "))
        assert row.split()[-1] == f"{100 * metrics['test']['macro']['f1']:.1f}"
    assert done.stdout.count("in brackets") == len(cli.NOTES)  # nothing is kept whole
