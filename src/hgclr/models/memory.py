"""What training a model needs, before it is taken: refuse what cannot fit instead of being killed half-way.

Weights, gradients and Adam's two moments are counted exactly. What the layers keep for the backward pass is an
approximation whose factors were fitted to measured peaks, on a CPU; tests hold the whole within a fifth of the peak.
Each system says what it takes, see ``state_bytes`` and ``batch_bytes`` of its class.
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
from hgclr.models import ARCHITECTURES, HierarchicalPreTrainedModel
from hgclr.models.base import NUMBER, load_encoder_config
from hgclr.taxonomy import Taxonomy

__all__ = ["check_batch", "check_parameters", "need_of"]


@dataclass(frozen=True)
class MemoryNeed:
    """What training takes: parameters of the text encoder and of the rest, bytes of the state and of a batch."""

    encoder: int
    head: int
    state: int
    batch: int = 0

    @property
    def total(self) -> int:
        return self.state + self.batch


def need_of(model: HierarchicalPreTrainedModel, *, batch_size: int = 0, length: int = 0) -> MemoryNeed:
    """Return what training takes with B documents of up to L tokens in a batch; without these, the parameters alone."""
    encoder = _count(model.encoder)
    return MemoryNeed(encoder, _count(model) - encoder, model.state_bytes(), model.batch_bytes(batch_size, length))


def check_parameters(
    architecture: str,
    encoder: str | PreTrainedConfig,
    taxonomy: Taxonomy,
    tokenizer: PreTrainedTokenizerBase,
    settings: dict[str, Any],
    *,
    frozen: bool = False,
) -> None:
    """Refuse a model whose parameters alone are too many to train, without allocating any.

    Of a ``frozen`` encoder, beside which adapters are trained, there are but the weights.

    Raises:
        InputError: with the figures, if they do not fit into free memory.
    """
    config = load_encoder_config(encoder) if isinstance(encoder, str) else encoder
    with torch.device("meta"), _quiet():
        model = ARCHITECTURES[architecture].from_encoder_config(config, taxonomy, tokenizer, **settings)
    if frozen:
        model.encoder.requires_grad_(False)
    free, need = free_memory(), need_of(model)
    if free is not None and need.total > free:
        raise InputError(
            f"{architecture} with {len(taxonomy):,} labels has a head of {_millions(need.head)} parameters on an"
            f" encoder of {_millions(need.encoder)}: training needs about {_gigabytes(need.total)},"
            f" {_gigabytes(free)} are free",
            remedy=model.less_memory,
        )


def check_batch(architecture: str, model: HierarchicalPreTrainedModel, *, batch_size: int, length: int) -> None:
    """Refuse a batch that is too large to train a model on, whose weights are allocated already.

    Raises:
        InputError: with the figures, if training does not fit into free memory.
    """
    free, need = free_memory(), need_of(model, batch_size=batch_size, length=length)
    allocated = 0 if torch.accelerator.is_available() else (need.head + need.encoder) * NUMBER
    missing = need.total - allocated
    if free is not None and missing > free:
        raise InputError(
            f"training {architecture} with {model.config.label_count:,} labels on {batch_size} texts of up to"
            f" {length:,} tokens at a time needs about {_gigabytes(missing)} more, {_gigabytes(free)} are free",
            remedy="lower training.batch_size (training.gradient_accumulation makes up for it)"
            + ("" if model.encoder.is_gradient_checkpointing else ", set training.gradient_checkpointing")
            + " or lower model.max_length",
        )


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
