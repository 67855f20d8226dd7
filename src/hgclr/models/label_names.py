"""Label names as tokens, and in blocks that can be embedded one at a time."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

__all__ = ["name_blocks", "name_tokens"]

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
