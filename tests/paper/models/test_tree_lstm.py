"""Bi-TreeLSTM against the equations, label by label."""

from __future__ import annotations

import pytest
import torch
from hgclr.paper.models.structure_encoders import BiTreeLSTM
from torch import Tensor

from hgclr.errors import InputError
from hgclr.taxonomy import Taxonomy
from support.toy import check_every_parameter_gets_a_gradient, random_tree

WIDTH = 6
HALF = 3


def drawn(tree: Taxonomy, dropout: float = 0.0) -> BiTreeLSTM:
    """A layer whose every weight matters."""
    torch.manual_seed(1)
    layer = BiTreeLSTM(tree, WIDTH, dropout=dropout).double()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)
    return layer


def step(cell, x: Tensor, neighbours: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """One label: h and c from its features and the scaled (h, c) of its neighbours."""
    w = dict(zip("iouf", cell.nodes.weight.split(HALF), strict=True))
    b = dict(zip("iouf", cell.nodes.bias.split(HALF), strict=True))
    u = dict(zip("iou", cell.states.weight.split(HALF), strict=True)) | {"f": cell.forget.weight}
    together = sum((h for h, _ in neighbours), torch.zeros(HALF, dtype=x.dtype))
    gate = {name: w[name] @ x + b[name] + u[name] @ together for name in "iou"}
    c = torch.sigmoid(gate["i"]) * torch.tanh(gate["u"])
    for h_n, c_n in neighbours:
        c = c + torch.sigmoid(w["f"] @ x + b["f"] + u["f"] @ h_n) * c_n
    return torch.sigmoid(gate["o"]) * torch.tanh(c), c


def by_recursion(layer: BiTreeLSTM, tree: Taxonomy, nodes: Tensor) -> Tensor:
    """From the leaves up and from the top down, one text and one label at a time."""

    def climb(text: Tensor, label: int, states: dict[int, Tensor]) -> tuple[Tensor, Tensor]:
        below = []
        for child in tree.children(label).tolist():
            h, c = climb(text, child, states)
            below.append((layer.up[child] * h, layer.up[child] * c))
        h, c = step(layer.up_cell, text[label], below)
        states[label] = h
        return h, c

    def descend(text: Tensor, label: int, above: list[tuple[Tensor, Tensor]], states: dict[int, Tensor]) -> None:
        states[label], c = step(layer.down_cell, text[label], above)
        for child in tree.children(label).tolist():
            share = layer.down[child]
            descend(text, child, [(share * states[label], share * c)], states)

    result = []
    for text in nodes:
        up: dict[int, Tensor] = {}
        down: dict[int, Tensor] = {}
        for top in tree.children(-1).tolist():
            climb(text, top, up)
            descend(text, top, [], down)
        result.append(torch.stack([torch.cat([up[label], down[label]]) for label in range(len(tree))]))
    return torch.stack(result)


@pytest.mark.parametrize(("labels", "seed", "deep"), [(1, 0, False), (3, 1, True), (9, 2, False), (30, 3, False)])
def test_levels_at_a_time_equal_label_by_label(labels: int, seed: int, deep: bool) -> None:
    tree = random_tree(labels, seed, deep=deep)
    layer = drawn(tree)
    nodes = torch.randn(2, labels, WIDTH, dtype=torch.float64, requires_grad=True)
    found, expected = layer(nodes), by_recursion(layer, tree, nodes)
    torch.testing.assert_close(found, expected)
    weights = [nodes, *layer.parameters()]
    direction = torch.randn_like(found)
    fast = torch.autograd.grad(found, weights, direction, allow_unused=True, materialize_grads=True)
    slow = torch.autograd.grad(expected, weights, direction, allow_unused=True, materialize_grads=True)
    for one, other in zip(fast, slow, strict=True):
        torch.testing.assert_close(one, other)


def test_every_parameter_gets_a_gradient(taxonomy: Taxonomy) -> None:
    check_every_parameter_gets_a_gradient(drawn(taxonomy), taxonomy, WIDTH)


def test_a_new_layer_begins_with_whole_edges_and_takes_the_prior_for_those_down(taxonomy: Taxonomy) -> None:
    layer = BiTreeLSTM(taxonomy, WIDTH, dropout=0.0)
    ones, prior = torch.ones(len(taxonomy)), torch.linspace(0.1, 0.9, len(taxonomy))
    assert torch.equal(layer.up, ones)
    assert torch.equal(layer.down, ones)
    layer.set_prior(prior)
    assert torch.equal(layer.up, ones)
    assert torch.equal(layer.down, prior)


def test_dropout_is_on_the_output(taxonomy: Taxonomy) -> None:
    layer = drawn(taxonomy, dropout=0.5)
    nodes = torch.randn(4, len(taxonomy), WIDTH, dtype=torch.float64)
    whole = layer.eval()(nodes)
    dropped = layer.train()(nodes)
    kept = dropped != 0
    assert 0.35 < kept.double().mean() < 0.65
    torch.testing.assert_close(dropped[kept], 2 * whole[kept])


def test_an_odd_width_is_refused(taxonomy: Taxonomy) -> None:
    with pytest.raises(InputError, match=r"node_width is 7, .*; give an even number"):
        BiTreeLSTM(taxonomy, 7, dropout=0.0)
