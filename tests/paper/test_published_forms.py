"""Import of published checkpoints with other label encoders than one Graphormer layer, against a plain computation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from hgclr.errors import InputError
from hgclr.models import HGCLRForSequenceClassification
from hgclr.paper.published import import_published
from support.literal import path_edges
from support.published_program import NAMES, PARENTS, WIDTH, PublishedProgram, linear, norm

LAYER, LAST = "graph_encoder.hir_layers.0", "graph_encoder.hir_layers.1"
PROJECTIONS = ("q_proj", "k_proj", "v_proj", "out_proj")
Change = Callable[[PublishedProgram], None]


@pytest.fixture
def program(tokenizer) -> PublishedProgram:
    return PublishedProgram(tokenizer)


def without_graph(program: PublishedProgram) -> None:
    program.arguments["graph"] = 0
    for name in [name for name in program.weights if name.startswith("graph_encoder.")]:
        if not name.startswith(("graph_encoder.hir_layers.", "graph_encoder.label_name")):
            del program.weights[name]


def two_layers(program: PublishedProgram) -> None:
    program.arguments["layer"] = 2
    for name in [name for name in program.weights if name.startswith(LAYER)]:
        program.weights[LAST + name.removeprefix(LAYER)] = program.weights.pop(name)
    for part in PROJECTIONS:
        program.weights |= linear(f"{LAYER}.hir_attn.self.{part}")
    program.weights |= norm(f"{LAYER}.hir_attn.layer_norm") | norm(f"{LAYER}.output_layer_norm")
    program.weights |= linear(f"{LAYER}.output_layer.0", WIDTH, 4 * WIDTH)
    program.weights |= linear(f"{LAYER}.output_layer.2", 4 * WIDTH, WIDTH)


def convolved(names: dict[str, tuple[int, ...]]) -> Change:
    """One graph convolution in the place of the attention, with weights of these names and shapes."""

    def change(program: PublishedProgram) -> None:
        without_graph(program)
        program.arguments["graph"] = 1
        for name in [name for name in program.weights if ".hir_attn." in name]:
            del program.weights[name]
        program.weights |= {f"{LAYER}.hir_attn.{name}": torch.randn(shape) * 0.3 for name, shape in names.items()}
        if "lin_l.weight" in names:
            program.weights[f"{LAYER}.hir_attn.lin_r.weight"] = program.weights[f"{LAYER}.hir_attn.lin_l.weight"]
        edges = [(child, parent) for child, parent in enumerate(PARENTS) if parent >= 0]
        program.weights["graph_encoder.edge_list"] = torch.tensor(edges + [edge[::-1] for edge in edges]).T

    return change


def projected(program: PublishedProgram, name: str, features: Tensor) -> Tensor:
    return F.linear(features, program.weights[f"{name}.weight"], program.weights[f"{name}.bias"])


def normed(program: PublishedProgram, name: str, features: Tensor) -> Tensor:
    return F.layer_norm(features, (WIDTH,), program.weights[f"{name}.weight"], program.weights[f"{name}.bias"], 1e-12)


def attended(program: PublishedProgram, layer: str, features: Tensor, bias: Tensor | None = None) -> Tensor:
    """One layer's self-attention with residual and LayerNorm; the tests' BERT has 4 heads."""
    query, key, value = (
        projected(program, f"{layer}.hir_attn.self.{part}", features).view(-1, 4, WIDTH // 4).transpose(0, 1)
        for part in ("q_proj", "k_proj", "v_proj")
    )
    mixed = F.scaled_dot_product_attention(query, key, value, bias).transpose(0, 1).flatten(1)
    mixed = projected(program, f"{layer}.hir_attn.self.out_proj", mixed)
    return normed(program, f"{layer}.hir_attn.layer_norm", mixed + features)


def bias_of(program: PublishedProgram) -> Tensor:
    """What is added to the attention logits between labels, (K, K); the padding row is 0."""
    distances = program.weights["graph_encoder.distance_embedding.weight"][:, 0]
    edges = program.weights["graph_encoder.edge_embedding.weight"][:, 0]
    bias = torch.empty(len(NAMES), len(NAMES))
    for i in range(len(NAMES)):
        for j in range(len(NAMES)):
            path = path_edges(PARENTS, i, j)
            bias[i, j] = distances[len(path)] + sum(edges[child + 1] for child in path) / max(1, len(path))
    return bias


def two_layer_features(program: PublishedProgram, names: Tensor) -> Tensor:
    bias = bias_of(program)
    features = attended(program, LAYER, names + program.weights["graph_encoder.id_embedding.weight"][:-1], bias)
    inner = F.gelu(projected(program, f"{LAYER}.output_layer.0", features))
    features = projected(program, f"{LAYER}.output_layer.2", inner) + features
    return attended(program, LAST, normed(program, f"{LAYER}.output_layer_norm", features), bias)


def neighbours() -> Tensor:
    near = torch.eye(len(NAMES))
    for child, parent in enumerate(PARENTS):
        if parent >= 0:
            near[child, parent] = near[parent, child] = 1.0
    return near


def gcn_features(program: PublishedProgram, names: Tensor) -> Tensor:
    matrix = program.weights.get(f"{LAYER}.hir_attn.weight")  # multiplies from the right
    if matrix is None:
        matrix = program.weights[f"{LAYER}.hir_attn.lin.weight"].T
    near = neighbours()
    root = near.sum(1).rsqrt()
    return (root[:, None] * near * root) @ names @ matrix + program.weights[f"{LAYER}.hir_attn.bias"]


def gat_features(program: PublishedProgram, names: Tensor) -> Tensor:
    prefix = f"{LAYER}.hir_attn."
    parts = {name.removeprefix(prefix): weight for name, weight in program.weights.items() if name.startswith(prefix)}
    old = "att_l" in parts
    features = names @ parts["lin_l.weight" if old else "lin_src.weight"].T
    source = features @ parts["att_l" if old else "att_src"].flatten()
    target = features @ parts["att_r" if old else "att_dst"].flatten()
    logits = F.leaky_relu(target[:, None] + source, 0.2)
    return logits.masked_fill(neighbours() == 0, -torch.inf).softmax(-1) @ features + parts["bias"]


SQUARE, VECTOR, BIAS = (WIDTH, WIDTH), (1, 1, WIDTH), {"bias": (WIDTH,)}
OLD_GCN = convolved({"weight": SQUARE} | BIAS)
OLD_GAT = convolved({"lin_l.weight": SQUARE, "att_l": VECTOR, "att_r": VECTOR} | BIAS)
NEW_GCN = convolved({"lin.weight": SQUARE} | BIAS)
NEW_GAT = convolved({"lin_src.weight": SQUARE, "att_src": VECTOR, "att_dst": VECTOR} | BIAS)
PARTS = {"label_embedding": False, "spatial_encoding": False, "edge_encoding": False}
FORMS: dict[str, tuple[Change, Callable[[PublishedProgram, Tensor], Tensor], dict[str, Any]]] = {
    "graph 0": (without_graph, lambda program, names: attended(program, LAYER, names), PARTS),
    "two layers": (two_layers, two_layer_features, {"label_layers": 2, "label_embedding": True}),
    "gcn of torch_geometric 1": (OLD_GCN, gcn_features, {"label_encoder": "gcn", "label_embedding": False}),
    "gcn": (NEW_GCN, gcn_features, {"label_encoder": "gcn", "label_embedding": False}),
    "gat of torch_geometric 1": (OLD_GAT, gat_features, {"label_encoder": "gat", "label_embedding": False}),
    "gat": (NEW_GAT, gat_features, {"label_encoder": "gat", "label_embedding": False}),
}


@pytest.mark.parametrize("form", FORMS)
def test_label_features_are_those_of_the_published_program(
    program: PublishedProgram,
    make_encoder: Callable[[str], str],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    form: str,
) -> None:
    change, features, settings = FORMS[form]
    change(program)
    result = import_published(*program.write(tmp_path), make_encoder("bert"), tmp_path / "out")
    assert not caplog.records
    model = HGCLRForSequenceClassification.from_pretrained(result.training_model).eval()
    assert {name: getattr(model.config, name) for name in settings} == settings
    with torch.no_grad():
        expected = features(program, model.name_embeddings())
        torch.testing.assert_close(model.label_features(), expected, atol=1e-5, rtol=1e-4)
    last = f"graph_encoder.hir_layers.{model.config.label_layers - 1}"
    for ours, theirs in (("query", "q_proj"), ("key", "k_proj")):
        found = getattr(model.token_label_attention, ours).weight
        assert torch.equal(found, program.weights[f"{last}.cross_attn.{theirs}.weight"])
    ids = torch.tensor([[2, 8, 9, 3]])
    output = model.train()(ids, torch.ones_like(ids), torch.eye(len(NAMES))[:1])
    assert output.loss.isfinite()


def with_two_convolutions(program: PublishedProgram) -> None:
    OLD_GCN(program)
    program.arguments["layer"] = 2


def with_a_convolution_without_tree(program: PublishedProgram) -> None:
    OLD_GAT(program)
    program.arguments["graph"] = 0


def with_a_convolution_over_another_tree(program: PublishedProgram) -> None:
    NEW_GCN(program)
    program.weights["graph_encoder.edge_list"][0, 0] = 1


def without_attention_of_the_gat(program: PublishedProgram) -> None:
    NEW_GAT(program)
    del program.weights[f"{LAYER}.hir_attn.att_dst"]


def with_a_narrow_feed_forward(program: PublishedProgram) -> None:
    two_layers(program)
    program.weights |= linear(f"{LAYER}.output_layer.0", WIDTH, 2 * WIDTH)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (with_two_convolutions, r"macro\.pt: .* trained with 2 layers of GCN, which cannot be imported; give a multi"),
        (with_a_convolution_without_tree, r"macro\.pt: .* trained with a GAT and graph 0, which cannot be imported"),
        (with_a_convolution_over_another_tree, r"slot\.pt: the checkpoint was trained with another label tree"),
        (without_attention_of_the_gat, rf"has no weight {LAYER}\.hir_attn\.att_dst"),
        (with_a_narrow_feed_forward, r"output_layer\.0\.weight has the shape \(64, 32\) .* ask for \(128, 32\)"),
    ],
)
def test_what_has_no_counterpart_is_refused(
    program: PublishedProgram, make_encoder: Callable[[str], str], tmp_path: Path, change: Change, message: str
) -> None:
    change(program)
    with pytest.raises(InputError, match=message):
        import_published(*program.write(tmp_path), make_encoder("bert"), tmp_path / "out")
    assert not (tmp_path / "out").exists()
