"""``hgclr export`` and what its folder is good for: prediction and evaluation where there is no torch."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from hgclr.cli.app import app
from hgclr.decisions.settings import Decisions
from hgclr.training import RunConfig
from support.without_torch import without_torch

pytestmark = pytest.mark.slow


def run(*arguments: object):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def model(untrained: Callable[..., Path]) -> Path:
    return untrained(threshold=0.4)


@pytest.fixture(scope="module")
def exported(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export") / "onnx"
    result = run("export", model, "--to", "onnx", "--output", folder)
    assert result.exit_code == 0, result.output
    return folder


def test_int8_is_measured_on_dev_of_the_training(model: Path, toy_data: Path, taxonomy, tmp_path: Path) -> None:
    run_folder, data = tmp_path / "run", tmp_path / "data"
    shutil.copytree(toy_data, data)
    (data / "taxonomy.tsv").unlink()
    taxonomy.write(data / "taxonomy.json")  # in the order of the model, as after training
    shutil.copytree(model, run_folder / "model")
    RunConfig.build({"data": {"path": str(data)}, "output": str(run_folder)}).write(run_folder / "config.yaml")
    result = run("export", run_folder / "model", "--to", "onnx-int8", "--output", tmp_path / "int8")
    assert result.exit_code == 0, result.output
    assert f"{data}, dev" in result.stdout
    assert "on 12 documents" in result.stdout
    (run_folder / "config.yaml").unlink()
    assert (
        ", dev" not in run("export", run_folder / "model", "--to", "onnx-int8", "--output", tmp_path / "other").stdout
    )


def test_int8_is_scored_beside_torch(model: Path, toy_data: Path, tmp_path: Path) -> None:
    out = tmp_path / "int8"
    result = run("export", model, "--to", "onnx-int8", "--output", out, "--data", toy_data, "--split", "test")
    assert result.exit_code == 0, result.output
    scores = {}
    for name, folder in (("torch", model), ("onnx-int8", out)):
        assert run("evaluate", folder, toy_data, "--json", tmp_path / "scores.json").exit_code == 0
        scores[name] = json.loads((tmp_path / "scores.json").read_text())["scores"]
        row = "".join(line for line in result.stdout.splitlines() if line.startswith(f"{name} "))
        for part in ("micro", "macro"):
            assert f"{100 * scores[name][part]['f1']:.2f}" in row
    change = 100 * (scores["onnx-int8"]["micro"]["f1"] - scores["torch"]["micro"]["f1"])
    assert f"change: Micro-F1 {change:+.2f}, " in result.stdout


@pytest.fixture(scope="module")
def mean_model(untrained: Callable[..., Path], taxonomy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with mean pooling, and thresholds of its own."""
    folder = Path(
        shutil.copytree(untrained("mpnet", spread=0.5, pooling="mean"), tmp_path_factory.mktemp("export") / "mean")
    )
    Decisions(taxonomy, rule="closure", thresholds=np.linspace(0.2, 0.7, 9, dtype=np.float32)).write(folder)
    return folder


@pytest.mark.parametrize(("to", "tolerance"), [("onnx", 2e-4), ("onnx-int8", 0.06)])
def test_mean_pooling_works_without_torch(mean_model: Path, tmp_path: Path, to: str, tolerance: float) -> None:
    """Every label of every text, by a threshold that all are above."""
    assert run("export", mean_model, "--to", to, "--output", tmp_path / "out").exit_code == 0
    asked = ["a prism", "judge " * 80, "oar of the lake", "--rule", "threshold", "--threshold", "0.001"]
    expected, done = run("predict", mean_model, *asked), without_torch("predict", tmp_path / "out", *asked)
    assert done.returncode == 0, done.stderr
    probabilities = [
        [
            {label["id"]: label["probability"] for label in json.loads(line)["prediction"]["labels"]}
            for line in text.splitlines()
        ]
        for text in (expected.stdout, done.stdout)
    ]
    assert [len(row) for row in probabilities[0]] == [9, 9, 9]
    for one, other in zip(*probabilities, strict=True):
        assert other == pytest.approx(one, abs=tolerance)


