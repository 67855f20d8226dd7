"""From a torch model to an ONNX graph, for any batch size and any length."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import onnx_ir
import torch
from onnx_ir.passes.common import ClearMetadataAndDocStringPass
from onnxscript.optimizer import optimize_ir
from torch import Tensor, nn

from hgclr.models import TextClassifier

__all__ = ["INPUTS", "OUTPUT", "trace"]

INPUTS = ("input_ids", "attention_mask")
OUTPUT = "logits"

# The first with an operator for attention; Gelu and LayerNormalization are older. With these, onnxruntime's kernels
# need no pattern to be found in the graph, so that every encoder with torch's own attention gets them.
OPSET = 23


class _Logits(nn.Module):
    """The model as a function of two tensors to one."""

    def __init__(self, model: TextClassifier) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        logits: Tensor = self.model(input_ids, attention_mask).logits
        return logits


def trace(model: TextClassifier) -> onnx_ir.Model:
    """Return the graph from ``input_ids`` and ``attention_mask``, int64 (batch, length), to ``logits``, (batch, K).

    Raises:
        OnnxExporterError: if torch cannot write this encoder as a graph.
    """
    # Torch takes sizes of 0 and 1 for constants, hence neither stands here; the tokens do not matter, the padding does.
    ids = torch.ones(2, max(2, min(8, model.config.max_length)), dtype=torch.int64)
    mask = ids.clone()
    mask[1, ids.shape[1] // 2 :] = 0
    sizes = {0: "batch", 1: "length"}
    with _quiet():
        program = torch.onnx.export(
            _Logits(model).eval(),
            (ids, mask),
            dynamo=True,
            opset_version=OPSET,
            input_names=INPUTS,
            output_names=[OUTPUT],
            dynamic_shapes=dict.fromkeys(INPUTS, sizes),
            optimize=False,
            verbose=False,
        )
        if program is None:
            raise RuntimeError("torch.onnx.export gave no program")
        # Constants are computed, whatever their size; torch's own choice also fuses rotary embeddings, into an operator
        # that does not take them.
        optimize_ir(program.model, input_size_limit=sys.maxsize, output_size_limit=sys.maxsize)
    # Notes on every node, with lines of code and the folders they are in on this machine.
    ClearMetadataAndDocStringPass()(program.model)
    return program.model


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep torch's notes on its own workings, of no use to the user, off the terminal."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
