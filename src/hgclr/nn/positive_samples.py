"""Positive samples of texts: which tokens their labels choose, and what is made of them (paper, section 4.3).

From a text's word embeddings e and the label features l: the attention A between them, the probability P_i that token i
is sampled for one of the text's labels, the tokens that are kept by it, and the weights of their word embeddings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hgclr.nn.draws import document_seeds, draw_seed, gumbel_noise, uniform
from hgclr.nn.gathering import total

__all__ = [
    "TokenLabelAttention",
    "adversarial_move",
    "compact",
    "gold_probability",
    "keep_at_random",
    "keep_by_fraction",
    "keep_by_threshold",
    "keep_weights",
]

BLOCK = 2**23
"""Token-label scores computed at a time: 32 megabytes in single precision."""
FEWEST_TOKENS = 64
"""Tokens computed at a time in any case: fewer, and each pass over the label features serves too little work."""


class TokenLabelAttention(nn.Module):
    """Score every token against every label (Eq. 7).

    ``q_i = e_i W_Q, k_j = l_j W_K, A_ij = q_i k_jᵀ / √d``. Several heads are averaged: their logits, or, where the
    guidance is by ``probabilities``, their softmax over the labels. d is the whole ``width`` or that of one ``head``.
    """

    def __init__(
        self, token_width: int, label_width: int, *, heads: int, scale_by: str, bias: bool, probabilities: bool
    ) -> None:
        super().__init__()
        self.heads, self.probabilities = heads, probabilities
        self.scale = (label_width if scale_by == "width" else label_width // heads) ** -0.5
        self.query = nn.Linear(token_width, label_width, bias=bias)
        self.key = nn.Linear(label_width, label_width, bias=bias)

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        return self.scores(self.query(tokens), self.key(labels))

    def scores(self, query: Tensor, key: Tensor) -> Tensor:
        """Return A, (N, K), from queries (N, H) and keys (K, H), in single precision at least."""
        single = torch.promote_types(query.dtype, torch.float32)
        if not self.probabilities:  # the mean of the heads' logits is one product over the whole width
            products: Tensor = (query * (self.scale / self.heads)) @ key.T
            return products.to(single)
        query, key = (part.unflatten(-1, (self.heads, -1)).transpose(0, 1) for part in (query * self.scale, key))
        logits: Tensor = query @ key.transpose(-1, -2)  # (heads, N, K)
        return logits.softmax(-1, dtype=single).mean(0)


def gold_probability(
    attention: TokenLabelAttention,
    tokens: Tensor,
    labels: Tensor,
    gold: Tensor,
    *,
    temperature: float,
    noise: Tensor | None = None,
    sizes: Sequence[int] = (),
) -> Tensor:
    """Return P_i, the probability that a token is sampled for one of its document's labels, (N,) (Eqs. 8 and 9).

    ``P_ij = gumbel_softmax(A_i1 … A_ik)_j`` and ``P_i = Σ_{j in y} P_ij``. The (N, K) scores are computed for some
    tokens at a time and anew in the backward pass, where tokens without a gradient (the dropped ones) are left out.

    Args:
        attention: computes A.
        tokens: word embeddings, (N, H), of all documents together.
        labels: label features, (K, H).
        gold: each token's document's labels by index, (N, G), -1 where a document has fewer than G.
        temperature: of the Gumbel-softmax.
        noise: Gumbel noise, (N, K); drawn if not given.
        sizes: how many of the tokens are each document's, (B,): they are drawn for as :mod:`hgclr.nn.draws` says.
    """
    seed = draw_seed() if noise is None else 0
    seeds = document_seeds(len(sizes), seed)
    longest = _block_size(attention, len(labels))

    def noise_of(block: slice) -> Tensor:
        if noise is not None:
            return noise[block].clone()
        if seeds is None:
            return gumbel_noise((len(tokens[block]), len(labels)), seed + block.start, tokens.device)
        parts, end = [], 0
        for own, size in zip(seeds, sizes, strict=True):
            start, end = end, end + size
            for piece in range(
                max(0, block.start - start) // longest * longest, min(size, block.stop - start), longest
            ):
                # The end of a piece may belong to the next block, its beginning to the one before.
                rows = min(longest, size - piece, block.stop - start - piece)
                drawn = gumbel_noise((rows, len(labels)), (*own, piece), tokens.device)
                parts.append(drawn[max(0, block.start - start - piece) :])
        return torch.cat(parts)

    probability: Tensor = _GoldProbability.apply(  # type: ignore[no-untyped-call]
        attention.query(tokens), attention.key(labels), gold, attention, noise_of, temperature
    )
    return probability


class _GoldProbability(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        gold: Tensor,
        attention: TokenLabelAttention,
        noise_of: Callable[[slice], Tensor],
        temperature: float,
    ) -> Tensor:
        ctx.attention, ctx.noise_of, ctx.temperature = attention, noise_of, temperature
        blocks = []
        for block in _blocks(len(query), attention, len(key)):
            sampled = _sampled(attention.scores(query[block], key), noise_of(block), temperature)  # P_ij, (n, K)
            blocks.append(_of_gold(sampled, gold[block]).sum(1))
        probability = torch.cat(blocks) if blocks else query.new_zeros(0)
        ctx.save_for_backward(query, key, gold, probability)
        return probability

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        query, key, gold, probability = ctx.saved_tensors
        d_query, d_key = torch.zeros_like(query), torch.zeros_like(key)
        key = key.detach().requires_grad_()
        for block in _blocks(len(query), ctx.attention, len(key)):
            rows = gradient[block].nonzero()[:, 0]
            if not len(rows):
                continue
            some = query[block][rows].requires_grad_()
            with torch.enable_grad():
                scores = ctx.attention.scores(some, key)
            sampled = _sampled(scores.detach(), ctx.noise_of(block)[rows], ctx.temperature)
            # dP_i / dA_ij = P_ij (1[j in y] - P_i) / temperature
            factor = (gradient[block][rows] / ctx.temperature)[:, None].to(sampled.dtype)
            of_gold = _of_gold(sampled, gold[block][rows]).mul_(factor)
            d_scores = sampled.mul_(-factor * probability[block][rows][:, None])
            d_scores.scatter_add_(1, gold[block][rows].clamp(min=0), of_gold)
            d_query[block][rows], more = torch.autograd.grad(scores, (some, key), d_scores)
            d_key += more
        return d_query, d_key, None, None, None, None


def _blocks(tokens: int, attention: TokenLabelAttention, labels: int) -> Iterator[slice]:
    size = _block_size(attention, labels)
    for start in range(0, tokens, size):
        yield slice(start, start + size)


def _block_size(attention: TokenLabelAttention, labels: int) -> int:
    scores = labels * (attention.heads if attention.probabilities else 1)
    return max(FEWEST_TOKENS, BLOCK // scores)


def _sampled(scores: Tensor, noise: Tensor, temperature: float) -> Tensor:
    """Return the Gumbel-softmax over the labels, (n, K); the noise is overwritten."""
    return noise.to(scores.dtype).add_(scores).div_(temperature).softmax(-1)


def _of_gold(sampled: Tensor, gold: Tensor) -> Tensor:
    """Return P_ij of the gold labels, (n, G), and 0 where there is none."""
    return sampled.gather(1, gold.clamp(min=0)).masked_fill_(gold < 0, 0.0)


def keep_by_threshold(probability: Tensor, candidates: Tensor, threshold: float) -> Tensor:
    """Keep of the candidates, bool (B, L), those tokens with ``P_i > γ``, bool (B, L) (Eq. 10)."""
    return (probability > threshold) & candidates


def keep_by_fraction(probability: Tensor, candidates: Tensor, fraction: float, at_least: int = 0) -> Tensor:
    """Keep the most probable share of each document's candidates, whatever the scale of the probabilities.

    Of n candidates, ``max(⌈fraction · n⌉, min(n, at_least))`` are kept. The same γ keeps another share of the tokens
    for every number of labels; this does not.
    """
    available = candidates.sum(1)  # n, (B,)
    # Float products such as 0.7 * 10 land just above a whole number; the small slack keeps ⌈·⌉ honest.
    wanted = torch.ceil(available * fraction - 1e-4).clamp(min=at_least)
    return _highest(probability, candidates, wanted)


def keep_at_random(real: Tensor, special: Tensor, fraction: float, at_least: int = 0) -> Tensor:
    """Keep tokens by chance, special ones in any case (random masking, table 5).

    Of the ``real`` tokens of a batch, bool (B, L), a ``fraction`` is kept on average, the ``special`` ones included:
    the share that training logs as ``kept``, so that random masking can keep as many as another strategy did. Each
    document keeps the same share of its other tokens; a number between two whole ones is rounded up or down by chance,
    in proportion, so that the average holds for short texts too.
    """
    candidates = real & ~special
    all_real, all_special, all_candidates = total(torch.stack([part.sum() for part in (real, special, candidates)]))
    share = (fraction * all_real - all_special) / all_candidates.clamp(min=1)  # of the candidates
    wanted = share.clamp(min=0) * candidates.sum(1)  # (B,)
    wanted = (wanted + uniform(wanted.shape, real.device)).floor().clamp(min=at_least)
    draw = uniform(real.shape, real.device)
    return _highest(draw, candidates, wanted) | special


def _highest(score: Tensor, candidates: Tensor, count: Tensor) -> Tensor:
    """Return the ``count`` (B,) candidates of each document with the highest scores from 0 up, bool (B, L)."""
    order = score.masked_fill(~candidates, -1.0).argsort(dim=1, descending=True, stable=True)
    rank = order.argsort(dim=1)  # 0 for the highest of its document
    return (rank < count[:, None]) & candidates


def keep_weights(probability: Tensor, kept: Tensor) -> Tensor:
    """Return what each word embedding is multiplied by, (B, L) (appendix A, Eqs. 20 and 21).

    ``weight_i = P_i + detach(1 - P_i)`` where kept and 0 elsewhere: its value is 1 or 0, its gradient with respect to
    P_i is 1 where kept, so that the choice of tokens can be learned through the positive sample's loss.
    """
    return (probability + (1 - probability).detach()) * kept


def compact(words: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the positive samples without their dropped tokens, those whose weight, (B, L), is 0.

    The first token stays in any case, at its weight: its vector may be what stands for the text.

    Returns:
        Weighted word embeddings of the tokens that stay, (B, M, H); the place of each in its text, (B, M); and 1 where
        there is a token, 0 on padding, (B, M).
    """
    stays = weights.detach() != 0
    stays[:, 0] = True
    places = (~stays).long().argsort(dim=1, stable=True)[:, : int(stays.sum(1).max())]  # those that stay come first
    shorter = words.gather(1, places.unsqueeze(-1).expand(-1, -1, words.shape[-1]))
    return shorter * weights.gather(1, places).unsqueeze(-1), places, stays.gather(1, places).long()


def adversarial_move(words: Tensor, loss: Callable[[Tensor], Tensor], size: float) -> Tensor:
    """Return the step of a given length that raises a loss most, to first order, (B, L, H) (FGSM, table 5).

    ``r = size · g / ‖g‖`` for each document, g the gradient of the loss at all its word embeddings together. The step
    is a constant: nothing flows back through it, and no parameter's gradient is touched. ``loss`` is a sum over
    documents, each of which depends on its own word embeddings alone.
    """
    words = words.detach().requires_grad_()
    with torch.enable_grad():
        (gradient,) = torch.autograd.grad(loss(words), words)
    return size * F.normalize(gradient.flatten(1), dim=1).view_as(gradient)
