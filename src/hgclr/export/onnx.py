"""Write a trained model as a folder that onnxruntime, tokenizers and json are enough to predict with.

Below the export: what makes a graph smaller, the last layer for the first token only, and weights in int8."""

from __future__ import annotations

import json
import logging
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir
import torch
from numpy.typing import NDArray
from onnx_ir.passes.common import ClearMetadataAndDocStringPass
from onnxscript.optimizer import optimize_ir
from torch import Tensor, nn
from torch.onnx import OnnxExporterError

from hgclr.errors import InputError
from hgclr.export.check import LogitDifference, compare, new_folder, open_model, sample_batches
from hgclr.inference.backends import OnnxBackend
from hgclr.inference.loading import CONFIG, GRAPH, TOKENIZER
from hgclr.model_files import write_manifest
from hgclr.models import HierarchicalPreTrainedModel

__all__ = ["OnnxExport", "add_constant", "as_traced", "export_onnx", "keep_first_token", "quantise", "trace"]

INPUTS = ("input_ids", "attention_mask")
OUTPUT = "logits"
# The first with an operator for attention; Gelu and LayerNormalization are older. With these, onnxruntime's kernels
# need no pattern to be found in the graph, so that every encoder with torch's own attention gets them.
OPSET = 23
TOLERANCE = 1e-4
"""How far a logit of the fp32 graph may be from torch's, as a share of it where it is larger than 1."""
PROTOBUF_LIMIT = 2**31 - 2**24
"""Bytes of weights above which they do not fit into the file of the graph and go into one beside it."""
# Output element by element from inputs of its shape, or of one that is broadcast to it.
ELEMENTWISE = {"Add", "And", "Cast", "Div", "Erf", "Exp", "Gelu", "Mul", "Neg", "Pow", "Relu", "Sigmoid", "Sqrt", "Sub"}
ELEMENTWISE |= {"Tanh", "Where"}
FLOAT = onnx_ir.DataType.FLOAT
# CPUs without instructions for sums of four products (VNNI) add up two in 16 bits: 2 · 255 · 63 fits, 127 does
# not. The eighth bit gained next to nothing when tried: most of the error is the rounding of the other factor.
LARGEST_FACTOR = 63
LARGEST_ENTRY = 127  # of a table, which is multiplied with nothing, and of what weights are multiplied with
ZERO = np.uint8(128)
"""What stands for 0 in what weights are multiplied with: CPUs multiply unsigned with signed."""
TABLE = 2**20
"""Numbers in a table from which it is worth storing in int8, which is for the size of the file alone."""


@dataclass(frozen=True)
class OnnxExport:
    """What an export wrote.

    Args:
        folder: where it is.
        difference: how far its logits are from torch's.
        model_bytes: size of the torch model's weights.
        graph_bytes: size of the graph with its weights.
    """

    folder: Path
    difference: LogitDifference
    model_bytes: int
    graph_bytes: int


def export_onnx(model: str | Path, output: Path, *, int8: bool = False, texts: Sequence[str] = ()) -> OnnxExport:
    """Write a model as an ONNX graph with tokenizer and configuration, and check it against torch.

    Args:
        model: a folder that ``hgclr train`` wrote, or a hub name.
        output: a new or empty folder, which is written whole or not at all.
        int8: turn the matrix products into int8 (see :func:`hgclr.export.onnx.quantise`).
        texts: what to hold the two against each other on, besides the label names.

    Raises:
        InputError: if there is no such model, the output is in use or cannot be written, or the graph does not give the
            model's logits.
    """
    source = open_model(model, output)
    network, loaded = source.network, source.loaded
    batches = sample_batches(loaded, texts)
    try:
        with new_folder(output) as folder, tempfile.TemporaryDirectory() as scratch:
            graph = trace(network)
            if network.config.pooling == "cls":
                keep_first_token(graph)
            # Checked in fp32 in any case, so that what int8 differs by is rounding and nothing else.
            first = OnnxBackend(_save(graph, Path(scratch) if int8 else folder))
            difference = compare(source.backend.logits, first.logits, batches)
            if not difference.relative <= TOLERANCE:  # NaN is not
                raise _refusal(model, network, f"gives other logits than torch, by {difference.logit:.2g}")
            if int8:
                quantise(graph)
                difference = compare(source.backend.logits, OnnxBackend(_save(graph, folder)).logits, batches)
            graph_bytes = sum(file.stat().st_size for file in folder.iterdir())
            loaded.decisions.write(folder)
            loaded.tokenizer.save(str(folder / TOKENIZER))
            # The padding token is something that only transformers would know.
            config = network.config.to_dict() | {"pad_token_id": loaded.pad_token}
            text = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
            (folder / CONFIG).write_text(text, encoding="utf-8")
            write_manifest(folder)
    except OnnxExporterError as error:
        raise _refusal(model, network, f"cannot be made: {str(error).splitlines()[0]}") from error
    model_bytes = sum(weight.numel() * weight.element_size() for weight in network.state_dict().values())
    return OnnxExport(output, difference, model_bytes, graph_bytes)


