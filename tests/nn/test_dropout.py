"""Cheap random bits are still random, reproducible, and dropout with them is dropout."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from hgclr.nn.attention import CPUDropout
from hgclr.nn.draws import keep_mask, keep_masks, kept_share


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.93])
def test_elements_are_dropped_at_the_rate_and_independently(rate: float) -> None:
    torch.manual_seed(0)
    mask = keep_mask((1000, 1001), rate).float()
    assert float(mask.mean()) == pytest.approx(1 - rate, abs=3e-3)
    assert kept_share(rate) == pytest.approx(1 - rate, abs=1e-5)
    both = (mask[:, :-1] * mask[:, 1:]).mean()  # neighbours come from one 64-bit word
    assert float(both) == pytest.approx((1 - rate) ** 2, abs=3e-3)
    assert float((mask[:-1] * mask[1:]).mean()) == pytest.approx((1 - rate) ** 2, abs=3e-3)


def test_torchs_seed_decides_the_bits() -> None:
    torch.manual_seed(5)
    first, second = keep_mask((50,), 0.5), keep_mask((50,), 0.5)
    torch.manual_seed(5)
    assert torch.equal(keep_mask((50,), 0.5), first)
    assert not torch.equal(first, second)


def test_masks_of_several_seeds_are_those_of_each() -> None:
    seeds = [(7, 3, 0), (7, 4, 0), 9]
    expected = torch.stack([keep_mask((2, 5, 5), 0.3, seed) for seed in seeds])
    assert torch.equal(keep_masks((2, 5, 5), 0.3, seeds), expected)


def test_threads_do_not_disturb_each_other() -> None:
    expected = [keep_mask((20_000,), 0.5, seed) for seed in range(40)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda seed: keep_mask((20_000,), 0.5, seed), range(40)))
    assert all(map(torch.equal, found, expected))


def test_what_is_kept_is_scaled_and_the_gradient_follows() -> None:
    torch.manual_seed(1)
    values = torch.rand(30, 40).add_(1).requires_grad_()
    dropped = CPUDropout(0.25)(values)
    kept = dropped != 0
    assert 0.6 < kept.float().mean() < 0.9
    torch.testing.assert_close(dropped[kept], values[kept] / 0.75)
    upstream = torch.randn(30, 40)
    dropped.backward(upstream)
    torch.testing.assert_close(values.grad, torch.where(kept, upstream / 0.75, 0.0))


def test_dropout_keeps_the_mean() -> None:
    torch.manual_seed(2)
    layer = CPUDropout(0.3)
    assert float(layer(torch.ones(500, 500)).mean()) == pytest.approx(1.0, abs=0.01)


def test_without_training_or_rate_nothing_happens() -> None:
    values = torch.randn(4, 5)
    assert torch.equal(CPUDropout(0.5).eval()(values), values)
    assert torch.equal(CPUDropout(0.0)(values), values)
    assert torch.equal(CPUDropout(1.0)(values), nn.Dropout(1.0)(values))
