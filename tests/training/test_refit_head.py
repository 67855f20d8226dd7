"""The head that is fitted once more at the end of training: when it stays, and when there is one."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import datasets
import numpy as np
import pytest
import torch

from hgclr.data.folder import Document
from hgclr.data.tokens import tokenize_documents
from hgclr.models import FlatForSequenceClassification
from hgclr.models.base import load_tokenizer
from hgclr.taxonomy import Taxonomy
from hgclr.training import RunConfig, train
from hgclr.training.head import fit_head, refit_head, tune_decisions
from hgclr.training.trainer import Collator

WORDS = ["atom", "laser", "court", "judge", "lens", "boat"]


@pytest.mark.parametrize("alike", [True, False])
def test_a_new_head_stays_unless_the_old_one_is_better_on_dev(make_encoder, alike: bool) -> None:
    """In one dev labels mean what they mean in train, in the other the contrary, as the old head has it."""
    tokenizer = load_tokenizer(make_encoder("bert"))
    tree = Taxonomy(["court", "lens"], [-1, -1])
    torch.manual_seed(0)
    model = FlatForSequenceClassification.from_encoder(make_encoder("bert"), tree, tokenizer, pooling="mean").eval()
    random, collator = np.random.default_rng(0), Collator(len(tree), tokenizer.pad_token_id)

    def documents(count: int, *, as_named: bool) -> datasets.Dataset:
        rows = []
        for _ in range(count):
            words = random.choice(WORDS, 4)
            rows.append(Document(" ".join(words), tuple(np.flatnonzero(np.isin(tree.ids, words) == as_named).tolist())))
        return tokenize_documents(rows, tokenizer, max_length=16)

    fit_head(model, documents(80, as_named=False), collator)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    dev, encoded = documents(40, as_named=alike), []
    recipe, found = refit_head(model, documents(80, as_named=True), dev, collator, seed=0, on_documents=encoded.append)
    assert sum(encoded) == 80
    assert recipe["kept"] is alike
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == ({"classifier.weight", "classifier.bias"} if alike else set())
    # The decisions are those of the head that stayed.
    again = tune_decisions(model, dev, collator, seed=0)
    assert found.after == again.after
    assert found.after.micro_f1 > 0.8


@pytest.mark.parametrize(
    ("model", "training", "refits"),
    [
        ({}, {}, None),
        ({"architecture": "hgclr"}, {}, None),
        ({}, {"refit_head": True}, True),
        ({}, {"refit_head": False}, False),
        ({"preset": "paper"}, {}, False),
        ({"preset": "published", "architecture": "flat"}, {"refit_head": True}, True),
        ({}, {"effort": "head"}, False),
    ],
)
def test_linear_heads_of_the_default_preset_may_be_fitted_again(
    model: dict, training: dict, refits: bool | None
) -> None:
    run = RunConfig(data={"path": "d"}, model=model, training=training, output="o")
    assert run.refits_head is run.resolved_training.refit_head is refits


@pytest.mark.slow
@pytest.mark.parametrize("many", [100, 200])
def test_the_head_is_fitted_again_where_documents_are_many(
    make_encoder, toy_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, many: int
) -> None:
    """96 documents and those of nine labels."""
    monkeypatch.setattr("hgclr.training.fitting.MANY_DOCUMENTS", many)
    training = {"epochs": 1, "precision": "fp32"}
    model = {"encoder": make_encoder("bert"), "pooling": "mean"}
    run = RunConfig(data={"path": toy_data}, model=model, training=training, output=tmp_path / "run")
    result = train(run)
    fitted = result.metrics["recipe"].get("refit_head")
    assert (fitted is None) is (many == 200)
    if fitted is not None:  # after one epoch, a toy's head has hardly begun to learn
        assert fitted["kept"]
        assert result.calibrated is not None
        assert result.metrics["tuned"]["dev"]["after"] == asdict(result.calibrated.after)
