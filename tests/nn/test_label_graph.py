"""Label features by GCN and GAT against loops over neighbours."""

from __future__ import annotations

import importlib.util
import math

import numpy as np
import pytest
import torch

from hgclr.errors import MissingExtraError
from hgclr.nn.label_encoder import LabelEmbedding, TreeConvolution
from hgclr.taxonomy import Taxonomy

TREES = {
    "forest": Taxonomy([str(i) for i in range(9)], [3, -1, 1, 1, 8, 3, -1, 3, 6]),  # parents may follow their children
    "flat": Taxonomy(["a", "b", "c"], [-1, -1, -1]),
    "one": Taxonomy(["a"], [-1]),
}


def neighbours(tree: Taxonomy) -> list[list[int]]:
    """Each label's parent, children and itself; the virtual root is no label."""
    parents = tree.parents.tolist()
    return [[j for j in range(len(tree)) if i == j or parents[i] == j or parents[j] == i] for i in range(len(tree))]


def make_encoder(tree: Taxonomy, kind: str, *, label_embedding: bool = True) -> TreeConvolution:
    torch.manual_seed(0)
    encoder = TreeConvolution(tree, 6, kind=kind, label_embedding=label_embedding)
    for parameter in encoder.parameters():
        torch.nn.init.normal_(parameter)
    return encoder


def gcn_by_loops(weights: dict[str, torch.Tensor], features: list[torch.Tensor], tree: Taxonomy) -> torch.Tensor:
    near = neighbours(tree)
    result = []
    for i in range(len(tree)):
        total = weights["convolution.bias"]
        for j in near[i]:
            total = total + weights["convolution.lin.weight"] @ features[j] / math.sqrt(len(near[i]) * len(near[j]))
        result.append(total)
    return torch.stack(result)


def gat_by_loops(weights: dict[str, torch.Tensor], features: list[torch.Tensor], tree: Taxonomy) -> torch.Tensor:
    moved = [weights["convolution.lin.weight"] @ feature for feature in features]
    source, target = (weights[f"convolution.att_{end}"].flatten() for end in ("src", "dst"))
    result = []
    for i, near in enumerate(neighbours(tree)):
        scores = [target @ moved[i] + source @ moved[j] for j in near]
        shares = [torch.exp(score if score > 0 else 0.2 * score) for score in scores]
        mixed = sum(share / sum(shares) * moved[j] for share, j in zip(shares, near, strict=True))
        result.append(mixed + weights["convolution.bias"])
    return torch.stack(result)


@pytest.mark.parametrize("shape", TREES)
@pytest.mark.parametrize("label_embedding", [True, False])
@pytest.mark.parametrize(("kind", "by_loops"), [("gcn", gcn_by_loops), ("gat", gat_by_loops)])
def test_features_are_sums_over_neighbours(kind: str, by_loops, label_embedding: bool, shape: str) -> None:
    tree = TREES[shape]
    encoder = make_encoder(tree, kind, label_embedding=label_embedding)
    weights = dict(encoder.named_parameters())
    names = torch.randn(len(tree), 6)
    features = list(names + weights["label_embedding.weight"] if label_embedding else names)
    expected = by_loops(weights, features, tree)
    torch.testing.assert_close(encoder(names), expected, atol=1e-5, rtol=1e-5)
    upstream = torch.randn_like(expected)
    parameters = list(weights.values())
    for name, one, other in zip(
        weights,
        torch.autograd.grad((encoder(names) * upstream).sum(), parameters),
        torch.autograd.grad((expected * upstream).sum(), parameters),
        strict=True,
    ):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5, msg=lambda text, n=name: f"{n}: {text}")


@pytest.mark.parametrize("kind", ["gcn", "gat"])
def test_there_is_nothing_beyond_the_one_layer(kind: str) -> None:
    names = {name for name, _ in make_encoder(TREES["forest"], kind, label_embedding=False).named_parameters()}
    attention = {"convolution.att_src", "convolution.att_dst"} if kind == "gat" else set()
    assert names == {"convolution.lin.weight", "convolution.bias"} | attention
    assert not list(make_encoder(TREES["forest"], kind).buffers())  # the edges come from the tree, not from a file


@pytest.mark.parametrize("kind", ["gcn", "gat"])
def test_permuting_label_ids_permutes_the_features(kind: str) -> None:
    tree = TREES["forest"]
    order = np.random.default_rng(1).permutation(len(tree))
    parents = tree.parents[order]
    other = Taxonomy([tree.ids[i] for i in order], np.where(parents < 0, -1, np.argsort(order)[parents]))
    names = torch.randn(len(tree), 6)
    ours, theirs = (make_encoder(t, kind, label_embedding=False) for t in (tree, other))
    torch.testing.assert_close(theirs(names[order]), ours(names)[order], atol=1e-5, rtol=1e-5)


def test_without_an_encoder_features_are_the_embeddings() -> None:
    tree, names = TREES["forest"], torch.randn(9, 6)
    embedding = LabelEmbedding(tree, 6, label_embedding=True)
    learned = dict(embedding.named_parameters())["label_embedding.weight"]
    for label in range(9):
        torch.testing.assert_close(embedding(names)[label], names[label] + learned[label])
        torch.testing.assert_close(embedding(None)[label], learned[label])
    assert torch.equal(LabelEmbedding(tree, 6, label_embedding=False)(names), names)
    with pytest.raises(ValueError, match="label features need"):
        LabelEmbedding(tree, 6, label_embedding=False)(None)


def test_a_missing_torch_geometric_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "torch_geometric" else find_spec(name, *rest)
    )
    with pytest.raises(MissingExtraError, match=r"the label encoder gat needs .* pip install 'hgclr\[paper\]'"):
        TreeConvolution(TREES["one"], 6, kind="gat", label_embedding=True)
