"""Compare other forms of the exported ONNX graph, in fp32 with mean pooling.

    python benchmarks/graph_variants.py --output benchmarks/results/graph-variants.json

Each form takes turns with the graph that ``hgclr export`` writes, on random tokens, without a tokenizer. The exported
graph runs twice, which shows the noise of this machine.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir
from numpy.typing import NDArray
from onnx_ir.passes.common import RemoveUnusedNodesPass

from hgclr.export.onnx import add_constant, trace
from hgclr.inference.backends import import_onnxruntime, session_options
from hgclr.models import FlatForSequenceClassification
from hgclr.taxonomy import Taxonomy
from measuring import arguments_of, in_turns, provenance, ratio, show, spread, write
from untrained import write_untrained

LABELS = 160
WORDS = 20_000
"""Size of the vocabulary that tokens are drawn from."""
LENGTHS = {"short texts": 12, "abstracts": 205}
TOKENS = 512
"""Tokens per batch."""
BASE = "as exported"
FUSIONS = "optimization.disable_specified_optimizers"
MICROSOFT = "com.microsoft"

Inputs = dict[str, NDArray[np.int64]]


def batch(length: int, tokens: int) -> Inputs:
    """Return random texts of one length; the last one is padded."""
    ids = np.random.default_rng(0).integers(4, WORDS, (tokens // length, length))
    mask = np.ones_like(ids)
    mask[-1, -2:] = 0
    return {"input_ids": ids, "attention_mask": mask}


def attention_parts(node: onnx_ir.Node) -> tuple[list[onnx_ir.Node], list[onnx_ir.Node], list[onnx_ir.Node]]:
    """Return the nodes behind queries, keys and values: reshapes, additions of a bias, and products."""
    reshapes = [value.producer().inputs[0].producer() for value in node.inputs[:3]]
    additions = [reshape.inputs[0].producer() for reshape in reshapes]
    return reshapes, additions, [addition.inputs[0].producer() for addition in additions]


def side_by_side(values: list[onnx_ir.Value]) -> NDArray[np.float32]:
    """Return constants joined along their last axis."""
    return np.concatenate([value.const_value.numpy() for value in values], axis=-1)


def replace_attention(graph: onnx_ir.Graph, node: onnx_ir.Node, new: onnx_ir.Node) -> None:
    """Replace an attention and its transpositions by a node from (B, L, H) to (B, L, H)."""
    back = node.outputs[0].uses()[0].node.outputs[0].uses()[0].node  # Transpose, Reshape
    graph.insert_before(back, new)
    new.outputs[0].shape, new.outputs[0].type = back.outputs[0].shape, back.outputs[0].type
    back.outputs[0].replace_all_uses_with(new.outputs[0])


def attention_of(heads_apart: Callable[[onnx_ir.Model, onnx_ir.Node, int], onnx_ir.Node], model: onnx_ir.Model) -> None:
    """Replace every attention by the node that a function returns for it."""
    for number, node in enumerate([node for node in model.graph if node.op_type == "Attention"]):
        replace_attention(model.graph, node, heads_apart(model, node, number))


def three_dimensions(_: onnx_ir.Model, node: onnx_ir.Node, __: int) -> onnx_ir.Node:
    """Return an attention that splits the heads itself."""
    heads = int(node.inputs[0].shape[1])
    attributes = {"q_num_heads": heads, "kv_num_heads": heads, "scale": node.attributes["scale"].as_float()}
    inputs = [addition.outputs[0] for addition in attention_parts(node)[1]]
    return onnx_ir.node("Attention", [*inputs, node.inputs[3]], attributes)


def padding_mask(model: onnx_ir.Model) -> onnx_ir.Value:
    """Return the attention mask as 32-bit integers, for onnxruntime's own operators."""
    for node in model.graph:
        if node.name == "mask_32":
            return node.outputs[0]
    cast = onnx_ir.node("Cast", [model.graph.inputs[1]], {"to": onnx_ir.DataType.INT32}, name="mask_32")
    model.graph.insert_before(next(iter(model.graph)), cast)
    return cast.outputs[0]


def multi_head_attention(model: onnx_ir.Model, node: onnx_ir.Node, number: int) -> onnx_ir.Node:
    """Return onnxruntime's MultiHeadAttention, with the biases inside."""
    model.opset_imports[MICROSOFT] = 1
    _, additions, products = attention_parts(node)
    bias = add_constant(model.graph, f"bias_{number}", side_by_side([addition.inputs[1] for addition in additions]))
    attributes = {"num_heads": int(node.inputs[0].shape[1]), "scale": node.attributes["scale"].as_float()}
    inputs = [*(product.outputs[0] for product in products), bias, padding_mask(model)]
    return onnx_ir.node("MultiHeadAttention", inputs, attributes, domain=MICROSOFT)


