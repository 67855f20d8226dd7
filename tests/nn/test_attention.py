"""Attention in groups of documents against torch's own, and its gradient against autograd."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from hgclr.nn import attention
from hgclr.nn.attention import dropout_attention
from hgclr.nn.draws import drawn_for

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


@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize("lengths", [[1, 3, 3, 7], [7], [3, 7, 3]])
def test_packed_texts_attend_as_padded_ones_do(dropout: float, lengths: list[int]) -> None:
    """Neighbours of one length share a group, and each document draws what it would draw in a padded batch."""
    torch.manual_seed(0)
    rows = [torch.randn(3, 2, length, 4, dtype=torch.double) for length in lengths]  # Q, K and V of each
    padded = [part.requires_grad_() for part in torch.stack([F.pad(r, (0, 0, 0, 7 - r.shape[2])) for r in rows], 1)]
    packed_ = [part[None].requires_grad_() for part in torch.cat(rows, 2)]
    results = []
    for parts in (padded, packed_):
        with drawn_for([5, 9, 2, 4][: len(lengths)], 1):
            output = dropout_attention(*parts, lengths=lengths, scale=0.3, dropout=dropout)
        if parts is padded:
            output = torch.cat([output[b, :, :n] for b, n in enumerate(lengths)], 1)[None]
        results.append((output, torch.autograd.grad(output, parts, torch.cos(output.detach()))))
    (expected, gradients), (ours, found) = results
    torch.testing.assert_close(ours, expected)
    for padded_one, one in zip(gradients, found, strict=True):
        torch.testing.assert_close(one[0], torch.cat([padded_one[b, :, :n] for b, n in enumerate(lengths)], 1))


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
