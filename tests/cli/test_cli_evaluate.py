"""``hgclr evaluate --output``: the same table as without it, and a report beside it."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hgclr.cli.app import app


@pytest.fixture(scope="module")
def model(untrained: Callable[..., Path]) -> Path:
    return untrained(threshold=0.4)


def run(*arguments: object):
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, ["evaluate", *map(str, arguments)])


def without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "matplotlib" else find_spec(name, *rest)
    )


@pytest.mark.slow
def test_a_report_is_written_and_the_table_stays(model: Path, toy_data: Path, tmp_path: Path) -> None:
    plain = run(model, toy_data, "--rule", "closure", "--json", tmp_path / "plain.json")
    result = run(
        model, toy_data, "--rule", "closure", "--json", tmp_path / "with.json", "--output", tmp_path / "report"
    )
    assert plain.exit_code == result.exit_code == 0, result.output
    assert result.stdout == f"{plain.stdout}written: {tmp_path / 'report' / 'report.html'}\n"
    assert json.loads((tmp_path / "with.json").read_text()) == json.loads((tmp_path / "plain.json").read_text())
    content = json.loads((tmp_path / "report" / "report.json").read_text(encoding="utf-8"))
    assert content["scores"] == json.loads((tmp_path / "plain.json").read_text())["scores"]
    assert (content["model"], content["split"], content["documents"]) == (str(model), "test", 24)
    assert content["decisions"]["rule"] == "closure"
    assert content["command"].startswith("hgclr")
    assert sum(group["labels"] for group in content["frequency"]) == 9


def test_only_a_report_needs_matplotlib(
    model: Path, toy_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_matplotlib(monkeypatch)
    assert run(model, toy_data, "--split", "dev").exit_code == 0
    result = run(model, toy_data, "--output", tmp_path / "report")
    assert result.exit_code == 2
    assert "[report]" in result.stderr
    assert not (tmp_path / "report").exists()


def test_a_report_cannot_take_the_place_of_a_file(model: Path, toy_data: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    result = run(model, toy_data, "--output", tmp_path / "file")
    assert result.exit_code == 2
    assert str(tmp_path / "file") in result.stderr
    assert (tmp_path / "file").read_text() == "mine"


def test_a_limit_scores_the_same_sample_each_time(model: Path, toy_data: Path, tmp_path: Path) -> None:
    scores = []
    for number in range(2):
        result = run(model, toy_data, "--limit", 5, "--json", tmp_path / f"{number}.json")
        assert result.exit_code == 0, result.output
        assert "5 documents" in result.stdout
        scores.append(json.loads((tmp_path / f"{number}.json").read_text())["scores"])
    assert scores[0] == scores[1]
    assert run(model, toy_data, "--limit", 0).exit_code == 2
