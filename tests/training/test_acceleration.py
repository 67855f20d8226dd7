"""The faster encoder computes what the plain one does, for every kind of encoder, and saves the same."""

from __future__ import annotations

import copy

import pytest
import torch
from transformers import AutoConfig, AutoTokenizer

from hgclr.models import FlatForSequenceClassification, HGCLRForSequenceClassification
from hgclr.nn.draws import drawn_for
from hgclr.training import trainer as acceleration
from hgclr.training.fitting import add_adapters
from hgclr.training.settings import LoraSettings
from hgclr.training.trainer import accelerate_on_cpu

KINDS = ["bert", "mpnet", "roberta", "distilbert", "electra"]
TEXTS = ["quantum laser of the atom", "judge", "serve the racket in the net of the lake"]


@pytest.fixture(params=KINDS)
def pair(
    request, make_encoder, taxonomy
) -> tuple[HGCLRForSequenceClassification, HGCLRForSequenceClassification, dict[str, torch.Tensor]]:
    """A model, its accelerated copy, and a batch with padding."""
    tokenizer = AutoTokenizer.from_pretrained(make_encoder(request.param))
    torch.manual_seed(0)
    plain = HGCLRForSequenceClassification.from_encoder(make_encoder(request.param), taxonomy, tokenizer)
    fast = copy.deepcopy(plain)
    accelerate_on_cpu(fast, fast.encoder)
    encoded = tokenizer(TEXTS, padding=True, truncation=True, max_length=32, return_tensors="pt")
    labels = (torch.rand(3, len(taxonomy)) < 0.4).float()
    batch = {"input_ids": encoded["input_ids"], "attention_mask": encoded["attention_mask"], "labels": labels}
    return plain, fast, batch


def test_evaluation_is_the_same(pair) -> None:
    plain, fast, batch = pair
    plain.eval(), fast.eval()
    torch.testing.assert_close(fast(**batch).logits, plain(**batch).logits, atol=1e-5, rtol=1e-5)


