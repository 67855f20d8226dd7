"""What the first token does not need leaves the graph, and nothing else does."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import onnx_ir
import onnxruntime
import pytest
import torch

from hgclr.export.onnx import keep_first_token, trace
from hgclr.models import FlatForSequenceClassification
from hgclr.models.base import load_tokenizer

WIDTH = 6


def run(model: onnx_ir.Model, **inputs: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(
        onnx_ir.to_proto(model).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, inputs)[0]


def graph(body: str) -> onnx_ir.Model:
    """Return a graph from x, (batch, length, 6), to y, (batch, 6), in ONNX's own words."""
    header = f"(float[batch, length, {WIDTH}] x) => (float[batch, {WIDTH}] y)"
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 23]> agraph {header} {{ {body} }}')
    weight = np.random.default_rng(0).standard_normal((WIDTH, WIDTH)).astype(np.float32)
    constants = {"w": weight, "zero": np.array(0), "tokens": np.array([1])}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in constants.items())
    return onnx_ir.from_proto(onnx.shape_inference.infer_shapes(model))


def sizes(model: onnx_ir.Model, name: str) -> list[str | int]:
    (value,) = (node.outputs[0] for node in model.graph if node.outputs[0].name == name)
    return [size if isinstance(size, int) else size.value for size in value.shape]


FIRST = "y = Gather <axis = 1> (h, zero)"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        # Row by row: all of it for the first token only.
        (f"g = MatMul (x, w) r = Add (g, x) h = Gelu (r) {FIRST}", {"g": 1, "r": 1, "h": 1}),
        (f"g = Softmax <axis = 2> (x) h = Mul (g, x) {FIRST}", {"g": 1, "h": 1}),
        # Over all tokens: only what comes after.
        (f"g = Softmax <axis = 1> (x) h = Tanh (g) {FIRST}", {"g": "length", "h": 1}),
        # Used in full elsewhere.
        (f"g = Tanh (x) m = ReduceMean <keepdims = 1> (g) h = Add (g, m) {FIRST}", {"g": "length", "h": 1}),
        # Through other axes and back.
        (
            f"t = Transpose <perm = [1, 2, 0]> (x) e = Exp (t) h = Transpose <perm = [2, 0, 1]> (e) {FIRST}",
            {"e": 1, "h": 1},
        ),
        # Not the first.
        ("h = Tanh (x) y = ReduceMax <keepdims = 0> (h, tokens)", {"h": "length"}),
    ],
)
def test_only_what_the_first_token_needs_is_computed(body: str, expected: dict[str, str | int]) -> None:
    model = graph(body)
    x = np.random.default_rng(1).standard_normal((3, 5, WIDTH)).astype(np.float32)
    before = run(model, x=x)
    count = keep_first_token(model)
    np.testing.assert_allclose(run(model, x=x), before, atol=1e-6)
    axis = {"e": 0}
    found = {name: sizes(model, name)[axis.get(name, 1)] for name in expected}
    assert found == expected
    assert count >= sum(size == 1 for size in expected.values())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bert", "mpnet"])
def test_the_last_layer_of_an_encoder_has_one_query(make_encoder: Callable[[str], str], taxonomy, kind: str) -> None:
    tokenizer = load_tokenizer(make_encoder(kind))
    torch.manual_seed(2)
    network = FlatForSequenceClassification.from_encoder(make_encoder(kind), taxonomy, tokenizer).eval()
    model = trace(network)
    ids = np.random.default_rng(0).integers(4, 20, (3, 9))
    mask = (np.arange(9) < np.array([[9], [4], [1]])).astype(np.int64)
    before = run(model, input_ids=ids, attention_mask=mask)
    keep_first_token(model)
    np.testing.assert_allclose(run(model, input_ids=ids, attention_mask=mask), before, atol=1e-6)
    attentions = [node for node in model.graph if node.op_type in ("Attention", "Softmax")]
    assert [node.outputs[0].shape[2] == 1 for node in attentions] == [False, True]
    wide = [node for node in model.graph if node.op_type == "Gelu"]
    assert [node.outputs[0].shape[1] == 1 for node in wide] == [False, True]
