"""HiAGM as a whole: literal equations, the prior, the loss, what trains, padding, files, whole runs."""

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
    HiAGMLAForSequenceClassification,
    HiAGMPreTrainedModel,
    HiAGMTPForSequenceClassification,
    edge_prior,
)
from hgclr.taxonomy import Taxonomy
from hgclr.training import RunConfig, train
from support.learned import StopWhenLearned
from support.tiny_set import StopAfterEpoch, first_layer, tiny_set, without_dropout
from support.toy import TEXTS, batch_of

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


def test_labels_decide_what_is_attended_to(make_encoder, taxonomy: Taxonomy, tokenizer) -> None:
    """In the released program's setting they did not: a softmax over one position is 1."""
    model = make_model(make_encoder, taxonomy, tokenizer, "hiagm-la")
    assert isinstance(model, HiAGMLAForSequenceClassification)
    batch = batch_of(tokenizer, taxonomy)
    before = model(**batch).logits
    with torch.no_grad():
        model.label_embedding.weight.add_(torch.randn_like(model.label_embedding.weight))
    assert ((model(**batch).logits - before).abs().amax(1) > 1e-3).all()


def test_token_vectors_of_the_right_size_are_not_projected(make_encoder, taxonomy: Taxonomy, tokenizer) -> None:
    model = make_model(make_encoder, taxonomy, tokenizer, "hiagm-la", node_width=32)
    assert isinstance(model, HiAGMLAForSequenceClassification)
    assert not list(model.token_projection.parameters())
    batch = batch_of(tokenizer, taxonomy)
    torch.testing.assert_close(model(**batch).logits, literal_logits(model, batch), atol=1e-4, rtol=1e-4)


def test_the_prior_counts_documents_with_both_parent_and_child() -> None:
    #       0 ─ 1, 2        3 ─ 4, 5        6 ─ 7
    tree = Taxonomy([str(i) for i in range(8)], [-1, 0, 0, -1, 3, 3, -1, 6])
    rows = [[0, 1], [0, 1], [0, 1, 2], [1], [0], [4], [6, 7]]  # in [1] and [4] the parent is missing
    prior = edge_prior(datasets.Dataset.from_dict({"input_ids": [[1]] * len(rows), "labels": rows}), tree)
    assert prior.tolist() == pytest.approx([1, 3 / 4, 1 / 4, 1, 1 / 2, 1 / 2, 1, 1])


@pytest.mark.parametrize("structure", STRUCTURES)
def test_prepare_starts_the_edges_down_at_the_prior(
    make_encoder, taxonomy: Taxonomy, tokenizer, structure: str
) -> None:
    model = make_model(make_encoder, taxonomy, tokenizer, "hiagm-tp", structure_encoder=structure)
    rows = [taxonomy.closure([label]).tolist() for label in taxonomy.leaves for _ in range(label + 1)]
    documents = datasets.Dataset.from_dict({"input_ids": [[1]] * len(rows), "labels": rows})
    model.prepare(documents)
    assert torch.equal(model.structure.down, edge_prior(documents, taxonomy))
    for parent in set(taxonomy.parents.tolist()) - {-1}:
        assert model.structure.down[taxonomy.children(parent).tolist()].sum().item() == pytest.approx(1)


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


def test_dropouts_of_their_own(make_encoder, taxonomy: Taxonomy, tokenizer) -> None:
    """Half of the nodes' features, or of the label embeddings, is 0 in training; all other dropout is off."""
    batch = batch_of(tokenizer, taxonomy)
    seen: list[torch.Tensor] = []
    for kind, settings in (("hiagm-tp", {"feature_dropout": 0.5}), ("hiagm-la", {"label_embedding_dropout": 0.5})):
        model = make_model(make_encoder, taxonomy, tokenizer, kind, **settings).train()
        model.encoder.eval()
        model.structure.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
        model(**batch)
        assert 0.35 < (seen[-1] == 0).float().mean() < 0.65
        model.eval()
        model(**batch)
        assert not (seen[-1] == 0).any()


def test_without_regularisation_there_is_no_such_term(make_encoder, taxonomy: Taxonomy, tokenizer) -> None:
    model = make_model(make_encoder, taxonomy, tokenizer, "hiagm-tp", recursive_regularisation=0.0)
    assert set(model(**batch_of(tokenizer, taxonomy)).terms) == {"loss_original"}


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_parameter_gets_a_gradient(
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
