"""Outputs that cannot be written: one line and exit code 2 in every command; inputs without a document likewise."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hgclr.cli.app import app
from support.bulk_cases import PARENTS, path_to, write_model

ROWS = [{"text": f"{word} {number}", "labels": path_to(label)} for number in range(8) for word, label in
        (("atom", "physics"), ("judge", "courts"), ("experiment", "science"))]  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, data, a tree, settings, and a file where the outputs would need a folder."""
    folder = tmp_path_factory.mktemp("place")
    write_model(folder / "model")
    (folder / "data").mkdir()
    tree = {"science": {"physics": {}}, "law": {"courts": {}}}
    assert {name for top in tree for name in (top, *tree[top])} == set(PARENTS)
    for name in ("data/taxonomy.json", "old.json", "new.json"):
        (folder / name).write_text(json.dumps(tree), encoding="utf-8")
    for split in ("train", "dev", "test"):
        lines = "".join(json.dumps(row) + "\n" for row in ROWS)
        (folder / "data" / f"{split}.jsonl").write_text(lines, encoding="utf-8")
    (folder / "run.yaml").write_text("data:\n  path: data\nmodel:\n  encoder: nowhere\n", encoding="utf-8")
    (folder / "file").touch()
    return folder


def run(place: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str):
    monkeypatch.chdir(place)
    return CliRunner().invoke(app, list(arguments))


FAST = [
    "train run.yaml --output file/out",
    "audit model data --output file/out",
    "evaluate model data --json file/out.json",
    "predict model atom --output file/out.csv",
    "predict model --input data/test.jsonl --output file/out/",
    "export model --to onnx --output file/out",
    "taxonomy convert old.json file/new.csv",
    "taxonomy diff old.json new.json --json file/out.json",
    "data check data --json file/out.json",
]
SLOW = [
    "tune run.yaml --trials 1 --set model.architecture=hgclr --output file/out",
    "quickstart --output file/out",
    "reproduce systems --data data --encoder nowhere --output file/out",
    "reproduce figure3 --model model --data data --output file/out",
    "calibrate model data --folds 2 --config run.yaml --output file/out",
    "audit model data --json file/out.json",
    "audit model data --csv file/out.csv",
    "audit --folds 2 --config run.yaml --output file/out",
    "evaluate model data --output file/out",
    "explain model atom --json file/out.json",
    "data check data --bad-rows file/out.jsonl",
    "data import data/train.jsonl --taxonomy old.json --output file/out",
    "data stats data --json file/out.json",
    "data stats data --output file/out",
]


@pytest.mark.parametrize("command", [*FAST, *(pytest.param(command, marks=pytest.mark.slow) for command in SLOW)])
def test_an_output_that_cannot_be_written_is_one_line(
    command: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = run(place, monkeypatch, *command.split())
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit), result.exception
    errors = [line for line in result.stderr.splitlines() if line.startswith("error:")]
    assert len(errors) == 1, result.stderr
    assert "file" in errors[0]
    assert any(word in errors[0] for word in ("cannot be written", "Not a directory"))
    assert (place / "file").read_bytes() == b""


@pytest.mark.parametrize("command", ["evaluate model empty", "calibrate model empty"])
def test_a_split_without_a_document_is_no_success(command: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "empty").mkdir(exist_ok=True)
    for split in ("dev", "test"):
        (place / "empty" / f"{split}.jsonl").touch()
    result = run(place, monkeypatch, *command.split())
    assert result.exit_code == 2, result.output
    assert "empty split: no rows" in result.stderr
    assert not (place / "model" / "decisions.json").exists()