def _refusal(model: str | Path, network: HierarchicalPreTrainedModel, what: str) -> InputError:
    return InputError(
        f"the ONNX graph of this {network.config.text_encoder.model_type} model {what}",
        path=model,
        remedy="nothing was written; predict with the model as it is",
    )


def _save(graph: onnx_ir.Model, folder: Path) -> Path:
    path = folder / GRAPH
    size = sum(value.const_value.nbytes for value in graph.graph.initializers.values() if value.const_value is not None)
    onnx_ir.save(graph, path, external_data=f"{GRAPH}.data" if size > PROTOBUF_LIMIT else None)
    return path


class _Logits(nn.Module):
    def __init__(self, model: HierarchicalPreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        logits: Tensor = self.model(input_ids, attention_mask).logits
        return logits


def trace(model: HierarchicalPreTrainedModel) -> onnx_ir.Model:
    """Return the graph from ``input_ids`` and ``attention_mask``, int64 (batch, length), to ``logits``, (batch, K).

    Raises:
        OnnxExporterError: if torch cannot write this encoder as a graph.
    """
    graph = as_traced(model)
    # Constants are computed, whatever their size; torch's own choice also fuses rotary embeddings, into an operator
    # that does not take them.
    with _quiet_exporter():
        optimize_ir(graph, input_size_limit=sys.maxsize, output_size_limit=sys.maxsize)
    # Notes on every node, with lines of code and the folders they are in on this machine.
    ClearMetadataAndDocStringPass()(graph)
    return graph


def as_traced(model: HierarchicalPreTrainedModel) -> onnx_ir.Model:
    """Return the graph as torch writes it, with the model's parameters under their names."""
    # Torch takes sizes of 0 and 1 for constants, hence neither stands here; the tokens do not matter, the padding does.
    ids = torch.ones(2, max(2, min(8, model.config.max_length)), dtype=torch.int64)
    mask = ids.clone()
    mask[1, ids.shape[1] // 2 :] = 0
    with _quiet_exporter():
        program = torch.onnx.export(
            _Logits(model).eval(),
            (ids, mask),
            dynamo=True,
            opset_version=OPSET,
            input_names=INPUTS,
            output_names=[OUTPUT],
            dynamic_shapes={name: {0: "batch", 1: "length"} for name in INPUTS},
            optimize=False,
            verbose=False,
        )
    if program is None:
        raise RuntimeError("torch.onnx.export gave no program")
    return program.model


@contextmanager
def _quiet_exporter() -> Iterator[None]:
    """Keep torch's notes on its own workings from the user, who has no use for them."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logger.setLevel(level)


def keep_first_token(model: onnx_ir.Model) -> int:
    """Narrow, in place, every tensor of which the head uses the first token only; return how many there were.

    Where the text's vector is the first token's, the last layer's queries, attention, feed-forward network and norms
    are computed for all tokens and thrown away for all but one. The graph is walked from the head backwards: a tensor
    of which only the first slice along an axis is used asks for only that slice of the inputs of the operator it comes
    from, as far as the operators treat slices one by one. Where the walk ends, the slice is cut out. Logits stay what
    they were.
    """
    graph = model.graph
    narrow: dict[onnx_ir.Value, int] = {}  # tensors of which only the first slice is used -> along which axis
    wanted: dict[onnx_ir.Value, list[int | None]] = {}  # what each consumer uses: the first along an axis, or all
    for node in reversed(list(graph)):
        axis = _only_slice(node.outputs[0], wanted) if len(node.outputs) == 1 else None
        demands = {} if axis is None else _demands(node, axis)
        if axis is not None and demands:
            narrow[node.outputs[0]] = axis
        elif _takes_first(node):
            demands = {0: 1}
        for position, value in enumerate(node.inputs):
            if value is not None:
                wanted.setdefault(value, []).append(demands.get(position))
    _cut(graph, narrow)
    return len(narrow)


def _only_slice(value: onnx_ir.Value, wanted: dict[onnx_ir.Value, list[int | None]]) -> int | None:
    """Return the axis along which all consumers use the first slice only."""
    if value.is_graph_output():
        return None
    axes = set(wanted.get(value, [None]))
    return axes.pop() if len(axes) == 1 else None


def _takes_first(node: onnx_ir.Node) -> bool:
    """Tell whether a node is ``hidden[:, 0]`` of a (B, L, H) tensor."""
    hidden = node.inputs[0] if node.inputs else None
    if node.op_type != "Gather" or hidden is None or hidden.shape is None or len(hidden.shape) != 3:
        return False
    index = onnx_ir.convenience.get_const_tensor(node.inputs[1]) if node.inputs[1] is not None else None
    return _attribute(node, "axis", 0) == 1 and index is not None and index.numpy().tolist() == 0


def _demands(node: onnx_ir.Node, axis: int) -> dict[int, int]:
    """Return which inputs a node needs only the first slice of, and along which axis, to give its own first slice.

    Empty if the node does not treat slices along ``axis`` one by one, as far as is known here.
    """
    rank = len(node.outputs[0].shape or ())
    if node.domain or not rank or any(value is not None and value.shape is None for value in node.inputs):
        return {}
    kind = node.op_type
    if kind in ELEMENTWISE:
        return dict(_broadcast(node, axis, rank, range(len(node.inputs))))
    if (kind == "LayerNormalization" and axis < _attribute(node, "axis", -1) % rank) or (
        kind == "Softmax" and axis != _attribute(node, "axis", -1) % rank
    ):
        return {0: axis}
    if kind == "MatMul" and axis == rank - 2 and _rank(node, 0) == rank:
        return {0: axis}  # rows of the product come from rows of the left matrix
    if kind == "Transpose":
        return {0: node.attributes["perm"].as_ints()[axis]}
    if kind == "Reshape" and _reshaped(node, axis) is not None:
        return {0: axis}
    if kind == "Attention" and rank == 4 and axis == 2 and len(node.outputs) == 1:
        # Of the queries only the first, and its row of the mask; keys and values stay whole.
        return {} if _attribute(node, "is_causal", 0) else {0: 2, **dict(_broadcast(node, axis, rank, range(3, 4)))}
    return {}


def _broadcast(node: onnx_ir.Node, axis: int, rank: int, positions: range) -> Iterator[tuple[int, int]]:
    """Yield the inputs that extend along the output's axis, with their own number of that axis."""
    for position in positions:
        value = node.inputs[position] if position < len(node.inputs) else None
        shape = value.shape if value is not None else None
        own = axis - rank + len(shape or ())
        if shape is not None and own >= 0 and shape[own] != 1:
            yield position, own


def _reshaped(node: onnx_ir.Node, axis: int) -> list[int] | None:
    """Return the new target of a Reshape that leaves everything up to ``axis`` alone, else None.

    In the target, 0 stands for the size that the input has there.
    """
    value = node.inputs[0]
    before, after = value.shape if value is not None else None, node.outputs[0].shape
    if before is None or after is None or len(before) <= axis:
        return None
    kept, rest = list(after)[: axis + 1], [size for size in list(after)[axis + 1 :] if isinstance(size, int)]
    unknown = any(not isinstance(size, int) and size.value is None for size in kept)
    if unknown or list(before)[: axis + 1] != kept or len(kept) + len(rest) != len(after):
        return None
    return [0] * len(kept) + rest


def _cut(graph: onnx_ir.Graph, narrow: dict[onnx_ir.Value, int]) -> None:
    """Make the chosen tensors one slice wide: cut what comes in from whole ones, and mend the shapes in between."""
    slices: dict[tuple[onnx_ir.Value, int], onnx_ir.Value] = {}
    for node in list(graph):
        output = node.outputs[0]
        if (axis := narrow.get(output)) is None:
            continue
        if node.op_type == "Reshape" and (target := _reshaped(node, axis)) is not None:
            node.replace_input_with(1, _numbers(graph, target))
            node.attributes.pop("allowzero", None)  # which would have 0 mean 0
        for position, own in _demands(node, axis).items():
            value = node.inputs[position]
            if value is None or value in narrow:
                continue
            if (value, own) not in slices:
                bounds = [_numbers(graph, [number]) for number in (0, 1, own)]
                cut = onnx_ir.node("Slice", [value, *bounds])
                cut.outputs[0].type, cut.outputs[0].shape = value.type, _one_wide(value, own)
                graph.insert_before(node, cut)
                slices[value, own] = cut.outputs[0]
            node.replace_input_with(position, slices[value, own])
    for value, axis in narrow.items():
        value.shape = _one_wide(value, axis)


def _one_wide(value: onnx_ir.Value, axis: int) -> onnx_ir.Shape:
    return onnx_ir.Shape([1 if number == axis else size for number, size in enumerate(value.shape or ())])


def _numbers(graph: onnx_ir.Graph, numbers: list[int]) -> onnx_ir.Value:
    return add_constant(graph, "first_token_" + "_".join(map(str, numbers)), np.array(numbers, dtype=np.int64))


def _rank(node: onnx_ir.Node, position: int) -> int:
    value = node.inputs[position]
    return -1 if value is None or value.shape is None else len(value.shape)


def _attribute(node: onnx_ir.Node, name: str, default: int) -> int:
    attribute = node.attributes.get(name)
    return default if attribute is None else attribute.as_int()


def quantise(model: onnx_ir.Model) -> int:
    """Quantise, in place, all products with a weight matrix and look-ups in large tables; return how many."""
    graph, count = model.graph, 0
    quantiser = _Quantiser(graph)
    for node in list(graph):
        if node.op_type == "MatMul" and (matrix := _matrix(node, 1)) is not None:
            result = quantiser.product(node, matrix)
        elif _is_look_up(node) and (matrix := _matrix(node, 0)) is not None and matrix.size >= TABLE:
            result = quantiser.look_up(node, matrix)
        else:
            continue
        old = node.outputs[0]
        old.replace_all_uses_with(result, replace_graph_outputs=True)
        graph.remove(node, safe=True)
        result.name, result.shape, result.type = old.name, old.shape, old.type
        count += 1
    for name in [name for name, value in graph.initializers.items() if not value.uses()]:
        del graph.initializers[name]
    return count


class _Quantiser:
    """Replace nodes of a graph; weights and activations that several nodes share are quantised once."""

    def __init__(self, graph: onnx_ir.Graph) -> None:
        self.graph = graph
        self.weights: dict[tuple[onnx_ir.Value, int], tuple[onnx_ir.Value, onnx_ir.Value]] = {}
        self.activations: dict[onnx_ir.Value, tuple[onnx_ir.Value, onnx_ir.Value]] = {}

    def product(self, node: onnx_ir.Node, matrix: NDArray[np.float32]) -> onnx_ir.Value:
        """Put an integer product in the place of ``X W``."""
        factor, weight = node.inputs
        if factor is None or weight is None:
            raise ValueError("a product of nothing")
        if factor not in self.activations:
            self.activations[factor] = self.round_rows(node, factor)
        integers, steps = self.activations[factor]
        quantised, scales = self.store(weight, matrix, axis=0, largest=LARGEST_FACTOR)
        product = self.insert(node, "MatMulInteger", [integers, quantised, self.constant("zero", ZERO)])
        product = self.insert(node, "Cast", [product], to=FLOAT)
        product = self.insert(node, "Mul", [product, scales])
        return self.insert(node, "Mul", [product, steps])

    def round_rows(self, node: onnx_ir.Node, factor: onnx_ir.Value) -> tuple[onnx_ir.Value, onnx_ir.Value]:
        """Return a factor in uint8 around :data:`ZERO` and the step of each of its rows.

        A row is a token. With one step for the whole tensor, as DynamicQuantizeLinear has it, the largest number among
        all tokens of a batch, padding included, would decide how finely each of them is rounded: a text would be given
        other probabilities beside other texts.
        """
        size = self.insert(node, "Abs", [factor])
        largest = self.insert(node, "ReduceMax", [size, self.constant("last_axis", np.array([-1]))], keepdims=1)
        step = self.insert(node, "Mul", [largest, self.constant("one_step", np.float32(1 / LARGEST_ENTRY))])
        step = self.insert(node, "Max", [step, self.constant("least_step", np.finfo(np.float32).tiny)])  # of zeros
        scaled = self.insert(node, "Div", [factor, step])
        ones = self.constant("ones", np.float32(1))
        return self.insert(node, "QuantizeLinear", [scaled, ones, self.constant("zero", ZERO)]), step

    def look_up(self, node: onnx_ir.Node, matrix: NDArray[np.float32]) -> onnx_ir.Value:
        """Put the look-up of integers and of their scales in the place of that of a row."""
        table, rows = node.inputs
        if table is None:
            raise ValueError("a look-up in nothing")
        quantised, scales = self.store(table, matrix, axis=1, largest=LARGEST_ENTRY)
        row = self.insert(node, "Gather", [quantised, rows], axis=0)
        row = self.insert(node, "Cast", [row], to=FLOAT)
        scale = self.insert(node, "Gather", [scales, rows], axis=0)
        return self.insert(node, "Mul", [row, scale])

    def store(
        self, weight: onnx_ir.Value, matrix: NDArray[np.float32], *, axis: int, largest: int
    ) -> tuple[onnx_ir.Value, onnx_ir.Value]:
        """Return a matrix in int8 and its scales, of which there is one for each line along ``axis``."""
        if (weight, axis) not in self.weights:
            scales = np.abs(matrix).max(axis, keepdims=True) / np.float32(largest)
            scales[scales == 0] = 1
            quantised = np.rint(matrix / scales).astype(np.int8)
            self.weights[weight, axis] = (
                add_constant(self.graph, f"{weight.name}_int8", quantised),
                add_constant(self.graph, f"{weight.name}_scales", scales[0] if axis == 0 else scales),
            )
        return self.weights[weight, axis]

    def constant(self, name: str, value: Any) -> onnx_ir.Value:
        return add_constant(self.graph, f"int8_{name}", np.asarray(value))

    def insert(
        self, before: onnx_ir.Node, kind: str, inputs: Sequence[onnx_ir.Value | None], **attributes: int
    ) -> onnx_ir.Value:
        node = onnx_ir.node(kind, inputs, attributes)
        self.graph.insert_before(before, node)
        return node.outputs[0]


def _is_look_up(node: onnx_ir.Node) -> bool:
    axis = node.attributes.get("axis")
    return node.op_type == "Gather" and (axis is None or axis.as_int() == 0)


def _matrix(node: onnx_ir.Node, position: int) -> NDArray[np.float32] | None:
    """Return the constant matrix that a node takes at a position, if that is what it takes there."""
    value = node.inputs[position]
    if value is None or value.const_value is None or value.dtype != FLOAT or len(value.const_value.shape) != 2:
        return None
    array: NDArray[np.float32] = value.const_value.numpy()
    return array


def add_constant(graph: onnx_ir.Graph, name: str, array: NDArray[np.generic]) -> onnx_ir.Value:
    """Put an array into a graph; the one that is there already under this name, if there is one."""
    if name not in graph.initializers:
        tensor = onnx_ir.tensor(array, name=name)
        value = onnx_ir.Value(
            name=name,
            const_value=tensor,
            shape=onnx_ir.Shape(array.shape),
            type=onnx_ir.TensorType(tensor.dtype),
        )
        graph.register_initializer(value)
    return graph.initializers[name]
