"""Fast versions: batches, dropout and attention with dropout on a CPU, and the label side of large trees.

With many labels, the label side is computed in blocks, and recomputed in the backward pass, so that no K x K table is
kept. :class:`BlockAttention` equals :class:`~hgclr.nn.label_encoder.TreeAttention` if its span is the whole tree. With
a smaller span, a label attends to its neighbours in a depth-first walk of the tree, and to their ancestors. A subtree
is contiguous in the walk, so the ancestors outside of a stretch are those of its first label.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from math import prod
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from hgclr.nn.label_encoder import TreeAttention, attend, name_embedding, pair_tables
from hgclr.nn.positive_samples import TokenLabelAttention, token_probability
from hgclr.taxonomy import Taxonomy

PLAIN = 1024
"""Up to so many labels, the plain equations are as fast, and their tables fit into memory."""
WHOLE_TREE = 4096
"""Up to so many labels, each attends to all, unless ``label_span`` is set."""
STRETCH = 256
"""Number of labels that attend to each other in larger trees."""
SCORES = 2**22
"""Attention weights or token-label scores computed at a time: 16 MB in fp32."""
CACHED = 2**19
"""Attention weights between tokens computed at a time: 2 MB in fp32, which fit a core's cache."""
LENGTH_GROUPS, PADDED = 4, 1.2
"""Groups of similar length that a batch is computed in, if it has this many times the cells of its real tokens."""
NAME_TOKENS = 2**14
"""Tokens of label names embedded at a time, padding included."""


class CPUDropout(nn.Dropout):
    """:class:`torch.nn.Dropout` in 0.6 of its time on a CPU: two elements share a random number.

    The rate is rounded to a multiple of 2^-16. On other devices it is torch's dropout.
    """

    def forward(self, values: Tensor) -> Tensor:
        if not self.training or self.p in (0, 1) or values.device.type != "cpu":
            return super().forward(values)
        dropped: Tensor = _Drop.apply(values, round(self.p * 2**16))  # type: ignore[no-untyped-call]
        return dropped


