"""Products in int8, held against the definition in numpy."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hgclr.export import onnx as quantising
from hgclr.export.onnx import quantise


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

    monkeypatch.setattr(quantising, "TABLE", 800)
    large = make()
    assert quantise(large) == 1
    half_a_step = np.abs(table).max(1, keepdims=True)[ids] / 127 / 2
    (found,) = run(large, ids=ids)
    assert (np.abs(found - table[ids]) <= 1.001 * half_a_step).all()
    assert not np.array_equal(found, table[ids])
    assert large.graph.initializers["table_int8"].const_value.numpy().dtype == np.int8


def test_columns_of_a_matrix_are_no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantising, "TABLE", 1)
    table = np.arange(12, dtype=np.float32).reshape(3, 4)
    model = graph("(int64[n] ids) => (float[3, n] y)", "y = Gather <axis = 1> (table, ids)", table=table)
    assert quantise(model) == 0
    np.testing.assert_array_equal(run(model, ids=np.array([2, 0]))[0], table[:, [2, 0]])
