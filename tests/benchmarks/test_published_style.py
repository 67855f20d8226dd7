"""The yardstick computes the same as the product, so that their speeds may be compared."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from sklearn.metrics import f1_score
from transformers import AutoTokenizer

from hgclr.config import PRESETS
from hgclr.models import HGCLRForSequenceClassification
from published_style import PublishedStyle, pad_to_512, score_label_by_label

TEXTS = ["quantum laser of the atom", "judge", "serve the racket in the net of the lake"]
GOLD = [[3, 4], [6, 7], [6, 8]]


@pytest.fixture
def model(make_encoder, taxonomy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HGCLRForSequenceClassification:
    monkeypatch.setattr("published_style.LENGTH", 24)  # the tiny encoder has 64 positions
    tokenizer = AutoTokenizer.from_pretrained(make_encoder("bert"))
    torch.manual_seed(0)
    settings = PRESETS["published"] | {"keep_threshold": 0.2, "label_dropout": 0.0, "contrastive_dropout": 0.0}
    model = HGCLRForSequenceClassification.from_encoder(
        make_encoder("bert"), taxonomy, tokenizer, classifier_dropout=0.0, **settings
    )
    for parameter in model.label_encoder.structure.parameters():
        torch.nn.init.normal_(parameter)
    for part in (model.token_label_attention, model.projection, model.classifier):
        for parameter in part.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
    model.train()
    model.encoder.eval()
    return model.double()


def rows(tokenizer) -> list[dict]:
    return [
        {"input_ids": tokenizer(text, truncation=False, padding=False)["input_ids"], "labels": gold}
        for text, gold in zip(TEXTS, GOLD, strict=True)
    ]


def test_the_yardstick_has_the_same_loss_and_gradient(
    model: HGCLRForSequenceClassification, tokenizer, taxonomy
) -> None:
    batch = pad_to_512(rows(tokenizer), len(taxonomy), tokenizer.pad_token_id)
    batch["labels"] = batch["labels"].double()
    noise = -torch.empty(*batch["input_ids"].shape, len(taxonomy), dtype=torch.double).exponential_().log()
    yardstick = PublishedStyle(model)
    ours, theirs = model(**batch, noise=noise).loss, yardstick(**batch, noise=noise)
    torch.testing.assert_close(theirs, ours, atol=1e-8, rtol=1e-6)
    parameters = [p for p in model.parameters() if p.requires_grad]
    for one, other in zip(torch.autograd.grad(ours, parameters), torch.autograd.grad(theirs, parameters), strict=True):
        torch.testing.assert_close(other, one, atol=1e-8, rtol=1e-5)


def test_its_test_loop_scores_as_scikit_learn(model: HGCLRForSequenceClassification, tokenizer, taxonomy) -> None:
    model.eval()
    batch = pad_to_512(rows(tokenizer), len(taxonomy), tokenizer.pad_token_id)
    predicted = torch.sigmoid(model(batch["input_ids"], batch["attention_mask"]).logits) > 0.5
    scores = score_label_by_label(model, iter([batch]))
    assert scores["micro_f1"] == pytest.approx(f1_score(batch["labels"], predicted, average="micro"))
    assert scores["macro_f1"] == pytest.approx(f1_score(batch["labels"], predicted, average="macro", zero_division=0))