def keep_mask(shape: Sequence[int], rate: int) -> Tensor:
    """Return 0 with a probability of ``rate`` / 2^16, otherwise 1, as uint8, which torch converts faster than bool."""
    count = prod(shape)
    bits = torch.empty(-(-count // 2), dtype=torch.int32).random_(-(2**31), None).view(torch.int16)[:count]
    return (bits >= rate - 2**15).view(*shape).view(torch.uint8)


class _Drop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, rate: int) -> Tensor:
        mask = keep_mask(values.shape, rate)
        ctx.save_for_backward(mask)
        ctx.scale = 1 / (1 - rate / 2**16)
        return mask.to(values.dtype).mul_(values).mul_(ctx.scale)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (mask,) = ctx.saved_tensors
        return mask.to(gradient.dtype).mul_(gradient).mul_(ctx.scale), None


def in_length_groups(compute: Callable[..., Tensor], mask: Tensor, **inputs: Tensor) -> Tensor:
    """Return ``compute(mask, **inputs)``, (B, …), computed in groups of rows of similar length if it has much padding.

    ``mask`` is 1 on real tokens, which come first, and 0 on padding, (B, L), as are the first axes of all inputs. On a
    CPU the time grows with the padding, and small groups are as fast as one batch.
    """
    lengths = mask.sum(1)
    if mask.numel() < PADDED * int(lengths.sum()):
        return compute(mask, **inputs)
    order = lengths.argsort(stable=True)
    parts = []
    for group in order.chunk(LENGTH_GROUPS):
        longest = max(1, int(lengths[group].max()))
        parts.append(compute(mask[group, :longest], **{name: part[group, :longest] for name, part in inputs.items()}))
    return torch.cat(parts)[order.argsort()]


def dropout_attention(
    query: Tensor, key: Tensor, value: Tensor, *, absent: Tensor | None, scale: float, dropout: float
) -> Tensor:
    """Return ``dropout(softmax(Q Kᵀ · scale)) V``, (B, heads, L, d) like Q, K and V, for training on a CPU.

    torch's fast CPU kernel has no dropout. This one computes a few documents at a time, so that their attention weights
    fit the cache, and recomputes them in the backward pass: it only keeps the masks, a byte per weight.
    ``absent`` is True on padding, (B, L).
    """
    output: Tensor = _Attention.apply(query, key, value, absent, scale, round(dropout * 2**16))  # type: ignore[no-untyped-call]
    return output


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, absent: Tensor | None, scale: float, rate: int
    ) -> Tensor:
        ctx.size = max(1, CACHED // (query.shape[1] * query.shape[2] ** 2))
        ctx.scale, ctx.kept = scale, 1 - rate / 2**16
        output, masks = torch.empty_like(value), []
        for some in _groups(len(query), ctx.size):
            weights = _weights(query[some], key[some], absent, some, scale)  # (G, heads, L, L)
            masks.append(keep_mask(weights.shape, rate))
            weights = weights.mul_(masks[-1].to(weights.dtype))
            output[some] = weights.to(value.dtype) @ value[some]
        ctx.save_for_backward(query, key, value, absent, *masks)
        return output.mul_(1 / ctx.kept)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, absent, *masks = ctx.saved_tensors
        d_query, d_key, d_value = (torch.empty_like(part) for part in (query, key, value))
        gradient = gradient * (1 / ctx.kept)
        for some, kept in zip(_groups(len(query), ctx.size), masks, strict=True):
            g = gradient[some]
            weights = _weights(query[some], key[some], absent, some, ctx.scale)  # P, (G, heads, L, L)
            mask = kept.to(weights.dtype)
            d_weights = (g @ value[some].transpose(-1, -2)).to(weights.dtype).mul_(mask)  # dP
            d_value[some] = (weights * mask).transpose(-1, -2).to(g.dtype) @ g
            d_logits = torch._softmax_backward_data(d_weights, weights, -1, weights.dtype)  # P ∘ (dP - Σ P ∘ dP)
            d_logits = d_logits.mul_(ctx.scale).to(g.dtype)
            d_query[some] = d_logits @ key[some]
            d_key[some] = d_logits.transpose(-1, -2) @ query[some]
        return d_query, d_key, d_value, None, None, None


def _groups(documents: int, size: int) -> Iterator[slice]:
    for start in range(0, documents, size):
        yield slice(start, start + size)


def _weights(query: Tensor, key: Tensor, absent: Tensor | None, some: slice, scale: float) -> Tensor:
    logits = (query * scale) @ key.transpose(-1, -2)
    if absent is not None:
        logits = logits.masked_fill_(absent[some, None, None, :], -torch.inf)
    return logits.softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))


def attention_span(labels: int, span: int | None) -> int:
    """Return the number of labels that attend to each other, from the setting ``label_span``."""
    if span is None:
        return labels if labels <= WHOLE_TREE else STRETCH
    return min(span, labels)


class Stretch(NamedTuple):
    """Neighbours in a depth-first walk, ``labels`` (n,), that attend to themselves and to the path ``above`` (a,).

    ``distance`` and ``ancestor``, (n, n + a), are as in :func:`~hgclr.nn.label_encoder.pair_tables`.
    """

    labels: Tensor
    above: Tensor
    distance: Tensor
    ancestor: Tensor


