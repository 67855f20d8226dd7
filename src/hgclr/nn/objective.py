"""The terms of objectives: contrastive loss (paper, section 4.4), classification loss (4.5), regularisation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hgclr.nn.gathering import gather, rank, world_size

__all__ = ["ProjectionHead", "classification_loss", "nt_xent", "recursive_regularisation"]

PIECE = 2**22
"""Weights of edges compared at a time: sixteen megabytes in single precision."""


class ProjectionHead(nn.Sequential):
    """Project text vectors for the contrastive loss: ``c = W2 ReLU(W1 h)`` (Eq. 12).

    The published program has biases and a dropout before each linear layer.
    """

    def __init__(self, width: int, *, bias: bool, dropout: float) -> None:
        super().__init__(
            nn.Dropout(dropout),
            nn.Linear(width, width, bias=bias),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(width, width, bias=bias),
        )


def nt_xent(original: Tensor, positive: Tensor, temperature: float = 1.0) -> Tensor:
    """Pull each text to its positive sample and away from the others in the batch (Eqs. 13 to 15).

    For the 2N vectors z with partner μ(z), ``L_m = -log exp(sim(z_m, μ(z_m))/τ) / Σ_{i≠m} exp(sim(z_m, z_i)/τ)``,
    sim the cosine; the loss is the mean over all 2N. Of several processes each takes the mean over its own texts and
    positive samples, and the others are those of all processes.

    From projected texts and their projected positive samples, (N, H) each.
    """
    own = F.normalize(torch.stack([original, positive], 1), dim=-1)  # (N, 2, H)
    others = gather(own).transpose(0, 1).flatten(0, 1)  # (2M, H), all texts first
    similarity = own.transpose(0, 1).flatten(0, 1) @ others.T / temperature  # (2N, 2M)
    documents = len(others) // 2
    places = torch.arange(len(original), device=own.device) + rank() * len(original)
    places = torch.cat([places, places + documents])
    similarity = similarity.scatter(1, places[:, None], -torch.inf)  # a vector is no candidate for itself
    return F.cross_entropy(similarity, (places + documents) % len(others))


def classification_loss(logits: Tensor, gold: Tensor, reduction: str) -> Tensor:
    """Return the binary cross-entropy of logits and gold labels, both (B, K) (Eqs. 17 and 18).

    It is a ``sum`` over documents and labels, a ``mean`` over both, or summed over labels and averaged over documents
    (``document``). Of several processes each has its documents' part; a sum is taken as many times, because their mean
    is to be that of all documents (:mod:`hgclr.nn.gathering`).
    """
    gold = gold.to(logits.dtype)
    if reduction == "document":
        return F.binary_cross_entropy_with_logits(logits, gold, reduction="sum") / len(logits)
    loss = F.binary_cross_entropy_with_logits(logits, gold, reduction=reduction)
    return loss * world_size() if reduction == "sum" else loss


def recursive_regularisation(weight: Tensor, parents: Tensor) -> Tensor:
    """Return ``Σ ½ ‖w_parent − w_child‖²`` over the edges of the tree (Gopal and Yang, KDD 2013), ().

    HiAGM's classifier has K rows of K d weights. The difference of two such matrices is kept neither for the backward
    pass nor as a whole. From a row per label, (K, D), and the index of each label's parent, -1 for a top label, (K,).
    """
    distance: Tensor = _Distance.apply(weight, parents)  # type: ignore[no-untyped-call]
    return distance


class _Distance(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, parents: Tensor) -> Tensor:
        ctx.save_for_backward(weight, parents)
        total = weight.new_zeros(())
        for parent, child in _edges(parents, weight.shape[1]):
            total += (weight[parent] - weight[child]).square_().sum()
        return total / 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        weight, parents = ctx.saved_tensors
        to_weight = torch.zeros_like(weight)
        for parent, child in _edges(parents, weight.shape[1]):
            apart = (weight[parent] - weight[child]).mul_(gradient)
            to_weight.index_add_(0, parent, apart)
            to_weight.index_add_(0, child, apart, alpha=-1)
        return to_weight, None


def _edges(parents: Tensor, width: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the two ends of the edges, as many at a time as keep their weights within a piece."""
    children = torch.nonzero(parents >= 0)[:, 0]
    for child in children.split(max(1, PIECE // width)):
        if len(child):
            yield parents[child], child
