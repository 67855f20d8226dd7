"""HiMatch's losses: in one space for both, a text is nearer to its labels than to others, by steps of the tree."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["Drawn", "JointProjection", "distances", "draw_labels", "joint_loss", "matching_loss"]


class JointProjection(nn.Sequential):
    """Put vectors into the joint space: two linear layers, ReLU and dropout between them, onto the unit sphere.

    Args:
        width: size of the vectors.
        joint_width: size of the joint space.
        dropout: between the layers.
    """

    def __init__(self, width: int, joint_width: int, *, dropout: float) -> None:
        super().__init__(
            nn.Linear(width, joint_width), nn.ReLU(), nn.Dropout(dropout), nn.Linear(joint_width, joint_width)
        )

    def forward(self, vectors: Tensor) -> Tensor:
        """Return vectors of length 1, (N, joint width), from vectors, (N, width)."""
        return F.normalize(super().forward(vectors), dim=-1)  # type: ignore[no-untyped-call]


class Drawn(NamedTuple):
    """Something of four labels for each document, (B,) each: the labels, -1 for none, or distances to them."""

    gold: Tensor
    parent: Tensor
    sibling: Tensor
    other: Tensor


def draw_labels(gold: Tensor, parents: Tensor) -> Drawn:
    """Draw for each document one gold label, its parent, a sibling that is not gold and any label that is not gold.

    Top labels are siblings of each other and have no parent. What there is none of is -1 and is left out of the losses.
    In the released program a label stands in for its missing parent and any wrong label for a missing sibling, and a
    sibling may be gold.

    Args:
        gold: 0/1, (B, K).
        parents: index of each label's parent, -1 for a top label, (K,).
    """
    right = gold > 0
    chosen = _one_of(right)  # (B,)
    above = torch.where(chosen >= 0, parents[chosen], -1)  # (B,)
    beside = ~right & (parents == above.unsqueeze(1)) & (chosen >= 0).unsqueeze(1)  # (B, K)
    return Drawn(chosen, above, _one_of(beside), _one_of(~right))


def distances(texts: Tensor, labels: Tensor, drawn: Drawn) -> Drawn:
    """Return ``‖t − l‖²`` to each of the drawn labels; where there is none, a number of no meaning.

    The released program divides by the size of the space, 200. The largest distance on the sphere is then 0.02, a
    margin of 0.1 can never be met, and the matching loss pulls and pushes at every pair for ever. Here it is undivided.

    Args:
        texts: (B, joint width).
        labels: (K, joint width).
        drawn: label indices.
    """
    return Drawn(*((texts - labels[chosen]).square().sum(-1) for chosen in drawn))


def joint_loss(distance: Drawn, drawn: Drawn, *, parent_margin: float) -> Tensor:
    """Return the mean over documents of ``d(t, gold) + relu(d(t, parent) − margin)``; a missing label counts 0.

    Args:
        distance: distances to the drawn labels.
        drawn: the labels, -1 for none.
        parent_margin: how far a text may be from its label's parent.
    """
    terms = torch.where(drawn.gold >= 0, distance.gold, 0.0)
    return (terms + torch.where(drawn.parent >= 0, F.relu(distance.parent - parent_margin), 0.0)).mean()


def matching_loss(distance: Drawn, drawn: Drawn, *, sibling_margin: float, random_margin: float) -> Tensor:
    """Return the mean over documents of ``Σ relu(margin − (d(t, wrong) − d(t, gold)))``; a missing label counts 0.

    The sum is over the sibling and over the other label, each with a margin of its own.

    Args:
        distance: distances to the drawn labels.
        drawn: the labels, -1 for none.
        sibling_margin: how much nearer the gold label shall be than the sibling.
        random_margin: how much nearer it shall be than the other label.
    """
    sibling = F.relu(sibling_margin - (distance.sibling - distance.gold))
    other = F.relu(random_margin - (distance.other - distance.gold))
    known = drawn.gold >= 0
    terms = torch.where(known & (drawn.sibling >= 0), sibling, 0.0) + torch.where(
        known & (drawn.other >= 0), other, 0.0
    )
    return terms.mean()


def _one_of(allowed: Tensor) -> Tensor:
    """Return a random allowed label in each row, (B,), -1 where none is, of booleans (B, K)."""
    keys = torch.rand(allowed.shape, device=allowed.device).masked_fill(~allowed, -1.0)
    return torch.where(allowed.any(1), keys.argmax(1), -1)
