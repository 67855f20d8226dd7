"""Positive samples: which tokens stay when a text is shortened under its labels (paper, section 4.3)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = [
    "KeepByFraction",
    "KeepByThreshold",
    "TokenLabelAttention",
    "compact",
    "gold_probability",
    "gumbel_noise",
    "keep_weights",
]


class TokenLabelAttention(nn.Module):
    """Score every token against every label (Eq. 7).

    ``q_i = e_i W_Q, k_j = l_j W_K, A_ij = q_i k_jᵀ / √d``. Several heads are averaged: their logits, or, where the
    guidance is by probabilities, their softmax over the labels.

    Args:
        token_width: size of a word embedding.
        label_width: size of a label feature, and of queries and keys.
        heads: attention heads.
        scale_by: divide by the root of the whole ``width`` or of one ``head``.
        bias: biases in the projections.
        probabilities: return averaged probabilities instead of logits.
    """

    def __init__(
        self,
        token_width: int,
        label_width: int,
        *,
        heads: int,
        scale_by: str,
        bias: bool,
        probabilities: bool,
    ) -> None:
        super().__init__()
        self.heads, self.probabilities = heads, probabilities
        self.scale = (label_width if scale_by == "width" else label_width // heads) ** -0.5
        self.query = nn.Linear(token_width, label_width, bias=bias)
        self.key = nn.Linear(label_width, label_width, bias=bias)

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        """Return A, (B, L, K), from word embeddings (B, L, H) and label features (K, H)."""
        query = self.query(tokens).unflatten(-1, (self.heads, -1))  # (B, L, heads, H/heads)
        key = self.key(labels).unflatten(-1, (self.heads, -1))  # (K, heads, H/heads)
        if not self.probabilities:  # the mean of the heads' logits is one product over the whole width
            logits: Tensor = query.flatten(-2) @ key.flatten(-2).T * (self.scale / self.heads)
            return logits
        scores: Tensor = torch.einsum("blhd,khd->bhlk", query, key) * self.scale
        return scores.softmax(-1).mean(1)


def gumbel_noise(scores: Tensor) -> Tensor:
    """Draw standard Gumbel noise in the shape of ``scores``, one value per document, token and label."""
    return -torch.empty_like(scores, memory_format=torch.legacy_contiguous_format).exponential_().log()


def gold_probability(scores: Tensor, gold: Tensor, noise: Tensor, temperature: float) -> Tensor:
    """Return the probability that a token is sampled for one of its document's labels (Eqs. 8 and 9).

    ``P_ij = gumbel_softmax(A_i1 … A_ik)_j`` and ``P_i = Σ_{j in y} P_ij``.

    Args:
        scores: A, (B, L, K).
        gold: labels of each document as 0/1, (B, K).
        noise: Gumbel noise, (B, L, K).
        temperature: of the Gumbel-softmax.

    Returns:
        P_i, (B, L).
    """
    sampled = ((scores + noise) / temperature).softmax(-1)  # P_ij, (B, L, K)
    return torch.einsum("blk,bk->bl", sampled, gold.to(sampled.dtype))


class KeepByThreshold:
    """Keep a token if ``P_i > γ`` (Eq. 10)."""

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold

    def __call__(self, probability: Tensor, candidates: Tensor) -> Tensor:
        """Return the kept tokens, bool (B, L), out of the ``candidates``, bool (B, L)."""
        return (probability > self.threshold) & candidates


class KeepByFraction:
    """Keep the most probable share of each document's tokens, whatever the scale of the probabilities.

    Of n candidates, ``max(⌈fraction · n⌉, min(n, at_least))`` are kept. The same γ keeps another share of the tokens
    for every number of labels; this does not.
    """

    def __init__(self, fraction: float, at_least: int = 0) -> None:
        self.fraction, self.at_least = fraction, at_least

    def __call__(self, probability: Tensor, candidates: Tensor) -> Tensor:
        """Return the kept tokens, bool (B, L), out of the ``candidates``, bool (B, L)."""
        available = candidates.sum(1)  # n, (B,)
        # Float products such as 0.7 * 10 land just above a whole number; the small slack keeps ⌈·⌉ honest.
        wanted = torch.ceil(available * self.fraction - 1e-4).clamp(min=self.at_least)
        order = probability.masked_fill(~candidates, -1.0).argsort(dim=1, descending=True, stable=True)
        rank = order.argsort(dim=1)  # 0 for the most probable token of its document
        return (rank < wanted[:, None]) & candidates


def keep_weights(probability: Tensor, kept: Tensor) -> Tensor:
    """Return what each word embedding is multiplied by (appendix A, Eqs. 20 and 21).

    ``weight_i = P_i + detach(1 - P_i)`` where kept and 0 elsewhere: its value is 1 or 0, its gradient with respect to
    P_i is 1 where kept, so that the choice of tokens can be learned through the positive sample's loss.

    Args:
        probability: P_i, (B, L).
        kept: bool (B, L).
    """
    return (probability + (1 - probability).detach()) * kept


def compact(words: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the positive samples without their dropped tokens.

    The first token stays in any case, at its weight: its vector may be what stands for the text.

    Args:
        words: word embeddings, (B, L, H).
        weights: what they are multiplied by, 0 where dropped, (B, L).

    Returns:
        Weighted word embeddings of the tokens that stay, (B, M, H), M the most that stay in one document; the place of
        each in its text, (B, M); and 1 where there is a token, 0 on padding, (B, M).
    """
    stays = weights.detach() != 0
    stays[:, 0] = True
    places = (~stays).long().argsort(dim=1, stable=True)[:, : int(stays.sum(1).max())]  # those that stay come first
    shorter = words.gather(1, places.unsqueeze(-1).expand(-1, -1, words.shape[-1]))
    return shorter * weights.gather(1, places).unsqueeze(-1), places, stays.gather(1, places).long()