class BlockAttention(TreeAttention):
    """Attention between labels in stretches of ``span`` labels; other arguments as in :class:`TreeAttention`."""

    def __init__(self, taxonomy: Taxonomy, *, span: int, **settings: bool) -> None:
        super().__init__(taxonomy, **settings)
        self.span = span
        self._stretches: list[Stretch] = []

    def forward(self, query: Tensor, key: Tensor, value: Tensor, *, scale: float, dropout: nn.Module) -> Tensor:
        """Return ``dropout(softmax(A)) V``, (heads, K, d), from queries, keys and values, (heads, K, d)."""
        stretches = self.stretches(query.device)
        walk = torch.cat([stretch.labels for stretch in stretches])
        above = torch.cat([stretch.above for stretch in stretches])
        sizes = [len(stretch.above) for stretch in stretches]
        # Index once for all stretches: the gradient of each indexing is as large as the tree.
        queries = query[:, walk].split(self.span, 1)
        own = (part[:, walk].split(self.span, 1) for part in (key, value))
        shared = (part[:, above].split(sizes, 1) for part in (key, value))
        keys, values = (map(torch.cat, zip(*pair, strict=True), repeat(1)) for pair in zip(own, shared, strict=True))
        by_distance, sums = self.distance_bias(), self.root_sums()

        def mix(query: Tensor, key: Tensor, value: Tensor, distance: Tensor, ancestor: Tensor, ends: Any) -> Tensor:
            bias = self.bias(distance, by_distance, ancestor, sums, *ends)
            return attend(query, key, value, bias, scale=scale, dropout=dropout)

        mixed = []
        for stretch, query, key, value in zip(stretches, queries, keys, values, strict=True):
            context = torch.cat([stretch.labels, stretch.above])
            rows = max(1, SCORES // (len(query) * len(context)))
            for start in range(0, len(stretch.labels), rows):
                part = slice(start, start + rows)
                tables = stretch.distance[part], stretch.ancestor[part], (stretch.labels[part], context)
                mixed.append(checkpoint(mix, query[:, part], key, value, *tables, use_reentrant=False))
        return torch.cat(mixed, 1)[:, walk.argsort()]

    def stretches(self, device: torch.device) -> list[Stretch]:
        """Return the stretches of the walk, computed once per device."""
        if not self._stretches or self._stretches[0].labels.device != device:
            self._stretches = []
            for start in range(0, len(self.taxonomy), self.span):
                labels = self.taxonomy.walk[start : start + self.span]
                above = self.taxonomy.ancestors(int(labels[0]))
                distance, ancestor = pair_tables(self.taxonomy, labels, np.concatenate([labels, above]), device)
                own, path = (torch.tensor(part, device=device) for part in (labels, above))
                self._stretches.append(Stretch(own, path, distance, ancestor))
        return self._stretches


def token_probability_in_blocks(
    attention: TokenLabelAttention,
    tokens: Tensor,
    labels: Tensor,
    gold: Tensor,
    *,
    temperature: float,
    noise: Tensor | None = None,
) -> Tensor:
    """Return :func:`~hgclr.nn.positive_samples.token_probability`, (B, L), computed for a few tokens at a time."""
    heads = attention.heads if attention.probabilities else 1
    size = max(1, SCORES // (len(tokens) * len(labels) * heads))
    parts = tokens.split(size, 1)
    noises: Sequence[Tensor | None] = [None] * len(parts) if noise is None else noise.split(size, 1)

    def probability(part: Tensor, noise: Tensor | None) -> Tensor:
        return token_probability(attention, part, labels, gold, temperature=temperature, noise=noise)

    return torch.cat(
        [checkpoint(probability, *each, use_reentrant=False) for each in zip(parts, noises, strict=True)], 1
    )


def name_blocks(tokens: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Return label names in blocks of similar length: the labels of each block, (n,), and their tokens, (n, T').

    ``tokens`` are (K, T), padded with -1. Names that fit one block keep their order.
    """
    if tokens.numel() <= NAME_TOKENS:
        return [(torch.arange(len(tokens), device=tokens.device), tokens)]
    lengths = (tokens >= 0).sum(1)
    longest_first = lengths.argsort(descending=True, stable=True)
    blocks, start = [], 0
    while start < len(tokens):
        longest = max(1, int(lengths[longest_first[start]]))
        labels = longest_first[start : start + max(1, NAME_TOKENS // longest)]
        blocks.append((labels, tokens[labels, :longest]))
        start += len(labels)
    return blocks


def name_embedding_in_blocks(encoder: Any, tokens: Tensor, kind: str, special_token_ids: Sequence[int]) -> Tensor:
    """Return :func:`~hgclr.nn.label_encoder.name_embedding`, (K, H), computed for a block of names at a time."""
    blocks = name_blocks(tokens)
    embedded = [
        checkpoint(name_embedding, encoder, block, kind, special_token_ids, use_reentrant=False) for _, block in blocks
    ]
    order = torch.cat([labels for labels, _ in blocks])
    return torch.cat(embedded)[order.argsort()]
