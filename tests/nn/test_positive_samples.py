"""Token selection against loops, and the gradient of the straight-through weights."""

from __future__ import annotations

import math

import pytest
import torch

from hgclr.nn import positive_samples
from hgclr.nn.positive_samples import (
    KeepByFraction,
    KeepByThreshold,
    TokenLabelAttention,
    compact,
    gold_probability,
    gumbel_noise,
    keep_weights,
)


@pytest.mark.parametrize("scale_by", ["head", "width"])
@pytest.mark.parametrize("heads", [1, 4])
@pytest.mark.parametrize("probabilities", [False, True])
def test_token_label_attention_by_loops(heads: int, probabilities: bool, scale_by: str) -> None:
    torch.manual_seed(0)
    module = TokenLabelAttention(12, 8, heads=heads, scale_by=scale_by, bias=True, probabilities=probabilities)
    tokens, labels = torch.randn(2, 3, 12), torch.randn(5, 8)
    query, key = module.query(tokens), module.key(labels)
    width = 8 // heads
    expected = torch.zeros(2, 3, 5)
    for b in range(2):
        for i in range(3):
            for head in range(heads):
                part = slice(head * width, (head + 1) * width)
                logits = torch.stack([query[b, i, part] @ key[j, part] for j in range(5)])
                logits = logits / (width if scale_by == "head" else 8) ** 0.5
                expected[b, i] += (logits.exp() / logits.exp().sum() if probabilities else logits) / heads
    torch.testing.assert_close(module(tokens.flatten(0, 1), labels).view(2, 3, 5), expected, atol=1e-5, rtol=1e-5)


def make_attention(*, probabilities: bool) -> TokenLabelAttention:
    torch.manual_seed(1)
    attention = TokenLabelAttention(6, 8, heads=2, scale_by="head", bias=True, probabilities=probabilities)
    return attention.double()


