"""HiAGM and its structure encoders: literal equations, the prior, the loss, files, whole runs."""

from __future__ import annotations

from pathlib import Path

import datasets
import pytest
import torch
from torch import Tensor

from hgclr.export.onnx import export_onnx
from hgclr.inference import HierarchicalClassifier
from hgclr.models import architecture, load_deployed
from hgclr.models.base import save
from hgclr.paper.models.hiagm import (
    BiTreeLSTM,
    HiAGMLAForSequenceClassification,
    HiAGMPreTrainedModel,
    HiAGMTPForSequenceClassification,
    HierarchyGCN,
    edge_prior,
)
from hgclr.taxonomy import Taxonomy
from hgclr.taxonomy.changes import compare
from hgclr.training import RunConfig, train
from hgclr.training.changed_tree import carry_over
from support.short_runs import StopAfterEpoch, StopWhenLearned, first_layer, tiny_set, without_dropout
from support.toy import TEXTS, batch_of, random_tree

KINDS = ["hiagm-tp", "hiagm-la"]
STRUCTURES = ["gcn", "tree-lstm"]


def make_model(make_encoder, taxonomy: Taxonomy, tokenizer, kind: str, **settings) -> HiAGMPreTrainedModel:
    torch.manual_seed(0)
    settings = {"node_width": 10} | settings
    model = architecture(kind).from_encoder(make_encoder("bert"), taxonomy, tokenizer, **settings)
    for name, parameter in model.named_parameters():
        if not name.startswith("encoder."):
            torch.nn.init.normal_(parameter, std=0.3)  # large enough to matter
    assert isinstance(model, HiAGMPreTrainedModel)
    return model.eval()


def literal_logits(model: HiAGMPreTrainedModel, batch: dict[str, Tensor]) -> Tensor:
    """One text at a time, without padding, one label at a time."""
    rows = []
    width, labels = model.config.node_width, model.config.label_count
    for ids, mask in zip(batch["input_ids"], batch["attention_mask"], strict=True):
        real = ids[: int(mask.sum())][None]
        tokens = model.encoder(input_ids=real).last_hidden_state[0]
        if isinstance(model, HiAGMTPForSequenceClassification):
            wide = model.transformation.weight @ tokens[0] + model.transformation.bias
            nodes = torch.stack([wide[k * width : (k + 1) * width] for k in range(labels)])
            features = model.structure(nodes[None])[0]
        else:
            assert isinstance(model, HiAGMLAForSequenceClassification)
            known = model.structure(model.label_embedding.weight[None])[0]
            projected = torch.stack([model.token_projection(token) for token in tokens])
            attended = []
            for k in range(labels):
                shares = torch.stack([known[k] @ token for token in projected]).softmax(0)
                attended.append(sum(share * token for share, token in zip(shares, projected, strict=True)))
            features = torch.stack(attended)
        rows.append(model.classifier.weight @ torch.cat(list(features)) + model.classifier.bias)
    return torch.stack(rows)


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("kind", KINDS)
def test_logits_equal_the_equations_and_padding_changes_nothing(
    make_encoder, taxonomy: Taxonomy, tokenizer, kind: str, structure: str
) -> None:
    model = make_model(make_encoder, taxonomy, tokenizer, kind, structure_encoder=structure)
    batch = batch_of(tokenizer, taxonomy)
    expected = literal_logits(model, batch)
    for padding in (0, 5):
        found = model(**batch_of(tokenizer, taxonomy, extra_padding=padding)).logits
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_the_prior_counts_documents_with_both_parent_and_child() -> None:
    #       0 ─ 1, 2        3 ─ 4, 5        6 ─ 7
    tree = Taxonomy([str(i) for i in range(8)], [-1, 0, 0, -1, 3, 3, -1, 6])
    rows = [[0, 1], [0, 1], [0, 1, 2], [1], [0], [4], [6, 7]]  # in [1] and [4] the parent is missing
    prior = edge_prior(datasets.Dataset.from_dict({"input_ids": [[1]] * len(rows), "labels": rows}), tree)
    assert prior.tolist() == pytest.approx([1, 3 / 4, 1 / 4, 1, 1 / 2, 1 / 2, 1, 1])


