"""From a graph in fp32 to one whose matrix products are in int8.

A weight matrix W is stored in int8 with one scale per column; what it is multiplied with is turned into uint8 as it
comes, with one scale s and one zero point z for the whole tensor:

    X W ≈ s · (Q_X - z) Q_W · scales,    scales_j = max_i |W_ij| / 63,    Q_W = round(W / scales).

The operators are ONNX's own; onnxruntime has one kernel for all of them together. Large tables of embeddings are
stored in int8 with one scale per row. The head, a Gemm, stays as it is: it costs next to nothing, and nothing after it
would even out its rounding.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir
from numpy.typing import NDArray

from hgclr.export.onnx.constants import add_constant

__all__ = ["quantise"]

FLOAT = onnx_ir.DataType.FLOAT
# Processors without instructions for sums of four products (VNNI) add up two in 16 bits: 2 · 255 · 63 fits, 127 does
# not. The eighth bit gained next to nothing when tried: most of the error is the rounding of the other factor.
LARGEST_FACTOR = 63
LARGEST_ENTRY = 127  # of a table, which is multiplied with nothing
TABLE = 2**20
"""Numbers in a table from which it is worth storing in int8, which is for the size of the file alone."""


def quantise(model: onnx_ir.Model) -> int:
    """Quantise, in place, all products with a weight matrix and look-ups in large tables; return how many."""
    return _Quantiser(model.graph).run()


class _Quantiser:
    """Replace nodes of a graph; weights and activations that several nodes share are quantised once."""

    def __init__(self, graph: onnx_ir.Graph) -> None:
        self.graph = graph
        self.weights: dict[tuple[onnx_ir.Value, int], tuple[onnx_ir.Value, onnx_ir.Value]] = {}
        self.activations: dict[onnx_ir.Value, Sequence[onnx_ir.Value]] = {}

    def run(self) -> int:
        """Go through the graph."""
        count = 0
        for node in list(self.graph):
            if node.op_type == "MatMul" and (matrix := _matrix(node, 1)) is not None:
                result = self.product(node, matrix)
            elif _is_look_up(node) and (matrix := _matrix(node, 0)) is not None and matrix.size >= TABLE:
                result = self.look_up(node, matrix)
            else:
                continue
            old = node.outputs[0]
            old.replace_all_uses_with(result, replace_graph_outputs=True)
            self.graph.remove(node, safe=True)
            result.name, result.shape, result.type = old.name, old.shape, old.type
            count += 1
        for value in [value for value in self.graph.initializers.values() if not value.uses()]:
            if value.name is not None:
                del self.graph.initializers[value.name]
        return count

    def product(self, node: onnx_ir.Node, matrix: NDArray[np.float32]) -> onnx_ir.Value:
        """Put an integer product in the place of ``X W``."""
        factor, weight = node.inputs
        if factor is None or weight is None:
            raise ValueError("a product of nothing")
        if factor not in self.activations:
            self.activations[factor] = self.insert(node, "DynamicQuantizeLinear", [factor], outputs=3)
        integers, scale, zero = self.activations[factor]
        quantised, scales = self.store(weight, matrix, axis=0, largest=LARGEST_FACTOR)
        (product,) = self.insert(node, "MatMulInteger", [integers, quantised, zero])
        (product,) = self.insert(node, "Cast", [product], to=FLOAT)
        (scales,) = self.insert(node, "Mul", [scale, scales])
        (product,) = self.insert(node, "Mul", [product, scales])
        return product

    def look_up(self, node: onnx_ir.Node, matrix: NDArray[np.float32]) -> onnx_ir.Value:
        """Put the look-up of integers and of their scales in the place of that of a row."""
        table, rows = node.inputs
        if table is None:
            raise ValueError("a look-up in nothing")
        quantised, scales = self.store(table, matrix, axis=1, largest=LARGEST_ENTRY)
        (row,) = self.insert(node, "Gather", [quantised, rows], axis=0)
        (row,) = self.insert(node, "Cast", [row], to=FLOAT)
        (scale,) = self.insert(node, "Gather", [scales, rows], axis=0)
        (row,) = self.insert(node, "Mul", [row, scale])
        return row

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

    def insert(
        self,
        before: onnx_ir.Node,
        kind: str,
        inputs: Sequence[onnx_ir.Value | None],
        outputs: int = 1,
        **attributes: int,
    ) -> Sequence[onnx_ir.Value]:
        """Insert a node before another; return its outputs."""
        node = onnx_ir.node(kind, inputs, attributes, num_outputs=outputs)
        self.graph.insert_before(before, node)
        return node.outputs


def _is_look_up(node: onnx_ir.Node) -> bool:
    """Tell whether a node takes rows out of a table."""
    axis = node.attributes.get("axis")
    return node.op_type == "Gather" and (axis is None or axis.as_int() == 0)


def _matrix(node: onnx_ir.Node, position: int) -> NDArray[np.float32] | None:
    """Return the constant matrix that a node takes at a position, if that is what it takes there."""
    value = node.inputs[position]
    if value is None or value.const_value is None or value.dtype != FLOAT or len(value.const_value.shape) != 2:
        return None
    array: NDArray[np.float32] = value.const_value.numpy()
    return array
