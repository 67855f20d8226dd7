"""What training a model needs, before it is taken: refuse what cannot fit instead of being killed half-way.

Weights, gradients and Adam's two moments are counted exactly. What the layers keep for the backward pass is an
approximation whose factors were fitted to measured peaks, on a processor; tests hold the whole within a fifth of the
peak.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from hgclr.errors import InputError
from hgclr.hardware import free_memory
from hgclr.models import (
    ARCHITECTURES,
    HGCLRForSequenceClassification,
    HiAGMLAForSequenceClassification,
    HierarchicalPreTrainedModel,
)
from hgclr.models.base import load_encoder_config
from hgclr.models.hiagm import HiAGMPreTrainedModel
from hgclr.taxonomy import Taxonomy

__all__ = ["check_batch", "check_parameters", "need_of"]

NUMBER = 4
"""Bytes; training keeps fp32 whatever precision it computes in."""
STATE = 4 * NUMBER
"""Bytes for each parameter: weight, gradient, two moments."""


@dataclass(frozen=True)
class MemoryNeed:
    """What training takes.

    Args:
        encoder: parameters of the text encoder.
        head: parameters of everything else.
        state: bytes of weights, gradients and moments.
        batch: bytes of what a batch leaves behind for the backward pass.
    """

    encoder: int
    head: int
    state: int
    batch: int = 0

    @property
    def total(self) -> int:
        """All bytes."""
        return self.state + self.batch


def check_parameters(
    architecture: str,
    encoder: str | PreTrainedConfig,
    taxonomy: Taxonomy,
    tokenizer: PreTrainedTokenizerBase,
    settings: dict[str, Any],
) -> None:
    """Refuse a model whose parameters alone are too many to train, without allocating any.

    Args:
        architecture: name of the system.
        encoder, taxonomy, tokenizer, settings: what it would be made from, see :meth:`HierarchicalPreTrainedModel.from_encoder`.

    Raises:
        InputError: with the figures, if they do not fit into free memory.
    """
    config = load_encoder_config(encoder) if isinstance(encoder, str) else encoder
    with torch.device("meta"), _quiet():
        model = ARCHITECTURES[architecture].from_encoder_config(config, taxonomy, tokenizer, **settings)
    free = free_memory()
    need = need_of(model)
    if free is not None and need.total > free:
        raise InputError(
            f"{architecture} with {len(taxonomy):,} labels has a head of {_millions(need.head)} parameters on an"
            f" encoder of {_millions(need.encoder)}: training needs about {_gigabytes(need.total)},"
            f" {_gigabytes(free)} are free",
            remedy=(
                "lower model.node_width, or choose hgclr, which grows with the number of labels, not with its square"
                if isinstance(model, HiAGMPreTrainedModel)
                else "choose a smaller encoder"
            ),
        )


def check_batch(architecture: str, model: HierarchicalPreTrainedModel, *, batch_size: int, length: int) -> None:
    """Refuse a batch that is too large to train on, before the first step.

    Args:
        architecture: name of the system.
        model: the model, whose weights are allocated already.
        batch_size: documents in a batch.
        length: tokens of the longest.

    Raises:
        InputError: with the figures, if training does not fit into free memory.
    """
    free = free_memory()
    need = need_of(model, batch_size=batch_size, length=length)
    on_processor = not torch.accelerator.is_available()
    missing = need.total - (need.head + need.encoder) * NUMBER * on_processor
    if free is not None and missing > free:
        raise InputError(
            f"training {architecture} with {model.config.label_count:,} labels on {batch_size} texts of up to"
            f" {length:,} tokens at a time needs about {_gigabytes(missing)} more, {_gigabytes(free)} are free",
            remedy="lower training.batch_size (training.gradient_accumulation makes up for it) or model.max_length",
        )


def need_of(model: HierarchicalPreTrainedModel, *, batch_size: int = 0, length: int = 0) -> MemoryNeed:
    """Return what training a model takes, which may be on the meta device.

    Args:
        model: the model.
        batch_size: B, documents in a batch; 0 counts the parameters alone.
        length: L, tokens of the longest.
    """
    encoder = _count(model.encoder)
    parameters = _count(model)
    state = STATE * parameters
    if isinstance(model, HiAGMPreTrainedModel) and model.config.recursive_regularisation:
        # The gradients of cross-entropy and of regularisation are there side by side before they are added.
        state += NUMBER * model.classifier.weight.numel()
    return MemoryNeed(encoder, parameters - encoder, state, _batch_bytes(model, batch_size, length))


def _batch_bytes(model: HierarchicalPreTrainedModel, batch_size: int, length: int) -> int:
    """Return what a batch leaves behind until the backward pass, all in all.

    Encoder, of ``n`` layers, width H and inner width I: ``n (12 H + 3 I)`` numbers for each token (of which 8 H + 2 I
    are inputs that the backward pass needs, the rest copies in passing), and a byte of dropout for each head and token
    that it may attend to. HGCLR puts every text through it twice and keeps 20 numbers for each label and feature.
    HiAGM keeps 7 numbers for each text, label and feature with a GCN and 16 with a tree-LSTM; with label attention 3,
    and 3 for each text, label and token.
    """
    config = model.config
    encoder = config.text_encoder
    layers: int = getattr(encoder, "num_hidden_layers", 1)
    heads: int = getattr(encoder, "num_attention_heads", 0)
    width: int = encoder.hidden_size
    inner: int = getattr(encoder, "intermediate_size", 4 * width)
    tokens = batch_size * length
    kept = tokens * layers * (NUMBER * (12 * width + 3 * inner) + heads * length)
    if isinstance(model, HGCLRForSequenceClassification):
        kept = 2 * kept + NUMBER * 20 * config.label_count * width
    if isinstance(model, HiAGMLAForSequenceClassification):
        kept += NUMBER * 3 * config.label_count * (batch_size * config.node_width + tokens)
    elif isinstance(model, HiAGMPreTrainedModel):
        copies = 16 if config.structure_encoder == "tree-lstm" else 7
        kept += NUMBER * copies * batch_size * config.label_count * config.node_width
    return kept


def _count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _millions(number: int) -> str:
    return f"{number / 1e6:,.0f} M" if number >= 10e6 else f"{number / 1e6:,.1f} M"


def _gigabytes(number: int) -> str:
    return f"{number / 1e9:,.1f} GB"


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep what models say when they are made for the model that is made in earnest."""
    logger = logging.getLogger("hgclr.models")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
