"""The model card: what hubs read, what people read, and label names that stay names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from huggingface_hub import ModelCard

from hgclr.decisions.settings import Decisions
from hgclr.errors import InputError
from hgclr.export.card import CardScore, TrainingRecord, model_card, read_scores, read_training
from hgclr.taxonomy import Taxonomy

SCORES = {"documents": 50, "micro": {"f1": 0.5}, "macro": {"f1": 0.25}}


def card_of(taxonomy: Taxonomy, kind: str = "stock", **more) -> ModelCard:
    return model_card(kind, "sorter", more.pop("decisions", Decisions(taxonomy)), 128, **more)


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
