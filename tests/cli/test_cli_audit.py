"""``hgclr audit``: a trained model finds planted errors; what is printed, written and refused."""

from __future__ import annotations

import csv
import gzip
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from hgclr.cli.app import app

PLANTED = (2, 9, 16)


def run(*arguments: object, columns: int = 80):
    return CliRunner(env={"COLUMNS": str(columns)}).invoke(app, ["audit", *map(str, arguments)])


@pytest.fixture(scope="module")
def config(make_encoder, toy_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("config") / "toy.yaml"
    file.write_text(
        f"data:\n  path: {toy_data}\n"
        f"model:\n  encoder: {make_encoder('bert')}\n  architecture: flat\n"
        "training:\n  epochs: 30\n  patience: 30\n  learning_rate: 1.0e-2\n  precision: fp32\n  seed: 5\n"
    )
    return file


@pytest.fixture(scope="module")
def model(config: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from hgclr.training import RunConfig, train
    from support.short_runs import StopWhenLearned

    run = RunConfig.read(config, output=tmp_path_factory.mktemp("model") / "run")
    return train(run, callbacks=[StopWhenLearned()]).model


@pytest.fixture(scope="module")
def flipped(toy_data: Path, taxonomy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The toy data, of whose 24 dev documents three have the labels of another topic."""
    folder = shutil.copytree(toy_data, tmp_path_factory.mktemp("flipped") / "data")
    with gzip.open(folder / "dev.jsonl.gz", "rt") as file:
        rows = [json.loads(line) for line in file]
    random = np.random.default_rng(0)
    for row in PLANTED:
        free = [label for label in taxonomy.leaves.tolist() if taxonomy.ids[label] not in rows[row - 1]["labels"]]
        rows[row - 1]["labels"] = [taxonomy.ids[label] for label in taxonomy.path(int(random.choice(free)))]
    (folder / "dev.jsonl.gz").unlink()
    (folder / "dev.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.mark.slow
def test_planted_errors_are_found(model: Path, toy_data: Path, flipped: Path, tmp_path: Path) -> None:
    """Of the three first at most as many are something else as the model has errors of its own on clean data."""
    clean = run(model, toy_data, "--json", tmp_path / "clean.json")
    assert clean.exit_code == 0, clean.output
    own = json.loads((tmp_path / "clean.json").read_text())["contradicted"]
    assert own < 3  # else the next says nothing
    result = run(model, flipped, "--top", 3, "--output", tmp_path / "out", "--csv", tmp_path / "x.csv")
    assert result.exit_code == 0, result.output
    found = json.loads((tmp_path / "out" / "audit.json").read_text())
    assert len(set(PLANTED) & {finding["row"] for finding in found["findings"]}) >= 3 - own
    assert 3 <= found["contradicted"] <= 3 + own
    with (tmp_path / "x.csv").open(encoding="utf-8-sig", newline="") as file:
        assert [int(row["row"]) for row in csv.DictReader(file)] == [one["row"] for one in found["findings"]]
    assert (tmp_path / "out" / "audit.csv").read_bytes() == (tmp_path / "x.csv").read_bytes()
    assert (tmp_path / "out" / "audit.html").read_text().startswith("<!DOCTYPE html>")
    assert "written:" in result.stdout


@pytest.mark.slow
def test_the_terminal_shows_both_paths_in_80_columns(model: Path, flipped: Path) -> None:
    result = run(model, flipped)
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert re.match(r"\d+ of 24 documents \(\d+\.\d %\) are contradicted: ", lines[0])
    rows = [line.split()[0] for line in lines if re.match(r" *\d+ +\d\.\d\d ", line)]
    assert set(map(str, PLANTED)) <= set(rows)
    assert any(" − s" in line for line in lines)  # science or society, given
    assert any(" + s" in line for line in lines)


@pytest.mark.slow
def test_folds_audit_train(config: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    arguments = ("--folds", 2, "--config", config, "--output", output, "--set", "training.epochs=1")
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    assert "of 96 documents" in result.stdout
    assert "fold 2 of 2" in result.stderr
    assert {path.name for path in output.iterdir()} == {"audit.csv", "audit.html", "audit.json", "folds"}
    again = run(*arguments)
    assert again.stdout == result.stdout
    assert "fold 1 of 2" not in again.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["model"],
        ["model", "data", "--set", "training.seed=1"],
        ["--folds", "2"],
        ["model", "data", "--folds", "2"],
        ["--folds", "2", "--config", "x.yaml", "--text-column", "body"],
        ["--folds", "2", "--config", "x.yaml", "--split", "dev"],
        ["--folds", "2", "--config", "x.yaml"],
        ["nowhere", "data"],
        ["model", "data", "--output", "file"],
    ],
)
def test_refusals(arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    result = run(*arguments, columns=200)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert "Traceback" not in result.output


@pytest.mark.slow
def test_bad_rows_are_refused_or_left_out(model: Path, toy_data: Path, tmp_path: Path) -> None:
    data = shutil.copytree(toy_data, tmp_path / "data")
    with gzip.open(data / "dev.jsonl.gz", "at", encoding="utf-8") as file:
        file.write('{"text": "atom", "labels": ["nonsense"]}\n')
    result = run(model, data, columns=300)
    assert result.exit_code == 2
    assert "dev.jsonl.gz:25: " in result.stderr
    assert "nonsense" in result.stderr
    result = run(model, data, "--skip-bad-rows")
    assert result.exit_code == 0, result.output
    assert "of 24 documents" in result.stdout
