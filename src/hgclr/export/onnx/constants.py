"""Constants in a graph."""

from __future__ import annotations

import numpy as np
import onnx_ir
from numpy.typing import NDArray

__all__ = ["add_constant"]


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
