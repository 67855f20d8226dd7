"""Token selection against loops, and the gradient of the straight-through weights."""

from __future__ import annotations

import pytest
import torch

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
    torch.testing.assert_close(module(tokens, labels), expected, atol=1e-5, rtol=1e-5)


def test_gold_probability_sums_the_softmax_over_the_documents_labels() -> None:
    torch.manual_seed(1)
    scores, noise = torch.randn(2, 3, 4), torch.randn(2, 3, 4)
    gold = torch.tensor([[1.0, 0, 1, 0], [0, 1, 0, 0]])
    result = gold_probability(scores, gold, noise, temperature=0.7)
    for b in range(2):
        for i in range(3):
            weights = [((scores[b, i, j] + noise[b, i, j]) / 0.7).exp() for j in range(4)]
            expected = sum(weights[j] for j in range(4) if gold[b, j]) / sum(weights)
            torch.testing.assert_close(result[b, i], expected)


def test_gumbel_softmax_samples_labels_in_proportion_to_their_softmax() -> None:
    """The Gumbel-max trick: the arg max of logits plus noise is a draw from their softmax."""
    torch.manual_seed(2)
    logits = torch.tensor([0.3, -1.0, 1.2])
    draws = (logits + gumbel_noise(torch.zeros(200_000, 3))).argmax(-1)
    frequency = torch.bincount(draws, minlength=3) / len(draws)
    torch.testing.assert_close(frequency, logits.softmax(-1), atol=5e-3, rtol=0)


def test_all_labels_gold_keeps_everything() -> None:
    scores = torch.randn(2, 3, 4)
    result = gold_probability(scores, torch.ones(2, 4), gumbel_noise(scores), 1.0)
    torch.testing.assert_close(result, torch.ones(2, 3))


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
