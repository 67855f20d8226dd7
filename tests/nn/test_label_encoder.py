"""The label side against loops, networkx and torch's own attention."""

from __future__ import annotations

import itertools

import networkx
import numpy as np
import pytest
import torch

from hgclr.nn.label_encoder import Graphormer, GraphormerLayer, StructuralBias
from hgclr.taxonomy import Taxonomy


def random_tree(labels: int, seed: int, *, deep: bool = False) -> Taxonomy:
    """A random tree whose label indices are shuffled, so that parents may come after children."""
    random = np.random.default_rng(seed)
    parents = np.array([-1] + [i - 1 if deep else int(random.integers(-1, i)) for i in range(1, labels)])
    place = random.permutation(labels)
    shuffled = np.empty(labels, dtype=int)
    shuffled[place] = np.where(parents < 0, -1, place[parents])
    return Taxonomy([f"label {i}" for i in range(labels)], shuffled)


def graph_of(tree: Taxonomy) -> networkx.Graph:
    graph = networkx.Graph()
    for child, parent in enumerate(tree.parents.tolist()):
        graph.add_edge(child, "root" if parent < 0 else parent, edge=child)
    return graph


@pytest.mark.parametrize(("labels", "deep"), [(1, False), (12, False), (40, False), (40, True)])
def test_structural_bias_is_the_spatial_scalar_plus_the_mean_edge_weight_on_the_path(labels: int, deep: bool) -> None:
    tree = random_tree(labels, seed=labels, deep=deep)
    module = StructuralBias(tree, spatial=True, edge=True)
    torch.manual_seed(0)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)
    graph = graph_of(tree)
    expected = torch.zeros(labels, labels)
    for i in range(labels):
        for j in range(labels):
            path = networkx.shortest_path(graph, i, j)
            edges = [graph.edges[pair]["edge"] for pair in itertools.pairwise(path)]
            expected[i, j] = module.spatial[len(edges)]
            if edges:
                expected[i, j] += sum(module.edge[e] for e in edges) / len(edges)
    torch.testing.assert_close(module(), expected, atol=1e-5, rtol=1e-5)


def test_root_sums_and_their_gradient_follow_the_ancestors() -> None:
    tree = random_tree(30, seed=3)
    module = StructuralBias(tree, spatial=False, edge=True)
    torch.nn.init.normal_(module.edge)
    expected = torch.stack([module.edge[tree.path(i)].sum() for i in range(30)])
    torch.testing.assert_close(module.root_sums(), expected)
    module.root_sums().sum().backward()
    descendants = [sum(i in tree.path(j) for j in range(30)) for i in range(30)]
    torch.testing.assert_close(module.edge.grad, torch.tensor(descendants, dtype=torch.float))


def test_parts_of_the_bias_can_be_left_out() -> None:
    tree = random_tree(10, seed=1)
    assert StructuralBias(tree, spatial=False, edge=False)() is None
    spatial = StructuralBias(tree, spatial=True, edge=False)
    torch.nn.init.normal_(spatial.spatial)
    rows = np.arange(10)
    distance = torch.from_numpy(tree.distance(rows[:, None], rows[None, :]))
    torch.testing.assert_close(spatial(), spatial.spatial[distance])


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
    layer = make_layer(scale_by=scale_by)
    features, bias = torch.randn(7, 16), torch.randn(7, 7)
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
    torch.testing.assert_close(layer(features, bias), expected, atol=1e-5, rtol=1e-5)


def test_a_layer_is_torchs_multi_head_attention() -> None:
    layer = make_layer()
    other = torch.nn.MultiheadAttention(16, 4, batch_first=True)
    other.in_proj_weight.data = torch.cat([layer.query.weight, layer.key.weight, layer.value.weight])
    other.in_proj_bias.data = torch.cat([layer.query.bias, layer.key.bias, layer.value.bias])
    other.out_proj.load_state_dict(layer.output.state_dict())
    features, bias = torch.randn(9, 16), torch.randn(9, 9)
    mixed, _ = other(features[None], features[None], features[None], attn_mask=bias)
    torch.testing.assert_close(layer(features, bias), layer.norm(mixed[0] + features))


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