@pytest.mark.parametrize("kind", KINDS)
def test_the_regularisation_keeps_its_ratio_to_the_cross_entropy(
    make_encoder, taxonomy: Taxonomy, tokenizer, kind: str
) -> None:
    """Whatever the reduction, the loss is a multiple of mean cross-entropy + weight x regularisation."""
    weight = 1e-3
    losses = {}
    batch = batch_of(tokenizer, taxonomy)
    for reduction in ("mean", "document", "sum"):
        settings = {"classification_loss": reduction, "recursive_regularisation": weight}
        model = make_model(make_encoder, taxonomy, tokenizer, kind, **settings)
        output = model(**batch)
        losses[reduction] = output.loss.item()
        assert sum(term.item() for term in output.terms.values()) == pytest.approx(output.loss.item())
    probabilities = torch.sigmoid(output.logits)
    entropy = -torch.where(batch["labels"] > 0, probabilities.log(), (1 - probabilities).log()).mean().item()
    rows = model.classifier.weight
    distance = sum(
        0.5 * (rows[parent] - rows[child]).pow(2).sum().item()
        for child, parent in enumerate(taxonomy.parents.tolist())
        if parent >= 0
    )
    method = entropy + weight * distance
    documents, labels = batch["labels"].shape
    assert losses["mean"] == pytest.approx(method, rel=1e-4)
    assert losses["document"] == pytest.approx(method * labels, rel=1e-4)
    assert losses["sum"] == pytest.approx(method * labels * documents, rel=1e-4)


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_parameter_of_a_model_gets_a_gradient(
    make_encoder, taxonomy: Taxonomy, tokenizer, kind: str, structure: str
) -> None:
    model = make_model(make_encoder, taxonomy, tokenizer, kind, structure_encoder=structure).train()
    model(**batch_of(tokenizer, taxonomy)).loss.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("kind", KINDS)
def test_saved_and_loaded_it_is_the_same_model(
    make_encoder, taxonomy: Taxonomy, tokenizer, tmp_path: Path, kind: str, structure: str
) -> None:
    model = make_model(make_encoder, taxonomy, tokenizer, kind, structure_encoder=structure)
    save(model.deployed(), tokenizer, tmp_path / "model")
    loaded = load_deployed(tmp_path / "model")
    assert type(loaded) is type(model)
    batch = batch_of(tokenizer, taxonomy)
    torch.testing.assert_close(loaded(**batch).logits, model(**batch).logits, atol=1e-6, rtol=1e-6)
    classifier = HierarchicalClassifier.load(tmp_path / "model")
    scores = torch.from_numpy(classifier.predict_proba(TEXTS))
    torch.testing.assert_close(scores, torch.sigmoid(model(**batch).logits), atol=1e-5, rtol=1e-4)


# Each kind and each structure once: how they are put together is tested for all four above.
@pytest.mark.slow
@pytest.mark.parametrize(("kind", "structure"), [("hiagm-tp", "gcn"), ("hiagm-la", "tree-lstm")])
def test_a_tiny_set_is_learned(make_encoder, toy_data: Path, tmp_path: Path, kind: str, structure: str) -> None:
    """Train and dev are the same documents. The same seed gives the same model."""
    model = {
        "encoder": without_dropout(make_encoder("bert"), tmp_path / "encoder"),
        "architecture": kind,
        "structure_encoder": structure,
        "classifier_dropout": 0.0,
        "pooling": "mean",  # what the first token of a random encoder says is hard to learn from
    }
    training = {"learning_rate": 6e-3, "batch_size": 8, "patience": 20, "precision": "fp32", "seed": 3, "epochs": 20}
    data = {"path": tiny_set(toy_data, tmp_path / "data")}
    whole, again = (
        train(
            RunConfig.model_validate({"data": data, "model": model, "training": training, "output": tmp_path / name}),
            callbacks=[stop],
        ).metrics
        for name, stop in (("whole", StopWhenLearned(0.96)), ("again", StopAfterEpoch(1)))
    )
    assert whole["dev"]["micro"]["f1"] > 0.95
    assert again["history"] == whole["history"][:1]
    assert {"loss_original", "loss_recursive"} <= set(whole["history"][0])


