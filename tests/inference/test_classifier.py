"""The classifier: batching, order, truncation, flat memory, evaluation, independence from the training stack."""

from __future__ import annotations

import json
import logging
import math
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score
from transformers import AutoTokenizer, BertConfig

from hgclr.config import PRESETS
from hgclr.data import DataFolder
from hgclr.decisions.decoding import RULES
from hgclr.errors import InputError
from hgclr.export.onnx import export_onnx
from hgclr.inference import HierarchicalClassifier
from hgclr.inference.classifier import BLANK, UNLIKE, sampled
from hgclr.models import FlatForSequenceClassification, HGCLRForSequenceClassification
from hgclr.models.base import load_tokenizer, save
from hgclr.training import TrainingSettings, fit
from support.fresh_process import FreshProcesses

TEXTS = ["atom", "a", "the lens of a prism in a lake is a mirror", "judge " * 100, "a boat", "goal"]


@pytest.fixture(scope="module")
def model(untrained: Callable[..., Path]) -> Path:
    return untrained(threshold=0.4)


@pytest.fixture(scope="module")
def classifier(model: Path) -> HierarchicalClassifier:
    return HierarchicalClassifier.load(model)


def one_by_one(model: Path, texts: list[str]) -> np.ndarray:
    """The probabilities by transformers alone, a text at a time, without padding."""
    network, tokenizer = (
        FlatForSequenceClassification.from_pretrained(model).eval(),
        AutoTokenizer.from_pretrained(model),
    )
    rows = []
    for text in texts:
        encoded = tokenizer(text, truncation=True, max_length=64, padding=False, return_tensors="pt")
        with torch.inference_mode():
            rows.append(torch.sigmoid(network(encoded["input_ids"], encoded["attention_mask"]).logits)[0].numpy())
    return np.stack(rows)


