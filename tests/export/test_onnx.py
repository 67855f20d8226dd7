"""The ONNX export: the graph's logits are torch's, for many encoders, shapes and label trees; int8 stays near them."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx_ir
import onnxruntime
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hgclr.data.folder import Document
from hgclr.errors import InputError
from hgclr.export import onnx as exporting
from hgclr.export.onnx import Quantiser, export_onnx
from hgclr.inference import HierarchicalClassifier
from hgclr.inference.backends import OnnxBackend, pad
from hgclr.models import FlatForSequenceClassification

INT8_TOLERANCE = 0.05  # in a probability, for the tiny random models of these tests
SHAPES = [(1, 1), (1, 2), (2, 1), (1, 64), (3, 17), (5, 40), (13, 3)]
# Pooling comes behind the encoder, whichever that is.
FORMS = [*((kind, "cls") for kind in ("bert", "roberta", "distilbert", "electra")), ("mpnet", "mean"), ("bert", "max")]


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


@pytest.mark.parametrize(
    ("kind", "pooling"), [FORMS[0], *(pytest.param(*form, marks=pytest.mark.slow) for form in FORMS[1:])]
)
def test_logits_are_those_of_torch_and_int8_is_near(make_model, make_export, kind: str, pooling: str) -> None:
    model = FlatForSequenceClassification.from_pretrained(make_model(kind, pooling)).eval()
    backend = OnnxBackend(make_export(kind, pooling) / "model.onnx")
    rounded = OnnxBackend(make_export(kind, pooling, int8=True) / "model.onnx")
    differences = []
    for ids, mask in batches(model):
        expected = torch_logits(model, ids, mask)
        found = backend.logits(ids, mask)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected, atol=1e-4)
        differences.append(np.abs(sigmoid(rounded.logits(ids, mask)) - sigmoid(expected)).max())
    assert 1e-6 < max(differences) < INT8_TOLERANCE


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
@pytest.mark.parametrize("int8", [False, True])
def test_the_folder_works_after_a_move(make_model, tmp_path: Path, monkeypatch, int8: bool) -> None:
    """Weights in a file of their own, as in graphs above two gigabytes, move with the rest."""
    monkeypatch.setattr(exporting, "PROTOBUF_LIMIT", 0)
    result = export_onnx(make_model("bert"), tmp_path / "here", int8=int8)
    assert (tmp_path / "here" / "model.onnx.data").stat().st_size > 0
    assert result.sizes[1] > (tmp_path / "here" / "model.onnx.data").stat().st_size
    expected = HierarchicalClassifier.load(tmp_path / "here").predict_proba(["a prism"])
    shutil.move(tmp_path / "here", tmp_path / "there")
    found = HierarchicalClassifier.load(tmp_path / "there").predict_proba(["a prism"])
    np.testing.assert_array_equal(found, expected)


def test_the_folder_holds_all_that_prediction_needs_and_no_more(make_model, make_export, taxonomy) -> None:
    folder = make_export("bert")
    files = ["config.json", "decisions.json", "manifest.json", "model.onnx", "tokenizer.json"]
    assert sorted(path.name for path in folder.iterdir()) == files
    config = json.loads((folder / "config.json").read_text())
    assert config["pad_token_id"] == 0
    assert list(config["id2label"].values()) == list(taxonomy.ids)
    assert str(Path(make_model("bert")).parent) not in (folder / "config.json").read_text()
    onnx.checker.check_model(folder / "model.onnx")
    assert b"site-packages" not in (folder / "model.onnx").read_bytes()  # nor where this machine keeps its programs


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
    with pytest.raises(InputError) as caught:
        export_onnx(make_model("bert"), tmp_path / "out")
    assert caught.value.remedy
    assert list(tmp_path.iterdir()) == []


def test_bad_input_is_refused_and_leaves_nothing(make_model, make_export, tmp_path: Path) -> None:
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "mine").touch()
    (tmp_path / "file").touch()
    for model, output in (
        (tmp_path / "nowhere", tmp_path / "out"),
        (make_export("bert"), tmp_path / "out"),
        (make_model("bert"), tmp_path / "used"),
        (make_model("bert"), tmp_path / "file" / "out"),
    ):
        with pytest.raises(InputError):
            export_onnx(model, output)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "mine", "used"]


def quantise(model: onnx_ir.Model) -> int:
    return Quantiser(model.graph).run()


def run(model: onnx_ir.Model, **inputs: np.ndarray) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(
        onnx_ir.to_proto(model).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, inputs)


def graph(header: str, body: str, **constants: np.ndarray) -> onnx_ir.Model:
    """Return a graph in ONNX's own words, with constants."""
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 23]> agraph {header} {{ {body} }}')
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in constants.items())
    return onnx_ir.from_proto(model)


