"""The label side against loops, networkx and torch's own attention; GCN and GAT against loops over neighbours."""

from __future__ import annotations

import importlib.util
import itertools
import math
from functools import cache

import networkx
import numpy as np
import pytest
import torch
from torch import nn

from hgclr.errors import MissingExtraError
from hgclr.nn.label_encoder import Graphormer, GraphormerLayer, LabelEmbedding, TreeAttention, TreeConvolution
from hgclr.taxonomy import Taxonomy
from support.toy import random_tree

SHAPES = {
    "one": random_tree(1, seed=1),
    "bushy": random_tree(40, seed=40),
    "chain": random_tree(30, seed=30, deep=True),
    "star": Taxonomy([str(i) for i in range(25)], [7 if i != 7 else -1 for i in range(25)]),
}
FOREST = Taxonomy([str(i) for i in range(9)], [3, -1, 1, 1, 8, 3, -1, 3, 6])  # parents may follow their children


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


def make_structure(tree: Taxonomy, **settings) -> TreeAttention:
    module = TreeAttention(tree, **({"spatial": True, "edge": True} | settings)).double()
    torch.manual_seed(0)
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    return module


@pytest.mark.parametrize("parts", [{}, {"spatial": False}, {"edge": False}, {"spatial": False, "edge": False}])
@pytest.mark.parametrize("shape", SHAPES)
def test_attention_has_the_bias_of_the_paths(shape: str, parts: dict[str, bool]) -> None:
    tree = SHAPES[shape]
    module = make_structure(tree, **parts)
    query, key, value = (torch.randn(2, len(tree), 4, dtype=torch.float64, requires_grad=True) for _ in range(3))
    ours = module(query, key, value, scale=0.4, dropout=nn.Identity())
    expected = (query @ key.transpose(1, 2) * 0.4 + bias_by_loops(module)).softmax(-1) @ value
    torch.testing.assert_close(ours, expected)
    inputs, upstream = [query, key, value, *module.parameters()], torch.randn_like(ours)
    for one, other in zip(
        torch.autograd.grad(ours, inputs, upstream),
        torch.autograd.grad(expected, inputs, upstream, allow_unused=True, materialize_grads=True),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("padding", [0.02, -0.02])
@pytest.mark.parametrize("shape", ["one", "bushy", "chain"])
def test_padding_of_paths(shape: str, padding: float, dtype: torch.dtype) -> None:
    """With a positive one a label attends to itself alone, with a negative one to all others, in any precision."""
    tree = SHAPES[shape]  # the chain has paths longer than the fifteen slots
    module = make_structure(tree, padding=True)
    module.padding.fill_(padding)
    expected = bias_by_loops(module).softmax(-1)
    query = torch.zeros(1, len(tree), len(tree), dtype=dtype)
    value = torch.eye(len(tree), dtype=dtype)[None].requires_grad_()
    weights = module.to(dtype)(query, query, value, scale=1.0, dropout=nn.Identity())[0]
    exact = dtype in (torch.float64, torch.float32)
    torch.testing.assert_close(weights.double(), expected, atol=1e-6 if exact else 0.02, rtol=1e-5 if exact else 0.1)
    if padding > 0:
        assert torch.equal(weights, torch.eye(len(tree), dtype=dtype))
    elif len(tree) > 1:
        assert (weights.diagonal() == 0).all()
    (weights * torch.randn_like(weights)).sum().backward()
    for parameter in module.parameters():
        assert parameter.grad.isfinite().all()
        if padding > 0:
            assert not parameter.grad.any()  # the tree learns nothing
    assert "padding" in module.state_dict()
    assert "padding" not in dict(module.named_parameters())


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
    expected = nn.functional.layer_norm(layer.output(mixed) + features, (16,), eps=1e-12)
    torch.testing.assert_close(layer(features, structure), expected, atol=1e-5, rtol=1e-5)


def test_a_layer_is_torchs_multi_head_attention() -> None:
    layer, structure = make_layer(), make_structure(random_tree(9, seed=9)).float()
    other = nn.MultiheadAttention(16, 4, batch_first=True)
    other.in_proj_weight.data = torch.cat([layer.query.weight, layer.key.weight, layer.value.weight])
    other.in_proj_bias.data = torch.cat([layer.query.bias, layer.key.bias, layer.value.bias])
    other.out_proj.load_state_dict(layer.output.state_dict())
    features, bias = torch.randn(9, 16), bias_by_loops(structure).float()
    mixed, _ = other(features[None], features[None], features[None], attn_mask=bias)
    torch.testing.assert_close(layer(features, structure), layer.norm(mixed[0] + features), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("layers", [1, 3])
def test_permuting_label_ids_permutes_the_features(layers: int) -> None:
    tree = random_tree(20, seed=9)
    order = np.random.default_rng(1).permutation(20)  # new position p holds old label order[p]
    parents = tree.parents[order]
    permuted = Taxonomy([tree.ids[i] for i in order], np.where(parents < 0, -1, np.argsort(order)[parents]))
    settings = {"scale_by": "head", "bias": True, "output_projection": True, "dropout": 0.0, "layer_norm_eps": 1e-12}
    one, other = (
        Graphormer(make_structure(t).float(), 16, layers=layers, label_embedding=True, heads=4, **settings)
        for t in (tree, permuted)
    )
    assert [layer.feed_forward is not None for layer in one.layers] == [True] * (layers - 1) + [False]
    state = one.state_dict()
    state["label_embedding.weight"] = state["label_embedding.weight"][order]
    state["structure.edge"] = state["structure.edge"][order]
    other.load_state_dict(state)
    names = torch.randn(20, 16)
    torch.testing.assert_close(other(names[order]), one(names)[order], atol=1e-5, rtol=1e-5)


def test_label_embeddings() -> None:
    names = torch.randn(9, 6)
    embedding = LabelEmbedding(FOREST, 6, label_embedding=True)
    learned = dict(embedding.named_parameters())["label_embedding.weight"]
    for label in range(9):
        torch.testing.assert_close(embedding(names)[label], names[label] + learned[label])
        torch.testing.assert_close(embedding(None)[label], learned[label])
    assert torch.equal(LabelEmbedding(FOREST, 6, label_embedding=False)(names), names)
    with pytest.raises(ValueError, match="label features need"):
        LabelEmbedding(FOREST, 6, label_embedding=False)(None)


def convolution_by_loops(kind: str, weights: dict[str, torch.Tensor], features: torch.Tensor) -> torch.Tensor:
    """Sums over each label's parent, children and itself; the virtual root is no label."""
    parents, labels = FOREST.parents.tolist(), range(len(FOREST))
    near = [[j for j in labels if i == j or parents[i] == j or parents[j] == i] for i in labels]
    moved = [weights["convolution.lin.weight"] @ feature for feature in features]
    result = []
    for i in labels:
        if kind == "gcn":
            shares = [torch.tensor(1 / math.sqrt(len(near[i]) * len(near[j]))) for j in near[i]]
        else:
            source, target = (weights[f"convolution.att_{end}"].flatten() for end in ("src", "dst"))
            scores = [target @ moved[i] + source @ moved[j] for j in near[i]]
            shares = [torch.exp(score if score > 0 else 0.2 * score) for score in scores]
            shares = [share / sum(shares) for share in shares]
        mixed = sum(share * moved[j] for share, j in zip(shares, near[i], strict=True))
        result.append(mixed + weights["convolution.bias"])
    return torch.stack(result)


@pytest.mark.parametrize("label_embedding", [True, False])
@pytest.mark.parametrize("kind", ["gcn", "gat"])
def test_convolutions_are_sums_over_neighbours(kind: str, label_embedding: bool) -> None:
    torch.manual_seed(0)
    encoder = TreeConvolution(FOREST, 6, kind=kind, label_embedding=label_embedding)
    for parameter in encoder.parameters():
        nn.init.normal_(parameter)
    assert not list(encoder.buffers())  # the edges come from the tree, not from a file
    weights = dict(encoder.named_parameters())
    names = torch.randn(len(FOREST), 6)
    features = names + weights["label_embedding.weight"] if label_embedding else names
    expected = convolution_by_loops(kind, weights, features)
    torch.testing.assert_close(encoder(names), expected, atol=1e-5, rtol=1e-5)
    parameters, upstream = list(weights.values()), torch.randn_like(expected)
    for one, other in zip(
        torch.autograd.grad(encoder(names), parameters, upstream),
        torch.autograd.grad(expected, parameters, upstream),
        strict=True,
    ):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


def test_a_missing_torch_geometric_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "torch_geometric" else find_spec(name, *rest)
    )
    with pytest.raises(MissingExtraError):
        TreeConvolution(FOREST, 6, kind="gat", label_embedding=True)
