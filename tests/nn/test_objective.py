"""The loss terms against loops and pytorch-metric-learning."""

from __future__ import annotations

import math

import pytest
import torch
from pytorch_metric_learning.losses import NTXentLoss

from hgclr.nn.objective import ProjectionHead, classification_loss, negative_weights, nt_xent
from hgclr.taxonomy import Taxonomy


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


def test_nt_xent_of_equal_vectors_is_the_log_of_the_number_of_others() -> None:
    same = torch.ones(6, 4)
    assert float(nt_xent(same, same)) == pytest.approx(math.log(11))


@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_weighted_nt_xent_by_loops(temperature: float) -> None:
    torch.manual_seed(4)
    original, positive = torch.randn(5, 8), torch.randn(5, 8)
    weights = torch.rand(5, 5)
    weights[0, 1] = weights[2] = 0.0
    vectors = [*original, *positive]
    total = 0.0
    for m in range(10):
        similarity = [math.exp(float(torch.cosine_similarity(vectors[m], z, dim=0)) / temperature) for z in vectors]
        partner = (m + 5) % 10
        others = similarity[partner]  # in full, whatever the diagonal says
        for i in range(10):
            if i not in (m, partner):
                others += float(weights[m % 5, i % 5]) * similarity[i]
        total -= math.log(similarity[partner] / others)
    assert float(nt_xent(original, positive, temperature, weights)) == pytest.approx(total / 10, rel=1e-5)


def test_weights_of_one_change_nothing_and_of_zero_leave_nothing() -> None:
    torch.manual_seed(5)
    vectors = torch.randn(8, 6, requires_grad=True)
    plain = nt_xent(*vectors.chunk(2), 0.5)
    torch.testing.assert_close(nt_xent(*vectors.chunk(2), 0.5, torch.ones(4, 4)), plain)
    weights = torch.zeros(4, 4)
    alone = nt_xent(*vectors.chunk(2), 0.5, weights)
    alone.backward()
    assert alone.item() == 0.0
    assert torch.equal(vectors.grad, torch.zeros(8, 6))
    assert torch.equal(weights, torch.zeros(4, 4))  # what was given is not written to


@pytest.mark.parametrize("rule", ["different", "distance"])
def test_negative_weights_by_sets(rule: str) -> None:
    torch.manual_seed(6)
    labels = (torch.rand(12, 7) < 0.3).float()
    labels[3] = labels[8]
    labels[[4, 9]] = 0.0  # documents without labels
    sets = [set(row.nonzero()[:, 0].tolist()) for row in labels]
    found = negative_weights(labels, rule)
    for m in range(12):
        for n in range(12):
            either = sets[m] | sets[n]
            distance = len(sets[m] ^ sets[n]) / len(either) if either else 0.0
            expected = distance if rule == "distance" else float(sets[m] != sets[n])
            assert float(found[m, n]) == pytest.approx(expected)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(negative_weights(labels, rule), found)


def test_all_negatives_alike_need_no_weights() -> None:
    assert negative_weights(torch.eye(3), "all") is None


def test_the_distance_between_paths_is_the_distance_in_the_tree() -> None:
    tree = Taxonomy([str(i) for i in range(9)], [3, -1, 1, 1, 8, 3, -1, 3, 6])
    labels = torch.zeros(9, 9)
    for label in range(9):
        labels[label, tree.path(label)] = 1.0
    found = negative_weights(labels, "distance")
    for i in range(9):
        for j in range(9):
            edges = int(tree.distance(i, j))
            both = (int(tree.depths[i]) + int(tree.depths[j]) + edges) / 2  # edges of either path to the virtual root
            assert float(found[i, j]) == pytest.approx(edges / both)


@pytest.mark.parametrize("reduction", ["sum", "mean", "document"])
def test_classification_loss_by_loops(reduction: str) -> None:
    torch.manual_seed(2)
    logits, gold = torch.randn(3, 5), (torch.rand(3, 5) > 0.5).float()
    total = 0.0
    for i in range(3):
        for j in range(5):
            p = 1 / (1 + math.exp(-float(logits[i, j])))
            total -= math.log(p if gold[i, j] else 1 - p)
    expected = total / {"sum": 1, "mean": 15, "document": 3}[reduction]
    assert float(classification_loss(logits, gold, reduction)) == pytest.approx(expected, rel=1e-5)


def test_projection_is_two_layers_with_a_relu() -> None:
    torch.manual_seed(3)
    head = ProjectionHead(6, bias=False, dropout=0.0)
    first, second = (parameter for parameter in head.parameters())
    vectors = torch.randn(4, 6)
    expected = torch.stack([second @ torch.clamp(first @ vector, min=0) for vector in vectors])
    torch.testing.assert_close(head(vectors), expected)
