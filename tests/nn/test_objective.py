"""The loss terms against loops and pytorch-metric-learning."""

from __future__ import annotations

import math

import pytest
import torch
from pytorch_metric_learning.losses import NTXentLoss

from hgclr.nn.objective import classification_loss, nt_xent


@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_nt_xent_by_loops(temperature: float) -> None:
    torch.manual_seed(0)
    original, positive = torch.randn(5, 8), torch.randn(5, 8)
    vectors = [*original, *positive]
    total = 0.0
    for m in range(10):
        similarity = [float(torch.cosine_similarity(vectors[m], z, dim=0)) / temperature for z in vectors]
        others = sum(math.exp(s) for i, s in enumerate(similarity) if i != m)
        total -= math.log(math.exp(similarity[(m + 5) % 10]) / others)
    assert float(nt_xent(original, positive, temperature)) == pytest.approx(total / 10, rel=1e-5)


@pytest.mark.parametrize("batch", [2, 12])
def test_nt_xent_and_its_gradient_equal_pytorch_metric_learning(batch: int) -> None:
    torch.manual_seed(1)
    ours = torch.randn(2 * batch, 16, requires_grad=True)
    theirs = ours.detach().clone().requires_grad_()
    loss = nt_xent(*ours.chunk(2), 0.5)
    other = NTXentLoss(temperature=0.5)(theirs, torch.arange(batch).repeat(2))
    torch.testing.assert_close(loss, other)
    loss.backward()
    other.backward()
    torch.testing.assert_close(ours.grad, theirs.grad)


@pytest.mark.parametrize("reduction", ["sum", "mean", "document"])
@pytest.mark.parametrize("kind", ["0 or 1", "probabilities", "some unknown"])
def test_classification_loss_by_loops(reduction: str, kind: str) -> None:
    torch.manual_seed(2)
    logits, gold = torch.randn(3, 5, requires_grad=True), torch.rand(3, 5)
    if kind != "probabilities":
        gold = gold.round()
    if kind == "some unknown":
        gold[0, 1] = gold[2] = math.nan
    total, expected_gradient = 0.0, torch.zeros(3, 5)
    divisor = {"sum": 1, "mean": 15, "document": 3}[reduction]
    for i in range(3):
        for j in range(5):
            p, y = 1 / (1 + math.exp(-float(logits.detach()[i, j]))), float(gold[i, j])
            if not math.isnan(y):
                total -= y * math.log(p) + (1 - y) * math.log(1 - p)
                expected_gradient[i, j] = (p - y) / divisor
    loss = classification_loss(logits, gold, reduction)
    assert float(loss) == pytest.approx(total / divisor, rel=1e-5)
    loss.backward()
    torch.testing.assert_close(logits.grad, expected_gradient)
