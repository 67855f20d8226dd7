"""``hgclr explain``: what stands in the terminal, in the page and in JSON; what is refused; where there is no torch."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

from hgclr.cli.app import app
from hgclr.cli.tables import show_explanations
from hgclr.evaluation.explanation import ExplainedLabel, Explanation, Stability, explain
from hgclr.evaluation.relevance import Word
from hgclr.inference import HierarchicalClassifier, PredictedLabel
from hgclr.models import HGCLRForSequenceClassification
from hgclr.models.base import load_tokenizer, save
from support.without_torch import without_torch

TEXT = "Laser of the <laser>, a prism"


def run(*arguments: object, **options):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], **options)


@pytest.fixture(scope="module")
def folder(make_encoder, taxonomy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``model`` and ``training-model``, untrained, with logits that are spread out."""
    folder = tmp_path_factory.mktemp("run")
    tokenizer = load_tokenizer(make_encoder("bert"))
    torch.manual_seed(4)
    network = HGCLRForSequenceClassification.from_encoder(make_encoder("bert"), taxonomy, tokenizer)
    for layer in network.modules():
        if isinstance(layer, torch.nn.Linear | torch.nn.Embedding):
            torch.nn.init.normal_(layer.weight, std=0.3)
    save(network, tokenizer, folder / "training-model")
    save(network.deployed(), tokenizer, folder / "model")
    return folder


@pytest.fixture(scope="module")
def exported(folder: Path) -> Path:
    result = run("export", folder / "model", "--to", "onnx", "--output", folder / "onnx")
    assert result.exit_code == 0, result.output
    return folder / "onnx"


