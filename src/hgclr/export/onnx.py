"""Export to ONNX, in fp32 or int8: the folder needs only onnxruntime and tokenizers."""

from __future__ import annotations

import logging
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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

from hgclr.data.folder import Document
from hgclr.errors import InputError
from hgclr.export.check import (
    Export,
    compare,
    f1_of_backend,
    labelled_batches,
    new_folder,
    open_model,
    sample_batches,
)
from hgclr.files import json_bytes
from hgclr.inference.backends import OnnxBackend
from hgclr.inference.loading import CONFIG, GRAPH, TOKENIZER, LoadedModel
from hgclr.model_files import write_manifest
from hgclr.models import HierarchicalPreTrainedModel

INPUTS = ("input_ids", "attention_mask")
# The first version with an attention operator, which onnxruntime computes with a fast kernel.
OPSET = 23
TOLERANCE = 1e-4
"""Largest allowed difference between logits of the fp32 graph and of torch, relative if the logit is larger than 1."""
PROTOBUF_LIMIT = 2**31 - 2**24
"""Larger weights, in bytes, are written into a file beside the graph."""
FLOAT = onnx_ir.DataType.FLOAT
# CPUs without VNNI add two products in 16 bits: 2 · 255 · 63 fits, 2 · 255 · 127 overflows. An eighth bit would gain
# little: most of the error is the rounding of the activations.
LARGEST_FACTOR = 63
LARGEST_ENTRY = 127  # of activations, and of tables, which are not multiplied
ZERO = np.uint8(128)
"""The integer that represents 0 in activations: CPUs multiply unsigned with signed."""
TABLE = 2**20
"""Tables with at least so many entries are stored in int8, for a smaller file."""
logger = logging.getLogger(__name__)
LARGEST_LOSS = 0.003
"""Largest loss of Micro- or Macro-F1 by int8 on labelled documents."""
Kept = Callable[[tuple[int, ...]], bool]
KEPT: dict[str, Kept] = {
    "nothing": lambda _: False,
    "products that narrow": lambda shape: shape[0] > shape[1],  # their inputs have outliers
    "products that widen or narrow": lambda shape: shape[0] != shape[1],
    "all products": lambda _: True,
}
"""Products that stay in fp32, by the shape of their matrix, (inputs, outputs); the smallest file first."""


