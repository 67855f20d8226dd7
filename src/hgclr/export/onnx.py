"""Write a trained model as a folder that onnxruntime, tokenizers and json are enough to predict with."""

from __future__ import annotations

import json
import logging
import sys
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx_ir
import torch
from onnx_ir.passes.common import ClearMetadataAndDocStringPass
from onnxscript.optimizer import optimize_ir
from torch import Tensor, nn
from torch.onnx import OnnxExporterError

from hgclr.errors import InputError
from hgclr.export.check import LogitDifference, compare, new_folder, open_model, sample_batches
from hgclr.export.onnx_graph import keep_first_token, quantise
from hgclr.inference.backends import OnnxBackend
from hgclr.inference.loading import CONFIG, GRAPH, TOKENIZER
from hgclr.inference.manifest import write_manifest
from hgclr.models import HierarchicalPreTrainedModel

__all__ = ["OnnxExport", "export_onnx", "trace"]

INPUTS = ("input_ids", "attention_mask")
OUTPUT = "logits"
# The first with an operator for attention; Gelu and LayerNormalization are older. With these, onnxruntime's kernels
# need no pattern to be found in the graph, so that every encoder with torch's own attention gets them.
OPSET = 23
TOLERANCE = 1e-4
"""How far a logit of the fp32 graph may be from torch's, as a share of it where it is larger than 1."""
PROTOBUF_LIMIT = 2**31 - 2**24
"""Bytes of weights above which they do not fit into the file of the graph and go into one beside it."""


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
        int8: turn the matrix products into int8 (see :func:`hgclr.export.onnx_graph.quantise`).
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
            difference = compare(source.backend, OnnxBackend(_save(graph, Path(scratch) if int8 else folder)), batches)
            if not difference.relative <= TOLERANCE:  # NaN is not
                raise _refusal(model, network, f"gives other logits than torch, by {difference.logit:.2g}")
            if int8:
                quantise(graph)
                difference = compare(source.backend, OnnxBackend(_save(graph, folder)), batches)
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
    """The model as a function of two tensors to one."""

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
    # Torch takes sizes of 0 and 1 for constants, hence neither stands here; the tokens do not matter, the padding does.
    ids = torch.ones(2, max(2, min(8, model.config.max_length)), dtype=torch.int64)
    mask = ids.clone()
    mask[1, ids.shape[1] // 2 :] = 0
    # Torch's notes on its own workings are of no use to the user.
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(action="ignore"):
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
            # Constants are computed, whatever their size; torch's own choice also fuses rotary embeddings, into an
            # operator that does not take them.
            optimize_ir(program.model, input_size_limit=sys.maxsize, output_size_limit=sys.maxsize)
    finally:
        logger.setLevel(level)
    # Notes on every node, with lines of code and the folders they are in on this machine.
    ClearMetadataAndDocStringPass()(program.model)
    return program.model
