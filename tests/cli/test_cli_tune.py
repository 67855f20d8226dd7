"""``hgclr tune`` as a person meets it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hgclr.cli.app import app
from hgclr.training import RunConfig


def run(*arguments: object):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def config(make_encoder, toy_data: Path, tmp_path: Path) -> Path:
    path = tmp_path / "toy.yaml"
    path.write_text(
        f"data:\n  path: {toy_data}\n  limit: 24\n  dev_limit: 12\n  test_limit: 12\n"
        f"model:\n  encoder: {make_encoder('bert')}\n  architecture: hgclr\n"
        "training:\n  epochs: 1\n  learning_rate: 3.0e-3\n  precision: fp32\n"
    )
    return path


@pytest.mark.slow
def test_a_grid_from_start_to_the_trained_best(config: Path, tmp_path: Path) -> None:
    output = tmp_path / "search"
    options = ["--grid", "--lambdas", ".1", "--fractions", ".5,1", "--output", output, "--set", "training.seed=5"]
    result = run("tune", config, *options)
    assert result.exit_code == 0, result.output
    report = json.loads((output / "tuning.json").read_text())
    assert {trial["parameters"]["model.keep_fraction"] for trial in report["trials"]} == {0.5, 1.0}
    assert report["seeds"] == [5]
    assert "trial 1 of 2\n" in result.stderr
    first = report["trials"][0]["value"]
    fraction = report["trials"][0]["parameters"]["model.keep_fraction"]
    assert f"trial 2 of 2, best so far {100 * first:.1f} (lambda 0.1, keep fraction {fraction:.3g})" in result.stderr
    assert f"{100 * report['best']['value']:.2f}" in result.stdout
    assert str(output / "plots" / "grid.png") in result.stdout
    assert f"hgclr train {output / 'best.yaml'}" in result.stdout
    trained = run("train", output / "best.yaml")
    assert trained.exit_code == 0, trained.output
    metrics = json.loads((output / "best" / "metrics.json").read_text())
    assert metrics["dev"]["macro"]["f1"] == report["best"]["value"]

    again = run("tune", config, *options)
    assert again.exit_code == 0, again.output
    assert "trial" not in again.stderr


@pytest.mark.slow
def test_trials_over_a_space_with_several_seeds(config: Path, tmp_path: Path) -> None:
    space = tmp_path / "space.yaml"
    space.write_text("model.contrastive_weight: {low: 0.01, high: 1, log: true}\n")
    result = run(
        *("tune", config, "--trials", 1, "--space", space, "--seeds", "1,2", "--metric", "micro_f1"),
        *("--output", tmp_path / "search"),
    )
    assert result.exit_code == 0, result.output
    (trial,) = json.loads((tmp_path / "search" / "tuning.json").read_text())["trials"]
    assert [one["seed"] for one in trial["runs"]] == [1, 2]
    assert trial["value"] == pytest.approx(sum(one["micro_f1"] for one in trial["runs"]) / 2)
    assert "no plot of" in result.stdout


def test_what_cuts_the_trials_is_not_in_the_best(config: Path, tmp_path: Path) -> None:
    limits = "limit: 24\n  dev_limit: 12\n  test_limit: 12\n"
    config.write_text(config.read_text().replace("epochs: 1", "epochs: 30").replace(limits, "limit: 40\n"))
    cuts = {"data.limit": 7, "data.dev_limit": 5, "data.test_limit": 3, "training.epochs": 1, "training.batch_size": 4}
    options = [part for name, value in cuts.items() for part in ("--set", f"{name}={value}")]
    result = run("tune", config, "--grid", "--lambdas", ".1", "--fractions", ".5", "--output", tmp_path / "s", *options)
    assert result.exit_code == 0, result.output
    settings = json.loads((tmp_path / "s" / "tuning.json").read_text())["settings"]
    assert (settings["data"]["limit"], settings["training"]["epochs"]) == (7, 1)
    best = RunConfig.read(tmp_path / "s" / "best.yaml")
    assert (best.data.limit, best.data.dev_limit, best.data.test_limit) == (40, None, None)
    assert (best.training.epochs, best.training.batch_size) == (30, 4)
    assert best.model.overrides["keep_fraction"] == 0.5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            [],
            "nothing says how to search; give --grid for lambda and gamma or --trials N for Optuna's choice",
        ),
        (["--grid", "--trials", 3], "--grid and --trials are both given"),
        (["--trials", 3, "--gammas", ".1"], "--gammas belongs to a grid"),
        (["--grid", "--space", "x.yaml"], "--space belongs to --trials"),
        (["--grid", "--lambdas", "a,b"], "--lambdas 'a,b' is no list of numbers; write for example --lambdas .05,.1"),
        (["--grid", "--seeds", "1.5"], "--seeds '1.5' is no list of whole numbers; write for example --seeds 1,2"),
        (["--grid", "--seeds", "1,1"], "the seeds are [1, 1]; give each seed once"),
        (["--trials", 3, "--space", "x.yaml"], "x.yaml: no such file or folder"),
        (["--grid", "--set", "model.architecture=flat"], "'flat' has neither lambda nor gamma"),
    ],
)
def test_bad_options_are_one_line_and_exit_code_2(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[object], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("tune", config, *options)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
    assert "Traceback" not in result.output
    assert not (tmp_path / "runs").exists()


def test_help_explains_itself() -> None:
    result = run("tune", "--help")
    assert result.exit_code == 0
    assert "--lambdas" in result.stdout
    assert "best.yaml" in result.stdout
