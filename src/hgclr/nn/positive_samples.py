"""Positive samples: a text with tokens dropped, or with its word embeddings moved (paper, section 4.3 and table 5)."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = [
    "KeepAtRandom",
    "KeepByFraction",
    "KeepByThreshold",
    "adversarial_move",
    "compact",
    "keep_weights",
]


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
        return _highest(probability, candidates, wanted)


class KeepAtRandom:
    """Keep tokens by chance, special ones in any case (random masking, table 5).

    Of the real tokens of a batch a ``fraction`` is kept on average, special ones included: the share that training logs
    as ``kept``, so that random masking can keep as many as another strategy did. Each document keeps its special tokens
    and the same share of its others; a number between two whole ones is rounded up or down by chance, in proportion,
    so that the average holds for short texts too. Where special tokens alone are more than the fraction, nothing else
    is kept. ``at_least`` as in :class:`KeepByFraction`.
    """

    def __init__(self, fraction: float, at_least: int = 0) -> None:
        self.fraction, self.at_least = fraction, at_least

    def __call__(self, real: Tensor, special: Tensor) -> Tensor:
        """Return the kept tokens, bool (B, L), of the ``real`` ones, which the ``special`` ones are part of."""
        candidates = real & ~special
        share = (self.fraction * real.sum() - special.sum()) / candidates.sum().clamp(min=1)  # of the candidates
        wanted = share.clamp(min=0) * candidates.sum(1)  # (B,)
        wanted = (wanted + torch.rand_like(wanted)).floor().clamp(min=self.at_least)
        draw = torch.rand(real.shape, device=real.device)
        return _highest(draw, candidates, wanted) | special


def _highest(score: Tensor, candidates: Tensor, count: Tensor) -> Tensor:
    """Return the ``count`` (B,) candidates of each document with the highest scores from 0 up, bool (B, L)."""
    order = score.masked_fill(~candidates, -1.0).argsort(dim=1, descending=True, stable=True)
    rank = order.argsort(dim=1)  # 0 for the highest of its document
    return (rank < count[:, None]) & candidates


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


def adversarial_move(words: Tensor, loss: Callable[[Tensor], Tensor], size: float) -> Tensor:
    """Return the step of a given length that raises a loss most, to first order (FGSM, table 5).

    ``r = size · g / ‖g‖`` for each document, g the gradient of the loss at all its word embeddings together. The step
    is a constant: nothing flows back through it, and no parameter's gradient is touched.

    Args:
        words: word embeddings, (B, L, H).
        loss: returns the loss, (), from word embeddings; a sum over documents, each of which depends on its own alone.
        size: length of the step.

    Returns:
        What to add to the word embeddings, (B, L, H).
    """
    words = words.detach().requires_grad_()
    with torch.enable_grad():
        (gradient,) = torch.autograd.grad(loss(words), words)
    return size * F.normalize(gradient.flatten(1), dim=1).view_as(gradient)
