"""``hgclr data stats``: what it prints, writes and refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hgclr.cli.app import app


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    path.mkdir()
    (path / "taxonomy.tsv").write_text("Root\tA\tB\nA\tA1\n")
    rows = {
        "train": [("one two", ["A", "A1"]), ("three", ["A", "B"]), ("four five six", ["B"])],
        "test": [("seven", ["A"])],
    }
    for name, documents in rows.items():
        lines = [json.dumps({"text": text, "labels": labels}) + "\n" for text, labels in documents]
        (path / f"{name}.jsonl").write_text("".join(lines))
    return path


def run(*arguments: object, columns: int = 200):
    return CliRunner(env={"COLUMNS": str(columns)}).invoke(app, ["data", "stats", *map(str, arguments)])


def line(output: str, start: str) -> list[str]:
    """Return the cells of the only line that starts so."""
    (found,) = (line.split() for line in output.splitlines() if line.split()[:1] == [start])
    return found


def test_the_papers_row_comes_first(folder: Path) -> None:
    result = run(folder)
    assert result.exit_code == 0, result.output
    head, _, row = (text.split() for text in result.stdout.splitlines()[:3])
    assert head == ["|Y|", "Depth", "Avg(|y|)", "Train", "Dev", "Test"]
    assert row == ["data", "3", "2", "1.50", "3", "—", "1"]  # (2 + 2 + 1 + 1) labels in 4 documents


def test_splits_levels_and_facts(folder: Path) -> None:
    output = run(folder).stdout
    assert line(output, "train") == ["train", "1.67", "1.33", "3", "2.0", "2", "3", "3"]
    assert line(output, "1") == ["1", "2", "1", "2", "4", "2", "2", "2"]
    assert line(output, "2") == ["2", "1", "1", "1", "1", "1", "1", "1"]
    assert "75.0 % of documents have one, 25.0 % several (up to 2)" in output
    assert "50.0 % of documents have a path that ends above a leaf" in output
    assert "3 with fewer than 5 documents in train, 3 with fewer than 10" in output
    # train: A 2, A1 1, B 2 of 5; test: A 1 of 1
    assert "test 0.600" in output


def test_output_fits_80_columns(folder: Path) -> None:
    assert max(map(len, run(folder, columns=80).stdout.splitlines())) <= 80


def test_tokens_of_an_encoder(folder: Path, make_encoder: Callable[[str], str]) -> None:
    result = run(folder, "--encoder", make_encoder("bert"), "--max-length", 4)
    assert result.exit_code == 0, result.output
    assert "cut at 4" in result.stdout
    # every word is unknown to the tiny encoder, so one token; two special tokens: 4, 3 and 5 of them
    (train,) = (text.split() for text in result.stdout.splitlines() if text.startswith("train") and "%" in text)
    assert train == ["train", "4.0", "4", "5", "5", "33.3", "%", "0.0", "%"]


@pytest.mark.slow
def test_files(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = run(folder, "--json", out / "x.json", "--plots", out / "plots", "--output", out / "report")
    assert result.exit_code == 0, result.output
    assert json.loads((out / "x.json").read_text())["table1"]["labels"] == 3
    assert len(list((out / "plots").iterdir())) == 4
    assert (out / "report" / "report.html").read_text().startswith("<!DOCTYPE html>")
    assert json.loads((out / "report" / "stats.json").read_text()) == json.loads((out / "x.json").read_text())
    assert not (out / "report" / "check.json").exists()
    assert f"written: {out / 'plots' / 'text-length.png'}" in result.stdout
    assert f"written: {out / 'report' / 'report.html'}" in result.stdout


def test_reading_options(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("body,tags\nx y,A/A1|B\nz,A1\n")
    (tmp_path / "elsewhere.tsv").write_text("Root\tA\tB\nA\tA1\n")
    options = ["--text-column", "body", "--label-column", "tags", "--label-separator", "|", "--path-separator", "/"]
    result = run(tmp_path, *options, "--taxonomy", tmp_path / "elsewhere.tsv", "--add-ancestors")
    assert result.exit_code == 0, result.output
    assert line(result.stdout, "train")[1] == "2.50"


def test_refusals(folder: Path, tmp_path: Path) -> None:
    result = run(folder, "--max-length", 9)
    assert (result.exit_code, result.stderr) == (
        2,
        "error: --max-length counts the tokens of an encoder; add --encoder NAME\n",
    )
    (tmp_path / "file").touch()
    for option in ("--plots", "--output"):
        result = run(folder, option, tmp_path / "file")
        assert result.exit_code == 2
        assert "the output is a file; give a folder" in result.stderr
    with (folder / "test.jsonl").open("a") as file:
        file.write("{\n")
    result = run(folder)
    assert result.exit_code == 2
    assert "test.jsonl:2: broken JSON" in result.stderr
    assert run(folder, "--skip-bad-rows").exit_code == 0


def test_many_levels_are_cut(tmp_path: Path) -> None:
    names = [f"n{number}" for number in range(30)]
    (tmp_path / "taxonomy.txt").write_text(" > ".join(names) + "\n")
    (tmp_path / "train.jsonl").write_text(json.dumps({"text": "x", "labels": [" > ".join(names)]}) + "\n")
    output = run(tmp_path).stdout
    assert "and 10 more levels: --json FILE writes all of them" in output
    assert line(output, "20")[0] == "20"