def test_batches_give_what_single_texts_give(
    model: Path, classifier: HierarchicalClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = one_by_one(model, TEXTS)
    np.testing.assert_allclose(classifier.predict_proba(TEXTS), expected, atol=1e-5)
    np.testing.assert_allclose(classifier.predict_proba(TEXTS[::-1]), expected[::-1], atol=1e-5)
    monkeypatch.setattr(HierarchicalClassifier, "WINDOW", 2)
    monkeypatch.setattr(classifier.backend, "batch_tokens", 5)
    np.testing.assert_allclose(classifier.predict_proba(TEXTS), expected, atol=1e-5)


def test_the_models_threshold_is_the_default(classifier: HierarchicalClassifier, taxonomy) -> None:
    probabilities = classifier.predict_proba(TEXTS)
    for threshold in (None, 0.6):
        for row, prediction in zip(probabilities, classifier.predict(TEXTS, threshold=threshold), strict=True):
            chosen = {taxonomy.ids[i] for i in np.flatnonzero(row > (threshold or 0.4))}
            assert {label.id for label in prediction.labels} == chosen
            for label in prediction.labels:
                assert label.probability == pytest.approx(row[taxonomy.resolve(label.id)])


def test_a_stream_reads_one_window_ahead_at_most(
    classifier: HierarchicalClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HierarchicalClassifier, "WINDOW", 4)
    taken = 0

    def texts():
        nonlocal taken
        for _ in range(100):
            taken += 1
            yield "atom"

    stream = classifier.stream(texts())
    for number in range(1, 10):
        next(stream)
        assert taken <= 4 * -(-number // 4)


def test_many_labels_shorten_the_window(
    classifier: HierarchicalClassifier, taxonomy, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert classifier.window == HierarchicalClassifier.WINDOW
    for decisions, expected in ((3 * len(taxonomy) + 1, 3), (1, 1)):
        monkeypatch.setattr(HierarchicalClassifier, "DECISIONS", decisions)
        assert classifier.window == expected
        sizes = [len(block) for block in classifier.probabilities(["atom"] * 7)]
        assert sizes == [expected] * (7 // expected) + [1] * (7 % expected)


def test_tokenising_overlaps_with_computing_and_changes_nothing(
    classifier: HierarchicalClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = classifier.predict_proba(TEXTS)
    monkeypatch.setattr(HierarchicalClassifier, "PIECE", 2)
    prepare, compute = classifier.tokenise, classifier.backend.logits
    prepared: list[threading.Event] = [threading.Event() for _ in range(3)]
    threads, computed = [], []

    def tokenise(piece):
        made = prepare(piece)
        prepared[len(threads)].set()
        threads.append(threading.current_thread())
        return made

    def logits(ids, mask):
        computed.append(len(ids))
        pieces = (sum(computed) + 1) // 2  # how many of them have been computed, this one included
        if pieces < 3:
            assert prepared[pieces].wait(20)  # the next is made ready although this one is not done
        return compute(ids, mask)

    monkeypatch.setattr(classifier, "tokenise", tokenise)
    monkeypatch.setattr(classifier.backend, "logits", logits)
    np.testing.assert_allclose(classifier.predict_proba(TEXTS), expected, atol=1e-5)
    assert sum(computed) == len(TEXTS)
    assert threads[0] is threading.current_thread()
    assert threads[1] is threads[2] is not threads[0]


def test_extreme_logits_are_probabilities(classifier: HierarchicalClassifier, monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.array([-1e30, -1000, -103, -88, -20, 0, 20, 89, 1e30])  # one for each label
    monkeypatch.setattr(classifier.backend, "logits", lambda ids, _: np.tile(values.astype(np.float32), (len(ids), 1)))
    with np.errstate(all="raise", under="ignore"):
        (row,) = classifier.predict_proba(["atom"])
    expected = [
        math.exp(value) / (1 + math.exp(value)) if value < 0 else 1 / (1 + math.exp(-value)) for value in values
    ]
    np.testing.assert_allclose(row, np.array(expected), rtol=1e-6, atol=1e-37)
    assert row.dtype == np.float32


def test_a_string_is_one_text(classifier: HierarchicalClassifier) -> None:
    assert classifier.predict("a boat") == classifier.predict(["a boat"])[0]
    np.testing.assert_array_equal(classifier.predict_proba("a boat"), classifier.predict_proba(["a boat"])[0])
    assert list(classifier.stream("a boat")) == classifier.predict(["a boat"])
    assert [block.shape for block in classifier.logits("a boat")] == [(1, len(classifier.taxonomy))]
    assert classifier.predict([]) == []
    assert classifier.predict_proba([]).shape == (0, len(classifier.taxonomy))


@pytest.mark.parametrize("rule", RULES)
def test_a_text_that_nobody_can_see_gets_no_label_and_says_so(
    classifier: HierarchicalClassifier, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sure = lambda ids, _: np.full((len(ids), len(classifier.taxonomy)), 9, dtype=np.float32)  # noqa: E731
    monkeypatch.setattr(classifier.backend, "logits", sure)
    blank = ["", " \t\n", "\u00a0", "\u200b\ufeff"]
    seen, *predictions = classifier.predict(["atom", *blank], rule=rule, threshold=0)
    assert seen.labels
    assert seen.note is None
    for prediction in predictions:
        assert prediction is BLANK
    assert not classifier.predict_proba(blank).any()


def test_evaluate_equals_scikit_learn(classifier: HierarchicalClassifier, toy_data: Path, taxonomy) -> None:
    documents = list(DataFolder(toy_data, taxonomy=classifier.taxonomy).documents("test"))
    gold = np.zeros((len(documents), len(taxonomy)), dtype=bool)
    for row, document in enumerate(documents):
        gold[row, list(document.labels)] = True
    counted = []
    for rule in ("threshold", "closure"):
        predicted = classifier.predict_proba([document.text for document in documents]) > 0.4
        if rule == "closure":
            predicted = taxonomy.close(predicted)
        decisions = classifier.decisions.changed(rule=rule)
        scores = classifier.evaluate(toy_data, "test", decisions=decisions, progress=counted.append).to_json()
        assert scores["micro"]["f1"] == pytest.approx(f1_score(gold, predicted, average="micro"))
        assert scores["macro"]["f1"] == pytest.approx(f1_score(gold, predicted, average="macro", zero_division=0))
    assert scores["inconsistency_rate"] == 0
    assert sum(counted) == 2 * len(documents)


def test_a_pickled_model_is_not_loaded(model: Path, tmp_path: Path) -> None:
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((model / name).read_bytes())
    torch.save({}, tmp_path / "pytorch_model.bin")
    with pytest.raises(InputError) as refused:
        HierarchicalClassifier.load(tmp_path)
    assert refused.value.path == tmp_path / "pytorch_model.bin"


@pytest.mark.slow
def test_prediction_does_not_load_the_training_stack(model: Path, transformers_processes: FreshProcesses) -> None:
    code = (
        "import sys, json, hgclr\n"
        f"hgclr.HierarchicalClassifier.load({str(model)!r}).predict(['atom'])\n"
        "print(json.dumps([m for m in sys.modules if m in"
        " ('accelerate', 'datasets', 'hgclr.training', 'hgclr.models.hgclr', 'pydantic.main')]))"
    )
    done = transformers_processes.run(code)
    assert done.returncode == 0, done.stderr
    loaded = json.loads(done.stdout.splitlines()[-1])
    assert "hgclr.training" not in loaded
    assert "datasets" not in loaded


@pytest.mark.parametrize("text", [3, None, "a\ud800", "a\0"])
def test_texts_that_cannot_be_read_are_refused(classifier: HierarchicalClassifier, text: object) -> None:
    with pytest.raises(InputError):
        classifier.predict(["atom", text])


def test_calibrating_tunes_the_decisions_and_outputs_are_sampled(
    model: Path, toy_data: Path, taxonomy, caplog: pytest.LogCaptureFixture
) -> None:
    classifier = HierarchicalClassifier.load(model)
    folder = DataFolder(toy_data, taxonomy=taxonomy)
    counted: list[int] = []
    found = classifier.calibrate(toy_data, "dev", rule="closure", scope="none", progress=counted.append)
    assert classifier.decisions is found.decisions
    assert classifier.decisions.rule == "closure"
    assert sum(counted) == found.decisions.provenance["documents"] == len(list(folder.documents("dev")))
    # Decisions that were tuned before are compared with a threshold of 0.5, not with themselves.
    outputs = classifier.outputs(folder.documents("dev"))
    again = classifier.calibrate(outputs, rule="closure", scope="none")
    predicted = outputs.logits > 0
    assert again.before.micro_f1 == pytest.approx(f1_score(outputs.gold, predicted, average="micro"))
    with caplog.at_level(logging.WARNING, logger="hgclr"):
        documents = list(sampled(folder, "dev", 5))
    assert len(documents) == 5
    assert caplog.messages
    assert documents == list(sampled(folder, "dev", 5))
    assert [document for document in folder.documents("dev") if document in documents] == documents


SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}


def make_model(kind, tokenizer, taxonomy, positions: int = 512, **settings):
    torch.manual_seed(0)
    encoder = BertConfig(vocab_size=len(tokenizer), max_position_embeddings=positions, **SIZES)
    model = kind.from_encoder_config(encoder, taxonomy, tokenizer, **settings)
    torch.nn.init.normal_(model.encoder.embeddings.word_embeddings.weight)  # so that a token more or less is seen
    torch.nn.init.normal_(model.classifier.weight)
    return model.eval()


def words(count: int) -> str:
    return " ".join(("atom", "judge", "net", "the", "lens")[place * place % 5] for place in range(count))


@pytest.mark.parametrize("count", [508, 509, 511, 600])  # words; two special tokens come to them
def test_long_texts_lose_their_end_as_in_the_published_program(tokenizer, taxonomy, count: int) -> None:
    """That program truncates to 512 tokens, special ones included, and keeps 510 of them."""
    settings = PRESETS["published"]
    model = make_model(FlatForSequenceClassification, tokenizer, taxonomy, **settings)
    assert (model.config.max_length, model.config.cut_length) == (512, 510)
    text = words(count)
    whole = [tokenizer.convert_tokens_to_ids(word) for word in text.split()]
    read = [tokenizer.cls_token_id, *whole[:510], tokenizer.sep_token_id][:510]
    assert (read[-1] == tokenizer.sep_token_id) == (count <= 508)
    classifier = HierarchicalClassifier.from_model(model, tokenizer)
    assert [encoding.ids for encoding in classifier.encode([text])] == [read]
    with torch.no_grad():
        expected = model(torch.tensor([read]), torch.ones(1, len(read), dtype=torch.long)).logits
    assert classifier.predict(text).truncated == (count > 508)
    (logits,) = classifier.logits([text])
    torch.testing.assert_close(torch.from_numpy(logits), expected, atol=1e-5, rtol=1e-5)
    model.config.cut_length = None
    (ours,) = HierarchicalClassifier.from_model(model, tokenizer).encode([text])
    assert len(ours.ids) == min(512, count + 2)
    assert ours.ids[-1] == tokenizer.sep_token_id


def test_training_reads_as_prediction_does(tokenizer, taxonomy) -> None:
    model = make_model(HGCLRForSequenceClassification, tokenizer, taxonomy, 24, cut_length=20, max_length=22)
    seen: list[torch.Tensor] = []
    forward = model.forward

    def watched(input_ids, attention_mask, labels=None):
        seen.append(input_ids)
        return forward(input_ids, attention_mask, labels)

    model.forward = watched
    documents = [(words(count), ["society", "law"]) for count in (3, 19, 30, 40)]
    settings = TrainingSettings(epochs=1, batch_size=2, precision="fp32", calibrate=False)
    fit(model, tokenizer, documents, documents, settings=settings, label_documents=False)
    assert max(ids.shape[1] for ids in seen) == 20
    long = [row for ids in seen for row in ids.tolist() if len(row) == 20 and row[0] == tokenizer.cls_token_id]
    assert long
    assert not any(row[-1] == tokenizer.sep_token_id for row in long)


@pytest.mark.slow
def test_an_onnx_model_reads_as_it_did(tokenizer, taxonomy, tmp_path: Path) -> None:
    model = make_model(FlatForSequenceClassification, tokenizer, taxonomy, 24, cut_length=20, max_length=22)
    save(model, tokenizer, tmp_path / "model")
    export_onnx(tmp_path / "model", tmp_path / "onnx")
    texts = [words(40), words(5)]
    ours, exported = (HierarchicalClassifier.load(tmp_path / name) for name in ("model", "onnx"))
    assert [len(encoding.ids) for encoding in exported.encode(texts)] == [20, 7]
    for one, other in zip(ours.logits(texts), exported.logits(texts), strict=True):
        torch.testing.assert_close(torch.from_numpy(one), torch.from_numpy(other), atol=1e-4, rtol=1e-4)


def test_texts_unlike_the_training_texts_get_a_note(
    untrained: Callable[..., Path], toy_data: Path, tmp_path: Path, make_encoder, taxonomy
) -> None:
    tokenizer = load_tokenizer(make_encoder("bert"))
    model = FlatForSequenceClassification.from_encoder(make_encoder("bert"), taxonomy, tokenizer)
    data = DataFolder(toy_data)
    fit(model, tokenizer, data.documents("train"), settings=TrainingSettings(effort="head"))
    trained = HierarchicalClassifier.from_model(model, tokenizer)
    trained.save_pretrained(tmp_path / "model")
    export_onnx(tmp_path / "model", tmp_path / "onnx")
    strange, usual = "я хочу забронировать рейс", "the lens of a prism"
    for classifier in (trained, *map(HierarchicalClassifier.load, (tmp_path / "model", tmp_path / "onnx"))):
        notes = [prediction.note for prediction in classifier.predict([strange, usual, " "])]
        assert notes == [UNLIKE, None, BLANK.note]
        assert classifier.predict(strange).to_json()["note"] == UNLIKE
        assert not any(prediction.note for prediction in classifier.stream(one.text for one in data.documents("test")))
    assert HierarchicalClassifier.load(untrained()).predict(strange).note is None  # it has no statistic
