"""``hgclr settings`` lists what a run can be told, and ``hgclr train`` is told so without a file."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from hgclr.cli.app import app
from hgclr.config import method_fields
from hgclr.training.settings import COMMON, DataSettings, LoraSettings, ModelSettings, RunConfig, TrainingSettings


def run(*arguments: object):
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, [str(argument) for argument in arguments])


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
    assert listed["model.lora.targets"]["kind"] == "auto or list of text"
    assert listed["model.classification_loss"]["presets"] == {"paper": "sum", "published": "mean"}
    for name in listed:
        assert name in result.stdout
    short = run("settings").stdout
    assert sum(f"{name}  " in short for name in listed) == len(COMMON)
    assert set(COMMON) <= set(listed)


def test_words_choose() -> None:
    lines = run("settings", "training.epochs").stdout.splitlines()
    assert lines[0].split() == ["training.epochs", "whole", "number", "≥", "1"]
    result = run("settings", "epohs")
    assert (result.exit_code, "did you mean 'epochs'?" in result.stderr) == (2, True)


def test_a_data_folder_takes_the_place_of_a_file(tmp_path: Path) -> None:
    folder = tmp_path / "my-data"
    folder.mkdir()
    made = RunConfig.read(folder, ["training.seed=3", "model.pooling=mean"])
    assert (made.data.path, made.output) == (folder, Path("runs/my-data"))
    assert (made.training.seed, made.model.overrides) == (3, {"pooling": "mean"})
    assert RunConfig.read(folder, output=tmp_path / "here").output == tmp_path / "here"


def test_training_on_nothing_says_what_to_do() -> None:
    result = run("train")
    assert result.exit_code == 2
    assert "hgclr data import" in result.stderr
