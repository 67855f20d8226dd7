"""The fast versions against the plain ones: outputs and gradients; dropout against its definition."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hgclr.nn import fast
from hgclr.nn.fast import (
    BlockAttention,
    CPUDropout,
    attention_span,
    in_length_groups,
    token_probability_in_blocks,
)
from hgclr.nn.label_encoder import TreeAttention
from hgclr.nn.positive_samples import TokenLabelAttention, token_probability
from hgclr.taxonomy import Taxonomy
from support.toy import random_tree

SHAPES = {
    "one": random_tree(1, seed=1),
    "bushy": random_tree(40, seed=40),
    "chain": random_tree(30, seed=30, deep=True),
    "flat": Taxonomy([str(i) for i in range(25)], [-1] * 25),
}


def neighbours_by_loops(tree: Taxonomy, span: int) -> torch.Tensor:
    """Who attends to whom, bool (K, K): those in one stretch of a recursive depth-first walk, and the path above it."""
    walk: list[int] = []

    def visit(label: int) -> None:
        walk.append(label)
        for child in tree.children(label).tolist():
            visit(child)

    for top in tree.children(-1).tolist():
        visit(top)
    allowed = torch.zeros(len(tree), len(tree), dtype=torch.bool)
    for start in range(0, len(walk), span):
        stretch = walk[start : start + span]
        above = {a for label in stretch for a in tree.ancestors(label).tolist()}
        for i in stretch:
            allowed[i, stretch] = True
            allowed[i, list(above)] = True
    return allowed


class MaskedAttention(TreeAttention):
    """The plain attention with everything but the neighbours masked out."""

    span = 0

    def bias(self, *arguments) -> torch.Tensor:
        return super().bias(*arguments) + torch.where(neighbours_by_loops(self.taxonomy, self.span), 0.0, -torch.inf)


@pytest.mark.parametrize("scores", [1, 50, 2**20])  # at a time; they divide nothing here
@pytest.mark.parametrize("span", [1, 7, 1000])
@pytest.mark.parametrize("shape", SHAPES)
def test_attention_in_blocks_is_the_plain_attention(
    shape: str, span: int, scores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fast, "SCORES", scores)
    tree = SHAPES[shape]
    torch.manual_seed(0)
    blocks = BlockAttention(tree, span=attention_span(len(tree), span), spatial=True, edge=True).double()
    plain = MaskedAttention(tree, spatial=True, edge=True).double()
    plain.span = span
    for parameter in blocks.parameters():
        nn.init.normal_(parameter)
    plain.load_state_dict(blocks.state_dict())
    parts = [torch.randn(2, len(tree), 4, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    upstream = torch.randn(2, len(tree), 4, dtype=torch.float64)
    results = []
    for module in (blocks, plain):
        mixed = module(*parts, scale=0.4, dropout=nn.Identity())
        results.append((mixed, *torch.autograd.grad(mixed, [*parts, *module.parameters()], upstream)))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)


def test_the_backward_pass_drops_the_same_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast, "SCORES", 100)
    tree = random_tree(20, seed=2)
    module = BlockAttention(tree, span=20, spatial=False, edge=False)
    query, key = torch.randn(2, 1, 20, 4)
    value = torch.eye(20)[None].requires_grad_()  # what comes out are the weights themselves
    weights = module(query, key, value, scale=1.0, dropout=CPUDropout(0.4))
    assert 0.2 < (weights == 0).double().mean() < 0.6
    upstream = torch.randn(1, 20, 20)
    (gradient,) = torch.autograd.grad(weights, value, upstream)
    torch.testing.assert_close(gradient, weights.detach().transpose(1, 2) @ upstream)


@pytest.mark.parametrize("scores", [1, 30])
@pytest.mark.parametrize("probabilities", [False, True])
@pytest.mark.parametrize("given", [True, False])
def test_token_probability_in_blocks_is_the_plain_one(
    given: bool, probabilities: bool, scores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fast, "SCORES", scores)
    torch.manual_seed(1)
    attention = TokenLabelAttention(6, 8, heads=2, scale_by="head", bias=True, probabilities=probabilities).double()
    tokens = torch.randn(3, 7, 6, dtype=torch.float64, requires_grad=True)
    labels = torch.randn(5, 8, dtype=torch.float64, requires_grad=True)
    gold = (torch.rand(3, 5) < 0.4).double()
    noise = torch.randn(3, 7, 5, dtype=torch.float64) if given else None
    if not given:  # drawn block by block: the same numbers in the backward pass, or its gradient is another
        monkeypatch.setattr(torch, "rand_like", lambda scores: torch.full_like(scores, 0.3 + float(torch.rand(()) / 2)))
    results = []
    for compute in (token_probability_in_blocks, token_probability):
        torch.manual_seed(2)
        found = compute(attention, tokens, labels, gold, temperature=0.7, noise=noise)
        inputs = [tokens, labels, *attention.parameters()]
        results.append((found, *torch.autograd.grad(found.square().sum(), inputs)))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.93])
def test_elements_are_dropped_at_the_rate_and_independently(rate: float) -> None:
    torch.manual_seed(0)
    mask = (CPUDropout(rate)(torch.ones(1000, 1001)) > 0).float()
    assert float(mask.mean()) == pytest.approx(1 - rate, abs=3e-3)
    both = (mask[:, :-1] * mask[:, 1:]).mean()  # neighbours share a random number
    assert float(both) == pytest.approx((1 - rate) ** 2, abs=3e-3)
    assert float((mask[:-1] * mask[1:]).mean()) == pytest.approx((1 - rate) ** 2, abs=3e-3)


def test_dropout_follows_torchs_seed_and_scales_what_it_keeps() -> None:
    values = torch.rand(31, 41).add_(1).requires_grad_()
    torch.manual_seed(5)
    dropped, other = CPUDropout(0.25)(values), CPUDropout(0.25)(values)
    torch.manual_seed(5)
    assert torch.equal(CPUDropout(0.25)(values), dropped)
    assert not torch.equal(other, dropped)
    kept = dropped != 0
    torch.testing.assert_close(dropped[kept], values[kept] / 0.75)
    upstream = torch.randn(31, 41)
    dropped.backward(upstream)
    torch.testing.assert_close(values.grad, torch.where(kept, upstream / 0.75, 0.0))
    for layer in (CPUDropout(0.5).eval(), CPUDropout(0.0)):
        assert torch.equal(layer(values), values)
    assert not CPUDropout(1.0)(values).any()


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("cached", [1, 2 * 2 * 7 * 7, 10**6])  # one document at a time, two, all
def test_attention_with_dropout_equals_the_definition(cached: int, padded: bool, monkeypatch) -> None:
    monkeypatch.setattr(fast, "CACHED", cached)
    torch.manual_seed(3)
    query, key, value = (torch.randn(3, 2, 7, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))
    absent = torch.arange(7) >= torch.tensor([7, 3, 1])[:, None] if padded else None
    drawn: list[torch.Tensor] = []
    keep_mask = fast.keep_mask
    monkeypatch.setattr(fast, "keep_mask", lambda *arguments: drawn.append(keep_mask(*arguments)) or drawn[-1])
    ours = fast.dropout_attention(query, key, value, absent=absent, scale=0.3, dropout=0.375)
    logits = query @ key.transpose(-1, -2) * 0.3
    if absent is not None:
        logits = logits.masked_fill(absent[:, None, None, :], -torch.inf)
    expected = (logits.softmax(-1) * torch.cat(drawn) / 0.625) @ value
    torch.testing.assert_close(ours, expected)
    upstream = torch.randn_like(ours)
    for one, other in zip(
        torch.autograd.grad(ours, [query, key, value], upstream),
        torch.autograd.grad(expected, [query, key, value], upstream),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("lengths", [[5, 1, 9, 2, 2, 7, 1, 0], [9, 9, 8], [3]])
def test_a_batch_in_length_groups_is_that_batch(lengths: list[int]) -> None:
    """Each row is summed over its own tokens, in the order of the batch, with the same gradient."""
    width = max(lengths)
    mask = torch.tensor([[int(place < length) for place in range(width)] for length in lengths])
    tokens = torch.randn(len(lengths), width, 3, requires_grad=True)
    cells = []

    def compute(mask: torch.Tensor, *, tokens: torch.Tensor) -> torch.Tensor:
        cells.append(mask.numel())
        return (tokens * mask.unsqueeze(-1)).sum(1)

    rows = in_length_groups(compute, mask, tokens=tokens)
    rows.square().sum().backward()
    expected = torch.stack([tokens[row, :length].sum(0) for row, length in enumerate(lengths)])
    torch.testing.assert_close(rows, expected)
    torch.testing.assert_close(tokens.grad, 2 * expected[:, None] * mask.unsqueeze(-1))
    assert sum(cells) <= mask.numel()
    assert (sum(cells) < mask.numel()) == (mask.numel() > 1.2 * sum(lengths))
