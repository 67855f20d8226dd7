"""Texts of more than 512 tokens: with their last special token by default, and without it as published."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import BertConfig

from hgclr.config import PRESETS, method_settings
from hgclr.export.onnx import export_onnx
from hgclr.inference import HierarchicalClassifier
from hgclr.models import FlatForSequenceClassification, HGCLRForSequenceClassification
from hgclr.models.base import save
from hgclr.training import RunConfig, TrainingSettings, fit

ROOT = Path(__file__).parents[2]
SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}


def make_model(kind, tokenizer, taxonomy, positions: int = 512, **settings):
    torch.manual_seed(0)
    encoder = BertConfig(vocab_size=len(tokenizer), max_position_embeddings=positions, **SIZES)
    model = kind.from_encoder_config(encoder, taxonomy, tokenizer, **settings)
    torch.nn.init.normal_(model.encoder.embeddings.word_embeddings.weight)  # so that a token more or less is seen
    torch.nn.init.normal_(model.classifier.weight)
    return model.eval()


def words(count: int) -> str:
    return " ".join(("atom", "judge", "net", "the", "lens")[place * place % 5] for place in range(count))


def test_the_preset_published_cuts_at_510() -> None:
    assert method_settings("published", {})["cut_length"] == 510
    assert all(method_settings(preset, {}).get("cut_length") is None for preset in ("default", "paper"))
    for corpus in ("wos", "nyt", "rcv1"):
        run = RunConfig.read(ROOT / "configs" / "published" / f"{corpus}.yaml")
        assert method_settings(run.model.preset, run.model.overrides)["cut_length"] == 510


@pytest.mark.parametrize("count", [507, 508, 509, 510, 511, 600])  # words; two special tokens come to them
def test_long_texts_lose_their_end_as_in_the_published_program(tokenizer, taxonomy, count: int) -> None:
    """That program truncates to 512 tokens, special ones included, and keeps 510 of them."""
    settings = PRESETS["published"]
    model = make_model(FlatForSequenceClassification, tokenizer, taxonomy, **settings)
    assert (model.config.max_length, model.config.cut_length) == (512, 510)
    text = words(count)
    whole = [tokenizer.convert_tokens_to_ids(word) for word in text.split()]
    read = [tokenizer.cls_token_id, *whole[:510], tokenizer.sep_token_id][:510]
    assert (read[-1] == tokenizer.sep_token_id) == (count <= 508)
    classifier = HierarchicalClassifier.from_model(model, tokenizer)
    assert [encoding.ids for encoding in classifier.encode([text])] == [read]
    with torch.no_grad():
        expected = model(torch.tensor([read]), torch.ones(1, len(read), dtype=torch.long)).logits
    (logits,) = classifier.logits([text])
    torch.testing.assert_close(torch.from_numpy(logits), expected, atol=1e-5, rtol=1e-5)
    model.config.cut_length = None
    (ours,) = HierarchicalClassifier.from_model(model, tokenizer).encode([text])
    assert len(ours.ids) == min(512, count + 2)
    assert ours.ids[-1] == tokenizer.sep_token_id


def test_training_reads_as_prediction_does(tokenizer, taxonomy) -> None:
    model = make_model(HGCLRForSequenceClassification, tokenizer, taxonomy, 24, cut_length=20, max_length=22)
    seen: list[torch.Tensor] = []
    forward = model.forward

    def watched(input_ids, attention_mask, labels=None):
        seen.append(input_ids)
        return forward(input_ids, attention_mask, labels)

    model.forward = watched
    documents = [(words(count), ["society", "law"]) for count in (3, 19, 30, 40)]
    settings = TrainingSettings(epochs=1, batch_size=2, precision="fp32", calibrate=False)
    fit(model, tokenizer, documents, documents, settings=settings, label_documents=False)
    assert max(ids.shape[1] for ids in seen) == 20
    long = [row for ids in seen for row in ids.tolist() if len(row) == 20 and row[0] == tokenizer.cls_token_id]
    assert long
    assert not any(row[-1] == tokenizer.sep_token_id for row in long)


@pytest.mark.slow
def test_an_onnx_model_reads_as_it_did(tokenizer, taxonomy, tmp_path: Path) -> None:
    model = make_model(FlatForSequenceClassification, tokenizer, taxonomy, 24, cut_length=20, max_length=22)
    save(model, tokenizer, tmp_path / "model")
    export_onnx(tmp_path / "model", tmp_path / "onnx")
    texts = [words(40), words(5)]
    ours, exported = (HierarchicalClassifier.load(tmp_path / name) for name in ("model", "onnx"))
    assert [len(encoding.ids) for encoding in exported.encode(texts)] == [20, 7]
    for one, other in zip(ours.logits(texts), exported.logits(texts), strict=True):
        torch.testing.assert_close(torch.from_numpy(one), torch.from_numpy(other), atol=1e-4, rtol=1e-4)
