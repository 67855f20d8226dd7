"""Attention with dropout for training on a CPU.

torch's fast kernel for a CPU has no dropout, and without that kernel attention works on whole (B, heads, L, L)
tensors that fit no cache. This one goes through the batch in groups of documents whose attention weights do fit, each
group at the length of its longest text, and computes the weights anew in the backward pass: nothing of size L x L is
kept but the dropped positions, a byte each. A batch may be packed: all texts in one row, without padding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hgclr.nn.draws import Seed, document_seeds, draw_seed, keep_mask, keep_masks, kept_share

__all__ = ["CPUDropout", "dropout_attention", "first_token_attention"]


class CPUDropout(nn.Dropout):
    """Drop elements as :class:`torch.nn.Dropout` does, with cheap random bits; on other devices it is that class."""

    def forward(self, values: Tensor) -> Tensor:
        if not self.training or self.p in (0, 1) or values.device.type != "cpu":
            return super().forward(values)
        dropped: Tensor = _Drop.apply(values, self.p)  # type: ignore[no-untyped-call]
        return dropped


class _Drop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, rate: float) -> Tensor:
        mask = keep_mask(values.shape, rate)
        ctx.save_for_backward(mask)  # a byte per element
        ctx.scale = 1 / kept_share(rate)
        return mask.to(values.dtype).mul_(values).mul_(ctx.scale)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (mask,) = ctx.saved_tensors
        return mask.to(gradient.dtype).mul_(gradient).mul_(ctx.scale), None


GROUP = 2**19
"""Attention weights computed at a time: two megabytes in single precision, which stay in a core's cache."""


def dropout_attention(
    query: Tensor, key: Tensor, value: Tensor, *, lengths: Sequence[int], scale: float, dropout: float
) -> Tensor:
    """Return ``dropout(softmax(Q Kᵀ · scale)) V`` over the tokens of each document, like Q, K and V in shape.

    Args:
        query, key, value: (B, heads, L, d), real tokens first, what comes out behind them means nothing; or, packed,
            (1, heads, T, d), the tokens of one document after those of the other.
        lengths: tokens of each document.
        scale: factor of the logits.
        dropout: share of attention weights that are dropped.
    """
    output: Tensor = _DropoutAttention.apply(query, key, value, lengths, scale, dropout)  # type: ignore[no-untyped-call]
    return output


class _Group(NamedTuple):
    """Neighbouring documents that attend at once.

    Args:
        documents: which.
        columns: in a padded batch, the tokens of each that are looked at; in a packed one, those of all of them.
        packed: which of the two it is.
        absent: True on padding, (G, 1, 1, n), if there is any.
    """

    documents: slice
    columns: slice
    packed: bool
    absent: Tensor | None = None

    def cut(self, part: Tensor) -> Tensor:
        """Return a view of the group's part of a tensor, (G, heads, n, d)."""
        if not self.packed:
            return part[self.documents, :, self.columns]
        count = self.documents.stop - self.documents.start
        view: Tensor = part[0, :, self.columns].unflatten(1, (count, -1))
        return view.transpose(0, 1)

    def logits(self, query: Tensor, key: Tensor, scale: float) -> Tensor:
        """Return the group's attention logits, (G, heads, n, n), in single precision at least."""
        logits = (self.cut(query) * scale) @ self.cut(key).transpose(-1, -2)
        if self.absent is not None:
            logits = logits.masked_fill_(self.absent, -torch.inf)
        return logits.to(torch.promote_types(logits.dtype, torch.float32))


def _groups(lengths: Sequence[int], heads: int, *, packed: bool) -> Iterator[_Group]:
    """Yield neighbouring documents as long as their attention weights, heads * n² each, stay within ``GROUP``.

    Packed documents share a group only if they are equally long.
    """
    start = token = 0
    while start < len(lengths):
        stop, longest = start + 1, lengths[start]
        while stop < len(lengths) and not (packed and lengths[stop] != longest):
            wider = max(longest, lengths[stop])
            if (stop + 1 - start) * heads * wider**2 > GROUP:
                break
            stop, longest = stop + 1, wider
        documents = slice(start, stop)
        if packed:
            tokens = (stop - start) * longest
            yield _Group(documents, slice(token, token + tokens), packed)
            token += tokens
        else:
            inside = torch.tensor(lengths[documents])
            absent = None
            if int(inside.min()) < longest:
                absent = (torch.arange(longest) >= inside[:, None])[:, None, None, :]
            yield _Group(documents, slice(longest), packed, absent)
        start = stop


