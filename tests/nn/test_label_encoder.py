"""The label side against loops, networkx and torch's own attention."""

from __future__ import annotations

import itertools
from functools import cache

import networkx
import numpy as np
import pytest
import torch

from hgclr.nn import label_encoder
from hgclr.nn.label_encoder import Graphormer, GraphormerLayer, TreeAttention, attention_span
from hgclr.taxonomy import Taxonomy
from support.toy import random_tree


@cache
def edges_between(parents: tuple[int, ...]) -> list[list[int]]:
    """The edges, named by their lower labels, on the path that networkx finds between any two labels, (K · K)."""
    graph = networkx.Graph()
    for child, parent in enumerate(parents):
        graph.add_edge(child, "root" if parent < 0 else parent, edge=child)
    pairs = itertools.product(range(len(parents)), repeat=2)
    paths = (networkx.shortest_path(graph, *pair) for pair in pairs)
    return [[graph.edges[step]["edge"] for step in itertools.pairwise(path)] for path in paths]


def bias_by_loops(module: TreeAttention) -> torch.Tensor:
    """b_φ(i,j) plus the mean edge weight on the path that networkx finds, (K, K)."""
    rows = []
    for edges in edges_between(tuple(module.taxonomy.parents.tolist())):
        value = torch.zeros((), dtype=torch.float64)
        if module.spatial is not None:
            value = value + module.spatial[len(edges)]
        if module.edge is not None and edges:
            value = value + module.edge[edges].sum() / len(edges)
        if module.padding is not None:
            value = value + max(0, 15 - len(edges)) * module.padding / (len(edges) + 1e-8)
        rows.append(value)
    return torch.stack(rows).view(len(module.taxonomy), len(module.taxonomy))


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


def make_structure(tree: Taxonomy, **settings) -> TreeAttention:
    module = TreeAttention(tree, **({"spatial": True, "edge": True} | settings)).double()
    torch.manual_seed(0)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)
    return module


SHAPES = {
    "one": random_tree(1, seed=1),
    "bushy": random_tree(40, seed=40),
    "chain": random_tree(30, seed=30, deep=True),
    "flat": Taxonomy([str(i) for i in range(25)], [-1] * 25),
    "star": Taxonomy([str(i) for i in range(25)], [7 if i != 7 else -1 for i in range(25)]),
}


