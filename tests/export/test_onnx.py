"""The ONNX export: the graph's logits are torch's, for many encoders, shapes and label trees; int8 stays near them."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from hgclr.errors import InputError
from hgclr.export import onnx as exporting
from hgclr.export.onnx import export_onnx
from hgclr.inference import HierarchicalClassifier
from hgclr.inference.backends import OnnxBackend, pad
from hgclr.models import FlatForSequenceClassification
from hgclr.models.base import load_tokenizer, save

INT8_TOLERANCE = 0.05  # in a probability, for the tiny random models of these tests
SHAPES = [(1, 1), (1, 2), (2, 1), (1, 64), (3, 17), (5, 40), (13, 3)]
# Pooling comes behind the encoder, whichever that is.
FORMS = [*((kind, "cls") for kind in ("bert", "roberta", "mpnet", "distilbert", "electra")), ("mpnet", "mean")]


@pytest.fixture(scope="session")
def make_model(untrained: Callable[..., Path]) -> Callable[..., Path]:
    """Return a function that gives the folder of a model."""
    return lambda kind="bert", pooling="cls": untrained(kind, spread=0.5, pooling=pooling, threshold=0.4)


@pytest.fixture(scope="session")
def make_export(make_model, tmp_path_factory) -> Callable[..., Path]:
    """Return a function that exports such a model and gives the folder."""
    made: dict[tuple[str, str, bool], Path] = {}

    def make(kind: str = "bert", pooling: str = "cls", *, int8: bool = False) -> Path:
        if (kind, pooling, int8) not in made:
            folder = tmp_path_factory.mktemp("exports") / "export"
            made[kind, pooling, int8] = export_onnx(make_model(kind, pooling), folder, int8=int8).folder
        return made[kind, pooling, int8]

    return make


def batches(model: FlatForSequenceClassification):
    """Random tokens of all shapes, padded to the right by random amounts, the first text of a batch not at all."""
    random = np.random.default_rng(3)
    pad = model.config.text_encoder.pad_token_id
    for rows, columns in SHAPES:
        lengths = random.integers(1, columns + 1, rows)
        lengths[0] = columns
        mask = (np.arange(columns) < lengths[:, None]).astype(np.int64)
        ids = random.integers(4, model.config.text_encoder.vocab_size, mask.shape)
        yield np.where(mask == 1, ids, pad), mask


def torch_logits(model: FlatForSequenceClassification, ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
    with torch.inference_mode():
        return model(torch.from_numpy(ids), torch.from_numpy(mask)).logits.numpy()


def sigmoid(logits: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-logits))


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "pooling"), FORMS)
def test_logits_are_those_of_torch(make_model, make_export, kind: str, pooling: str) -> None:
    model = FlatForSequenceClassification.from_pretrained(make_model(kind, pooling)).eval()
    backend = OnnxBackend(make_export(kind, pooling) / "model.onnx")
    for ids, mask in batches(model):
        found = backend.logits(ids, mask)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, torch_logits(model, ids, mask), atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "pooling"), FORMS)
def test_int8_probabilities_are_near_those_of_torch(make_model, make_export, kind: str, pooling: str) -> None:
    model = FlatForSequenceClassification.from_pretrained(make_model(kind, pooling)).eval()
    backend = OnnxBackend(make_export(kind, pooling, int8=True) / "model.onnx")
    differences = []
    for ids, mask in batches(model):
        expected, found = sigmoid(torch_logits(model, ids, mask)), sigmoid(backend.logits(ids, mask))
        differences.append(np.abs(found - expected).max())
    assert 1e-6 < max(differences) < INT8_TOLERANCE


@pytest.mark.slow
def test_int8_probabilities_do_not_depend_on_the_other_texts_of_a_batch(make_export) -> None:
    """Every token has a scale of its own: neither neighbours nor padding change how a text is rounded."""
    classifier = HierarchicalClassifier.load(make_export("bert", int8=True))
    texts = ["atom", "the lens of a prism in a lake is a mirror", "judge " * 60, "a boat", "goal", "a"]
    alone = np.stack([classifier.predict_proba(text) for text in texts])
    np.testing.assert_allclose(classifier.predict_proba(texts), alone, atol=1e-5)
    ids = [classifier.tokenizer.encode(text).ids for text in texts]
    for row, own in enumerate(ids):  # one batch, with padding up to the longest
        batch, mask = pad([own, *ids], classifier.pad_token)
        found = classifier.decisions.probabilities(classifier.backend.logits(batch, mask))[0]
        np.testing.assert_allclose(found, alone[row], atol=1e-5)


@pytest.mark.slow
def test_padding_changes_nothing(make_export) -> None:
    backend = OnnxBackend(make_export("roberta") / "model.onnx")
    ids = np.array([[0, 7, 9, 2]])
    expected = backend.logits(ids, np.ones_like(ids))
    for padding in (1, 30):
        padded = np.pad(ids, ((0, 0), (0, padding)), constant_values=1)
        mask = (np.arange(padded.shape[1]) < 4)[None].astype(np.int64)
        np.testing.assert_allclose(backend.logits(padded, mask), expected, atol=1e-5)


@pytest.mark.slow
def test_the_report_tells_sizes_and_differences(make_model, tmp_path: Path) -> None:
    plain = export_onnx(make_model("bert"), tmp_path / "plain")
    small = export_onnx(make_model("bert"), tmp_path / "small", int8=True)
    assert plain.difference.logit < 1e-4 < small.difference.logit
    assert 0 < small.difference.probability <= small.difference.logit / 4 + 1e-6  # the steepest slope of the sigmoid
    assert plain.difference.texts == small.difference.texts > 9
    assert plain.graph_bytes == (tmp_path / "plain" / "model.onnx").stat().st_size
    assert small.graph_bytes == (tmp_path / "small" / "model.onnx").stat().st_size
    assert plain.model_bytes == sum(
        weight.nbytes for weight in FlatForSequenceClassification.from_pretrained(make_model()).parameters()
    )


@pytest.mark.slow
def test_a_training_model_is_exported_as_a_flat_one(make_encoder, taxonomy, tmp_path: Path) -> None:
    from hgclr.models import HGCLRForSequenceClassification

    tokenizer = load_tokenizer(make_encoder("bert"))
    save(
        HGCLRForSequenceClassification.from_encoder(make_encoder("bert"), taxonomy, tokenizer),
        tokenizer,
        tmp_path / "training-model",
    )
    folder = export_onnx(tmp_path / "training-model", tmp_path / "out").folder
    expected, found = (HierarchicalClassifier.load(path) for path in (tmp_path / "training-model", folder))
    np.testing.assert_allclose(found.predict_proba(["a prism"]), expected.predict_proba(["a prism"]), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("int8", [False, True])
def test_the_folder_works_after_a_move(make_model, tmp_path: Path, monkeypatch, int8: bool) -> None:
    """Weights in a file of their own, as in graphs above two gigabytes, move with the rest."""
    monkeypatch.setattr(exporting, "PROTOBUF_LIMIT", 0)
    result = export_onnx(make_model("bert"), tmp_path / "here", int8=int8)
    assert (tmp_path / "here" / "model.onnx.data").stat().st_size > 0
    assert result.graph_bytes > (tmp_path / "here" / "model.onnx.data").stat().st_size
    expected = HierarchicalClassifier.load(tmp_path / "here").predict_proba(["a prism"])
    shutil.move(tmp_path / "here", tmp_path / "there")
    found = HierarchicalClassifier.load(tmp_path / "there").predict_proba(["a prism"])
    np.testing.assert_array_equal(found, expected)


@pytest.mark.slow
def test_the_folder_holds_all_that_prediction_needs_and_no_more(make_model, make_export, taxonomy) -> None:
    folder = make_export("mpnet")
    files = ["config.json", "decisions.json", "manifest.json", "model.onnx", "tokenizer.json"]
    assert sorted(path.name for path in folder.iterdir()) == files
    config = json.loads((folder / "config.json").read_text())
    assert config["pad_token_id"] == 1
    assert list(config["id2label"].values()) == list(taxonomy.ids)
    assert str(Path(make_model("mpnet")).parent) not in (folder / "config.json").read_text()
    onnx.checker.check_model(folder / "model.onnx")
    assert b"site-packages" not in (folder / "model.onnx").read_bytes()  # nor where this machine keeps its programs


@pytest.mark.slow
def test_many_labels(make_encoder, tmp_path: Path) -> None:
    from hgclr.taxonomy import Taxonomy

    count = 20_000
    tokenizer = load_tokenizer(make_encoder("bert"))
    taxonomy = Taxonomy([f"label {index}" for index in range(count)], [index // 10 - 1 for index in range(count)])
    torch.manual_seed(0)
    save(
        FlatForSequenceClassification.from_encoder(make_encoder("bert"), taxonomy, tokenizer),
        tokenizer,
        tmp_path / "model",
    )
    result = export_onnx(tmp_path / "model", tmp_path / "out")
    assert result.difference.logit < 1e-4
    assert HierarchicalClassifier.load(tmp_path / "out").predict_proba(["a prism"]).shape == (1, count)


@pytest.mark.slow
@pytest.mark.parametrize(("error", "refused"), [(3e-4, True), (3e-5, False)])
def test_a_graph_with_other_logits_is_refused(make_model, tmp_path: Path, monkeypatch, error: float, refused) -> None:
    real = exporting.trace

    def trace_another(model: FlatForSequenceClassification):
        other = copy.deepcopy(model)
        with torch.no_grad():
            other.classifier.bias[3] += error
        return real(other)

    monkeypatch.setattr(exporting, "trace", trace_another)
    if not refused:
        assert export_onnx(make_model("bert"), tmp_path / "out").difference.logit == pytest.approx(error, rel=0.1)
        return
    with pytest.raises(InputError, match=r"bert model gives other logits than torch, by 0\.0003; nothing was written"):
        export_onnx(make_model("bert"), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_what_cannot_be_exported_is_refused_and_leaves_nothing(make_model, make_export, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no model could be loaded from"):
        export_onnx(tmp_path / "nowhere", tmp_path / "out")
    with pytest.raises(InputError, match="this is an ONNX model already; give the model that hgclr train wrote"):
        export_onnx(make_export("bert"), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    with pytest.raises(InputError, match="out: the output is there already; give a new or empty folder"):
        export_onnx(make_model("bert"), tmp_path / "out")
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="file/out: the model cannot be written: Not a directory"):
        export_onnx(make_model("bert"), tmp_path / "file" / "out")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "mine", "out"]