def export_onnx(
    model: str | Path,
    output: Path,
    *,
    int8: bool = False,
    texts: Sequence[str] = (),
    documents: Sequence[Document] = (),
) -> Export:
    """Write a model as an ONNX graph with tokenizer and configuration, and check it against torch.

    Args:
        model: a folder that ``hgclr train`` wrote, or a hub name.
        output: a new or empty folder, written completely or not at all.
        int8: compute matrix products in int8 (see :class:`Quantiser`).
        texts: texts for the comparison, besides the label names.
        documents: labelled documents on which int8 may lose :data:`LARGEST_LOSS` of Micro- and Macro-F1. Every second
            one chooses the products of :data:`KEPT` that stay in fp32: the first choice that loses no more. The others
            measure the loss of this choice; more than the limit is a warning.

    Raises:
        InputError: if there is no such model, the output is not empty or cannot be written, the graph's logits
            differ from the model's, or int8 loses too much with every choice of products.
    """
    source = open_model(model, output)
    network, loaded = source.network, source.loaded
    batches = sample_batches(loaded, texts)
    what = f"the ONNX graph of this {network.config.text_encoder.model_type} model"
    remedy = "predict with the model itself"
    try:
        with new_folder(output) as folder, tempfile.TemporaryDirectory() as scratch:
            graph = trace(network)
            # The fp32 graph is always checked, so that a difference of the int8 graph is only rounding.
            first = OnnxBackend(_save(graph, Path(scratch) if int8 else folder))
            difference = compare(source.backend.logits, first.logits, batches)
            if not difference.relative <= TOLERANCE:  # also true for NaN
                other = f"{what} differs by {difference.logit:.2g} in a logit from torch, so nothing was written"
                raise InputError(other, path=model, remedy=remedy)
            if int8:
                measured, lost = _quantised(loaded, first, Path(scratch) / GRAPH, folder, documents)
                difference = compare(source.backend.logits, OnnxBackend(folder / GRAPH).logits, batches)
                kept, losses = measured[-1]
                if max(losses) > LARGEST_LOSS:
                    tried = ", ".join(f"{100 * max(each):.2f} with {name} in fp32" for name, each in measured)
                    raise InputError(
                        f"int8 loses more than {100 * LARGEST_LOSS:.1f} points of F1, so nothing was written: {tried}",
                        path=model,
                        remedy="use --to onnx, or give more documents",
                    )
                if max(lost) > LARGEST_LOSS:
                    what = "int8 loses %.2f points of F1 on %d documents that did not choose its products"
                    logger.warning(what, 100 * max(lost), len(documents) // 2)
            graph_bytes = sum(file.stat().st_size for file in folder.iterdir())
            loaded.decisions.write(folder)
            loaded.tokenizer.save(str(folder / TOKENIZER))
            config = network.config.to_dict() | {"pad_token_id": loaded.pad_token}  # the tokenizer's file lacks it
            (folder / CONFIG).write_bytes(json_bytes(config))
            write_manifest(folder)
    except OnnxExporterError as error:
        raise InputError(f"{what} cannot be built: {str(error).splitlines()[0]}", path=model, remedy=remedy) from error
    model_bytes = sum(weight.numel() * weight.element_size() for weight in network.state_dict().values())
    if not int8:
        return Export(output, "onnx", difference, sizes=(model_bytes, graph_bytes))
    return Export(
        output,
        "onnx-int8",
        difference,
        sizes=(model_bytes, graph_bytes),
        kept=kept,
        measured=tuple(measured),
        lost=lost,
    )


def _quantised(
    loaded: LoadedModel, exact: OnnxBackend, graph: Path, folder: Path, documents: Sequence[Document]
) -> tuple[list[tuple[str, tuple[float, float]]], tuple[float, float]]:
    """Write the graph in int8, with as few products of :data:`KEPT` in fp32 as every second document allows.

    Return for each choice up to the last its name and the loss of Micro- and Macro-F1 on these documents, and the loss
    of the last on the others; 0 without documents.
    """
    halves = [labelled_batches(loaded, documents[start::2]) for start in (0, 1)]
    before = [f1_of_backend(loaded, exact.logits, *half) for half in halves]
    measured = []

    def loss(backend: OnnxBackend, half: int) -> tuple[float, float]:
        after = f1_of_backend(loaded, backend.logits, *halves[half])
        return before[half][0] - after[0], before[half][1] - after[1]

    for name, kept in KEPT.items():
        quantised = onnx_ir.load(graph)
        Quantiser(quantised.graph, kept).run()
        for file in folder.iterdir():
            file.unlink()
        backend = OnnxBackend(_save(quantised, folder))
        measured.append((name, loss(backend, 0)))
        if max(measured[-1][1]) <= LARGEST_LOSS:
            break
    return measured, loss(backend, 1)


def _save(graph: onnx_ir.Model, folder: Path) -> Path:
    path = folder / GRAPH
    size = sum(value.const_value.nbytes for value in graph.graph.initializers.values() if value.const_value is not None)
    onnx_ir.save(graph, path, external_data=f"{GRAPH}.data" if size > PROTOBUF_LIMIT else None)
    return path


def trace(model: HierarchicalPreTrainedModel) -> onnx_ir.Model:
    """Return the graph from ``input_ids`` and ``attention_mask``, int64 (batch, length), to ``logits``, (batch, K).

    Raises:
        OnnxExporterError: if torch cannot export this encoder.
    """
    graph = as_traced(model)
    # Fold constants of any size. torch's own optimiser would also fuse rotary embeddings into an operator that fails.
    with _quiet_exporter():
        optimize_ir(graph, input_size_limit=sys.maxsize, output_size_limit=sys.maxsize)
    ClearMetadataAndDocStringPass()(graph)  # they contain local paths
    return graph


class _Logits(nn.Module):
    def __init__(self, model: HierarchicalPreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        logits: Tensor = self.model(input_ids, attention_mask).logits
        return logits


def as_traced(model: HierarchicalPreTrainedModel) -> onnx_ir.Model:
    """Return the graph as torch writes it, with the model's parameters under their names."""
    # Torch treats sizes of 0 and 1 as constants; the sample needs padding, its tokens do not matter.
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
            output_names=["logits"],
            dynamic_shapes={name: {0: "batch", 1: "length"} for name in INPUTS},
            optimize=False,
            verbose=False,
        )
    if program is None:
        raise RuntimeError("torch.onnx.export returned no program")
    return program.model


@contextmanager
def _quiet_exporter() -> Iterator[None]:
    """Suppress torch's log lines and warnings."""
    torch_logger = logging.getLogger("torch.onnx")
    level = torch_logger.level
    torch_logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        torch_logger.setLevel(level)


class Quantiser:
    """Quantise all products with a weight matrix, but those that ``kept`` says, and look-ups in large tables, in place.

    Weights and activations shared by several nodes are quantised once.
    """

    def __init__(self, graph: onnx_ir.Graph, kept: Kept | None = None) -> None:
        self.graph, self.kept = graph, kept or KEPT["nothing"]
        self._weights: dict[tuple[onnx_ir.Value, int], tuple[onnx_ir.Value, onnx_ir.Value]] = {}
        self._activations: dict[onnx_ir.Value, tuple[onnx_ir.Value, onnx_ir.Value]] = {}

    def run(self) -> int:
        """Quantise the graph; return the number of replaced nodes."""
        count = 0
        for node in list(self.graph):
            if node.op_type == "MatMul" and (matrix := _matrix(node, 1)) is not None and not self.kept(matrix.shape):
                result = self._product(node, matrix)
            elif (
                node.op_type == "Gather"
                and ("axis" not in node.attributes or node.attributes["axis"].as_int() == 0)
                and (matrix := _matrix(node, 0)) is not None
                and matrix.size >= TABLE
            ):
                result = self._look_up(node, matrix)
            else:
                continue
            old = node.outputs[0]
            old.replace_all_uses_with(result, replace_graph_outputs=True)
            self.graph.remove(node, safe=True)
            result.name, result.shape, result.type = old.name, old.shape, old.type
            count += 1
        for name in [name for name, value in self.graph.initializers.items() if not value.uses()]:
            del self.graph.initializers[name]
        return count

    def _product(self, node: onnx_ir.Node, matrix: NDArray[np.float32]) -> onnx_ir.Value:
        """Replace ``X W`` by an integer product."""
        factor, weight = node.inputs
        if factor is None or weight is None:
            raise ValueError("a product lacks a factor")
        if factor not in self._activations:
            self._activations[factor] = self._round_rows(node, factor)
        integers, steps = self._activations[factor]
        quantised, scales = self._store(weight, matrix, axis=0, largest=LARGEST_FACTOR)
        product = self._insert(node, "MatMulInteger", [integers, quantised, self._constant("zero", ZERO)])
        product = self._insert(node, "Cast", [product], to=FLOAT)
        product = self._insert(node, "Mul", [product, scales])
        return self._insert(node, "Mul", [product, steps])

    def _round_rows(self, node: onnx_ir.Node, factor: onnx_ir.Value) -> tuple[onnx_ir.Value, onnx_ir.Value]:
        """Return a factor in uint8 around :data:`ZERO` and the step of each row, which is a token.

        DynamicQuantizeLinear has one step for the whole tensor: a text's probabilities would depend on its batch.
        """
        size = self._insert(node, "Abs", [factor])
        largest = self._insert(node, "ReduceMax", [size, self._constant("last_axis", np.array([-1]))], keepdims=1)
        step = self._insert(node, "Mul", [largest, self._constant("one_step", np.float32(1 / LARGEST_ENTRY))])
        # A row of zeros needs a positive step.
        step = self._insert(node, "Max", [step, self._constant("least_step", np.finfo(np.float32).tiny)])
        scaled = self._insert(node, "Div", [factor, step])
        ones, zero = self._constant("ones", np.float32(1)), self._constant("zero", ZERO)
        return self._insert(node, "QuantizeLinear", [scaled, ones, zero]), step

    def _look_up(self, node: onnx_ir.Node, matrix: NDArray[np.float32]) -> onnx_ir.Value:
        """Replace the look-up of a row by look-ups of its integers and its scale."""
        table, rows = node.inputs
        if table is None:
            raise ValueError("a look-up lacks a table")
        quantised, scales = self._store(table, matrix, axis=1, largest=LARGEST_ENTRY)
        row = self._insert(node, "Gather", [quantised, rows], axis=0)
        row = self._insert(node, "Cast", [row], to=FLOAT)
        scale = self._insert(node, "Gather", [scales, rows], axis=0)
        return self._insert(node, "Mul", [row, scale])

    def _store(
        self, weight: onnx_ir.Value, matrix: NDArray[np.float32], *, axis: int, largest: int
    ) -> tuple[onnx_ir.Value, onnx_ir.Value]:
        """Return a matrix in int8 and its scales, one for each line along ``axis``."""
        if (weight, axis) not in self._weights:
            scales = np.abs(matrix).max(axis, keepdims=True) / np.float32(largest)
            scales[scales == 0] = 1
            quantised = np.rint(matrix / scales).astype(np.int8)
            self._weights[weight, axis] = (
                add_constant(self.graph, f"{weight.name}_int8", quantised),
                add_constant(self.graph, f"{weight.name}_scales", scales[0] if axis == 0 else scales),
            )
        return self._weights[weight, axis]

    def _constant(self, name: str, value: Any) -> onnx_ir.Value:
        return add_constant(self.graph, f"int8_{name}", np.asarray(value))

    def _insert(
        self, before: onnx_ir.Node, kind: str, inputs: Sequence[onnx_ir.Value | None], **attributes: int
    ) -> onnx_ir.Value:
        node = onnx_ir.node(kind, inputs, attributes)
        self.graph.insert_before(before, node)
        return node.outputs[0]


def _matrix(node: onnx_ir.Node, position: int) -> NDArray[np.float32] | None:
    """Return the constant matrix at an input of a node; None if the input is something else."""
    value = node.inputs[position]
    if value is None or value.const_value is None or value.dtype != FLOAT or len(value.const_value.shape) != 2:
        return None
    array: NDArray[np.float32] = value.const_value.numpy()
    return array


def add_constant(graph: onnx_ir.Graph, name: str, array: NDArray[np.generic]) -> onnx_ir.Value:
    """Return the constant with a name in a graph; add it if it is new."""
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