def test_the_card_tells_scores_training_and_licence(model: Path, toy_data: Path, tmp_path: Path) -> None:
    shutil.copytree(model, tmp_path / "run" / "model")
    scored = tmp_path / "scores.json"
    assert run("evaluate", model, toy_data, "--split", "dev", "--json", scored).exit_code == 0
    dev = json.loads(scored.read_text())["scores"]
    metrics = {
        "run": {"model": {"encoder": "/somewhere/tiny", "architecture": "hgclr"}, "data": {"path": "/there/toys"}},
        "documents": {"train": 96, "dev": 24},
        "labels": 9,
        "dev": {**dev, "micro": {**dev["micro"], "f1": 0.1234}},
    }
    (tmp_path / "run" / "metrics.json").write_text(json.dumps(metrics))
    options = ["--data", toy_data, "--split", "test", "--scores", scored, "--license", "mit"]
    result = run("export", tmp_path / "run" / "model", "--to", "stock", "--output", tmp_path / "out", *options)
    assert result.exit_code == 0, result.output
    card = (tmp_path / "out" / "README.md").read_text()
    assert run("evaluate", model, toy_data, "--json", scored).exit_code == 0
    test = json.loads(scored.read_text())["scores"]
    rows = [line for line in card.splitlines() if line.endswith("|") and "| 24 |" in line]
    for row, of, split, micro in zip(
        rows,
        ("this folder", "model", "trained model"),
        ("test", "dev", "dev"),
        (test["micro"]["f1"], dev["micro"]["f1"], 0.1234),
        strict=True,
    ):
        assert row.startswith(f"| {of} | ")
        assert f"| {split} | 24 | {100 * micro:.2f} |" in row
    assert "license: mit" in card
    assert "System: hgclr, from the encoder tiny. Data: toys (96 train, 24 dev documents)." in card
    assert "/there" not in card
    assert str(tmp_path.parent) not in card


def test_predictions_without_torch_are_those_with_it(model: Path, exported: Path, tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in ("a prism", "judge " * 80, "", "oar")))
    expected = run("predict", model, "--input", source)
    found = without_torch("predict", exported, "--input", source)
    assert found.returncode == 0, found.stderr
    assert len(expected.stdout.splitlines()) == 4
    for one, other in zip(expected.stdout.splitlines(), found.stdout.splitlines(), strict=True):
        before, after = json.loads(one), json.loads(other)
        assert [label["id"] for label in after["prediction"]["labels"]] == [
            label["id"] for label in before["prediction"]["labels"]
        ]
        for label, same in zip(after["prediction"]["labels"], before["prediction"]["labels"], strict=True):
            assert label["probability"] == pytest.approx(same["probability"], abs=2e-4)  # they are rounded


def test_scores_without_torch_are_those_with_it(model: Path, exported: Path, toy_data: Path, tmp_path: Path) -> None:
    assert run("evaluate", model, toy_data, "--json", tmp_path / "with.json").exit_code == 0
    found = without_torch("evaluate", exported, toy_data, "--json", tmp_path / "without.json")
    assert found.returncode == 0, found.stderr
    with_torch, without = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("with", "without"))
    assert without["scores"] == with_torch["scores"]
    assert without["machine"]["packages"]["tokenizers"]


@pytest.mark.parametrize("command", [("predict", "MODEL", "text"), ("evaluate", "MODEL", "data"), ("export", "MODEL")])
def test_a_model_of_torch_needs_torch_and_says_so(
    model: Path, toy_data: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    options = ["--to", "onnx", "--output", tmp_path / "out"] if command[0] == "export" else []
    done = without_torch(*({"MODEL": model, "data": toy_data}.get(word, word) for word in command), *options)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert f"[{'export' if options else 'train'}]" in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("to", ["stock", "sentence-transformers"])
def test_other_libraries_forms_replace_the_model(
    model: Path, mean_model: Path, toy_data: Path, tmp_path: Path, to: str
) -> None:
    source, out = model if to == "stock" else mean_model, tmp_path / "out"
    options = ["--output", out, "--data", toy_data, "--split", "test", "--fold-thresholds"]
    result = run("export", source, "--to", to, *options)
    assert result.exit_code == 0, result.output
    assert "Micro-F1 +0.00, Macro-F1 +0.00" in result.stdout
    expected, found = (run("predict", folder, "a prism", "the judge").stdout for folder in (source, out))
    assert found == expected  # hgclr decides as before
    assert found.count('"prediction"') == 2
    assert f"library_name: {'transformers' if to == 'stock' else to}\n" in (out / "README.md").read_text()


def test_bad_input_leaves_nothing_behind(model: Path, mean_model: Path, exported: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for arguments in (
        ["nowhere", "--to", "onnx", "--output", out],
        [exported, "--to", "onnx", "--output", out],
        [exported, "--to", "stock", "--output", out],
        [model, "--to", "onnx", "--output", exported],
        [model, "--to", "onnx", "--output", out, "--data", "nowhere"],
        [model, "--to", "stock", "--output", out, "--scores", "nowhere"],
        [model, "--to", "tflite", "--output", out],
        [mean_model, "--to", "stock", "--output", out],
        [model, "--to", "onnx", "--fold-thresholds", "--output", out],
    ):
        result = run("export", *arguments)
        assert result.exit_code == 2, arguments
        assert "Traceback" not in result.output
        assert list(tmp_path.iterdir()) == []
