"""Hierarchy-GCN and recursive regularisation against the paper's dense matrices, masked to the edges."""

from __future__ import annotations

import pytest
import torch
from hgclr.paper.models.structure_encoders import HierarchyGCN
from torch import Tensor

from hgclr.nn import objective
from hgclr.nn.objective import recursive_regularisation
from hgclr.taxonomy import Taxonomy
from support.toy import check_every_parameter_gets_a_gradient, random_tree

WIDTH = 6


def drawn(tree: Taxonomy, dropout: float = 0.0) -> HierarchyGCN:
    """A layer whose every weight matters."""
    torch.manual_seed(1)
    layer = HierarchyGCN(tree, WIDTH, dropout=dropout).double()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)
    return layer


def by_matrices(layer: HierarchyGCN, parents: list[int], nodes: Tensor) -> Tensor:
    """The paper's equations: A_in and A_out are (K, K), row = who receives, column = who sends."""
    count = len(parents)
    a_in, a_out, mask = (torch.zeros(count, count, dtype=nodes.dtype) for _ in range(3))
    for child, parent in enumerate(parents):
        for other in range(count):
            a_in[other, child] = layer.up[child]
            a_out[child, other] = layer.down[child]
        if parent >= 0:
            mask[parent, child] = 1.0
    result = []
    for h in nodes:
        gate_in = torch.sigmoid(h @ layer.up_gate.weight.T + layer.up_gate_bias[:, None])
        gate_out = torch.sigmoid(h @ layer.down_gate.weight.T + layer.down_gate_bias[:, None])
        into = ((a_in * mask) @ h + layer.up_bias) * gate_in
        out = ((a_out * mask.T) @ h + layer.down_bias) * gate_out
        result.append(torch.relu(into + out + h * torch.sigmoid(h @ layer.loop_gate.weight.T)))
    return torch.stack(result)


@pytest.mark.parametrize(("labels", "seed"), [(1, 0), (2, 1), (9, 2), (40, 3)])
def test_edges_as_vectors_equal_masked_matrices(labels: int, seed: int) -> None:
    tree = random_tree(labels, seed)
    layer = drawn(tree)
    nodes = torch.randn(3, labels, WIDTH, dtype=torch.float64, requires_grad=True)
    found, expected = layer(nodes), by_matrices(layer, tree.parents.tolist(), nodes)
    torch.testing.assert_close(found, expected)
    weights = [nodes, *layer.parameters()]
    direction = torch.randn_like(found)
    fast = torch.autograd.grad(found, weights, direction)
    slow = torch.autograd.grad(expected, weights, direction)
    for one, other in zip(fast, slow, strict=True):
        torch.testing.assert_close(one, other)


def test_every_parameter_gets_a_gradient(taxonomy: Taxonomy) -> None:
    check_every_parameter_gets_a_gradient(drawn(taxonomy), taxonomy, WIDTH)


def test_new_layers_begin_the_same_and_the_prior_is_the_edges_down(taxonomy: Taxonomy) -> None:
    torch.manual_seed(3)
    one = HierarchyGCN(taxonomy, WIDTH, dropout=0.0)
    torch.empty(1000).normal_()  # memory that was used for something else
    torch.manual_seed(3)
    other = HierarchyGCN(taxonomy, WIDTH, dropout=0.0)
    for (name, first), (_, second) in zip(one.named_parameters(), other.named_parameters(), strict=True):
        assert torch.equal(first, second), name
        if name.endswith("bias"):
            assert not first.any(), name
    assert torch.equal(one.up, torch.ones(len(taxonomy)))
    prior = torch.linspace(0.1, 0.9, len(taxonomy))
    one.set_prior(prior)
    assert torch.equal(one.down, prior)


def test_each_message_has_dropout_of_its_own(taxonomy: Taxonomy) -> None:
    """With a dropout of one half, a feature is twice the sum of some of its three messages."""
    layer = drawn(taxonomy, dropout=0.5).train()
    nodes = torch.rand(1, len(taxonomy), WIDTH, dtype=torch.float64)
    for parameter in layer.parameters():
        torch.nn.init.ones_(parameter)  # so that no message is negative
    seen = torch.stack([layer(nodes) for _ in range(200)])
    values = [len(torch.unique(feature.round(decimals=9))) for feature in seen.flatten(1).T]
    assert max(values) == 8


def regularised(weight: Tensor, parents: list[int]) -> Tensor:
    total = torch.zeros((), dtype=weight.dtype)
    for child, parent in enumerate(parents):
        if parent >= 0:
            for one, other in zip(weight[parent], weight[child], strict=True):
                total = total + 0.5 * (one - other) ** 2
    return total


@pytest.mark.parametrize("piece", [1, 7, 2**22])
def test_recursive_regularisation_is_half_the_squared_distance_over_edges(
    monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    monkeypatch.setattr(objective, "PIECE", piece)
    tree = random_tree(12, 4)
    weight = torch.randn(12, 3, dtype=torch.float64, requires_grad=True)
    parents = torch.from_numpy(tree.parents.copy())
    found, expected = recursive_regularisation(weight, parents), regularised(weight, tree.parents.tolist())
    torch.testing.assert_close(found, expected)
    (fast,) = torch.autograd.grad(3 * found, [weight])
    (slow,) = torch.autograd.grad(3 * expected, [weight])
    torch.testing.assert_close(fast, slow)


def test_a_forest_of_top_labels_has_nothing_to_regularise() -> None:
    weight = torch.randn(3, 2, requires_grad=True)
    loss = recursive_regularisation(weight, torch.tensor([-1, -1, -1]))
    loss.backward()
    assert loss == 0
    assert weight.grad is not None
    assert not weight.grad.any()
