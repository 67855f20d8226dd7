"""The label encoder and the token-label attention that a configuration asks for."""

from __future__ import annotations

import logging

from hgclr.config import HGCLRConfig
from hgclr.errors import InputError
from hgclr.nn.label_encoder import Graphormer, LabelEmbedding
from hgclr.nn.label_graph import TreeConvolution
from hgclr.nn.token_guidance import TokenLabelAttention

__all__ = ["make_label_encoder", "make_token_label_attention"]

logger = logging.getLogger(__name__)

HEADS = 8
"""Attention heads between labels in the paper, and at most, where the text encoder has none of its own."""


def make_label_encoder(config: HGCLRConfig, width: int) -> LabelEmbedding:
    """Return the label encoder, whose features are ``width`` wide.

    Raises:
        InputError: if the heads do not divide the width.
        MissingExtraError: if the label encoder is from torch_geometric and that is not installed.
    """
    if config.label_encoder == "graphormer":
        return _graphormer(config, width)
    if config.label_encoder == "none":
        return LabelEmbedding(config.taxonomy, width, label_embedding=config.label_embedding)
    return TreeConvolution(config.taxonomy, width, kind=config.label_encoder, label_embedding=config.label_embedding)


def make_token_label_attention(config: HGCLRConfig, width: int) -> TokenLabelAttention:
    """Return the attention between word embeddings and label features, both ``width`` wide."""
    _check_heads("token_label_heads", config.token_label_heads, width)
    return TokenLabelAttention(
        width,
        width,
        heads=config.token_label_heads,
        scale_by=config.attention_scale,
        bias=config.attention_bias,
        probabilities=config.guidance == "probabilities",
    )


def _graphormer(config: HGCLRConfig, width: int) -> Graphormer:
    heads = config.label_heads or getattr(config.text_encoder, "num_attention_heads", None)
    if heads is None:
        heads = max(number for number in range(1, HEADS + 1) if width % number == 0)
    _check_heads("label_heads", heads, width)
    graphormer = Graphormer(
        config.taxonomy,
        width,
        layers=config.label_layers,
        heads=heads,
        label_embedding=config.label_embedding,
        spatial=config.spatial_encoding,
        edge=config.edge_encoding,
        span=config.label_span,
        scale_by=config.attention_scale,
        bias=config.attention_bias,
        output_projection=config.label_output_projection,
        dropout=config.label_dropout,
        layer_norm_eps=getattr(config.text_encoder, "layer_norm_eps", 1e-12),
    )
    if config.label_span is None and graphormer.structure.span < config.label_count:
        logger.warning(
            "%d labels are too many for attention between all: each attends to the %d around it and the path above"
            " (model.label_span, docs/concepts/method.md)",
            config.label_count,
            graphormer.structure.span,
        )
    return graphormer


def _check_heads(name: str, heads: int, width: int) -> None:
    if width % heads:
        raise InputError(f"{name} is {heads}, which does not divide the width {width}", remedy=f"set model.{name}")
