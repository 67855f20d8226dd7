"""HTCInfoMax: its objective and losses against loops, files, whole runs."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from hgclr.paper.models.hiagm import HiAGMLAForSequenceClassification
from hgclr.paper.models.htcinfomax import (
    HTCInfoMaxForSequenceClassification,
    PriorDiscriminator,
    other_documents,
    prior_matching_loss,
)
from hgclr.taxonomy import Taxonomy
from hgclr.training import RunConfig, train
from support.short_runs import StopAfterEpoch, StopWhenLearned, tiny_set, without_dropout
from support.toy import GOLD, TEXTS, batch_of, check_it_is_deployed_as, check_saved_and_loaded

ADDED = ("label_projection.", "text_discriminator.", "prior_discriminator.", "information_gate.")


def make_model(make_encoder, taxonomy: Taxonomy, tokenizer, **settings) -> HTCInfoMaxForSequenceClassification:
    """Return a model in training mode without dropout, its new weights large enough to matter."""
    torch.manual_seed(0)
    settings = {"node_width": 10, "classifier_dropout": 0.0, "structure_dropout": 0.0} | settings
    model = HTCInfoMaxForSequenceClassification.from_encoder(make_encoder("bert"), taxonomy, tokenizer, **settings)
    for name, parameter in model.named_parameters():
        if not name.startswith("encoder."):
            torch.nn.init.normal_(parameter, std=0.1)
    model.train()
    model.encoder.eval()
    return model


def literal_terms(
    model: HTCInfoMaxForSequenceClassification, batch: dict[str, Tensor], shift: int, drawn: Tensor
) -> dict[str, Tensor]:
    """The two losses and the gate, one text without padding and one pair at a time, from sigmoids and logarithms."""
    texts = []
    for ids, mask in zip(batch["input_ids"], batch["attention_mask"], strict=True):
        tokens = model.encoder(input_ids=ids[: int(mask.sum())][None]).last_hidden_state[0]
        texts.append(torch.stack([model.token_projection(token) for token in tokens]))
    projected = [model.label_projection.weight @ feature for feature in model.label_features()]
    discriminator = model.text_discriminator

    def score(document: int, text: Tensor) -> Tensor:
        gold = [label for label in range(len(projected)) if batch["labels"][document, label]]
        y = sum(projected[label] for label in gold) / len(gold)
        found = F.relu(discriminator.first_convolution(text.T[None]))
        mean = discriminator.second_convolution(found)[0].mean(1)
        return discriminator.score(torch.cat([y, mean]))[0]

    count = len(texts)
    information = torch.zeros(())
    for document in range(count):
        right, wrong = score(document, texts[document]), score(document, texts[(document - shift) % count])
        information = information - (torch.sigmoid(right).log() + torch.sigmoid(-wrong).log()) / count
    prior = torch.zeros(())
    for u, y in zip(drawn, projected, strict=True):
        told = [torch.sigmoid(model.prior_discriminator(x))[0] for x in (u, y)]
        prior = prior - (told[0].log() + (1 - told[1]).log()) / len(projected)
    mean_text = sum(text.mean(0) for text in texts) / count
    weights = model.information_gate
    gate = torch.sigmoid(
        weights.text.weight[0] @ mean_text + weights.labels.weight[0] @ torch.cat(projected) + weights.labels.bias[0]
    )
    return {"loss_information": information, "loss_prior": prior, "gate": gate}


@pytest.mark.parametrize("padding", [0, 5])
@pytest.mark.parametrize("reduction", ["mean", "document", "sum"])
def test_the_objective_literally(make_encoder, taxonomy: Taxonomy, tokenizer, reduction: str, padding: int) -> None:
    """The added losses keep their ratio to the cross-entropy in every reduction, and padding changes nothing."""
    model = make_model(make_encoder, taxonomy, tokenizer, classification_loss=reduction)
    torch.manual_seed(9)
    output = model(**batch_of(tokenizer, taxonomy, extra_padding=padding))
    torch.manual_seed(9)
    shift, drawn = int(torch.randint(1, 4, ())), torch.rand(len(taxonomy), 10)
    batch = batch_of(tokenizer, taxonomy)
    expected = literal_terms(model, batch, shift, drawn)
    scale = {"mean": 1, "document": len(taxonomy), "sum": 4 * len(taxonomy)}[reduction]
    for name in ("loss_information", "loss_prior"):
        torch.testing.assert_close(output.terms[name], (scale * expected[name]).detach(), atol=1e-4, rtol=1e-4)
    gate = output.terms["gate"]
    torch.testing.assert_close(gate, expected["gate"].detach(), atol=1e-5, rtol=1e-4)
    assert 0.01 < abs(gate - 0.5) < 0.4  # else the gate is not exercised
    whole = output.terms["loss_original"] + output.terms["loss_recursive"]
    whole = whole + gate * output.terms["loss_information"] + (1 - gate) * output.terms["loss_prior"]
    torch.testing.assert_close(output.loss.detach(), whole)


def test_every_parameter_is_trained(make_encoder, taxonomy: Taxonomy, tokenizer) -> None:
    """Discriminators and gate too: the released program's optimiser did not know of them."""
    model = make_model(make_encoder, taxonomy, tokenizer)
    for documents in (4, 1):
        model.zero_grad()
        model(**batch_of(tokenizer, taxonomy, TEXTS[:documents], GOLD[:documents])).loss.backward()
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None, name
            if documents > 1:
                assert parameter.grad.abs().sum() > 0, name
    names = {name for name, _ in model.named_parameters()}
    assert all(any(name.startswith(part) for name in names) for part in ADDED)


