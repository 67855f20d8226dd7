from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hgclr.cli.app import app

pytest.importorskip("iterstrat")


def run(*arguments: object):
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, ["data", *map(str, arguments)])


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "taxonomy.tsv").write_text("Root\tA\tB\nA\tA1\n")
    rows = [{"body": f"text {number}", "labels": "A;A1" if number % 2 else "B"} for number in range(40)]
    path = tmp_path / "mine.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_split_prints_a_table(source: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    out = tmp_path / "out"
    options = ("--text-column", "body")
    result = run("split", source, "--output", out, *options, "--dev", 0.1, "--test", 0.2, "--seed", 1, "--json", report)
    assert result.exit_code == 0
    assert result.stderr == ""
    lines = [line.split() for line in result.stdout.splitlines()]
    assert lines[0] == ["3", "labels"]
    assert ["train", "28", "70.0%", "0", "0.000%"] in lines
    assert ["dev", "4", "10.0%", "0", "0.000%"] in lines
    assert ["test", "8", "20.0%", "0", "0.000%"] in lines
    assert result.stdout.splitlines()[-1] == f"wrote {out}: train 28, dev 4, test 8"
    assert json.loads(report.read_text())["documents"] == {"train": 28, "dev": 4, "test": 8}
    assert json.loads((out / "corpus.json").read_text())["settings"]["seed"] == 1
    assert run("check", out, *options).exit_code == 0


def test_a_kept_split_is_said_to_be_one(source: Path, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (tmp_path / "taxonomy.tsv").rename(folder / "taxonomy.tsv")
    source.rename(folder / "train.jsonl")
    (folder / "test.jsonl").write_text('{"body": "text 3", "labels": ["A"]}\n')
    options = ("--output", tmp_path / "out", "--text-column", "body", "--no-stratify", "--test", 0)
    result = run("split", folder, *options)
    assert result.exit_code == 0
    assert ["test", "1", "2.4%", "as", "it", "was", "as", "it", "was"] in [
        x.split() for x in result.stdout.splitlines()
    ]
    assert "warning: 1 text of the split that was kept is also in the others" in result.stdout


def test_bad_rows_may_be_left_out(source: Path, tmp_path: Path) -> None:
    with source.open("a") as file:
        file.write("{\n")
    options = ("--output", tmp_path / "out", "--text-column", "body")
    result = run("split", source, *options)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: {source}:41: broken JSON")
    assert len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()
    result = run("split", source, *options, "--skip-bad-rows")
    assert result.exit_code == 0
    assert result.stderr == f"left out 1 document: bad row; see {tmp_path / 'out' / 'left-out.jsonl'}\n"


def test_errors_are_one_line(source: Path, tmp_path: Path) -> None:
    result = run("split", source, "--output", tmp_path / "out")
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: {source}:1: missing column 'text'")
    assert run("split", source, "--output", tmp_path / "out", "--dev", 1.5).exit_code == 2
