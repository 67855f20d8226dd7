"""Graphs of models, of which torch traces each kind once: that takes seconds, however small the model."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import onnx
import onnx_ir

from hgclr.export.onnx import as_traced
from hgclr.models import HierarchicalPreTrainedModel


def traced_once(folder: Path) -> Callable[[HierarchicalPreTrainedModel], onnx_ir.Model]:
    """Return what does as :func:`hgclr.export.onnx.as_traced` does, and keeps graphs in ``folder``.

    A model that differs from an earlier one in nothing but the values of its parameters gets that one's graph with its
    own values.
    """

    def trace_once(model: HierarchicalPreTrainedModel) -> onnx_ir.Model:
        parameters = {f"model.{name}": values.detach().numpy() for name, values in model.named_parameters()}
        encoder = {**model.config.text_encoder.to_dict(), "_name_or_path": None}
        shapes = {name: values.shape for name, values in parameters.items()}
        digest = hashlib.sha256(repr((type(model), model.config.pooling, encoder, shapes)).encode())
        for name, values in model.named_buffers():
            digest.update(name.encode() + values.numpy().tobytes())
        kept = folder / f"{digest.hexdigest()}.onnx"
        if not kept.exists():
            graph = as_traced(model)
            if not parameters.keys() <= graph.graph.initializers.keys():
                return graph
            temporary = kept.with_name(f"{kept.name}.{os.getpid()}")
            temporary.write_bytes(onnx_ir.to_proto(graph).SerializeToString())
            temporary.replace(kept)  # another worker may be at the same
        graph = onnx_ir.from_proto(onnx.ModelProto.FromString(kept.read_bytes()))
        for name, values in parameters.items():
            graph.graph.initializers[name].const_value = onnx_ir.tensor(values.copy(), name=name)
        return graph

    return trace_once
