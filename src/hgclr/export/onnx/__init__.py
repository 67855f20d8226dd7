"""Trained models as ONNX graphs for onnxruntime, in fp32 and in int8."""

from __future__ import annotations

from hgclr.export.onnx.exporting import OnnxExport, export_onnx

__all__ = ["OnnxExport", "export_onnx"]