def product_by_definition(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """step Q_x Q_w scales, each row of x with a step of its own."""
    step = np.abs(x).max(-1, keepdims=True).astype(np.float64) / 127
    q_x = np.rint(x / np.where(step == 0, 1, step))
    scales = np.abs(weight).max(0) / 63
    q_w = np.rint(weight / np.where(scales == 0, 1, scales))
    return step * (q_x @ q_w) * scales


def test_products_stay_in_fp32_until_int8_loses_little_on_documents(
    make_model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Gold labels are what the model predicts, so that any change is a loss."""
    classifier = HierarchicalClassifier.load(make_model("bert"))
    texts = ["atom", "the lens of a prism in a lake is a mirror", "judge " * 30, "a boat", "goal", "a"]
    ids = classifier.taxonomy.ids
    documents = [
        Document(text, tuple(ids.index(label.id) for label in prediction.labels))
        for text, prediction in zip(texts, classifier.predict(texts), strict=True)
    ]
    written = export_onnx(make_model("bert"), tmp_path / "near", int8=True, documents=documents)
    assert written.kept == written.measured[-1][0]
    assert max(written.measured[-1][1]) <= exporting.LARGEST_LOSS
    # A loss below any that there is: nothing is good enough, and nothing is written.
    monkeypatch.setattr(exporting, "LARGEST_LOSS", -2.0)
    with pytest.raises(InputError) as caught:
        export_onnx(make_model("bert"), tmp_path / "far", int8=True, documents=documents)
    assert caught.value.remedy
    assert not (tmp_path / "far").exists()
    # Losses by hand: the first two choices are bad, the third is good.
    losses = iter([0.9, 0.8, 0.5, 0.6, 0.9, 0.75])
    monkeypatch.setattr(exporting, "LARGEST_LOSS", 0.1)
    monkeypatch.setattr(exporting, "f1_of_backend", lambda *_: (next(losses),) * 2)
    written = export_onnx(make_model("bert"), tmp_path / "third", int8=True, documents=documents)
    assert [name for name, _ in written.measured] == list(exporting.KEPT)[:3]
    assert [loss for _, (loss, _) in written.measured] == pytest.approx([0.4, 0.3, 0.0])
    kinds = [node.op_type for node in onnx.load(tmp_path / "third" / "model.onnx").graph.node]
    assert {"MatMul", "MatMulInteger"} <= set(kinds)
    assert written.kept == list(exporting.KEPT)[2]
    assert written.lost == pytest.approx((0.05, 0.05))
    losses = iter([0.9, 0.8, 0.9, 0.6])  # good on the half that chooses, bad on the other
    written = export_onnx(make_model("bert"), tmp_path / "fourth", int8=True, documents=documents)
    assert written.lost == pytest.approx((0.2, 0.2))
    assert any(record.levelname == "WARNING" for record in caplog.records)


@settings(deadline=None, max_examples=20, derandomize=True)
@given(st.integers(0, 10**6), st.integers(1, 40), st.integers(1, 40), st.floats(0.01, 100))
def test_a_product_is_what_the_definition_says(seed: int, inner: int, outer: int, size: float) -> None:
    random = np.random.default_rng(seed)
    x = (size * random.standard_normal((2, 3, inner))).astype(np.float32)
    weight = random.standard_normal((inner, outer)).astype(np.float32)
    weight[:, 0] = 0  # a column without a scale of its own
    model = graph("(float[b, l, n] x) => (float[b, l, m] y)", "y = MatMul (x, w)", w=weight)
    assert quantise(model) == 1
    (found,) = run(model, x=x)
    expected = product_by_definition(x, weight)
    # A value halfway between two integers may go either way in another precision: one step of x at one place.
    step = np.abs(x).max() / 127 * np.abs(weight).max()
    np.testing.assert_allclose(found, expected, atol=1.01 * step + 1e-5)
    assert np.median(np.abs(found - expected)) < 1e-3 * step + 1e-6
    np.testing.assert_allclose(found[..., 0], 0, atol=1e-7)
    assert "w" not in model.graph.initializers  # the fp32 weight is gone


def test_a_row_is_rounded_by_itself() -> None:
    """Beside rows of other sizes, and of zeros, it gives what it gives alone, to the last bit."""
    random = np.random.default_rng(1)
    x = (random.standard_normal((3, 4, 16)) * random.lognormal(0, 4, (3, 4, 1))).astype(np.float32)
    x[1, 2] = 0
    weight = random.standard_normal((16, 8)).astype(np.float32)
    model = graph("(float[b, l, n] x) => (float[b, l, m] y)", "y = MatMul (x, w)", w=weight)
    quantise(model)
    (together,) = run(model, x=x)
    assert not together[1, 2].any()
    for row in range(3):
        for token in range(4):
            (alone,) = run(model, x=x[row : row + 1, token : token + 1])
            np.testing.assert_array_equal(alone[0, 0], together[row, token])


def test_weights_leave_room_for_cpus_that_add_two_products_in_16_bits() -> None:
    weight = np.random.default_rng(0).standard_normal((30, 20)).astype(np.float32)
    model = graph("(float[b, 30] x) => (float[b, 20] y)", "y = MatMul (x, w)", w=weight)
    quantise(model)
    stored = model.graph.initializers["w_int8"].const_value.numpy()
    assert stored.dtype == np.int8
    assert 2 * 255 * np.abs(stored.astype(int)).max() < 2**15
    assert (np.abs(stored.astype(int)).max(0) == 63).all()


def test_what_several_products_share_is_quantised_once() -> None:
    weight = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)
    body = "a = MatMul (x, w) b = MatMul (x, v) c = MatMul (a, w) d = Add (b, c) y = MatMul (d, x)"
    model = graph("(float[8, 8] x) => (float[8, 8] y)", body, w=weight, v=2 * weight)
    assert quantise(model) == 3  # the last is a product of two activations
    kinds = [node.op_type for node in model.graph]
    assert kinds.count("MatMulInteger") == 3
    assert kinds.count("QuantizeLinear") == 2  # x and a
    assert kinds.count("MatMul") == 1
    assert {"v_int8", "v_scales", "w_int8", "w_scales"} <= set(model.graph.initializers)
    assert not {"v", "w"} & set(model.graph.initializers)


def test_large_tables_are_stored_with_a_scale_per_row(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    table = (random.standard_normal((50, 16)) * random.lognormal(0, 2, (50, 1))).astype(np.float32)
    table[3] = 0
    ids = random.integers(0, 50, (4, 7))

    def make() -> onnx_ir.Model:
        return graph("(int64[b, l] ids) => (float[b, l, 16] y)", "y = Gather (table, ids)", table=table)

    small = make()
    assert quantise(small) == 0
    np.testing.assert_array_equal(run(small, ids=ids)[0], table[ids])

    monkeypatch.setattr(exporting, "TABLE", 800)
    large = make()
    assert quantise(large) == 1
    half_a_step = np.abs(table).max(1, keepdims=True)[ids] / 127 / 2
    (found,) = run(large, ids=ids)
    assert (np.abs(found - table[ids]) <= 1.001 * half_a_step).all()
    assert not np.array_equal(found, table[ids])
    assert large.graph.initializers["table_int8"].const_value.numpy().dtype == np.int8