def test_evaluation_mode_is_hiagm(make_encoder, taxonomy: Taxonomy, tokenizer) -> None:
    model = make_model(make_encoder, taxonomy, tokenizer).eval()
    check_it_is_deployed_as(HiAGMLAForSequenceClassification, model, batch_of(tokenizer, taxonomy))


def test_saved_and_loaded_it_predicts_the_same(
    make_encoder, taxonomy: Taxonomy, tokenizer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = make_model(make_encoder, taxonomy, tokenizer).eval()
    expected = model(**batch_of(tokenizer, taxonomy)).logits
    caplog.clear()
    check_saved_and_loaded(HiAGMLAForSequenceClassification, model, tokenizer, expected, ADDED, tmp_path)
    assert not caplog.records  # what is for training only is left out without a word


def make_run(encoder: str, data: Path, output: Path, model: dict, **training) -> RunConfig:
    settings = {"learning_rate": 3e-3, "precision": "fp32", "seed": 3, "calibrate": False}
    return RunConfig.model_validate(
        {
            "data": {"path": data},
            "model": {"encoder": encoder, "architecture": "htcinfomax"} | model,
            "training": settings | training,
            "output": output,
        }
    )


@pytest.mark.slow
def test_a_tiny_set_is_learned_and_a_seed_decides_all(make_encoder, toy_data: Path, tmp_path: Path) -> None:
    """Train and dev are the same documents."""
    data = tiny_set(toy_data, tmp_path / "data")
    encoder = without_dropout(make_encoder("bert"), tmp_path / "encoder")
    model = {"node_width": 64, "classifier_dropout": 0.0, "structure_dropout": 0.0}
    whole, again = (
        train(
            make_run(encoder, data, tmp_path / name, model, epochs=12, patience=12, batch_size=8), callbacks=[stop]
        ).metrics
        for name, stop in (("whole", StopWhenLearned(0.96)), ("again", StopAfterEpoch(1)))
    )
    assert whole["dev"]["micro"]["f1"] > 0.95
    assert again["history"] == whole["history"][:1]


WIDTH = 5


def test_the_prior_matching_loss_by_loops() -> None:
    torch.manual_seed(3)
    discriminator = PriorDiscriminator(WIDTH)
    drawn, labels = torch.rand(6, WIDTH), torch.randn(6, WIDTH)
    expected = 0.0
    for u, y in zip(drawn, labels, strict=True):
        told = [1 / (1 + math.exp(-discriminator(x).item())) for x in (u, y)]
        expected -= (math.log(told[0]) + math.log(1 - told[1])) / 6
    assert prior_matching_loss(discriminator, labels, drawn).item() == pytest.approx(expected, rel=1e-5)


def test_no_document_is_its_own_other_and_each_is_one() -> None:
    torch.manual_seed(5)
    seen = set()
    for _ in range(200):
        others = other_documents(5).tolist()
        assert sorted(others) == list(range(5))
        assert all(other != document for document, other in enumerate(others))
        seen.add(others[0])
    assert seen == {1, 2, 3, 4}
    assert other_documents(2).tolist() == [1, 0]
    assert other_documents(1).tolist() == [0]
