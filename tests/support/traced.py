"""Graphs of models, each traced once: torch takes seconds for one, however small."""

from __future__ import annotations

import hashlib

import onnx
import onnx_ir

from hgclr.export.onnx import trace
from hgclr.models import HierarchicalPreTrainedModel

GRAPHS: dict[str, bytes] = {}


def traced_once(model: HierarchicalPreTrainedModel) -> onnx_ir.Model:
    """Do as :func:`hgclr.export.onnx.trace` does; the same weights in the same model give the same graph again."""
    digest = hashlib.sha256(f"{type(model)} {model.config.pooling} {model.config.text_encoder}".encode())
    for name, values in (*model.named_parameters(), *model.named_buffers()):
        digest.update(name.encode() + values.detach().numpy().tobytes())
    key = digest.hexdigest()
    if key not in GRAPHS:
        GRAPHS[key] = onnx_ir.to_proto(trace(model)).SerializeToString()
    return onnx_ir.from_proto(onnx.ModelProto.FromString(GRAPHS[key]))
