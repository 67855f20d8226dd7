"""How a text encoder counts positions."""

from __future__ import annotations

import inspect
from typing import Any

from torch import nn
from transformers import PreTrainedModel

__all__ = ["absolute_positions", "first_position", "position_count"]


def position_count(encoder: PreTrainedModel) -> int:
    """Return how many tokens the encoder has positions for."""
    positions = getattr(encoder.config, "max_position_embeddings", None) or 1_000_000
    return int(positions) - first_position(encoder)


def first_position(encoder: PreTrainedModel) -> int:
    """Return the position of a text's first token: RoBERTa and MPNet count from pad + 1, the others from 0."""
    padding = getattr(_table(encoder), "padding_idx", None)
    return 0 if padding is None else int(padding) + 1


def absolute_positions(encoder: PreTrainedModel) -> bool:
    """Return whether a token's position reaches the encoder through ``position_ids`` and in no other way.

    Encoders that look at distances between tokens (MPNet, DeBERTa) or at a window around each (ModernBERT) count places
    in the sequence as well.
    """
    relative = any(
        getattr(encoder.config, name, None) for name in ("relative_attention", "relative_attention_num_buckets")
    )
    takes_positions = "position_ids" in inspect.signature(encoder.forward).parameters
    return isinstance(_table(encoder), nn.Embedding) and takes_positions and not relative


def _table(encoder: PreTrainedModel) -> Any:
    """Return the table of absolute positions, or None."""
    return getattr(getattr(encoder, "embeddings", None), "position_embeddings", None)
