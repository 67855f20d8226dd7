"""The terms of the objective: contrastive loss (paper, section 4.4), classification loss (4.5), regularisation.

N documents in a batch, K labels, H features.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hgclr.nn.gathering import gather, rank, world_size


class ProjectionHead(nn.Sequential):
    """Project text vectors for the contrastive loss: ``c = W_2 ReLU(W_1 h)`` (Eq. 12).

    The published program has biases, and a dropout before each linear layer.
    """

    def __init__(self, width: int, *, bias: bool, dropout: float) -> None:
        super().__init__(
            nn.Dropout(dropout),
            nn.Linear(width, width, bias=bias),  # W_1
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(width, width, bias=bias),  # W_2
        )


def nt_xent(original: Tensor, positive: Tensor, temperature: float = 1.0) -> Tensor:
    """Return the NT-Xent loss of projected texts and their positive samples, (N, H) each (Eqs. 13 to 15).

    For the 2N vectors z with partner μ(z), ``L_m = -log exp(sim(z_m, μ(z_m))/τ) / Σ_{i≠m} exp(sim(z_m, z_i)/τ)``, sim
    the cosine; the loss is the mean over all 2N. With several processes, each averages over its own 2N vectors and
    compares them with those of all processes.
    """
    own = F.normalize(torch.stack([original, positive]), dim=-1)  # c and ĉ, (2, N, H)
    z = gather(own.transpose(0, 1)).transpose(0, 1).flatten(0, 1)  # of all M documents, (2M, H)
    similarity = own.flatten(0, 1) @ z.T / temperature  # sim(z_m, z_i) / τ, (2N, 2M)
    documents = len(z) // 2
    place = torch.arange(len(original), device=z.device) + rank() * len(original)
    place = torch.cat([place, place + documents])  # of own vectors among all, (2N,)
    similarity = similarity.scatter(1, place[:, None], -torch.inf)  # i ≠ m
    partner = (place + documents) % len(z)  # μ
    return F.cross_entropy(similarity, partner)


def classification_loss(logits: Tensor, gold: Tensor, reduction: str) -> Tensor:
    """Return the binary cross-entropy of logits and gold labels, both (N, K) (Eqs. 17 and 18).

    ``sum`` over documents and labels (paper), ``mean`` over both (published), or ``document``: summed over labels,
    averaged over documents. Labels with the target NaN are left out of the sums. With several processes, a sum is
    multiplied by their number, so that the mean of their losses is the loss of all documents.
    """
    known = ~gold.isnan()
    each = F.binary_cross_entropy_with_logits(logits, gold.to(logits.dtype).nan_to_num(), reduction="none")
    loss = each.masked_fill(~known, 0.0).sum()
    divisor = {"sum": 1 / world_size(), "mean": logits.numel(), "document": len(logits)}[reduction]
    return loss / divisor


def recursive_regularisation(weight: Tensor, parents: Tensor) -> Tensor:
    """Return ``Σ ½ ‖w_parent − w_child‖²`` over the edges of the tree (Gopal and Yang, KDD 2013), ().

    From a row per label, (K, D), and the index of each label's parent, -1 for a top label, (K,).
    """
    child = (parents >= 0).nonzero()[:, 0]
    return (weight[parents[child]] - weight[child]).square().sum() / 2
