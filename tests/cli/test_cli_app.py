"""The command line as a person meets it: help, errors, pipes, and the way from training to prediction."""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hgclr.cli.app import app
from support.bulk_cases import write_model


def run(*arguments: object, text: str | None = None):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=text)


@pytest.fixture(scope="module")
def trained(make_encoder, toy_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output folder of one `hgclr train`."""
    folder = tmp_path_factory.mktemp("cli")
    config = folder / "toy.yaml"
    config.write_text(
        f"data:\n  path: {toy_data}\n"
        f"model:\n  encoder: {make_encoder('bert')}\n"
        "training:\n  epochs: 8\n  learning_rate: 1.0e-2\n  precision: fp32\n"
    )
    result = run("train", config, "--output", folder / "run", "--set", "training.seed=5")
    assert result.exit_code == 0, result.output
    assert "Micro-F1" in result.stdout
    return folder / "run"


@pytest.mark.slow
def test_train_evaluate_and_predict_agree(trained: Path, toy_data: Path, tmp_path: Path) -> None:
    metrics = json.loads((trained / "metrics.json").read_text())
    result = run("evaluate", trained / "model", toy_data, "--json", tmp_path / "scores.json")
    assert result.exit_code == 0, result.output
    report = json.loads((tmp_path / "scores.json").read_text())
    assert report["scores"] == {name: value for name, value in metrics["test"].items() if name != "by_frequency"}
    assert f"{100 * metrics['test']['micro']['f1']:.2f}" in result.stdout
    assert (report["split"], report["decisions"]["rule"]) == ("test", metrics["tuned"]["rule"])
    (trained / "model" / "decisions.json").rename(tmp_path / "decisions.json")
    plain = run("evaluate", trained / "model", toy_data, "--json", tmp_path / "scores.json")
    (tmp_path / "decisions.json").rename(trained / "model" / "decisions.json")
    assert plain.exit_code == 0, plain.output
    report = json.loads((tmp_path / "scores.json").read_text())
    assert report["scores"] == {name: value for name, value in metrics["test_at_0.5"].items() if name != "by_frequency"}
    assert (report["decisions"]["thresholds"], report["decisions"]["rule"]) == (0.5, "threshold")
    assert report["machine"]["packages"]["torch"]


def test_predict_writes_json_lines_in_a_pipe(trained: Path) -> None:
    result = run("predict", trained / "model", "--rule", "closure", text="the lens of a prism mirror\n\njudge\n")
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row["text"] for row in rows] == ["the lens of a prism mirror", "", "judge"]
    assert [label["id"] for label in rows[0]["predictions"]] == ["science", "physics", "optics"]
    assert rows[0]["predictions"][2]["path"] == ["science", "physics", "optics"]
    assert 0.5 < rows[0]["predictions"][0]["probability"] <= 1


def test_predict_shows_a_tree(trained: Path) -> None:
    result = run("predict", trained / "model", "the lens of a prism mirror", "--show", "tree")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0] == "the lens of a prism mirror"
    assert [line.rpartition(" ")[2] for line in lines[1:4]] == ["science", "physics", "optics"]
    assert "█" in lines[1]


def test_predict_keeps_the_other_columns_of_its_input(trained: Path, tmp_path: Path) -> None:
    source, output = tmp_path / "in.jsonl.gz", tmp_path / "out.jsonl"
    with gzip.open(source, "wt") as file:
        for number in range(5):
            file.write(json.dumps({"id": number, "body": "a judge of the court"}) + "\n")
    result = run("predict", trained / "model", "--input", source, "--text-column", "body", "--output", output)
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert [row["id"] for row in rows] == list(range(5))
    assert {label["id"] for label in rows[0]["predictions"]} == {"society", "law"}


def test_a_bad_row_leaves_no_half_written_output(trained: Path, tmp_path: Path) -> None:
    source, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text('{"text": "atom"}\n{"text": 3}\n')
    result = run("predict", trained / "model", "--input", source, "--output", output)
    assert result.exit_code == 2
    assert "in.jsonl:2" in result.stderr
    assert list(tmp_path.iterdir()) == [source]


@pytest.mark.slow
def test_a_reader_that_leaves_is_no_error(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model")  # whose process need not import torch
    command = f"yes 'the lens' | head -n 20000 | '{sys.executable}' -m hgclr predict {model} | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=600, check=False)
    assert json.loads(done.stdout)["text"] == "the lens"
    assert "Traceback" not in done.stderr
    assert "Broken" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "nowhere.yaml"], "nowhere.yaml: no such file or folder"),
        (["evaluate", "nowhere", "nowhere"], "no model could be loaded from nowhere"),
        (["predict", "nowhere", "text"], "no model could be loaded from nowhere"),
        (["predict", "nowhere", "text", "--input", "x"], "texts are given both as arguments and by --input"),
        (["taxonomy", "check", "nowhere"], "nowhere"),
        (["data", "check", "nowhere"], "nowhere: no such data folder"),
        (["encoders", "get", "no-such"], "no-such"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments: list[str], message: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(*arguments)
    assert result.exit_code == 2
    assert "error: " in result.stderr
    assert message in " ".join(result.stderr.split())
    assert "Traceback" not in result.output
    assert result.stdout == ""


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        *([name] for name in ("train", "tune", "evaluate", "predict", "quickstart", "import-published", "doctor")),
        *(["reproduce", name] for name in ("table2", "table3", "table4", "table5", "systems", "curves")),
        *(["reproduce", name] for name in ("figure3", "figure5")),
        ["data", "check"],
    ],
)
def test_every_command_explains_itself(arguments: list[str]) -> None:
    result = run(*arguments, "--help")
    assert result.exit_code == 0
    assert "Usage:" in result.stdout


@pytest.mark.slow
def test_help_is_instant_and_loads_nothing_heavy(in_time) -> None:
    code = (
        "import sys\n"
        "from hgclr.cli.app import app\n"
        "app(['--help'], standalone_mode=False)\n"
        "print('HEAVY', [m for m in ('torch', 'transformers', 'datasets', 'numpy', 'yaml') if m in sys.modules])"
    )
    for _ in range(3):  # one run may be slow because files are read for the first time
        before = os.times()
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        after = os.times()  # CPU time, not the wall clock: other tests run beside this one
        assert done.stdout.splitlines()[-1] == "HEAVY []"
        seconds = after.children_user + after.children_system - before.children_user - before.children_system
        if in_time(seconds, 0.5):
            break
    else:
        pytest.fail(f"help takes {seconds:.2f} s")


def test_a_missing_extra_is_one_line_with_the_pip_command(
    toy_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A finder that hides torch stands for an installation without the train extra."""
    real = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name, package=None: None if name == "torch" else real(name, package)
    )
    monkeypatch.chdir(tmp_path)
    (model := tmp_path / "model").mkdir()
    for command in (["train", "x.yaml"], ["predict", model, "text"], ["evaluate", model, toy_data], ["quickstart"]):
        result = run(*command)
        assert result.exit_code == 2, result.output
        (line,) = result.stderr.splitlines()
        assert "pip install 'hgclr[train]'" in line


@pytest.mark.parametrize(
    "command", ["settings training", "data check {}", "data stats {}", "taxonomy diff {0}/taxonomy.tsv {0}", "doctor"]
)
def test_a_dash_as_the_file_of_json_is_standard_output(
    command: str, toy_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hgclr.cli.machine.examine", lambda _: [])
    words = command.format(toy_data).split()
    to_file, printed = run(*words, "--json", tmp_path / "file.json"), run(*words, "--json", "-")
    assert to_file.exit_code == printed.exit_code == 0, printed.output
    assert printed.stdout == (tmp_path / "file.json").read_text(encoding="utf-8")


def test_the_version_is_the_packages() -> None:
    from importlib.metadata import version

    assert run("--version").stdout == f"hgclr {version('hgclr')}\n"


@pytest.mark.parametrize("command", [("train",), ("predict",), ("evaluate",), ("taxonomy",), ("data", "check")])
def test_help_shows_no_markup_and_no_type_of_a_flag(command: tuple[str, ...]) -> None:
    result = CliRunner(env={"COLUMNS": "80"}).invoke(app, [*command, "--help"])
    assert result.exit_code == 0
    assert "<bool>" not in result.output
    assert "**" not in result.output
    assert "``" not in result.output