def test_loss_and_gradient_are_the_same_when_nothing_is_dropped(pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """All masks are ones: what is left is attention document by document, which must be attention."""
    plain, fast, batch = pair

    def ones(shape, rate):
        return torch.ones(*shape, dtype=torch.uint8)

    for place in ("hgclr.nn.attention", "hgclr.nn.attention"):
        monkeypatch.setattr(f"{place}.keep_mask", ones)
        monkeypatch.setattr(f"{place}.kept_share", lambda _: 1.0)
    for module in plain.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        for name in ("dropout_prob", "dropout"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
    for model in (plain, fast):
        for layer in model.label_encoder.layers:
            layer.dropout.p = 0.0
    torch.manual_seed(1)
    noise = -torch.empty(*batch["input_ids"].shape, batch["labels"].shape[1]).exponential_().log()
    losses = [model.train()(**batch, noise=noise).loss for model in (plain, fast)]
    torch.testing.assert_close(losses[1], losses[0], atol=1e-5, rtol=1e-5)
    for loss in losses:
        loss.backward()
    for (name, one), (_, other) in zip(plain.named_parameters(), fast.named_parameters(), strict=True):
        torch.testing.assert_close(other.grad, one.grad, atol=1e-5, rtol=1e-4, msg=lambda m, n=name: f"{n}: {m}")


def test_encoders_of_the_common_kind_get_the_faster_attention(
    make_encoder, taxonomy, tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    real = acceleration.dropout_attention
    monkeypatch.setattr(acceleration, "dropout_attention", lambda *a, **k: calls.append(k["lengths"]) or real(*a, **k))
    encoder = make_encoder("bert")
    model = FlatForSequenceClassification.from_encoder(encoder, taxonomy, tokenizer, pooling="mean").train()
    accelerate_on_cpu(model, model.encoder)
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
    model(torch.ones(2, 4, dtype=torch.long), mask)
    assert calls == [[2, 4]] * 2  # one call per layer, the shorter text first


@pytest.mark.parametrize("compact", [False, True])
@pytest.mark.parametrize("kind", ["bert", "roberta", "electra", "distilbert"])
def test_a_batch_without_padding_has_the_same_loss_and_gradient(make_encoder, taxonomy, kind: str, compact: bool):
    """Dropout included: a document draws the same numbers in either form."""
    tokenizer = AutoTokenizer.from_pretrained(make_encoder(kind))
    torch.manual_seed(0)
    model = HGCLRForSequenceClassification.from_encoder(
        make_encoder(kind), taxonomy, tokenizer, pooling="mean", compact_positives=compact
    ).train()
    accelerate_on_cpu(model, model.encoder)
    assert model.padding_free
    tokens = []
    model.encoder.register_forward_pre_hook(
        lambda _, __, inputs: tokens.append(inputs["inputs_embeds"].shape[:2].numel()), with_kwargs=True
    )
    encoded = tokenizer(TEXTS, padding=True, truncation=True, max_length=32, return_tensors="pt")
    labels = (torch.rand(3, len(taxonomy)) < 0.4).float()
    results = []
    for packed in (False, True):
        model.padding_free = packed
        with drawn_for([4, 1, 7], 3):
            loss = model(encoded["input_ids"], encoded["attention_mask"], labels).loss
            loss.backward()
        results.append((loss.detach(), {name: value.grad for name, value in model.named_parameters()}))
        model.zero_grad()
    (expected, gradients), (loss, found) = results
    torch.testing.assert_close(loss, expected)
    for name, value in gradients.items():
        torch.testing.assert_close(
            found[name], value, atol=1e-5, rtol=1e-4, msg=lambda text, name=name: f"{name}: {text}"
        )
    texts = int(encoded["attention_mask"].sum())
    assert tokens[-1] <= texts if compact else tokens == [2 * encoded["input_ids"].numel(), 2 * texts]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("kind", "adapters"), [("bert", False), ("bert", True), ("roberta", False), ("electra", False)]
)
def test_a_last_layer_for_first_tokens_alone_has_the_same_loss_and_gradient(
    make_encoder, taxonomy, kind: str, adapters: bool, packed: bool
) -> None:
    """Dropout included: what is drawn for the first token is what it would get beside the others."""
    tokenizer = AutoTokenizer.from_pretrained(make_encoder(kind))
    torch.manual_seed(0)
    model = HGCLRForSequenceClassification.from_encoder(make_encoder(kind), taxonomy, tokenizer, pooling="cls")
    if adapters:
        add_adapters(model.encoder, LoraSettings(rank=4, dropout=0.1))
        for name, parameter in model.named_parameters():
            if "lora_B" in name:  # which begins with 0
                torch.nn.init.normal_(parameter, std=0.1)
    accelerate_on_cpu(model.train(), model.encoder)
    assert model.first_token_alone
    model.padding_free = packed
    tokens = []
    model.encoder.encoder.layer[-1].intermediate.register_forward_hook(
        lambda _, __, output: tokens.append(output.shape[:-1].numel())
    )
    encoded = tokenizer(TEXTS, padding=True, truncation=True, max_length=32, return_tensors="pt")
    labels = (torch.rand(3, len(taxonomy)) < 0.4).float()
    results = []
    for alone in (False, True):
        model.first_token_alone = alone
        with drawn_for([4, 1, 7], 3):
            loss = model(encoded["input_ids"], encoded["attention_mask"], labels).loss
            loss.backward()
        trained = {name: value.grad for name, value in model.named_parameters() if value.requires_grad}
        results.append((loss.detach(), trained))
        model.zero_grad()
    (expected, gradients), (loss, found) = results
    torch.testing.assert_close(loss, expected, atol=1e-6, rtol=1e-6)
    for name, value in gradients.items():
        torch.testing.assert_close(
            found[name], value, atol=1e-6, rtol=1e-4, msg=lambda text, name=name: f"{name}: {text}"
        )
    assert tokens[-1] == 2 * len(TEXTS) < tokens[0]


@pytest.mark.parametrize("kind", ["mpnet", "distilbert"])
def test_layers_of_another_make_are_computed_for_all_tokens(make_encoder, taxonomy, tokenizer, kind: str) -> None:
    model = FlatForSequenceClassification.from_encoder(make_encoder(kind), taxonomy, tokenizer, pooling="cls")
    accelerate_on_cpu(model, model.encoder)
    assert not model.first_token_alone


@pytest.mark.parametrize("kind", ["modernbert", "qwen3"])
def test_encoders_that_do_not_attend_to_all_tokens_keep_their_attention(kind: str, taxonomy, tokenizer) -> None:
    """ModernBERT looks at a window in most layers, and a decoder at what came before."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    config = AutoConfig.for_model(kind, vocab_size=len(tokenizer), pad_token_id=0, **sizes)
    model = FlatForSequenceClassification.from_encoder_config(config, taxonomy, tokenizer)
    own = model.encoder.config._attn_implementation
    accelerate_on_cpu(model, model.encoder)
    assert model.encoder.config._attn_implementation == own != acceleration.NAME
    assert not model.padding_free
