"""The guidance of tokens by labels against loops, and its noise against its distribution."""

from __future__ import annotations

import math

import pytest
import torch

from hgclr.nn import positive_samples as token_guidance
from hgclr.nn.draws import gumbel_noise
from hgclr.nn.positive_samples import TokenLabelAttention, gold_probability


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
    monkeypatch.setattr(token_guidance, "BLOCK", block)
    monkeypatch.setattr(token_guidance, "FEWEST_TOKENS", 1)
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
    monkeypatch.setattr(token_guidance, "FEWEST_TOKENS", 3)
    monkeypatch.setattr(token_guidance, "BLOCK", 1)
    attention = make_attention(probabilities=False).float()
    tokens, labels = torch.randn(8, 6, requires_grad=True), torch.randn(5, 8)
    gold = torch.randint(5, (8, 1))
    drawn = []
    original = token_guidance.gumbel_noise

    def recorded(*arguments):
        drawn.append(original(*arguments))
        return drawn[-1].clone()

    monkeypatch.setattr(token_guidance, "gumbel_noise", recorded)
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