@pytest.mark.parametrize("block", [1, 30, 2**21])  # scores computed at a time; they divide nothing here
@pytest.mark.parametrize("probabilities", [False, True])
def test_gold_probability_in_blocks_is_the_gumbel_softmax_in_full(
    probabilities: bool, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(positive_samples, "BLOCK", block)
    monkeypatch.setattr(positive_samples, "FEWEST_TOKENS", 1)
    attention = make_attention(probabilities=probabilities)
    tokens = torch.randn(11, 6, dtype=torch.float64, requires_grad=True)
    labels = torch.randn(5, 8, dtype=torch.float64, requires_grad=True)
    noise = torch.randn(11, 5, dtype=torch.float64)
    gold = torch.tensor([[0, 2, -1], [3, -1, -1], [-1, -1, -1], [4, 1, 0]])[torch.arange(11) % 4]
    ours = gold_probability(attention, tokens, labels, gold, temperature=0.7, noise=noise)
    sampled = ((attention(tokens, labels) + noise) / 0.7).exp()
    sampled = sampled / sampled.sum(1, keepdim=True)
    wanted = [[j for j in row if j >= 0] for row in gold.tolist()]
    plain = torch.stack([sampled[i, wanted[i]].sum() for i in range(11)])
    torch.testing.assert_close(ours, plain)
    upstream = torch.randn(11, dtype=torch.float64)
    upstream[[1, 4, 5]] = 0.0  # as for dropped tokens
    inputs = [tokens, labels, *attention.parameters()]
    for one, other in zip(
        torch.autograd.grad(ours, inputs, upstream), torch.autograd.grad(plain, inputs, upstream), strict=True
    ):
        torch.testing.assert_close(one, other)


def test_drawn_noise_is_the_same_in_the_backward_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(positive_samples, "FEWEST_TOKENS", 3)
    monkeypatch.setattr(positive_samples, "BLOCK", 1)
    attention = make_attention(probabilities=False).float()
    tokens, labels = torch.randn(8, 6, requires_grad=True), torch.randn(5, 8)
    gold = torch.randint(5, (8, 1))
    drawn = []
    original = positive_samples.gumbel_noise

    def recorded(*arguments):
        drawn.append(original(*arguments))
        return drawn[-1].clone()

    monkeypatch.setattr(positive_samples, "gumbel_noise", recorded)
    gold_probability(attention, tokens, labels, gold, temperature=1.0).sum().backward()
    assert len(drawn) == 6  # three blocks, there and back
    forward, backward = torch.cat(drawn[:3]), torch.cat(drawn[3:])
    assert torch.equal(forward, backward)
    assert len(forward.unique()) == forward.numel()  # the blocks do not repeat each other


def test_gumbel_noise_has_the_distribution_it_is_named_after() -> None:
    noise = gumbel_noise((300, 1000), 4, torch.device("cpu"))
    assert torch.isfinite(noise).all()
    assert float(noise.mean()) == pytest.approx(0.5772, abs=0.01)  # Euler's constant
    assert float(noise.std()) == pytest.approx(math.pi / 6**0.5, abs=0.01)
    for quantile in (0.01, 0.5, 0.999):
        expected = -math.log(-math.log(quantile))
        assert float((noise <= expected).double().mean()) == pytest.approx(quantile, abs=0.003)
    assert torch.equal(noise, gumbel_noise((300, 1000), 4, torch.device("cpu")))
    assert not torch.equal(noise, gumbel_noise((300, 1000), 5, torch.device("cpu")))


def test_gumbel_softmax_samples_labels_in_proportion_to_their_softmax() -> None:
    """The Gumbel-max trick: the arg max of logits plus noise is a draw from their softmax."""
    logits = torch.tensor([0.3, -1.0, 1.2])
    draws = (logits + gumbel_noise((200_000, 3), 2, torch.device("cpu"))).argmax(-1)
    frequency = torch.bincount(draws, minlength=3) / len(draws)
    torch.testing.assert_close(frequency, logits.softmax(-1), atol=5e-3, rtol=0)


def test_all_labels_gold_keeps_everything() -> None:
    attention = make_attention(probabilities=False).float()
    gold = torch.arange(4).repeat(3, 1)
    result = gold_probability(attention, torch.randn(3, 6), torch.randn(4, 8), gold, temperature=1.0)
    torch.testing.assert_close(result, torch.ones(3))


def test_the_gradient_reaches_the_probability_exactly_where_a_token_is_kept() -> None:
    probability = torch.tensor([[0.1, 0.5, 0.9, 0.3]], requires_grad=True)
    kept = KeepByThreshold(0.3)(probability, torch.tensor([[True, True, True, True]]))
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
    kept = KeepByFraction(fraction, at_least)(probability, candidates)
    assert kept.sum(1).tolist() == expected
    assert not (kept & ~candidates).any()
    for document in range(3):
        dropped = candidates[document] & ~kept[document]
        if dropped.any():
            assert probability[document][kept[document]].min() >= probability[document][dropped].max()


def test_keep_by_fraction_ignores_the_scale_of_the_probabilities() -> None:
    torch.manual_seed(4)
    probability, candidates = torch.rand(4, 20), torch.ones(4, 20, dtype=torch.bool)
    rule = KeepByFraction(0.25)
    assert torch.equal(rule(probability, candidates), rule(probability**3 / 1000, candidates))


def test_keep_by_fraction_breaks_ties_by_position() -> None:
    kept = KeepByFraction(0.5)(torch.zeros(1, 4), torch.ones(1, 4, dtype=torch.bool))
    assert kept.tolist() == [[True, True, False, False]]


def test_compact_leaves_out_what_was_dropped_and_tells_where_the_rest_stood() -> None:
    torch.manual_seed(0)
    words = torch.randn(3, 5, 2)
    weights = torch.tensor([[1.0, 0, 1, 0, 1], [0, 0, 0, 1, 0], [1, 1, 1, 1, 0]], requires_grad=True)
    shorter, places, mask = compact(words, weights)
    # The first token stays although its weight is 0.
    expected = [[0, 2, 4], [0, 3], [0, 1, 2, 3]]
    assert mask.tolist() == [[1, 1, 1, 0], [1, 1, 0, 0], [1, 1, 1, 1]]
    for row, stay in enumerate(expected):
        assert places[row, : len(stay)].tolist() == stay
        for column, place in enumerate(stay):
            torch.testing.assert_close(shorter[row, column], words[row, place] * weights[row, place])
    shorter.sum().backward()
    torch.testing.assert_close(weights.grad[0, 2], words[0, 2].sum())  # the choice can still be learned
