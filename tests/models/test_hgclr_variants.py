"""HGCLR's label encoders, positive samples: what is built, what it computes, that it learns."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch_geometric.nn import GATConv, GCNConv

from hgclr.models import FlatForSequenceClassification, HGCLRForSequenceClassification
from hgclr.models.base import save
from support.toy import TEXTS, batch_of, make_model

LABEL_SIDE = ("label_encoder.", "token_label_attention.", "name_tokens")

VARIANTS = {
    "graphormer": {},
    "three layers": {"label_layers": 3},
    "no name embedding": {"name_embedding": "none"},
    "no spatial encoding": {"spatial_encoding": False},
    "no edge encoding": {"edge_encoding": False},
    "published without graph encoder": {"label_embedding": False, "spatial_encoding": False, "edge_encoding": False},
    "gcn": {"label_encoder": "gcn"},
    "gcn of names": {"label_encoder": "gcn", "label_embedding": False},
    "gat": {"label_encoder": "gat"},
    "gat of names": {"label_encoder": "gat", "label_embedding": False},
    "none": {"label_encoder": "none"},
    "none of names": {"label_encoder": "none", "label_embedding": False},
    "dropout": {"positives": "dropout"},
    "random": {"positives": "random", "keep_at_least": 0},
    "adversarial": {"positives": "adversarial", "adversarial_size": 0.1},  # a text here has a norm of about 0.3
}


@pytest.mark.parametrize("settings", [{}, {"label_span": 3}, {"label_layers": 2}])
def test_padding_is_drawn_saved_and_never_trained(
    make_encoder, taxonomy, tmp_path: Path, caplog: pytest.LogCaptureFixture, settings: dict[str, int]
) -> None:
    model, tokenizer = make_model(make_encoder, taxonomy, edge_padding="drawn", **settings)
    padding = model.label_encoder.structure.padding.clone()
    assert 0 < abs(padding) < 0.1
    assert "edge_padding: drawn" in caplog.text

    batch = batch_of(tokenizer, taxonomy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(**batch).loss
        assert loss.isfinite()
        loss.backward()
        optimizer.step()
    assert model.label_encoder.structure.padding == padding
    save(model, tokenizer, tmp_path)
    again = HGCLRForSequenceClassification.from_pretrained(tmp_path)
    assert again.label_encoder.structure.padding == padding
    torch.testing.assert_close(again.label_features(), model.eval().label_features())
    other = HGCLRForSequenceClassification.from_pretrained(tmp_path, edge_padding="zero")
    assert other.label_encoder.structure.padding is None


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_trains_all_that_is_built(make_encoder, taxonomy, tmp_path: Path, variant: str) -> None:
    model, tokenizer = make_model(make_encoder, taxonomy, **VARIANTS[variant])
    model.encoder.train()
    batch = batch_of(tokenizer, taxonomy)
    model(**batch).loss.backward()
    without = [name for name, parameter in model.named_parameters() if parameter.grad is None]
    assert not without
    # A key's bias moves all logits of a softmax alike, and a layer without structure has one softmax only.
    idle = [name for name, parameter in model.named_parameters() if not parameter.grad.any()]
    assert all(name.endswith(("key.bias", "k_proj.bias")) for name in idle), idle

    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses: list[float] = []
    while len(losses) < 40 and not (losses and losses[-1] < losses[0] / 4):
        optimizer.zero_grad()
        output = model(**batch)
        output.loss.backward()
        optimizer.step()
        losses.append(float(output.terms["loss_original"]))
    assert losses[-1] < losses[0] / 4

    model.save_pretrained(tmp_path / "full")
    again, inputs = (
        HGCLRForSequenceClassification.from_pretrained(tmp_path / "full"),
        (batch["input_ids"], batch["attention_mask"]),
    )
    torch.testing.assert_close(again.state_dict(), model.state_dict())
    flat = FlatForSequenceClassification.from_pretrained(tmp_path / "full").eval()
    torch.testing.assert_close(flat(*inputs).logits, model.eval()(*inputs).logits)
    if model.config.positives == "hierarchy":
        torch.testing.assert_close(again.eval().label_features(), model.label_features())


@pytest.mark.parametrize("positives", ["dropout", "random", "adversarial"])
def test_samples_that_labels_do_not_choose_need_no_label_side(make_encoder, taxonomy, positives: str) -> None:
    model, _ = make_model(make_encoder, taxonomy, positives=positives)
    assert not [name for name in model.state_dict() if name.startswith(LABEL_SIDE)]
    guided, _ = make_model(make_encoder, taxonomy)
    assert set(model.state_dict()) == {name for name in guided.state_dict() if not name.startswith(LABEL_SIDE)}


def test_the_label_encoder_is_the_one_that_was_asked_for(make_encoder, taxonomy) -> None:
    built = {
        kind: make_model(make_encoder, taxonomy, label_encoder=kind)[0].label_encoder for kind in ("gcn", "gat", "none")
    }
    assert isinstance(built["gcn"].convolution, GCNConv)
    assert isinstance(built["gat"].convolution, GATConv)
    assert [name for name, _ in built["none"].named_parameters()] == ["label_embedding.weight"]
    names_only, _ = make_model(make_encoder, taxonomy, label_encoder="none", label_embedding=False)
    torch.testing.assert_close(names_only.label_features(), names_only.name_embeddings())


@pytest.mark.parametrize("kind", ["gcn", "gat"])
def test_graph_convolutions_start_as_torch_geometric_has_them(make_encoder, taxonomy, kind: str) -> None:
    model, _ = make_model(make_encoder, taxonomy, label_encoder=kind)
    theirs = {"gcn": GCNConv, "gat": GATConv}[kind](32, 32)
    for (name, ours), other in zip(
        model.label_encoder.convolution.named_parameters(), theirs.parameters(), strict=True
    ):
        if name == "bias":
            assert not ours.any()
        else:  # uniform up to the same limit; the largest of many draws is just below it
            assert ours.abs().max().item() == pytest.approx(other.abs().max().item(), rel=0.15)
            assert ours.mean().item() == pytest.approx(0.0, abs=0.2 * other.abs().max().item())


def test_by_dropout_both_views_are_the_same_text(make_encoder, taxonomy) -> None:
    model, tokenizer = make_model(make_encoder, taxonomy, positives="dropout")
    terms = model(**batch_of(tokenizer, taxonomy)).terms
    torch.testing.assert_close(terms["loss_original"], terms["loss_positive"])
    assert float(terms["kept"]) == 1.0
    model.dropout.p = 0.1
    terms = model(**batch_of(tokenizer, taxonomy)).terms
    assert float(terms["loss_original"]) != float(terms["loss_positive"])


def test_random_samples_drop_the_words_that_were_drawn(make_encoder, taxonomy) -> None:
    model, tokenizer = make_model(make_encoder, taxonomy, positives="random", keep_at_least=0)
    batch = batch_of(tokenizer, taxonomy)
    words = model.encoder.get_input_embeddings()(batch["input_ids"])
    torch.manual_seed(1)
    weights, _ = model.positive_weights(batch["input_ids"], words, batch["attention_mask"], batch["labels"])
    assert sorted(weights.unique().tolist()) == [0.0, 1.0]
    special = (batch["input_ids"] == tokenizer.cls_token_id) | (batch["input_ids"] == tokenizer.sep_token_id)
    assert (weights[special] == 1).all()
    torch.manual_seed(1)
    found = model(**batch).terms["loss_positive"]
    vectors = model.encode(batch["attention_mask"], inputs_embeds=words * weights.unsqueeze(-1))
    loss = torch.nn.functional.binary_cross_entropy_with_logits(
        model.classifier(vectors), batch["labels"], reduction="sum"
    )
    torch.testing.assert_close(found, loss.detach() / len(TEXTS), atol=1e-5, rtol=1e-5)


def loss_per_text(
    model: HGCLRForSequenceClassification, batch: dict[str, torch.Tensor], words: torch.Tensor
) -> torch.Tensor:
    logits = model.classifier(model.encode(batch["attention_mask"], inputs_embeds=words))
    loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, batch["labels"], reduction="none")
    return loss.sum(1)


@pytest.mark.parametrize("reduction", ["sum", "mean", "document"])
def test_an_adversarial_move_raises_every_texts_loss_by_its_slope(make_encoder, taxonomy, reduction: str) -> None:
    model, tokenizer = make_model(make_encoder, taxonomy, positives="adversarial", classification_loss=reduction)
    model.double()
    batch = batch_of(tokenizer, taxonomy, extra_padding=3)
    words = model.encoder.get_input_embeddings()(batch["input_ids"]).detach()
    model.config.adversarial_size = 1e-5
    move = model.adversarial_move(words, batch["attention_mask"], batch["labels"])
    assert not move.requires_grad
    assert (move[batch["attention_mask"] == 0] == 0).all()
    torch.testing.assert_close(move.flatten(1).norm(dim=1), torch.full((4,), 1e-5, dtype=torch.float64))
    with torch.no_grad():
        before, after = loss_per_text(model, batch, words), loss_per_text(model, batch, words + move)
    for text in range(4):
        leaf = words.clone().requires_grad_()
        (slope,) = torch.autograd.grad(loss_per_text(model, batch, leaf)[text], leaf)
        assert float(after[text] - before[text]) == pytest.approx(1e-5 * float(slope.norm()), rel=1e-2)


def test_adversarial_training_uses_the_move_and_touches_no_gradient_before_the_end(make_encoder, taxonomy) -> None:
    model, tokenizer = make_model(make_encoder, taxonomy, positives="adversarial", adversarial_size=0.5)
    batch = batch_of(tokenizer, taxonomy)
    marks = {name: torch.full_like(parameter, 3.0) for name, parameter in model.named_parameters()}
    for name, parameter in model.named_parameters():
        parameter.grad = marks[name].clone()
    output = model(**batch)
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter.grad, marks[name]), name
    words = model.encoder.get_input_embeddings()(batch["input_ids"])
    move = model.adversarial_move(words, batch["attention_mask"], batch["labels"])
    expected = loss_per_text(model, batch, words + move).mean()
    torch.testing.assert_close(output.terms["loss_positive"], expected.detach(), atol=1e-5, rtol=1e-5)
    assert float(output.terms["loss_positive"]) > float(output.terms["loss_original"])
    assert float(output.terms["kept"]) == 1.0

    # The move is a constant in the gradient: the same as that of the two losses at fixed moved embeddings.
    model.zero_grad()
    output.loss.backward()
    found = model.encoder.get_input_embeddings().weight.grad.clone()
    model.zero_grad()
    model.adversarial_move = lambda *_: move
    model(**batch).loss.backward()
    torch.testing.assert_close(found, model.encoder.get_input_embeddings().weight.grad, atol=1e-6, rtol=1e-5)