def whole_attention(model: onnx_ir.Model, node: onnx_ir.Node, number: int) -> onnx_ir.Node:
    """Return onnxruntime's Attention, with products and biases inside."""
    model.opset_imports[MICROSOFT] = 1
    _, additions, products = attention_parts(node)
    constants = [
        add_constant(model.graph, f"{name}_{number}", side_by_side([source.inputs[1] for source in sources]))
        for name, sources in (("weight", products), ("bias", additions))
    ]
    attributes = {"num_heads": int(node.inputs[0].shape[1]), "scale": node.attributes["scale"].as_float()}
    inputs = [products[0].inputs[0], *constants, padding_mask(model)]
    return onnx_ir.node("Attention", inputs, attributes, domain=MICROSOFT)


def one_product(model: onnx_ir.Model) -> None:
    """Compute queries, keys and values in one product and split it."""
    graph = model.graph
    for number, node in enumerate([node for node in graph if node.op_type == "Attention"]):
        _, additions, products = attention_parts(node)
        weight = add_constant(graph, f"weight_{number}", side_by_side([product.inputs[1] for product in products]))
        bias = add_constant(graph, f"bias_{number}", side_by_side([addition.inputs[1] for addition in additions]))
        product = onnx_ir.node("MatMul", [products[0].inputs[0], weight])
        addition = onnx_ir.node("Add", [product.outputs[0], bias])
        split = onnx_ir.node("Split", [addition.outputs[0]], {"axis": -1, "num_outputs": 3}, num_outputs=3)
        for new in (product, addition, split):
            graph.insert_before(products[0], new)
        for part, old in zip(split.outputs, additions, strict=True):
            part.shape, part.type = old.outputs[0].shape, old.outputs[0].type
            old.outputs[0].replace_all_uses_with(part)


REWRITES: dict[str, Callable[[onnx_ir.Model], object]] = {
    BASE: lambda _: None,
    "as exported, again": lambda _: None,
    "addition and norm fused (SkipLayerNormalization)": lambda _: None,
    "attention without transpositions": partial(attention_of, three_dimensions),
    "one product for queries, keys and values": one_product,
    "onnxruntime's MultiHeadAttention": partial(attention_of, multi_head_attention),
    "onnxruntime's Attention": partial(attention_of, whole_attention),
}


def session(model: onnx_ir.Model, *, fused_norms: bool = False) -> Any:
    """Return a session of a graph, without its unused nodes."""
    RemoveUnusedNodesPass()(model)
    options = session_options()
    if fused_norms:
        options.add_session_config_entry(FUSIONS, "")
    return import_onnxruntime().InferenceSession(
        onnx_ir.to_proto(model).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def run(*, encoder: str = "all-MiniLM-L6-v2", tokens: int = TOKENS, rounds: int = 21) -> dict[str, Any]:
    """Return the speed of each form relative to the exported graph.

    Args:
        encoder: encoder of the model with a random head.
        tokens: tokens per batch.
        rounds: number of timed rounds.

    Raises:
        ValueError: if a form computes other logits.
    """
    taxonomy = Taxonomy([f"label {index}" for index in range(LABELS)], [-1] * LABELS)
    with tempfile.TemporaryDirectory() as scratch:
        folder = write_untrained(encoder, taxonomy, Path(scratch, "model"), pooling="mean")
        network = FlatForSequenceClassification.from_pretrained(folder).eval()
    traced, sessions = onnx_ir.to_proto(trace(network)).SerializeToString(), {}
    for name, rewrite in REWRITES.items():
        model = onnx_ir.from_proto(onnx.ModelProto.FromString(traced))
        rewrite(model)
        sessions[name] = session(model, fused_norms="SkipLayer" in name)
    result: dict[str, Any] = {"forms": {}}
    for kind, length in LENGTHS.items():
        inputs = batch(length, tokens)
        logits = {name: one.run(None, inputs)[0] for name, one in sessions.items()}
        if apart := [name for name, found in logits.items() if np.abs(found - logits[BASE]).max() > 1e-4]:
            raise ValueError(f"{', '.join(apart)} and {BASE}: the logits differ")
        seconds = in_turns({name: partial(one.run, None, inputs) for name, one in sessions.items()}, rounds)
        result["forms"][kind] = {
            name: {**ratio(values, seconds[BASE]), "seconds": spread(values)} for name, values in seconds.items()
        }
    setting = {"encoder": encoder, "labels": LABELS, "tokens": tokens, "lengths": LENGTHS, "rounds": rounds}
    setting["threads"] = session_options().intra_op_num_threads
    return {**result, "setting": setting, **provenance()}


def main() -> None:
    """Run the benchmark, write the result and print the table."""
    parser = arguments_of(__doc__)
    parser.add_argument("--encoder", default="all-MiniLM-L6-v2")
    parser.add_argument("--tokens", type=int, default=TOKENS)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--output", type=Path, help="write the result to this JSON file")
    arguments = parser.parse_args()
    import_onnxruntime().set_default_logger_severity(3)  # it warns about an option that is set twice
    result = run(encoder=arguments.encoder, tokens=arguments.tokens, rounds=arguments.rounds)
    write(result, arguments.output)
    columns = result["forms"]
    rows = [(name, *(f"{column[name]['median']:.2f} x" for column in columns.values())) for name in REWRITES]
    show("Forms of the graph", ("", *columns), rows)


if __name__ == "__main__":
    main()
