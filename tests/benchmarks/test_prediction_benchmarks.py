"""The benchmarks of prediction, evaluation and start-up, on a tiny model: what they compare is the same."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx_ir
import pytest
import torch
from sklearn.metrics import f1_score

import bulk_prediction
import evaluation_speed
import graph_variants
import pooling_speed
import prediction_speed
import startup
from hgclr.inference import HierarchicalClassifier
from hgclr.models import FlatForSequenceClassification


@pytest.fixture(scope="module")
def model(untrained: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copytree(untrained(max_length=64), tmp_path_factory.mktemp("model") / "tiny"))


@pytest.mark.slow
def test_prediction_speed_compares_equals(model: Path, toy_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("published_style.LENGTH", 24)  # the tiny encoder has 64 positions
    result = prediction_speed.run(toy_data, model=model, documents=20, scored=16, rounds=2, pipeline_batches=(1, 3))
    names = {"published style", "pipeline, batch 1", "pipeline, batch 3"}
    ours = {"ours, torch fp32", "ours, onnx fp32", "ours, onnx int8"}
    assert set(result["documents_per_second"]) == names | ours
    assert result["ratio_to_published_style"]["published style"]["median"] == 1
    assert result["best_pipeline"] in names
    for name in ours:  # the best is the one with the lower median, and every ratio is one of a single round
        seconds, base = result["seconds"][name], result["seconds"][result["best_pipeline"]]
        given = result["ratio_to_best_pipeline"][name]
        assert given["highest"] == pytest.approx(max(b / s for s, b in zip(seconds, base, strict=True)))
    assert result["setting"]["documents"] == 20
    classifier = HierarchicalClassifier.load(model)
    chosen = prediction_speed.sample(prediction_speed.DataFolder(toy_data, taxonomy=classifier.taxonomy), 16)
    gold = np.zeros((16, len(classifier.taxonomy)), dtype=bool)
    for row, document in enumerate(chosen):
        gold[row, list(document.labels)] = True
    predicted = classifier.predict_proba([document.text for document in chosen]) > classifier.decisions.thresholds
    expected = 100 * f1_score(gold, predicted, average="micro")
    assert result["f1"]["ours, torch fp32"]["micro_f1"] == pytest.approx(expected)
    assert set(result["f1"]) == {"ours, torch fp32", "ours, onnx int8"}


@pytest.mark.slow
def test_prediction_speed_takes_a_model_with_mean_pooling(
    untrained: Callable[..., Path], toy_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("published_style.LENGTH", 24)
    mean = untrained("mpnet", max_length=64, pooling="mean")  # whose graph other tests have, too
    result = prediction_speed.run(toy_data, model=mean, documents=6, scored=4, rounds=1, pipeline_batches=(2,))
    assert result["best_pipeline"] == "pipeline, batch 2"
    assert result["largest_difference_of_probabilities"]["pipeline"] < 1e-4


@pytest.mark.slow
def test_pooling_speed_compares_three_runtimes_with_two_poolings(make_encoder, toy_data: Path) -> None:
    result = pooling_speed.run(toy_data, encoder=make_encoder("mpnet"), documents=6, rounds=2, max_length=24)
    runtimes = {"ours, torch fp32", "ours, onnx fp32", "ours, onnx int8"}
    assert set(result["seconds"]) == {f"{runtime}, {pooling}" for runtime in runtimes for pooling in ("cls", "mean")}
    for runtime in runtimes:
        mean, first = (result["seconds"][f"{runtime}, {pooling}"] for pooling in ("mean", "cls"))
        assert result["mean_to_cls"][runtime]["lowest"] == pytest.approx(
            min(b / s for s, b in zip(mean, first, strict=True))
        )
    assert result["setting"]["documents"] == 6
    assert 2 < result["setting"]["tokens_per_document"] <= 24


@pytest.mark.slow
def test_other_forms_of_the_graph_give_the_same_logits(make_encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_variants, "LENGTHS", {"short texts": 5})
    monkeypatch.setattr(graph_variants, "WORDS", 20)
    result = graph_variants.run(encoder=make_encoder("bert"), tokens=32, rounds=2)
    assert set(result["forms"]["short texts"]) == set(graph_variants.REWRITES)
    assert result["forms"]["short texts"]["as it is"]["median"] == 1
    wrong = {"as it is": lambda _: None, "wrong": _zero_the_head}
    monkeypatch.setattr(graph_variants, "REWRITES", wrong)
    with pytest.raises(ValueError, match="wrong and as it is disagree"):
        graph_variants.run(encoder=make_encoder("bert"), tokens=32, rounds=1)


def _zero_the_head(model) -> None:
    weight = model.graph.initializers["model.classifier.weight"]
    weight.const_value = onnx_ir.tensor(np.zeros_like(weight.const_value.numpy()), name=weight.name)


@pytest.mark.slow
def test_prediction_speed_refuses_a_model_that_reads_less(model: Path, toy_data: Path) -> None:
    with pytest.raises(ValueError, match="the model reads 64 tokens of a text, the published loop 512"):
        prediction_speed.run(toy_data, model=model, documents=4)


@pytest.mark.slow
def test_prediction_speed_refuses_to_compare_what_differs(
    model: Path, toy_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("published_style.LENGTH", 24)
    right = prediction_speed.to_stock

    def wrong(network: FlatForSequenceClassification):
        stock = right(network)
        torch.nn.init.zeros_(stock.classifier.weight)
        return stock

    monkeypatch.setattr(prediction_speed, "to_stock", wrong)
    with pytest.raises(ValueError, match="pipeline and the yardstick disagree"):
        prediction_speed.run(toy_data, model=model, documents=4, rounds=1, pipeline_batches=(1,))


def test_bulk_prediction_measures_the_whole_stream(
    model: Path, toy_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HierarchicalClassifier, "WINDOW", 8)
    texts = list(bulk_prediction.short_texts(toy_data, 200))
    assert len(texts) == 200
    assert len(set(texts)) > 150
    computed = 0
    compute = bulk_prediction.Recorder.logits

    def counted(self, input_ids, attention_mask):
        nonlocal computed
        computed += len(input_ids)
        return compute(self, input_ids, attention_mask)

    monkeypatch.setattr(bulk_prediction.Recorder, "logits", counted)
    result = bulk_prediction.measure(model, toy_data, 203)
    assert computed == 203
    assert result["share_of_the_backends_own_rate"]["lowest"] > 0
    assert result["bytes"]["by_texts"][-1][0] == 203
    assert result["bytes"]["peak"] > 0.99 * result["bytes"]["second_half"]["highest"]
    with pytest.raises(ValueError, match="15 texts are too few: 8 warm up"):
        bulk_prediction.measure(model, toy_data, 15)


def test_evaluation_speed_counts_every_decision() -> None:
    result = evaluation_speed.run(documents=5000, labels=13, rounds=1)
    tree = evaluation_speed.random_tree(13)
    blocks = [evaluation_speed.random_decisions(tree, seed) for seed in range(3)]
    predicted, gold = (np.concatenate(parts)[:5000] for parts in zip(*blocks, strict=True))
    assert result["micro_f1"] == pytest.approx(f1_score(gold, predicted, average="micro"))
    assert result["bytes"]["500 documents"]["held"] < 20_000


@pytest.mark.slow
def test_startup_sees_what_is_imported(tmp_path: Path) -> None:
    assert "Sort text into a tree of labels" in startup.command(["--help"])()
    assert startup.imported(["--help"]) == []
    assert startup.imported(["taxonomy", "--help"]) == []
