"""Attention in groups of documents against torch's own, and its gradient against autograd."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from hgclr.nn import attention
from hgclr.nn.attention import dropout_attention

LENGTHS = [7, 3, 1]


def tensors(dtype: torch.dtype = torch.double) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(3, 2, 7, 4, dtype=dtype, requires_grad=True) for _ in range(3)]


def plain(query, key, value, masks, scale: float, kept: float) -> torch.Tensor:
    """The definition, over the whole batch, with padding masked out and given dropout masks."""
    real = torch.arange(7) < torch.tensor(LENGTHS)[:, None]  # (B, L)
    logits = (query @ key.transpose(-1, -2) * scale).masked_fill(~real[:, None, None, :], -torch.inf)
    weights = logits.softmax(-1) * masks / kept
    return weights @ value


def real_part(output: torch.Tensor) -> torch.Tensor:
    """What stands at real tokens; behind them the output means nothing."""
    return torch.cat([output[b, :, :n].flatten() for b, n in enumerate(LENGTHS)])


@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize(("group", "sizes"), [(10**6, [3]), (2 * 7 * 7 * 2, [2, 1]), (1, [1, 1, 1])])
def test_output_and_gradient_equal_the_definition(
    dropout: float, group: int, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(3)
    masks = (torch.rand(3, 2, 7, 7) > dropout).to(torch.uint8)
    drawn: list[int] = []

    def given(shape, rate):
        assert rate == dropout
        first = sum(drawn)
        drawn.append(shape[0])
        return masks[first : first + shape[0], :, : shape[2], : shape[3]]

    monkeypatch.setattr(attention, "keep_mask", given)
    monkeypatch.setattr(attention, "GROUP", group)
    query, key, value = tensors()
    ours = dropout_attention(query, key, value, lengths=LENGTHS, scale=0.3, dropout=dropout)
    kept = attention.kept_share(dropout)
    expected = plain(query, key, value, masks, 0.3, kept)
    assert drawn == (sizes if dropout else [])
    torch.testing.assert_close(real_part(ours), real_part(expected))
    upstream = torch.randn_like(ours)
    for b, n in enumerate(LENGTHS):
        upstream[b, :, n:] = 0  # nothing behind the real tokens is ever used
    for one, other in zip(
        torch.autograd.grad(ours, [query, key, value], upstream),
        torch.autograd.grad(expected, [query, key, value], upstream),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


def test_without_dropout_it_is_torchs_attention() -> None:
    query, key, value = tensors(torch.float32)
    ours = dropout_attention(query, key, value, lengths=[7, 7, 7], scale=0.5, dropout=0.0)
    torch.testing.assert_close(ours, F.scaled_dot_product_attention(query, key, value, scale=0.5), atol=1e-5, rtol=1e-5)


def test_dropout_keeps_the_mean() -> None:
    query, key, value = (part.detach() for part in tensors(torch.float32))
    exact = dropout_attention(query, key, value, lengths=LENGTHS, scale=0.5, dropout=0.0)
    torch.manual_seed(4)
    draws = [dropout_attention(query, key, value, lengths=LENGTHS, scale=0.5, dropout=0.2) for _ in range(4000)]
    torch.testing.assert_close(real_part(torch.stack(draws).mean(0)), real_part(exact), atol=0.05, rtol=0)


def test_half_precision_is_computed_in_single_where_it_matters() -> None:
    query, key, value = (part.detach() for part in tensors(torch.float32))
    exact = dropout_attention(query, key, value, lengths=LENGTHS, scale=0.5, dropout=0.0)
    halves = [part.to(torch.float16).requires_grad_() for part in (query, key, value)]
    rough = dropout_attention(*halves, lengths=LENGTHS, scale=0.5, dropout=0.0)
    assert rough.dtype == torch.float16
    torch.testing.assert_close(real_part(rough.float()), real_part(exact), atol=5e-3, rtol=5e-3)
    rough.sum().backward()
    assert all(part.grad.dtype == torch.float16 for part in halves)
