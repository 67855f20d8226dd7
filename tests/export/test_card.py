"""The model card: what hubs read, what people read, and label names that stay names."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import numpy as np
import pytest
import yaml
from huggingface_hub import ModelCard
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from hgclr.decisions.settings import Decisions
from hgclr.errors import InputError
from hgclr.export.card import CardScore, TrainingRecord, escape, model_card, read_scores, read_training
from hgclr.taxonomy import Taxonomy

SCORES = {"documents": 50, "micro": {"f1": 0.5}, "macro": {"f1": 0.25}}


def card_of(taxonomy: Taxonomy, kind: str = "stock", **more) -> ModelCard:
    return model_card(kind, "sorter", more.pop("decisions", Decisions(taxonomy)), 128, **more)


@given(st.text(st.characters(blacklist_categories=["Cs", "Cc"]), min_size=1))
@settings(deadline=None, derandomize=True, max_examples=300)
def test_a_name_is_shown_as_it_is(name: str) -> None:
    row = f"| x | the {escape(name)} end |"
    html_row = MarkdownIt("commonmark").enable("table").render(f"| a | b |\n| --- | --- |\n{row}\n")
    cells = re.findall(r"<td>(.*?)</td>", html_row, flags=re.DOTALL)
    assert len(cells) == 2
    assert "<" not in cells[1]  # no markup came of it
    assert html.unescape(cells[1]).split() == f"the {name} end".split()


def test_hubs_find_their_fields(taxonomy) -> None:
    fields = yaml.safe_load(card_of(taxonomy).content.split("---")[1])
    assert fields == {
        "library_name": "transformers",
        "pipeline_tag": "text-classification",
        "license": "other",
        "license_name": "unspecified",
        "tags": ["hgclr", "hierarchical-text-classification"],
    }
    fields = yaml.safe_load(card_of(taxonomy, "onnx-int8", licence='apache-2.0 "x": y').content.split("---")[1])
    assert (fields["license"], fields["library_name"]) == ('apache-2.0 "x": y', "hgclr")
    assert "license_name" not in fields
    assert "onnx" in fields["tags"]


@pytest.mark.parametrize(
    ("kind", "present", "absent"),
    [
        ("stock", "pipeline(", "hgclr[onnx]"),
        ("sentence-transformers", "SentenceTransformer(", "hgclr[onnx]"),
        ("model", "import hgclr.models", "hgclr[onnx]"),
        ("onnx", "hgclr[onnx]", "hgclr[train]"),
        ("onnx-int8", "int8", "hgclr[train]"),
    ],
)
def test_each_kind_shows_the_code_that_loads_it(taxonomy, kind: str, present: str, absent: str) -> None:
    text = model_card(kind, 'a "quoted"\nname', Decisions(taxonomy), 128).content
    assert present in text
    assert absent not in text
    shown = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert shown
    for code in shown:
        compile(code, "card", "exec")


def test_tree_decisions_and_scores(taxonomy) -> None:
    found = {"documents": 1200, "held_out_f1": {"before": 0.5, "after": 0.6}}
    thresholds = np.linspace(0.1, 0.9, 9, dtype=np.float32)
    decisions = Decisions(taxonomy, rule="drop-orphans", thresholds=thresholds, provenance=found)
    trained = CardScore.from_json(SCORES, of="trained model", data="/home/me/wos", split="dev")
    record = TrainingRecord("tiny", "hgclr", "wos", {"train": 1000, "dev": 50}, (trained,))
    here = CardScore("this folder", "wos", "test", 2000, 0.81234, 0.7)
    text = card_of(taxonomy, decisions=decisions, training=record, scores=[here]).content
    assert "| 1 | 2 |\n| 2 | 4 |\n| 3 | 3 |" in text
    assert "science, society" in text
    assert "drop-orphans, thresholds 0.1 to 0.9" in text
    assert "| held out f1 | before 0.5, after 0.6 |" in text
    assert "first 128 tokens" in text
    scores = "| this folder | wos | test | 2,000 | 81.23 | 70.00 |\n| trained model | wos | dev | 50 | 50.00 | 25.00 |"
    assert scores in text
    assert "1,000 train, 50 dev documents" in text
    assert "home" not in text


def test_hubs_find_the_encoder_and_the_scores(taxonomy) -> None:
    record = TrainingRecord("tiny", "hgclr", "wos", {"train": 1000}, (), "some/tiny")
    card = card_of(taxonomy, training=record, scores=[CardScore("this folder", "wos", "test", 2000, 0.81234, 0.7)])
    fields = yaml.safe_load(card.content.split("---")[1])
    assert fields["base_model"] == "some/tiny"
    (index,) = fields["model-index"]
    (result,) = index["results"]
    assert (index["name"], result["task"], result["dataset"]) == (
        "sorter",
        {"type": "text-classification"},
        {"name": "wos", "type": "wos", "split": "test"},
    )
    assert result["metrics"] == [
        {"type": "f1", "value": 0.8123, "name": "Micro-F1 (this folder)"},
        {"type": "f1", "value": 0.7, "name": "Macro-F1 (this folder)"},
    ]
    assert card.data.base_model == "some/tiny"


def run_with(tmp_path: Path, content: object) -> Path:
    (tmp_path / "model").mkdir()
    (tmp_path / "metrics.json").write_text(content if isinstance(content, str) else json.dumps(content))
    return tmp_path / "model"


METRICS = {
    "run": {"model": {"encoder": "tiny", "architecture": "flat"}, "data": {"path": "data/wos"}},
    "documents": {"train": 7},
    "labels": 9,
    "test": SCORES,
}


@pytest.mark.parametrize(
    ("model", "encoder", "base_model"),
    [
        ({"encoder": "tiny"}, "tiny", "tiny"),
        ({"encoder": "google-bert/bert"}, "bert", "google-bert/bert"),
        ({"encoder": "/x/tiny"}, "tiny", None),
        ({"start": "old/training-model"}, None, None),
    ],
)
def test_training_is_found_beside_the_model(
    tmp_path: Path, model: dict, encoder: str | None, base_model: str | None
) -> None:
    run = METRICS["run"] | {"model": {"architecture": "flat", **model}}
    score = CardScore("trained model", "wos", "test", 50, 0.5, 0.25)
    expected = TrainingRecord(encoder, "flat", "wos", {"train": 7}, (score,), base_model)
    assert read_training(run_with(tmp_path, METRICS | {"run": run, "test_at_0.5": {}}), 9) == expected


@pytest.mark.parametrize("content", ["{", [], {}, METRICS | {"labels": 8}, METRICS | {"test": {}}])
def test_metrics_of_something_else_are_left_out_and_said_so(tmp_path: Path, caplog, content: object) -> None:
    assert read_training(run_with(tmp_path, content), 9) is None
    (record,) = caplog.records
    assert str(tmp_path / "metrics.json") in record.getMessage()


def test_scores_of_an_evaluation_are_read(tmp_path: Path) -> None:
    path = tmp_path / "scores.json"
    path.write_text(json.dumps({"model": "runs/a/model", "data": "/x/wos", "split": "test", "scores": SCORES}))
    assert read_scores(path) == CardScore("model", "wos", "test", 50, 0.5, 0.25)


@pytest.mark.parametrize("content", [None, "{", "[]", "{}", '{"model": "m", "data": "d", "split": "s", "scores": {}}'])
def test_a_file_without_scores_is_refused(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "scores.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InputError) as caught:
        read_scores(path)
    assert caught.value.path == path
