"""Attention with dropout for training on a processor.

torch's fast kernel for a processor has no dropout, and without that kernel attention works on whole (B, heads, L, L)
tensors that fit no cache. This one goes through the batch document by document, at each one's real length, and
computes the attention weights anew in the backward pass: nothing of size L x L is kept but the dropped positions, a
byte each.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from hgclr.nn.dropout import keep_mask, kept_share

__all__ = ["dropout_attention"]


def dropout_attention(
    query: Tensor, key: Tensor, value: Tensor, *, lengths: list[int], scale: float, dropout: float
) -> Tensor:
    """Return ``dropout(softmax(Q Kᵀ · scale)) V`` over the real tokens of each document.

    Args:
        query, key, value: (B, heads, L, d), real tokens first.
        lengths: real tokens of each document; the output is 0 behind them.
        scale: factor of the logits.
        dropout: share of attention weights that are dropped.

    Returns:
        (B, heads, L, d).
    """
    output: Tensor = _DropoutAttention.apply(query, key, value, lengths, scale, dropout)  # type: ignore[no-untyped-call]
    return output


class _DropoutAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, lengths: list[int], scale: float, dropout: float
    ) -> Tensor:
        output = torch.zeros_like(value)
        masks = []
        for b, n in enumerate(lengths):
            weights = _weights(query[b, :, :n], key[b, :, :n], scale)  # (heads, n, n)
            if dropout:
                masks.append(keep_mask(weights.shape, dropout))
                weights = weights.mul_(masks[-1].to(weights.dtype))
            torch.matmul(weights.to(value.dtype), value[b, :, :n], out=output[b, :, :n])
        ctx.save_for_backward(query, key, value, *masks)
        ctx.lengths, ctx.scale, ctx.kept = lengths, scale, kept_share(dropout)
        return output.mul_(1 / ctx.kept)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, *masks = ctx.saved_tensors
        d_query, d_key, d_value = (torch.zeros_like(part) for part in (query, key, value))
        gradient = gradient * (1 / ctx.kept)
        for b, n in enumerate(ctx.lengths):
            q, k, v, g = (part[b, :, :n] for part in (query, key, value, gradient))
            weights = _weights(q, k, ctx.scale)  # P
            d_weights = (g @ v.transpose(1, 2)).to(weights.dtype)
            kept = weights
            if masks:
                mask = masks[b].to(weights.dtype)
                kept, d_weights = weights * mask, d_weights.mul_(mask)
            torch.matmul(kept.transpose(1, 2).to(g.dtype), g, out=d_value[b, :, :n])
            # dS = P ∘ (dP - Σ_j P dP), the derivative of the softmax
            d_logits = torch._softmax_backward_data(d_weights, weights, -1, weights.dtype).mul_(ctx.scale).to(q.dtype)
            torch.matmul(d_logits, k, out=d_query[b, :, :n])
            torch.matmul(d_logits.transpose(1, 2), q, out=d_key[b, :, :n])
        return d_query, d_key, d_value, None, None, None


def _weights(query: Tensor, key: Tensor, scale: float) -> Tensor:
    """Return the attention weights of one document, (heads, n, n), in single precision at least."""
    logits = torch.baddbmm(query.new_zeros(()), query, key.transpose(1, 2), beta=0, alpha=scale)
    return logits.softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))
