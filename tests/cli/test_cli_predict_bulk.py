"""``hgclr predict`` in bulk: when it is, what it says, and that a single file is still a single file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hgclr.cli.app import app
from hgclr.cli.predict import is_bulk
from support.bulk_cases import check_lines, expected, read_lines, write_lines, write_model


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(write_model(tmp_path / "model"))


def run(*arguments: str | Path, code: int = 0):
    result = CliRunner().invoke(app, ["predict", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result


def test_a_pattern_goes_into_a_folder(model: str, tmp_path: Path) -> None:
    for part in range(2):
        write_lines(tmp_path / f"part-{part}.jsonl", 10 * part, 10)
    out = tmp_path / "out"
    result = run(model, "--input", tmp_path / "part-*.jsonl", "--output", out)
    assert result.stdout == ""
    assert f"20 rows of 2 files labelled into {out}" in result.stderr
    for part in range(2):
        check_lines(out / f"part-{part}.jsonl", 10 * part, 10)
    again = run(model, "--input", tmp_path / "part-*.jsonl", "--output", out)
    assert "0 rows of 0 files labelled" in again.stderr
    assert "2 files had been finished before" in again.stderr
    run(model, "--input", tmp_path / "part-*.jsonl", "--output", out, "--rule", "closure", code=2)
    run(model, "--input", tmp_path / "part-*.jsonl", "--output", out, "--rule", "closure", "--overwrite")


def test_options_of_deciding_and_writing_arrive(model: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("body,id\natom,1\n", encoding="utf-8")
    options = ["--text-column", "body", "--abstain-below", "0.95", "--format", "jsonl", "--engine", "local"]
    run(model, "--input", tmp_path / "t.csv", "--output", tmp_path / "out", *options)
    (row,) = read_lines(tmp_path / "out" / "t.jsonl")
    assert row == {"body": "atom", "id": "1", "predictions": [], "abstained": expected("atom")}


@pytest.mark.slow
@pytest.mark.parametrize("former", [["--sure", "0.95"], ["--sure=0.95"]])
def test_the_former_name_of_an_option_is_taken_with_a_notice(model: str, former: list[str]) -> None:
    new, old = run(model, "atom", "--abstain-below", "0.95"), run(model, "atom", *former)
    assert old.stdout == new.stdout
    assert new.stderr == ""
    assert old.stderr == "notice: --sure is called --abstain-below now; version 0.3 will refuse the old name\n"
    assert "--sure" not in run("--help").stdout


def test_bad_rows(model: str, tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"text": "atom"}\n{"text": null}\n', encoding="utf-8")
    given = [model, "--input", tmp_path / "t.jsonl", "--output", f"{tmp_path}/out/"]
    failed = run(*given, code=2)
    assert "t.jsonl:2: column 'text': expected a text" in failed.stderr
    run(*given, "--skip-bad-rows", "--overwrite")
    assert [bool(row["predictions"]) for row in read_lines(tmp_path / "out" / "t.jsonl")] == [True, False]


def test_empty_and_blank(model: str, tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("text\n", encoding="utf-8")
    (tmp_path / "t.jsonl").write_text('{"text": "atom"}\n{"text": ""}\n', encoding="utf-8")
    failed = run(model, "--input", tmp_path / "e.csv", "--output", f"{tmp_path}/out/", code=2)
    assert "e.csv: no rows to label" in failed.stderr
    assert not (tmp_path / "out").exists()
    both = ["--input", tmp_path / "e.csv", "--input", tmp_path / "t.jsonl", "--output", tmp_path / "out"]
    assert "1 empty or blank text without a label" in run(model, *both).stderr
    first, second = read_lines(tmp_path / "out" / "t.jsonl")
    assert "note" not in first
    assert second == {"text": "", "predictions": [], "note": "the text is empty or blank"}


def test_one_file_into_one_file_is_as_before(model: str, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "t.jsonl", 0, 10)
    run(model, "--input", source, "--output", tmp_path / "result.jsonl")
    check_lines(tmp_path / "result.jsonl", 0, 10)
    lines = run(model, "--input", source).stdout.splitlines()
    assert [json.loads(line) for line in lines] == read_lines(tmp_path / "result.jsonl")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["text", "--input", "t.jsonl"], "a pattern of several files must be in quotes: --input 'part-*.parquet'"),
        (["--input", "."], "the results of bulk prediction go to a folder; name one with --output"),
        (["--input", "t.jsonl", "--input", "-", "--output", "out"], "standard input is no file"),
        (["--input", "t.jsonl", "--workers", "2"], "--workers is for bulk prediction only; give files as --input"),
        (["text", "--engine", "ray"], "--engine is for bulk prediction only"),
        (["--input", ".", "--output", "o", "--ray-address", "auto"], "--ray-address is for the engine ray"),
        (["--input", ".", "--output", "o", "--show", "tree"], "bulk prediction shows no trees"),
        (["--input", "x*.csv", "--output", "o"], "no file has a name like 'x*.csv'"),
    ],
)
def test_what_does_not_go_together(
    arguments: list[str], message: str, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_lines(tmp_path / "t.jsonl", 0, 1)
    assert message in " ".join(run(model, *arguments, code=2).stderr.split())


def test_when_it_is_bulk(tmp_path: Path) -> None:
    folder, file = str(tmp_path), str(write_lines(tmp_path / "t.jsonl", 0, 1))
    assert is_bulk([file, file], None, None)
    assert is_bulk([folder], None, None)
    assert is_bulk([f"{folder}/*.jsonl"], None, None)
    assert is_bulk([file], folder, None)
    assert is_bulk([file], "new/", None)
    assert is_bulk([file], "new", "local")
    assert not is_bulk([file], "new", None)
    assert not is_bulk([file], None, None)
    assert not is_bulk(["-"], folder, None)
    assert not is_bulk([], None, "local")


@pytest.mark.slow
def test_ray_is_started_where_there_is_none(model: str, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'hgclr[ray]'")
    write_lines(tmp_path / "t.jsonl", 0, 50)
    command = [sys.executable, "-c", "from hgclr.cli.app import app; app()", "predict", model, "--engine", "ray"]
    command += ["--workers", "1", "--input", str(tmp_path / "t.jsonl"), "--output", str(tmp_path / "out")]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    check_lines(tmp_path / "out" / "t.jsonl", 0, 50)
    assert result.stdout == ""
    assert result.stderr.split() == f"50 rows of 1 file labelled into {tmp_path}/out".split()  # and nothing of Ray