class _DropoutAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, lengths: Sequence[int], scale: float, dropout: float
    ) -> Tensor:
        output = torch.zeros_like(value)
        groups, masks = list(_groups(lengths, query.shape[1], packed=len(query) < len(lengths))), []
        seeds = document_seeds(len(lengths), draw_seed()) if dropout else None
        documents = None if seeds is None else list(zip(seeds, lengths, strict=True))
        for group in groups:
            weights = group.logits(query, key, scale).softmax(-1)  # (G, heads, n, n)
            if dropout:
                masks.append(
                    keep_mask(weights.shape, dropout)
                    if documents is None
                    else _own_masks(weights, dropout, documents[group.documents])
                )
                weights = weights.mul_(masks[-1].to(weights.dtype))
            group.cut(output).copy_(weights.to(value.dtype) @ group.cut(value))
        ctx.save_for_backward(query, key, value, *masks)
        ctx.groups, ctx.scale, ctx.kept = groups, scale, kept_share(dropout)
        return output.mul_(1 / ctx.kept)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, *masks = ctx.saved_tensors
        d_query, d_key, d_value = (torch.zeros_like(part) for part in (query, key, value))
        gradient = gradient * (1 / ctx.kept)
        for number, group in enumerate(ctx.groups):
            g = group.cut(gradient)
            weights = group.logits(query, key, ctx.scale).softmax(-1)  # P, (G, heads, n, n)
            d_weights = (g @ group.cut(value).transpose(-1, -2)).to(weights.dtype)
            kept = weights
            if masks:
                mask = masks[number].to(weights.dtype)
                kept, d_weights = weights * mask, d_weights.mul_(mask)
            group.cut(d_value).copy_(kept.transpose(-1, -2).to(g.dtype) @ g)
            d_logits = torch._softmax_backward_data(d_weights, weights, -1, weights.dtype)  # P ∘ (dP - Σ P ∘ dP)
            d_logits = d_logits.mul_(ctx.scale).to(g.dtype)
            group.cut(d_query).copy_(d_logits @ group.cut(key))
            group.cut(d_key).copy_(d_logits.transpose(-1, -2) @ group.cut(query))
        return d_query, d_key, d_value, None, None, None


def _own_masks(weights: Tensor, rate: float, documents: Sequence[tuple[Seed, int]]) -> Tensor:
    """Return what is kept of attention weights, (G, heads, n, n), drawn for each document by its seed and length."""
    _, heads, longest, _ = weights.shape
    if all(length == longest for _, length in documents):
        return keep_masks((heads, longest, longest), rate, [seed for seed, _ in documents])
    masks = torch.zeros(weights.shape, dtype=torch.uint8)
    for mask, (seed, length) in zip(masks, documents, strict=True):
        mask[:, :length, :length] = keep_mask((heads, length, length), rate, seed)
    return masks


def first_token_attention(
    query: Tensor, key: Tensor, value: Tensor, *, lengths: Sequence[int], scale: float, dropout: float
) -> Tensor:
    """Return what :func:`dropout_attention` does for the first token of each document alone, (B, heads, d).

    Where rows are documents, the same positions are dropped.

    Args:
        query: of the first tokens, (B, heads, d).
        key, value: (T, heads, d), the tokens of one document after those of the other.
        lengths, scale, dropout: as there.
    """
    seeds = document_seeds(len(lengths), draw_seed()) if dropout else None
    vectors = []
    for number, (q, k, v) in enumerate(zip(query, key.split(lengths), value.split(lengths), strict=True)):
        logits = (q * scale).unsqueeze(1) @ k.permute(1, 2, 0)  # (heads, 1, n)
        weights = logits.to(torch.promote_types(logits.dtype, torch.float32)).softmax(-1)
        if dropout:
            heads, length = len(weights), lengths[number]
            if seeds is None:
                mask = keep_mask((heads, 1, length), dropout)
            else:
                mask = keep_mask((heads, length, length), dropout, seeds[number])[:, :1]
            weights = weights * mask.to(weights.dtype) * (1 / kept_share(dropout))
        vectors.append((weights.to(v.dtype) @ v.transpose(0, 1)).squeeze(1))
    return torch.stack(vectors)