@pytest.mark.parametrize("piece", [1, 50, 2**20])  # of attention weights; they divide nothing here
@pytest.mark.parametrize("span", [1, 7, 16, 1000])
@pytest.mark.parametrize("shape", SHAPES)
def test_attention_in_pieces_is_masked_attention_with_the_bias_in_full(
    shape: str, span: int, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(label_encoder, "PIECE", piece)
    tree = SHAPES[shape]
    module = make_structure(tree, span=span)
    parts = [torch.randn(len(tree), 8, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    ours = module(*parts, heads=2, scale=0.4, dropout=0.0)
    query, key, value = (part.view(len(tree), 2, 4).transpose(0, 1) for part in parts)
    logits = query @ key.transpose(1, 2) * 0.4 + bias_by_loops(module)
    weights = logits.masked_fill(~neighbours_by_loops(tree, span), -torch.inf).softmax(-1)
    plain = (weights @ value).transpose(0, 1).flatten(1)
    torch.testing.assert_close(ours, plain)
    inputs = [*parts, module.spatial, module.edge]
    loss_weights = torch.randn_like(plain)
    for one, other in zip(
        torch.autograd.grad((ours * loss_weights).sum(), inputs),
        torch.autograd.grad((plain * loss_weights).sum(), inputs, allow_unused=True, materialize_grads=True),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("parts", [{"spatial": False}, {"edge": False}, {"spatial": False, "edge": False}])
def test_parts_of_the_bias_can_be_left_out(parts: dict[str, bool]) -> None:
    tree = random_tree(10, seed=1)
    module = make_structure(tree, **parts)
    query, key, value = (torch.randn(10, 4, dtype=torch.float64) for _ in range(3))
    expected = (query @ key.T + bias_by_loops(module)).softmax(-1) @ value
    torch.testing.assert_close(module(query, key, value, heads=1, scale=1.0, dropout=0.0), expected)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("settings", [{}, {"span": 7}, {"spatial": False}])
@pytest.mark.parametrize("padding", [0.02, -0.02])
@pytest.mark.parametrize("shape", ["one", "bushy", "chain"])
def test_padding_of_paths(shape: str, padding: float, settings: dict[str, int], dtype: torch.dtype) -> None:
    """With a positive one a label attends to itself alone, with a negative one to all others, in any precision."""
    tree = SHAPES[shape]  # the chain has paths longer than the fifteen slots
    module = make_structure(tree, padding=True, **settings)
    module.padding.fill_(padding)
    everyone = neighbours_by_loops(tree, settings.get("span", len(tree)))
    expected = bias_by_loops(module).masked_fill(~everyone, -torch.inf).softmax(-1)
    query = torch.zeros(len(tree), len(tree), dtype=dtype)
    value = torch.eye(len(tree), dtype=dtype, requires_grad=True)
    weights = module.to(dtype)(query, query, value, heads=1, scale=1.0, dropout=0.0)
    exact = dtype in (torch.float64, torch.float32)
    torch.testing.assert_close(weights.double(), expected, atol=1e-6 if exact else 0.02, rtol=1e-5 if exact else 0.1)
    if padding > 0:
        assert torch.equal(weights, torch.eye(len(tree), dtype=dtype))
    elif len(tree) > 1:
        alone = everyone.sum(1) == 1
        assert (weights.diagonal()[~alone] == 0).all()
    (weights * torch.randn_like(weights)).sum().backward()
    for parameter in (value, *module.parameters()):
        assert parameter.grad.isfinite().all()
        if padding > 0 and parameter is not value:
            assert not parameter.grad.any()  # the tree learns nothing
    assert "padding" in module.state_dict()
    assert "padding" not in dict(module.named_parameters())


def test_without_edges_there_is_nothing_to_pad() -> None:
    assert TreeAttention(random_tree(5, seed=1), spatial=True, edge=False, padding=True).padding is None
    assert TreeAttention(random_tree(5, seed=1), spatial=True, edge=True).state_dict().keys() == {"spatial", "edge"}


def test_dropped_attention_weights_are_the_same_in_the_backward_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(label_encoder, "PIECE", 100)
    tree = random_tree(20, seed=2)
    module = make_structure(tree)
    query, key = torch.randn(2, 20, 4, dtype=torch.float64)
    value = torch.eye(20, dtype=torch.float64, requires_grad=True)  # what comes out are the weights themselves
    torch.manual_seed(5)
    weights = module(query, key, value, heads=1, scale=1.0, dropout=0.4)
    assert 0.2 < (weights == 0).double().mean() < 0.6
    full = (query @ key.T + bias_by_loops(module)).softmax(-1)
    torch.testing.assert_close(weights[weights != 0], (full / (1 - round(0.4 * 2**16) / 2**16))[weights != 0])
    upstream = torch.randn(20, 20, dtype=torch.float64)
    (gradient,) = torch.autograd.grad((weights * upstream).sum(), value)
    torch.testing.assert_close(gradient, weights.detach().T @ upstream)


@pytest.mark.parametrize(
    ("labels", "setting", "span"), [(4096, None, 4096), (4097, None, 256), (100, 7, 7), (100, 900, 100)]
)
def test_small_trees_attend_as_a_whole(labels: int, setting: int | None, span: int) -> None:
    assert attention_span(labels, setting) == span


def test_root_sums_and_their_gradient_follow_the_ancestors() -> None:
    tree = random_tree(30, seed=3)
    module = TreeAttention(tree, spatial=False, edge=True)
    torch.nn.init.normal_(module.edge)
    expected = torch.stack([*(module.edge[tree.path(i)].sum() for i in range(30)), torch.zeros(())])
    torch.testing.assert_close(module.root_sums(), expected)
    module.root_sums().sum().backward()
    descendants = [sum(i in tree.path(j) for j in range(30)) for i in range(30)]
    torch.testing.assert_close(module.edge.grad, torch.tensor(descendants, dtype=torch.float))


def make_layer(**changes) -> GraphormerLayer:
    settings = {
        "scale_by": "head",
        "bias": True,
        "output_projection": True,
        "dropout": 0.0,
        "feed_forward": False,
        "layer_norm_eps": 1e-12,
    }
    torch.manual_seed(2)
    return GraphormerLayer(16, 4, **(settings | changes))


@pytest.mark.parametrize("scale_by", ["head", "width"])
def test_a_layer_is_attention_by_loops(scale_by: str) -> None:
    layer, structure = make_layer(scale_by=scale_by), make_structure(random_tree(7, seed=7)).float()
    features, bias = torch.randn(7, 16), bias_by_loops(structure).float()
    query, key, value = layer.query(features), layer.key(features), layer.value(features)
    mixed = torch.zeros(7, 16)
    for head in range(4):
        part = slice(4 * head, 4 * head + 4)
        for i in range(7):
            logits = torch.stack([query[i, part] @ key[j, part] for j in range(7)])
            logits = logits / (16 if scale_by == "width" else 4) ** 0.5 + bias[i]
            weights = logits.exp() / logits.exp().sum()
            mixed[i, part] = sum(weights[j] * value[j, part] for j in range(7))
    expected = torch.nn.functional.layer_norm(layer.output(mixed) + features, (16,), eps=1e-12)
    torch.testing.assert_close(layer(features, structure), expected, atol=1e-5, rtol=1e-5)


def test_a_layer_is_torchs_multi_head_attention() -> None:
    layer, structure = make_layer(), make_structure(random_tree(9, seed=9)).float()
    other = torch.nn.MultiheadAttention(16, 4, batch_first=True)
    other.in_proj_weight.data = torch.cat([layer.query.weight, layer.key.weight, layer.value.weight])
    other.in_proj_bias.data = torch.cat([layer.query.bias, layer.key.bias, layer.value.bias])
    other.out_proj.load_state_dict(layer.output.state_dict())
    features, bias = torch.randn(9, 16), bias_by_loops(structure).float()
    mixed, _ = other(features[None], features[None], features[None], attn_mask=bias)
    torch.testing.assert_close(layer(features, structure), layer.norm(mixed[0] + features), atol=1e-5, rtol=1e-5)


def test_without_output_projection_and_biases_the_layer_is_the_papers_equation() -> None:
    layer = make_layer(output_projection=False, bias=False, scale_by="width")
    assert sorted(name for name, _ in layer.named_parameters()) == [
        "key.weight",
        "norm.bias",
        "norm.weight",
        "query.weight",
        "value.weight",
    ]


def make_graphormer(tree: Taxonomy, layers: int = 1) -> Graphormer:
    torch.manual_seed(4)
    graphormer = Graphormer(
        tree,
        16,
        layers=layers,
        heads=4,
        label_embedding=True,
        spatial=True,
        edge=True,
        span=None,
        scale_by="head",
        bias=True,
        output_projection=True,
        dropout=0.0,
        layer_norm_eps=1e-12,
    )
    for parameter in graphormer.structure.parameters():
        torch.nn.init.normal_(parameter)
    return graphormer


@pytest.mark.parametrize("layers", [1, 3])
def test_permuting_label_ids_permutes_the_features(layers: int) -> None:
    tree = random_tree(20, seed=9)
    order = np.random.default_rng(1).permutation(20)  # new position p holds old label order[p]
    where = np.argsort(order)
    parents = tree.parents[order]
    permuted_tree = Taxonomy([tree.ids[i] for i in order], np.where(parents < 0, -1, where[parents]))
    one, other = make_graphormer(tree, layers), make_graphormer(permuted_tree, layers)
    state = one.state_dict()
    state["label_embedding.weight"] = state["label_embedding.weight"][order]
    state["structure.edge"] = state["structure.edge"][order]
    other.load_state_dict(state)
    names = torch.randn(20, 16)
    torch.testing.assert_close(other(names[order]), one(names)[order], atol=1e-5, rtol=1e-5)


def test_only_inner_layers_have_a_feed_forward_part() -> None:
    parts = [layer.feed_forward is not None for layer in make_graphormer(random_tree(5, seed=0), layers=3).layers]
    assert parts == [True, True, False]


def test_features_need_a_source() -> None:
    graphormer = make_graphormer(random_tree(5, seed=0))
    graphormer.label_embedding = None
    with pytest.raises(ValueError, match="name embedding"):
        graphormer(None)
