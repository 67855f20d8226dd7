"""The three terms of the objective (paper, sections 4.4 and 4.5)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["ProjectionHead", "classification_loss", "nt_xent"]


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
    """Pull each text to its positive sample and away from all others in the batch (Eqs. 13 to 15).

    For the 2N vectors z with partner μ(z), ``L_m = -log exp(sim(z_m, μ(z_m))/τ) / Σ_{i≠m} exp(sim(z_m, z_i)/τ)``,
    sim the cosine; the loss is the mean over all 2N.

    Args:
        original: projected texts, (N, H).
        positive: their projected positive samples, (N, H).
        temperature: τ.
    """
    vectors = F.normalize(torch.cat([original, positive]), dim=-1)  # (2N, H)
    similarity = vectors @ vectors.T / temperature  # (2N, 2N)
    similarity = similarity.masked_fill(torch.eye(len(vectors), dtype=torch.bool, device=vectors.device), -torch.inf)
    partner = torch.arange(len(vectors), device=vectors.device).roll(len(original))
    return F.cross_entropy(similarity, partner)


def classification_loss(logits: Tensor, gold: Tensor, reduction: str) -> Tensor:
    """Return the binary cross-entropy over all labels (Eqs. 17 and 18).

    Args:
        logits: (B, K).
        gold: 0/1, (B, K).
        reduction: ``sum`` over documents and labels, ``mean`` over both, or ``document``: summed over labels,
            averaged over documents.
    """
    gold = gold.to(logits.dtype)
    if reduction == "document":
        return F.binary_cross_entropy_with_logits(logits, gold, reduction="sum") / len(logits)
    return F.binary_cross_entropy_with_logits(logits, gold, reduction=reduction)