def test_labels_with_words_and_numbers_are_shown(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    result = run("explain", folder / "model", TEXT, "--rule", "closure", "--label", "law", "--label", "physics")
    assert result.exit_code == 0, result.output
    classifier = HierarchicalClassifier.load(folder / "model")
    expected = explain(
        classifier, TEXT, labels=["law", "physics"], decisions=classifier.decisions.changed(rule="closure")
    )
    lines = result.stdout.splitlines()
    assert lines[0] == TEXT  # without colours the text is shown once
    assert lines[1].startswith("integrated gradients: gradient × input")
    for label in expected.labels:
        (heading,) = (line for line in lines if "%" in line[:4] and " > ".join(label.label.path) in line)
        assert heading.startswith(f"{label.label.probability:4.0%} ")
        assert ("(not given)" in heading) == (label.status == "not given")
        best = expected.strongest(label, 1)[0][0]
        assert f"{expected.word(best)} {label.relevance[best]:+.2f}" in result.stdout
        assert f"3 words only {label.only_kept:.0%}   as many random words {label.only_random:.0%}" in result.stdout
    assert "with 3 of 9 words the labels " in result.stdout
    assert max(map(len, lines)) <= 80


def test_in_a_terminal_the_words_have_grounds_and_the_text_stays_whole(folder: Path) -> None:
    classifier = HierarchicalClassifier.load(folder / "model")
    explanation = explain(classifier, "laser of the [bold] prism\n😀 " + "judge " * 80, labels=["law"])
    console = Console(file=io.StringIO(), force_terminal=True, width=80, color_system="truecolor", record=True)
    show_explanations([explanation], console)
    assert "\x1b[" in console.file.getvalue()
    coloured = console.file.getvalue()
    assert "48;2;" in coloured  # a ground in true colour
    shown = console.export_text()
    assert "laser of the [bold] prism" in shown
    assert " …" in shown
    assert f"not read: the last {explanation.unread} words" in shown
    assert explanation.unread > 20


def test_marks_stay_in_their_places_beside_control_characters() -> None:
    text = "a\r\n\x1b[2Jice\x07 fire"
    words = tuple(Word(text.index(word), text.index(word) + len(word)) for word in ("a", "ice", "fire"))
    label = ExplainedLabel(PredictedLabel("x", ("x",), 0.9), "given", (0.0, 1.0, 0.0), (1,), 0.9, 0.5, 0.1)
    explanation = Explanation(text, "occlusion", 0.0, words, 0, (label,), 0, 0.3, Stability((1,), (), ()))
    console = Console(file=io.StringIO(), force_terminal=True, width=80, color_system="truecolor")
    show_explanations([explanation], console)
    assert "\x1b[2J" not in console.file.getvalue()
    assert re.search(r"\x1b\[1;30;48;2;[\d;]+mice\x1b\[0m", console.file.getvalue())


def test_json_and_page_hold_all_texts(folder: Path, tmp_path: Path) -> None:
    source = tmp_path / "texts.txt"
    source.write_text(f"{TEXT}\n\njudge of the court\n", encoding="utf-8")
    page, report = tmp_path / "why.html", tmp_path / "why.json"
    result = run(
        "explain", folder / "model", "--input", source, "--html", page, "--json", report, "--method", "gradient"
    )
    assert result.exit_code == 0, result.output
    assert f"written: {page}" in result.stderr
    found = json.loads(report.read_text(encoding="utf-8"))
    assert found["model"] == str(folder / "model")
    assert [one["text"] for one in found["explanations"]] == [TEXT, "judge of the court"]
    assert {one["method"] for one in found["explanations"]} == {"gradient"}
    html = page.read_text(encoding="utf-8")
    assert "2. judge of the court" in html
    assert "<laser>" not in html
    to_stdout = run(
        "explain", folder / "model", "--input", "-", "--json", "-", "--method", "gradient", input=f"{TEXT}\n"
    )
    assert json.loads(to_stdout.stdout)["explanations"] == found["explanations"][:1]


def test_attention_takes_the_training_model(folder: Path) -> None:
    result = run("explain", folder / "training-model", TEXT, "--method", "attention", "--label", "law")
    assert result.exit_code == 0, result.output
    assert "token-label attention of the training model" in result.stdout
    assert "chance" in result.stdout
    refused = run("explain", folder / "model", TEXT, "--method", "attention")
    assert refused.exit_code == 2
    assert "this FlatForSequenceClassification has no label side; give the folder training-model" in refused.stderr


@pytest.mark.slow
def test_an_exported_model_is_explained_without_torch(folder: Path, exported: Path, tmp_path: Path) -> None:
    page = tmp_path / "why.html"
    done = without_torch("explain", exported, TEXT, "--html", page, "--json", tmp_path / "without.json")
    assert done.returncode == 0, done.stderr
    assert "occlusion: how much the label's logit falls when the word is left out" in done.stdout
    assert "prism" in page.read_text(encoding="utf-8")
    same = run("explain", folder / "model", TEXT, "--method", "occlusion", "--json", tmp_path / "with.json")
    assert same.exit_code == 0, same.output
    one, other = (
        json.loads((tmp_path / f"{name}.json").read_text(encoding="utf-8"))["explanations"][0]
        for name in ("with", "without")
    )
    assert other["words"] == one["words"]
    assert [label["id"] for label in other["labels"]] == [label["id"] for label in one["labels"]]
    for label, same_label in zip(other["labels"], one["labels"], strict=True):
        assert label["relevance"] == pytest.approx(same_label["relevance"], abs=1e-3)
        assert label["probability_only_kept"] == pytest.approx(same_label["probability_only_kept"], abs=1e-3)
    for method, message in (
        ("gradient", "an ONNX model has no gradients"),
        ("attention", "pip install 'hgclr[train]'"),
    ):
        refused = without_torch("explain", exported, TEXT, "--method", method)
        assert refused.returncode == 2
        assert message in refused.stderr


@pytest.mark.slow
def test_bad_input_is_one_line(folder: Path, tmp_path: Path) -> None:
    model = folder / "model"
    (tmp_path / "empty.txt").write_text("\n \n", encoding="utf-8")
    (tmp_path / "latin.txt").write_bytes(b"good\nb\xf6se\n")
    (tmp_path / "good.txt").write_text("good\n", encoding="utf-8")
    (tmp_path / "odd.txt").write_text("good\n\u200b\n", encoding="utf-8")
    for arguments, message in (
        ([model], "texts are given neither as arguments nor by --input; give one of them"),
        ([model, "a", "--input", "b"], "texts are given both as arguments and by --input; give one of them"),
        ([model, ""], "the text '' has no words; give a text with some"),
        ([model, "a", "--label", "nothing"], "nothing"),
        ([model, "a", "--keep", "0"], "the share of words to keep is 0.0; give a share above 0, up to 1"),
        ([model, "--input", tmp_path / "nowhere"], "nowhere: no such file"),
        ([model, "--input", tmp_path / "empty.txt"], "empty.txt: no text in it; write one text per line"),
        ([model, "--input", tmp_path / "latin.txt"], "latin.txt:2: not UTF-8; save the file as UTF-8"),
        ([model, "--input", tmp_path / "good.txt", "--keep", "2"], "error: the share of words to keep is 2.0"),
        ([model, "--input", tmp_path / "odd.txt"], "odd.txt:2: the text '\\u200b' has no words; give a text with some"),
        ([model, "a", "--html", tmp_path], "cannot be written"),
        (["nowhere", "a"], "no model could be loaded from nowhere"),
    ):
        result = run("explain", *arguments)
        assert result.exit_code == 2, (arguments, result.output)
        assert message in " ".join(result.stderr.split()), (arguments, result.stderr)
        assert "Traceback" not in result.output
