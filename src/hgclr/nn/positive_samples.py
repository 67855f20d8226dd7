"""Positive samples: the tokens that a text's labels choose, and the weights of their embeddings (paper, section 4.3).

B documents, L tokens, K labels, H features. :func:`token_probability` follows Eqs. 7 to 9, the rules that keep tokens
Eq. 10, :func:`keep_weights` Eqs. 20 and 21; random and adversarial samples are those of table 5.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hgclr.nn.gathering import total


class TokenLabelAttention(nn.Module):
    """Score every token against every label: ``q_i = e_i W_Q, k_j = l_j W_K, A_ij = q_i k_jᵀ / √d`` (Eq. 7).

    d is the whole ``width`` (paper) or that of one ``head`` (published). Several heads are averaged: their logits, or,
    with ``probabilities`` (published), their softmax over the labels.
    """

    def __init__(
        self, token_width: int, label_width: int, *, heads: int, scale_by: str, bias: bool, probabilities: bool
    ) -> None:
        super().__init__()
        self.heads, self.probabilities = heads, probabilities
        self.scale = (label_width if scale_by == "width" else label_width // heads) ** -0.5
        self.query = nn.Linear(token_width, label_width, bias=bias)  # W_Q
        self.key = nn.Linear(label_width, label_width, bias=bias)  # W_K

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        """Return A, (…, K), from word embeddings e, (…, H), and label features l, (K, H), at least in fp32."""
        query, key = self.query(tokens) * self.scale, self.key(labels)
        single = torch.promote_types(query.dtype, torch.float32)
        if not self.probabilities:  # the mean of the heads' logits is one product over the whole width
            logits: Tensor = (query / self.heads) @ key.T
            return logits.to(single)
        query, key = (part.flatten(0, -2).unflatten(-1, (self.heads, -1)).transpose(0, 1) for part in (query, key))
        logits = query @ key.transpose(-1, -2)  # (heads, N, K)
        return logits.softmax(-1, dtype=single).mean(0).view(*tokens.shape[:-1], -1)


def token_probability(
    attention: TokenLabelAttention,
    tokens: Tensor,
    labels: Tensor,
    gold: Tensor,
    *,
    temperature: float,
    noise: Tensor | None = None,
) -> Tensor:
    """Return P_i, the probability that a token is sampled for one of its document's labels, (B, L) (Eqs. 7 to 9).

    ``P_ij = gumbel_softmax(A_i1 … A_ik)_j`` and ``P_i = Σ_{j in y} P_ij``.

    Args:
        attention: computes A.
        tokens: word embeddings e, (B, L, H).
        labels: label features l, (K, H).
        gold: the documents' labels y as 0/1, (B, K).
        temperature: of the Gumbel-softmax.
        noise: Gumbel noise, (B, L, K); drawn if not given.
    """
    scores = attention(tokens, labels)  # A, (B, L, K)
    if noise is None:
        noise = -torch.log(-torch.log(torch.rand_like(scores)))
    sampled = ((scores + noise) / temperature).softmax(-1)  # P_ij, (B, L, K)
    probability: Tensor = (sampled @ gold.to(sampled.dtype).unsqueeze(-1)).squeeze(-1)  # P_i, (B, L)
    return probability


def keep_by_threshold(probability: Tensor, candidates: Tensor, threshold: float) -> Tensor:
    """Keep the candidates, bool (B, L), with ``P_i > γ``; bool (B, L) (Eq. 10)."""
    return (probability > threshold) & candidates


def keep_by_fraction(probability: Tensor, candidates: Tensor, fraction: float, at_least: int = 0) -> Tensor:
    """Keep the most probable share of each document's candidates, bool (B, L).

    Of n candidates, ``max(⌈fraction · n⌉, min(n, at_least))`` are kept; the number that a threshold γ keeps depends on
    the number of labels.
    """
    available = candidates.sum(1)  # n, (B,)
    # The slack is for products such as 0.7 * 10 that round to just above a whole number.
    wanted = torch.ceil(available * fraction - 1e-4).clamp(min=at_least)
    return _highest(probability, candidates, wanted)


def keep_at_random(real: Tensor, special: Tensor, fraction: float, at_least: int = 0) -> Tensor:
    """Keep random tokens and all special tokens, bool (B, L) (random masking, table 5).

    On average, a ``fraction`` of all ``real`` tokens of the batch, bool (B, L), is kept, ``special`` ones included:
    the share that training logs as ``kept``. Each document keeps the same share of its other tokens; the count is
    rounded up or down at random, so that the average also holds for short texts.
    """
    candidates = real & ~special
    all_real, all_special, all_candidates = total(torch.stack([part.sum() for part in (real, special, candidates)]))
    share = (fraction * all_real - all_special) / all_candidates.clamp(min=1)  # of the candidates
    wanted = share.clamp(min=0) * candidates.sum(1)  # (B,)
    wanted = (wanted + torch.rand_like(wanted)).floor().clamp(min=at_least)
    return _highest(torch.rand(real.shape, device=real.device), candidates, wanted) | special


def _highest(score: Tensor, candidates: Tensor, count: Tensor) -> Tensor:
    """Return the ``count`` (B,) candidates of each document with the highest scores from 0 up, bool (B, L)."""
    order = score.masked_fill(~candidates, -1.0).argsort(dim=1, descending=True, stable=True)
    rank = order.argsort(dim=1)  # 0 for the highest of its document
    return (rank < count[:, None]) & candidates


def keep_weights(probability: Tensor, kept: Tensor) -> Tensor:
    """Return the factors of the word embeddings, (B, L) (appendix A, Eqs. 20 and 21).

    ``weight_i = P_i + detach(1 - P_i)`` where kept and 0 elsewhere. Its value is 1 or 0; its gradient by P_i is 1 where
    kept, so that the loss of the positive sample trains the choice of tokens (straight-through).
    """
    return (probability + (1 - probability).detach()) * kept


def adversarial_move(words: Tensor, loss: Callable[[Tensor], Tensor], size: float) -> Tensor:
    """Return the step of a given length that raises a loss most, to first order, (B, L, H) (FGSM, table 5).

    ``r = size · g / ‖g‖`` for each document, g the gradient of the loss at its word embeddings, (B, L, H). ``loss`` is
    a sum over documents. The step is a constant: no gradient flows through it, and no parameter's gradient changes.
    """
    words = words.detach().requires_grad_()
    with torch.enable_grad():
        (gradient,) = torch.autograd.grad(loss(words), words)
    return size * F.normalize(gradient.flatten(1), dim=1).view_as(gradient)
