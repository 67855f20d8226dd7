"""``hgclr tune`` from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from hgclr.cli.app import app


def run(*arguments: object):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def config(make_encoder, toy_data: Path, tmp_path: Path) -> Path:
    path = tmp_path / "toy.yaml"
    path.write_text(
        f"data:\n  path: {toy_data}\n  limit: 24\n  dev_limit: 12\n"
        f"model:\n  encoder: {make_encoder('bert')}\ntraining:\n  effort: head\n"
    )
    return path


def test_a_search_leaves_a_study_and_the_best_settings(config: Path, tmp_path: Path) -> None:
    output, space = tmp_path / "search", tmp_path / "space.yaml"
    space.write_text("model.pooling: {choices: [cls, mean]}\n")
    result = run("tune", config, "--space", space, "--output", output, "--seeds", "1,2")
    assert result.exit_code == 0, result.output
    assert f"hgclr train {output / 'best.yaml'}" in " ".join(result.stdout.split())
    assert (output / "study.db").is_file()
    assert (output / "best.yaml").is_file()
    assert len(list(output.glob("trials/*/*/metrics.json"))) == 4


@pytest.mark.parametrize(
    "options", [[], ["--trials", 3, "--seeds", "1.5"], ["--trials", 3, "--space", "x.yaml"]], ids=str
)
def test_bad_options_are_refused(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[object]
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("tune", config, *options)
    assert result.exit_code == 2
    assert "Traceback" not in result.output
    assert not (tmp_path / "runs").exists()
