"""Training on a CPU takes faster dropout and attention; loss, gradient and saved files are those of the plain model."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer

from hgclr.models import FlatForSequenceClassification
from hgclr.nn.fast import CPUDropout
from hgclr.training.trainer import NAME, accelerate_on_cpu

TEXTS = ["quantum laser of the atom", "judge", "serve the racket in the net of the lake"]


@pytest.mark.parametrize("kind", ["bert", "roberta", "mpnet", "distilbert", "electra"])
def test_it_is_the_same_model(make_encoder, taxonomy, tmp_path: Path, kind: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(make_encoder(kind))
    torch.manual_seed(0)
    plain = FlatForSequenceClassification.from_encoder(make_encoder(kind), taxonomy, tokenizer, pooling="mean")
    for module in plain.modules():  # as good as none, and yet dropout
        if isinstance(module, torch.nn.Dropout):
            module.p = 1e-9
    fast = copy.deepcopy(plain)
    accelerate_on_cpu(fast)
    assert {type(module) for module in fast.modules() if isinstance(module, torch.nn.Dropout)} == {CPUDropout}
    assert (fast.encoder.config._attn_implementation == NAME) == (kind != "mpnet")
    encoded = tokenizer(TEXTS, padding=True, return_tensors="pt")
    batch = {name: encoded[name] for name in ("input_ids", "attention_mask")}
    results = []
    for model in (plain, fast):
        loss = model.train()(**batch, labels=torch.eye(3, len(taxonomy))).loss
        loss.backward()
        gradients = {name: value.grad for name, value in model.named_parameters()}
        results.append((loss, gradients, model.eval()(**batch).logits))
    torch.testing.assert_close(results[1], results[0], atol=1e-5, rtol=1e-4)
    fast.save_pretrained(tmp_path)
    assert NAME not in (tmp_path / "config.json").read_text()
