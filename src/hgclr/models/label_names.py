"""Label names as tokens, and their embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hgclr.data.label_documents import label_texts

__all__ = ["is_special", "name_blocks", "name_embeddings", "name_tokens", "name_vectors"]

LONGEST = 64
"""Tokens of a label name that are read, special tokens included."""
BLOCK = 2**14
"""Tokens of label names that are embedded at a time, padding included."""


def name_tokens(names: Sequence[str], tokenizer: PreTrainedTokenizerBase) -> Tensor:
    """Return the tokens of label names with special tokens, (K, T), padded with -1; long names are cut."""
    encoded = tokenizer(list(names), add_special_tokens=True, truncation=True, max_length=LONGEST)["input_ids"]
    return nn.utils.rnn.pad_sequence([torch.tensor(ids) for ids in encoded], batch_first=True, padding_value=-1)


def name_blocks(tokens: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Return the names in blocks of similar length: the labels of each block, (n,), and their tokens, (n, T').

    Names that fit one block stay as they are, (K, T).
    """
    if tokens.numel() <= BLOCK:
        return [(torch.arange(len(tokens), device=tokens.device), tokens)]
    lengths = (tokens >= 0).sum(1)
    longest_first = lengths.argsort(descending=True, stable=True)
    blocks, start = [], 0
    while start < len(tokens):
        longest = max(1, int(lengths[longest_first[start]]))
        labels = longest_first[start : start + max(1, BLOCK // longest)]
        blocks.append((labels, tokens[labels, :longest]))
        start += len(labels)
    return blocks


def is_special(tokens: Tensor, special_token_ids: Sequence[int]) -> Tensor:
    """Return which tokens are special ones, bool, in the shape of the tokens."""
    return torch.isin(tokens, torch.tensor(special_token_ids, dtype=tokens.dtype, device=tokens.device))


@torch.no_grad()
def name_vectors(model: Any, tokenizer: PreTrainedTokenizerBase) -> Tensor:
    """Return the vector of each label's name read as a text, (K, H), by a model of :mod:`hgclr.models`."""
    training = model.training
    model.eval()
    vectors = torch.empty_like(model.classifier.weight)
    for labels, tokens in name_blocks(name_tokens(label_texts(model.config.taxonomy), tokenizer)):
        real = tokens >= 0
        ids = tokens.masked_fill(~real, int(tokenizer.pad_token_id))
        vectors[labels] = model.encode(real.long().to(model.device), input_ids=ids.to(model.device))
    model.train(training)
    return vectors


def name_embeddings(encoder: PreTrainedModel, tokens: Tensor, kind: str, special_token_ids: Sequence[int]) -> Tensor:
    """Return the label names' embeddings, (K, H), from a text encoder's own embedding weights.

    Args:
        encoder: the text encoder.
        tokens: see :func:`name_tokens`, (K, T).
        kind: ``layer`` or ``words``, see ``name_embedding`` in :class:`~hgclr.config.HGCLRConfig`.
        special_token_ids: tokens that count in a ``layer`` and not among ``words``.
    """
    embed = partial(_embed, encoder, kind, special_token_ids)
    blocks = name_blocks(tokens)
    if len(blocks) == 1:
        return embed(tokens)
    embedded = [checkpoint(embed, block, use_reentrant=False) for _, block in blocks]
    order = torch.cat([labels for labels, _ in blocks])
    return torch.cat(embedded).index_select(0, order.argsort())


def _embed(encoder: Any, kind: str, special_token_ids: Sequence[int], tokens: Tensor) -> Tensor:
    """Return the mean embedding of each name, (n, H), from tokens, (n, T), padded with -1."""
    real = tokens >= 0
    if kind == "layer":
        pad = getattr(encoder.config, "pad_token_id", None) or 0
        embedded = encoder.embeddings(tokens.masked_fill(~real, pad))  # (n, T, H)
    else:
        embedded = encoder.get_input_embeddings()(tokens.clamp(min=0))
        real = real & ~is_special(tokens, special_token_ids)
    share = real / real.sum(1, keepdim=True).clamp(min=1)  # (n, T)
    mean: Tensor = torch.bmm(share.unsqueeze(1).to(embedded.dtype), embedded).squeeze(1)
    return mean
