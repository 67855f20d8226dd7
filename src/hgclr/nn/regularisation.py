"""Recursive regularisation: the classifier's rows of parent and child shall be alike."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

__all__ = ["recursive_regularisation"]

PIECE = 2**22
"""Weights of edges compared at a time: sixteen megabytes in single precision."""


def recursive_regularisation(weight: Tensor, parents: Tensor) -> Tensor:
    """Return ``Σ ½ ‖w_parent − w_child‖²`` over the edges of the tree (Gopal and Yang, KDD 2013), ().

    HiAGM's classifier has K rows of K d weights. The difference of two such matrices is kept neither for the backward
    pass nor as a whole.

    Args:
        weight: a row per label, (K, D).
        parents: index of each label's parent, -1 for a top label, (K,).
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
