"""The terms of the objective: contrastive loss (paper, section 4.4) and classification loss (section 4.5)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hgclr.nn.gathering import gather, rank, world_size

__all__ = ["ProjectionHead", "classification_loss", "negative_weights", "nt_xent"]


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


def nt_xent(original: Tensor, positive: Tensor, temperature: float = 1.0, weights: Tensor | None = None) -> Tensor:
    """Pull each text to its positive sample and away from the others in the batch (Eqs. 13 to 15).

    For the 2N vectors z with partner μ(z), ``L_m = -log exp(sim(z_m, μ(z_m))/τ) / Σ_{i≠m} w_mi exp(sim(z_m, z_i)/τ)``,
    sim the cosine; the loss is the mean over all 2N. Of several processes each takes the mean over its own texts and
    positive samples, and the others are those of all processes.

    Args:
        original: projected texts, (N, H).
        positive: their projected positive samples, (N, H).
        temperature: τ.
        weights: w for a document of this process and one of all, (N, M), whether text or positive sample; 1 in the
            paper, and always for a document's own positive sample.
    """
    own = F.normalize(torch.stack([original, positive], 1), dim=-1)  # (N, 2, H)
    others = gather(own).transpose(0, 1).flatten(0, 1)  # (2M, H), all texts first
    similarity = own.transpose(0, 1).flatten(0, 1) @ others.T / temperature  # (2N, 2M)
    documents = len(others) // 2
    places = torch.arange(len(original), device=own.device) + rank() * len(original)
    if weights is not None:
        logs = weights.log().scatter(1, places[:, None], 0.0)
        similarity = similarity + logs.repeat(2, 2)  # w exp(s) = exp(s + log w)
    places = torch.cat([places, places + documents])
    similarity = similarity.scatter(1, places[:, None], -torch.inf)  # a vector is no candidate for itself
    return F.cross_entropy(similarity, (places + documents) % len(others))


def negative_weights(labels: Tensor, rule: str) -> Tensor | None:
    """Return how much the documents of a batch count as each other's negatives, None if ``all`` alike.

    They are (N, M), for this process' documents against those of all. ``different`` gives 0 to documents with the same
    labels and 1 to all others, ``distance`` gives ``|y_m Δ y_n| / |y_m ∪ y_n|``, the Jaccard distance of gold labels,
    (N, K). Label sets hold the ancestors of their labels, so that it is a distance in the tree: of two paths, the share
    of their edges that they do not have in common.
    """
    if rule == "all":
        return None
    with torch.autocast(labels.device.type, enabled=False):  # half precision cannot count
        labels = labels.float()
        others = gather(labels)
        shared = labels @ others.T  # |y_m ∩ y_n|, (N, M)
    union = labels.sum(1)[:, None] + others.sum(1) - shared
    if rule == "different":
        return (shared != union).float()
    return (union - shared) / union.clamp(min=1)


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