@pytest.mark.slow
@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.parametrize(("kind", "structure"), [("hiagm-tp", "tree-lstm"), ("hiagm-la", "gcn")])
def test_export_to_onnx_agrees_with_torch(
    make_encoder, taxonomy: Taxonomy, tokenizer, tmp_path: Path, kind: str, structure: str, int8: bool
) -> None:
    # One layer: most of a trace is the encoder, which is exported with two elsewhere.
    shallow = first_layer(make_encoder("bert"), tmp_path / "encoder")
    model = make_model(lambda _: shallow, taxonomy, tokenizer, kind, structure_encoder=structure)
    save(model.deployed(), tokenizer, tmp_path / "model")
    export = export_onnx(tmp_path / "model", tmp_path / "onnx", int8=int8)
    assert export.difference.relative < (0.5 if int8 else 1e-4)
    classifier = HierarchicalClassifier.load(tmp_path / "onnx")
    scores = torch.from_numpy(classifier.predict_proba(TEXTS))
    expected = torch.sigmoid(model(**batch_of(tokenizer, taxonomy)).logits)
    torch.testing.assert_close(scores, expected, atol=0.1 if int8 else 1e-4, rtol=0.0)


WIDTH = 6


def drawn_gcn(tree: Taxonomy, dropout: float = 0.0) -> HierarchyGCN:
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
    layer = drawn_gcn(tree)
    nodes = torch.randn(3, labels, WIDTH, dtype=torch.float64, requires_grad=True)
    found, expected = layer(nodes), by_matrices(layer, tree.parents.tolist(), nodes)
    torch.testing.assert_close(found, expected)
    weights = [nodes, *layer.parameters()]
    direction = torch.randn_like(found)
    fast = torch.autograd.grad(found, weights, direction)
    slow = torch.autograd.grad(expected, weights, direction)
    for one, other in zip(fast, slow, strict=True):
        torch.testing.assert_close(one, other)


WIDTH = 6
HALF = 3


def drawn_lstm(tree: Taxonomy, dropout: float = 0.0) -> BiTreeLSTM:
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
    layer = drawn_lstm(tree)
    nodes = torch.randn(2, labels, WIDTH, dtype=torch.float64, requires_grad=True)
    found, expected = layer(nodes), by_recursion(layer, tree, nodes)
    torch.testing.assert_close(found, expected)
    weights = [nodes, *layer.parameters()]
    direction = torch.randn_like(found)
    fast = torch.autograd.grad(found, weights, direction, allow_unused=True, materialize_grads=True)
    slow = torch.autograd.grad(expected, weights, direction, allow_unused=True, materialize_grads=True)
    for one, other in zip(fast, slow, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("kind", [*KINDS, "htcinfomax", "himatch"])
def test_new_labels_and_another_order_keep_the_logits_of_old_ones(
    make_encoder, taxonomy: Taxonomy, tokenizer, kind: str, structure: str
) -> None:
    settings = {"structure_encoder": structure, "joint_width": 5}
    model = make_model(make_encoder, taxonomy, tokenizer, kind, **settings)
    order = torch.randperm(len(taxonomy), generator=torch.Generator().manual_seed(0)).tolist()
    parents = [order.index(int(taxonomy.parents[label])) if taxonomy.parents[label] >= 0 else -1 for label in order]
    turned = Taxonomy([taxonomy.ids[label] for label in order], parents)
    grown = Taxonomy([*turned.ids, "mirror", "lake"], [*parents, turned.ids.index("optics"), -1])
    batch = {name: value for name, value in batch_of(tokenizer, taxonomy).items() if name != "labels"}
    for tree in (turned, grown):
        rates = torch.linspace(0.02, 0.4, len(tree))
        new = carry_over(model, compare(taxonomy, tree), tokenizer, rates=rates, texts=TEXTS)
        other = architecture(kind).from_encoder(make_encoder("bert"), tree, tokenizer, node_width=10, **settings)
        shapes = {name: value.shape for name, value in other.state_dict().items()}
        assert {name: value.shape for name, value in new.state_dict().items()} == shapes
        logits = new.eval()(**batch).logits[:, : len(turned)]
        torch.testing.assert_close(logits, model(**batch).logits[:, order], atol=1e-5, rtol=1e-4)
        assert new.config.taxonomy == tree
