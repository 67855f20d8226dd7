"""``hgclr calibrate``, and that ``evaluate`` and ``predict`` do as it says; doubt on the terminal."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from hgclr.cli.app import app
from hgclr.cli.tables import prediction_tree
from hgclr.data import DataFolder
from hgclr.decisions import tuning
from hgclr.decisions.settings import FILE, Decisions
from hgclr.decisions.thresholds import ThresholdTuner
from hgclr.decisions.tuning import Outputs
from hgclr.evaluation.folds import deal
from hgclr.inference import HierarchicalClassifier
from hgclr.inference.predictions import Prediction

TEXTS = ["atom", "the lens of a prism in a lake is a mirror", "judge"]


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("│")[1:-1]]


def run(*arguments: object):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def plain(untrained: Callable[..., Path]) -> Path:
    return untrained(threshold=0.4)


@pytest.fixture
def model(plain: Path, tmp_path: Path) -> Path:
    return shutil.copytree(plain, tmp_path / "model")


def test_what_is_found_is_shown_written_and_used(model: Path, toy_data: Path, taxonomy, tmp_path: Path) -> None:
    result = run("calibrate", model, toy_data, "--metric", "micro", "--risk", "0.3")
    assert result.exit_code == 0, result.output
    fields = json.loads((model / FILE).read_text())
    assert fields["abstain_below"] is not None
    assert fields["rule"] in result.stdout
    for name in ("micro_f1", "macro_f1", "precision", "recall", "exact"):
        before, after = (100 * fields["provenance"][f"held_out_{name}"][way] for way in ("before", "after"))
        assert f"{before:.2f}" in result.stdout
        assert f"{after:.2f}" in result.stdout

    report = tmp_path / "scores.json"
    result = run("evaluate", model, toy_data, "--json", report)
    assert result.exit_code == 0, result.output
    classifier = HierarchicalClassifier.load(model)
    expected = classifier.evaluate(toy_data, "test").to_json()
    written = json.loads(report.read_text())
    assert written["decisions"] == fields
    assert written["scores"] == json.loads(json.dumps(expected))

    result = run("predict", model, *TEXTS)
    assert result.exit_code == 0, result.output
    for line, prediction in zip(result.stdout.splitlines(), classifier.predict(TEXTS), strict=True):
        assert json.loads(line)["prediction"] == prediction.to_json()


def test_decisions_stay_where_nothing_is_better(model: Path, toy_data: Path, taxonomy) -> None:
    """A threshold of 0.5 is not better than the best thresholds for dev itself."""
    classifier = HierarchicalClassifier.load(model)
    dev = classifier.outputs(DataFolder(toy_data, taxonomy=taxonomy).documents("dev"))
    tuner = ThresholdTuner(taxonomy, "threshold", "macro", shrinkage=0)
    best = tuner.tune(["label"], (1 / (1 + np.exp(-dev.logits))).astype(np.float32), dev.gold)["label"]
    Decisions(taxonomy, "threshold", best).write(model)
    before = json.loads((model / FILE).read_text())
    result = run("calibrate", model, toy_data, "--metric", "macro", "--thresholds", "none", "--method", "none")
    assert result.exit_code == 0, result.output
    after = json.loads((model / FILE).read_text())
    assert after.pop("provenance")["thresholds"] == "as before"
    assert after == {name: value for name, value in before.items() if name != "provenance"}


@pytest.mark.slow
def test_folds_add_what_models_say_of_train_that_have_not_seen_it(
    make_encoder, model: Path, toy_data: Path, taxonomy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """96 documents of train by two models, and dev by the model itself; a second time nothing is trained."""
    (tmp_path / "config.yaml").write_text(
        f"data:\n  path: elsewhere\nmodel:\n  encoder: {make_encoder('bert')}\n  architecture: flat\n"
        "training:\n  epochs: 1\n  learning_rate: 3.0e-3\n  precision: fp32\n"
    )
    seen: list[Outputs] = []
    found = tuning.calibrate

    def watched(outputs: Outputs, *arguments, **choices):
        seen.append(outputs)
        return found(outputs, *arguments, **choices)

    monkeypatch.setattr(tuning, "calibrate", watched)
    arguments = ("calibrate", model, toy_data, "--folds", 2, "--max-loss", 5)
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    assert "fold 2 of 2" in result.stderr
    assert "decisions on 120 documents, held out" in result.stdout
    assert json.loads((model / FILE).read_text())["provenance"]["documents"] == 120
    places = [tmp_path / "calibration" / "folds" / name / "model" for name in "12"]
    texts = [document.text for document in DataFolder(toy_data).documents("train")]
    own = [DataFolder(toy_data).taxonomy.ids.index(label) for label in taxonomy.ids]  # the order of the model's labels
    scores = [np.concatenate(list(HierarchicalClassifier.load(place).logits(texts)))[:, own] for place in places]
    dev = HierarchicalClassifier.load(model).outputs(DataFolder(toy_data, taxonomy=taxonomy).documents("dev"))
    np.testing.assert_allclose(seen[0].logits[96:], dev.logits, atol=1e-4)
    np.testing.assert_array_equal(seen[0].gold[96:], dev.gold)
    folds = deal(DataFolder(toy_data), "train", 2, seed=0).folds
    expected = np.concatenate([scores[fold][folds == fold] for fold in range(2)])
    np.testing.assert_allclose(seen[0].logits[:96], expected, atol=1e-4)

    again = run(*arguments)
    assert again.exit_code == 0, again.output
    assert "fold 1 of 2" not in again.stderr
    np.testing.assert_array_equal(seen[0].logits, seen[1].logits)


@pytest.mark.parametrize(
    "options",
    [["--folds", "2"], ["--folds", "2", "--split", "train"], ["--output", "out"], ["--split", "test"]],
    ids=str,
)
def test_options_that_do_not_fit_are_refused(model: Path, toy_data: Path, options: list[object]) -> None:
    result = run("calibrate", model, toy_data, *options)
    assert (result.exit_code, "Traceback" in result.output) == (2, False)
    assert not (model / FILE).exists()


def test_options_overrule_what_was_found(model: Path, toy_data: Path, taxonomy, tmp_path: Path) -> None:
    run("calibrate", model, toy_data, "--thresholds", "none", "--rule", "closure", "--method", "none")
    report = tmp_path / "scores.json"
    options = ["--rule", "top-k-paths", "--paths", 2, "--abstain-below", 0.5, "--threshold", 0.3]
    result = run("evaluate", model, toy_data, *options, "--json", report)
    assert result.exit_code == 0, result.output
    classifier = HierarchicalClassifier.load(model)
    decisions = classifier.decisions.changed(rule="top-k-paths", paths=2, abstain_below=0.5, threshold=0.3)
    expected = classifier.evaluate(toy_data, "test", decisions=decisions)
    written = json.loads(report.read_text())
    assert written["scores"] == json.loads(json.dumps(expected.to_json()))
    assert (written["decisions"]["rule"], written["decisions"]["paths"]) == ("top-k-paths", 2)


@pytest.mark.parametrize("name", ["nowhere/model", "some-name"])
def test_a_model_that_is_no_folder_is_refused(name: str, toy_data: Path) -> None:
    result = run("calibrate", name, toy_data)
    assert result.exit_code == 2
    assert name in result.stderr


@pytest.mark.parametrize("content", ["{", '{"rule": "magic"}'])
def test_a_broken_file_stops_every_command_and_says_what_to_do(model: Path, toy_data: Path, content: str) -> None:
    (model / FILE).write_text(content)
    for command in (["evaluate", model, toy_data], ["predict", model, "atom"], ["calibrate", model, toy_data]):
        result = run(*command)
        assert result.exit_code == 2
        assert f"{model / FILE}: " in result.stderr
        assert "run hgclr calibrate again, or delete the file" in result.stderr


def drawn(prediction: Prediction, *, colours: bool = False) -> str:
    out = StringIO()
    console = Console(file=out, width=80, force_terminal=colours, color_system="standard" if colours else None)
    console.print(prediction_tree("a text", prediction))
    return out.getvalue()
