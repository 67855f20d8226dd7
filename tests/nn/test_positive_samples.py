"""Guidance of tokens by labels against loops, token selection, straight-through weights, and adversarial steps."""

from __future__ import annotations

import math

import pytest
import torch

from hgclr.nn.positive_samples import (
    TokenLabelAttention,
    adversarial_move,
    keep_at_random,
    keep_by_fraction,
    keep_by_threshold,
    keep_weights,
    token_probability,
)


@pytest.mark.parametrize("scale_by", ["head", "width"])
@pytest.mark.parametrize("heads", [1, 4])
@pytest.mark.parametrize("probabilities", [False, True])
def test_token_label_attention_and_gumbel_softmax_by_loops(heads: int, probabilities: bool, scale_by: str) -> None:
    torch.manual_seed(0)
    module = TokenLabelAttention(12, 8, heads=heads, scale_by=scale_by, bias=True, probabilities=probabilities)
    tokens, labels, noise = torch.randn(2, 3, 12), torch.randn(5, 8), torch.randn(2, 3, 5)
    gold = torch.tensor([[1, 0, 1, 0, 0], [0, 0, 0, 0, 1]])
    query, key = module.query(tokens), module.key(labels)
    width = 8 // heads
    scores, probability = torch.zeros(2, 3, 5), torch.zeros(2, 3)
    for b in range(2):
        for i in range(3):
            for head in range(heads):
                part = slice(head * width, (head + 1) * width)
                logits = torch.stack([query[b, i, part] @ key[j, part] for j in range(5)])
                logits = logits / (width if scale_by == "head" else 8) ** 0.5
                scores[b, i] += (logits.exp() / logits.exp().sum() if probabilities else logits) / heads
            sampled = ((scores[b, i] + noise[b, i]) / 0.7).exp()
            probability[b, i] = sum(sampled[j] for j in range(5) if gold[b, j]) / sampled.sum()
    torch.testing.assert_close(module(tokens, labels), scores, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(module(tokens.flatten(0, 1), labels), scores.flatten(0, 1), atol=1e-5, rtol=1e-5)
    found = token_probability(module, tokens, labels, gold, temperature=0.7, noise=noise)
    torch.testing.assert_close(found, probability, atol=1e-5, rtol=1e-5)


def test_the_drawn_noise_samples_labels_in_proportion_to_their_softmax() -> None:
    """With a temperature near 0 a token is sampled for one label: the arg max of logits plus noise (Gumbel-max)."""
    torch.manual_seed(0)
    module = TokenLabelAttention(3, 3, heads=1, scale_by="width", bias=False, probabilities=False)
    for layer in (module.query, module.key):
        torch.nn.init.eye_(layer.weight)
    logits = torch.tensor([0.3, -1.0, 1.2])
    tokens = (logits * 3**0.5).expand(3, 50_000, 3)
    found = token_probability(module, tokens, torch.eye(3), torch.eye(3), temperature=1e-4)
    torch.testing.assert_close(found.mean(1), logits.softmax(-1), atol=0.01, rtol=0)


def test_the_gradient_reaches_the_probability_exactly_where_a_token_is_kept() -> None:
    probability = torch.tensor([[0.1, 0.5, 0.9, 0.3]], requires_grad=True)
    kept = keep_by_threshold(probability, torch.tensor([[True, True, True, True]]), 0.3)
    assert kept.tolist() == [[False, True, True, False]]  # P_i > γ, not ≥
    weights = keep_weights(probability, kept)
    assert weights.tolist() == [[0.0, 1.0, 1.0, 0.0]]
    embeddings = torch.randn(1, 4, 6)
    upstream = torch.randn(1, 4, 6)
    ((embeddings * weights.unsqueeze(-1)) * upstream).sum().backward()
    # Eq. 21: the derivative of a kept embedding with respect to P_i is the embedding itself.
    expected = torch.where(kept, (embeddings * upstream).sum(-1), 0.0)
    torch.testing.assert_close(probability.grad, expected)


@pytest.mark.parametrize(
    ("fraction", "at_least", "expected"),
    [
        (0.5, 0, [5, 2, 1]),
        (0.3, 0, [3, 1, 1]),
        (0.7, 0, [7, 3, 1]),
        (0.1, 4, [4, 3, 1]),
        (1.0, 0, [10, 3, 1]),
    ],
)
def test_keep_by_fraction_keeps_the_most_probable(fraction: float, at_least: int, expected: list[int]) -> None:
    torch.manual_seed(3)
    probability = torch.rand(3, 10)
    candidates = torch.zeros(3, 10, dtype=torch.bool)
    for document, length in enumerate([10, 3, 1]):
        candidates[document, :length] = True
    kept = keep_by_fraction(probability, candidates, fraction, at_least)
    assert kept.sum(1).tolist() == expected
    assert not (kept & ~candidates).any()
    for document in range(3):
        dropped = candidates[document] & ~kept[document]
        if dropped.any():
            assert probability[document][kept[document]].min() >= probability[document][dropped].max()


def tokens_of(lengths: list[int], specials: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Real and special tokens of documents of given lengths, the special ones first."""
    place = torch.arange(width)
    real = torch.stack([place < length for length in lengths])
    return real, real & (place < specials)


@pytest.mark.parametrize("fraction", [0.37, 0.75, 1.0])
@pytest.mark.parametrize(
    ("lengths", "specials"), [([200, 130, 77], 0), ([200, 130, 77], 2), ([3, 5, 11, 8], 0), ([7, 12, 6], 2)]
)
def test_keep_at_random_keeps_its_share_of_all_tokens(fraction: float, lengths: list[int], specials: int) -> None:
    real, special = tokens_of(lengths, specials, 210)
    torch.manual_seed(0)
    counts = torch.stack([keep_at_random(real, special, fraction).sum(1) for _ in range(1000)])  # (draws, B)
    assert float(counts.sum(1).float().mean()) / sum(lengths) == pytest.approx(fraction, rel=0.005)
    others = sum(lengths) - specials * len(lengths)
    share = (fraction * sum(lengths) - specials * len(lengths)) / others
    for column, length in enumerate(lengths):
        expected = specials + share * (length - specials)
        assert set(counts[:, column].tolist()) <= {math.floor(expected + 1e-4), math.ceil(expected - 1e-4)}
        assert float(counts[:, column].float().mean()) == pytest.approx(expected, abs=0.05)


def test_keep_at_random_gives_every_token_the_same_chance_and_keeps_special_ones() -> None:
    real, special = tokens_of([9, 4], 2, 12)
    torch.manual_seed(1)
    often = torch.stack([keep_at_random(real, special, 0.6) for _ in range(4000)]).float().mean(0)
    assert (often[special] == 1).all()
    assert (often[~real] == 0).all()
    share = (0.6 * 13 - 4) / 9
    torch.testing.assert_close(often[real & ~special], torch.full((9,), share), atol=0.03, rtol=0)


def test_keep_at_random_keeps_at_least_what_it_is_told() -> None:
    real, special = tokens_of([30, 9, 3], 1, 30)
    torch.manual_seed(2)
    for _ in range(20):
        assert keep_at_random(real, special, 0.2, at_least=5).sum(1).tolist()[1:] == [6, 3]
    # Fewer special tokens than there are cannot be kept.
    real, special = tokens_of([4, 4], 2, 4)
    assert torch.equal(keep_at_random(real, special, 0.3), special)
    assert torch.equal(keep_at_random(special, special, 0.3), special)  # no other tokens at all


def test_an_adversarial_move_follows_the_gradient_of_each_document() -> None:
    torch.manual_seed(5)
    words = torch.randn(3, 4, 2, requires_grad=True)
    slope = torch.randn(3, 4, 2)
    slope[2] = 0.0  # nothing to gain in any direction
    weight = torch.nn.Parameter(torch.ones(()))
    move = adversarial_move(words, lambda moved: weight * (slope * moved**2).sum(), 0.7)
    for document in range(2):
        gradient = 2 * slope[document] * words[document].detach()
        torch.testing.assert_close(move[document], 0.7 * gradient / gradient.square().sum().sqrt())
    assert (move[2] == 0).all()
    assert not move.requires_grad
    assert words.grad is None
    assert weight.grad is None
    with torch.no_grad():
        torch.testing.assert_close(adversarial_move(words, lambda moved: (slope * moved**2).sum(), 0.7), move)
