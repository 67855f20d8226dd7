"""The flat model: pooling by hand, and the head that starts from the labels' names."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hgclr.models import FlatForSequenceClassification
from hgclr.models.base import load_tokenizer
from hgclr.nn import fast
from hgclr.training import RunConfig, TrainingSettings, fit, fitting
from hgclr.training.run import new_model


@pytest.fixture
def tokenizer(make_encoder):
    return load_tokenizer(make_encoder("bert"))


@pytest.mark.parametrize("pooling", ["cls", "mean", "max"])
def test_texts_are_pooled_over_their_real_tokens(make_encoder, taxonomy, tokenizer, pooling: str) -> None:
    model = FlatForSequenceClassification.from_encoder(
        make_encoder("bert"), taxonomy, tokenizer, pooling=pooling
    ).eval()
    batch = tokenizer(["one two three", "four"], padding=True, return_tensors="pt")
    found = model.encode(batch["attention_mask"], input_ids=batch["input_ids"])
    for row, text in zip(found, ["one two three", "four"], strict=True):
        hidden = model.encoder(**tokenizer([text], return_tensors="pt")).last_hidden_state[0].detach().numpy()
        expected = {"cls": hidden[0], "mean": hidden.mean(0), "max": hidden.max(0)}[pooling]
        np.testing.assert_allclose(row.detach().numpy(), expected, atol=1e-5)


@pytest.mark.parametrize("block", [2**14, 8])
def test_the_head_starts_where_the_encoder_puts_the_names(
    make_encoder, taxonomy, tokenizer, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(fast, "NAME_TOKENS", block)
    model = FlatForSequenceClassification.from_encoder(make_encoder("bert"), taxonomy, tokenizer).train()
    model.start_from_names(tokenizer)
    assert model.training
    model.eval()
    vectors = np.array(
        [
            model.encoder(**tokenizer([name], return_tensors="pt")).last_hidden_state[0, 0].detach().numpy()
            for name in taxonomy.names
        ]
    )
    centred = vectors - vectors.mean(0)
    expected = centred / np.linalg.norm(centred, axis=1, keepdims=True)
    np.testing.assert_allclose(model.classifier.weight.detach().numpy(), expected, atol=1e-4)


@pytest.mark.parametrize(("settings", "starts"), [({}, True), ({"preset": "paper"}, False)])
def test_a_run_starts_from_names_unless_it_follows_the_paper(
    make_encoder, toy_data, tmp_path, monkeypatch, settings: dict[str, str], starts: bool
) -> None:
    model_settings = {"encoder": make_encoder("bert"), "architecture": "flat", **settings}
    run = RunConfig(data={"path": toy_data}, model=model_settings, output=tmp_path / "run")
    torch.manual_seed(0)
    model, tokenizer, _ = new_model(run)
    started = model.classifier.weight.detach().clone()
    seen: list[torch.Tensor] = []
    monkeypatch.setattr(
        fitting, "fit_head", lambda model, *_, **__: seen.append(model.classifier.weight.detach().clone()) or {}
    )
    fit(model, tokenizer, [("atom", ["physics"])] * 20, settings=TrainingSettings(effort="head", calibrate=False))
    model.start_from_names(tokenizer, length=fitting.FROZEN_LENGTH)
    assert torch.allclose(seen[0], model.classifier.weight, atol=1e-6) == starts
    assert torch.allclose(seen[0], started) != starts
