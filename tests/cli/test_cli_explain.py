"""``hgclr explain``: terminal, page and JSON; refused input; an ONNX model without torch."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hgclr.cli.app import app
from hgclr.cli.console import Console
from hgclr.cli.tables import print_explanations
from hgclr.evaluation.explanation import ExplainedLabel, Explanation, Stability, Word
from hgclr.inference import HierarchicalClassifier, PredictedLabel
from support.without_torch import without_torch

TEXT = "Laser of the <laser>, a prism"


def run(*arguments: object, **options):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], **options)


@pytest.fixture(scope="module")
def model(untrained: Callable[..., Path]) -> Path:
    return untrained()


def test_labels_with_words_and_numbers_are_shown(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    result = run("explain", model, TEXT, "--rule", "closure", "--label", "law", "--label", "physics")
    assert result.exit_code == 0, result.output
    classifier = HierarchicalClassifier.load(model)
    decisions = classifier.decisions.changed(rule="closure")
    expected = classifier.explain(TEXT, labels=["law", "physics"], decisions=decisions)
    lines = result.stdout.splitlines()
    assert lines[0] == TEXT  # without colours the text is shown once
    for label in expected.labels:
        (heading,) = (line for line in lines if "%" in line[:4] and " > ".join(label.label.path) in line)
        assert heading.startswith(f"{label.label.probability:4.0%} ")
        assert ("(not predicted)" in heading) == (label.status == "not predicted")
        for index in (one for side in expected.strongest(label, 1) for one in side):
            assert f"{expected.word(index)} {label.relevance[index]:+.2f}" in result.stdout
    assert max(map(len, lines)) <= 80


def test_marks_stay_in_their_places_beside_control_characters() -> None:
    text = "a\r\n\x1b[2Jice\x07 fire"
    words = tuple(Word(text.index(word), text.index(word) + len(word)) for word in ("a", "ice", "fire"))
    label = ExplainedLabel(PredictedLabel("x", ("x",), 0.9), "predicted", (0.0, 1.0, 0.0), (1,), 0.9, 0.5, 0.1)
    explanation = Explanation(text, "occlusion", words, 0, (label,), 0, 0.3, Stability((1,), (), ()))
    console = Console(file=io.StringIO(), force_terminal=True, width=80, color_system="truecolor")
    print_explanations([explanation], console)
    assert "\x1b[2J" not in console.file.getvalue()
    assert re.search(r"\x1b\[1;30;48;2;[\d;]+mice\x1b\[0m", console.file.getvalue())


def test_json_and_page_hold_all_texts(model: Path, tmp_path: Path) -> None:
    source = tmp_path / "texts.txt"
    source.write_text(f"{TEXT}\n\njudge of the court\n", encoding="utf-8")
    page, report = tmp_path / "why.html", tmp_path / "why.json"
    how = ("--method", "occlusion")
    result = run("explain", model, "--input", source, "--html", page, "--json", report, *how)
    assert result.exit_code == 0, result.output
    found = json.loads(report.read_text(encoding="utf-8"))
    assert found["model"] == str(model)
    assert [one["text"] for one in found["explanations"]] == [TEXT, "judge of the court"]
    assert {one["method"] for one in found["explanations"]} == {"occlusion"}
    assert page.read_text(encoding="utf-8").count("<section") == 2
    to_stdout = run("explain", model, "--input", "-", "--json", "-", *how, input=f"{TEXT}\n")
    assert json.loads(to_stdout.stdout)["explanations"] == found["explanations"][:1]


@pytest.mark.slow
def test_an_exported_model_is_explained_without_torch(model: Path, tmp_path: Path) -> None:
    exported = tmp_path / "onnx"
    assert run("export", model, "--to", "onnx", "--output", exported).exit_code == 0
    done = without_torch("explain", exported, TEXT, "--json", tmp_path / "without.json")
    assert done.returncode == 0, done.stderr
    same = run("explain", model, TEXT, "--method", "occlusion", "--json", tmp_path / "with.json")
    assert same.exit_code == 0, same.output
    one, other = (
        json.loads((tmp_path / f"{name}.json").read_text(encoding="utf-8"))["explanations"][0]
        for name in ("with", "without")
    )
    assert other["words"] == one["words"]
    for label, same_label in zip(other["labels"], one["labels"], strict=True):
        assert label["id"] == same_label["id"]
        assert label["relevance"] == pytest.approx(same_label["relevance"], abs=1e-3)
        assert label["probability_only_kept"] == pytest.approx(same_label["probability_only_kept"], abs=1e-3)
    refused = without_torch("explain", exported, TEXT, "--method", "integrated")
    assert refused.returncode == 2


def test_bad_input_is_one_line(model: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n \n", encoding="utf-8")
    (tmp_path / "latin.txt").write_bytes(b"good\nb\xf6se\n")
    (tmp_path / "odd.txt").write_text("good\n\u200b\n", encoding="utf-8")
    for arguments, place in (
        ([model], ""),
        ([model, "a", "--input", "b"], ""),
        ([model, ""], ""),
        ([model, "a", "--label", "nothing"], "nothing"),
        ([model, "a", "--keep", "0"], "0.0"),
        ([model, "--input", tmp_path / "nowhere"], "nowhere: "),
        ([model, "--input", tmp_path / "empty.txt"], "empty.txt: "),
        ([model, "--input", tmp_path / "latin.txt"], "latin.txt:2: "),
        ([model, "--input", tmp_path / "odd.txt"], "odd.txt:2: "),
        ([model, "a", "--html", tmp_path], "cannot be written"),
        (["nowhere", "a"], "nowhere"),
    ):
        result = run("explain", *arguments)
        assert result.exit_code == 2, (arguments, result.output)
        assert place in " ".join(result.stderr.split()), (arguments, result.stderr)
        assert "Traceback" not in result.output
