"""Layers computed anew have the same gradients; adapters leave a plain encoder, and a run with them goes on."""

from __future__ import annotations

import copy
import re
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from hgclr.errors import InputError
from hgclr.inference import HierarchicalClassifier
from hgclr.models import architecture
from hgclr.models.base import load_tokenizer
from hgclr.training import RunConfig, train
from hgclr.training.fitting import add_adapters, checkpoint_layers
from hgclr.training.recipe import make_recipe
from hgclr.training.settings import LoraSettings, TrainingSettings
from hgclr.training.trainer import Collator, accelerate_on_cpu
from support.short_runs import make_run
from training.test_resuming import StopAfterSaving

TEXTS = ["quantum laser of the atom", "judge", "serve the racket in the net of the lake", "a boat"]


def model_of(kind: str, encoder: str, taxonomy, **settings):
    """A model with dropout, ready to train on a CPU, and a batch with padding."""
    tokenizer = load_tokenizer(encoder)
    torch.manual_seed(0)
    model = architecture(kind).from_encoder(encoder, taxonomy, tokenizer, keep_at_least=2, **settings)
    rows = [
        {"input_ids": tokenizer(text)["input_ids"], "labels": [number, number + 3]} for number, text in enumerate(TEXTS)
    ]
    return model, Collator(len(taxonomy), tokenizer.pad_token_id)(rows)


def gradients(model, batch) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Loss and gradient of a step with the same random numbers in every call."""
    model.train().zero_grad()
    torch.manual_seed(3)
    loss = model(**batch).loss
    loss.backward()
    return loss.detach(), {name: value.grad for name, value in model.named_parameters() if value.grad is not None}


@pytest.mark.slow
@pytest.mark.parametrize("positives", [None, "hierarchy", "dropout", "random", "adversarial"])
@pytest.mark.parametrize("kind", ["bert", "distilbert"])
def test_layers_computed_anew_have_the_same_gradients_dropout_included(make_encoder, taxonomy, kind, positives) -> None:
    settings = {} if positives is None else {"positives": positives}
    model, batch = model_of("hgclr" if positives else "flat", make_encoder(kind), taxonomy, **settings)
    accelerate_on_cpu(model)
    kept = copy.deepcopy(model)
    checkpoint_layers(model.encoder)
    calls = []
    for module in model.encoder.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.register_forward_hook(lambda *_: calls.append(1))
    loss, found = gradients(model, batch)
    expected_loss, expected = gradients(kept, batch)
    norms = sum(isinstance(module, torch.nn.LayerNorm) for module in model.encoder.modules())
    assert len(calls) > norms  # some were computed twice
    assert torch.equal(loss, expected_loss)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(found[name], value), name
    assert not torch.equal(model(**batch).loss, loss)  # dropout is there


@pytest.mark.slow
def test_a_run_with_layers_computed_anew_ends_with_the_same_weights(make_encoder, toy_data: Path, tmp_path: Path):
    weights = [
        load_file(
            train(
                make_run(make_encoder("bert"), toy_data, tmp_path / str(on), training__gradient_checkpointing=on)
            ).training_model
            / "model.safetensors"
        )
        for on in (False, True)
    ]
    assert all(torch.equal(weights[1][name], value) for name, value in weights[0].items())


def test_an_encoder_without_gradient_checkpointing_is_named(make_encoder, taxonomy) -> None:
    model, _ = model_of("flat", make_encoder("mpnet"), taxonomy)
    with pytest.raises(InputError, match="mpnet"):
        checkpoint_layers(model.encoder)


def adapt(model, **settings):
    """Put adapters into a model that already do something."""
    adapters = add_adapters(model.encoder, LoraSettings(**settings))
    torch.manual_seed(5)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.3)
    return adapters


LAYERS = {"bert": ["query", "key", "value", "dense"], "mpnet": list("qkvo"), "distilbert": ["q", "k", "v", "out"]}


@pytest.mark.slow
@pytest.mark.parametrize("system", ["flat", "hgclr"])
@pytest.mark.parametrize("kind", LAYERS)
def test_adapters_train_in_the_encoders_place_and_merge_into_it(make_encoder, taxonomy, kind: str, system: str) -> None:
    model, batch = model_of(system, make_encoder(kind), taxonomy)
    plain = {name: value.clone() for name, value in model.state_dict().items()}
    adapters = adapt(model, rank=3, alpha=6.0)
    adapted = {name.split(".base_layer")[0] for name, _ in model.encoder.named_parameters() if "base_layer" in name}
    assert len(adapted) == 2 * 4  # of two layers, and all in their attention
    assert all("attention" in name for name in adapted)
    assert {name.rpartition(".")[2].removesuffix("_lin") for name in adapted} == set(LAYERS[kind])
    _, found = gradients(model, batch)
    trained = {name for name in found if name.startswith("encoder.")}
    assert trained == {name for name in model.state_dict() if "lora_" in name}
    rest = {name for name, value in model.named_parameters() if value.requires_grad and not name.startswith("encoder.")}
    assert rest == {name for name in plain if not name.startswith("encoder.")} - dict(model.named_buffers()).keys()
    assert rest <= found.keys()

    inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
    before = model.eval()(**inputs).logits
    low_rank = {
        name: module.lora_B["default"].weight @ module.lora_A["default"].weight * 6.0 / 3
        for name, module in model.encoder.named_modules()
        if hasattr(module, "lora_A")
    }
    adapters.merge_and_unload()
    torch.testing.assert_close(model(**inputs).logits, before, atol=1e-5, rtol=1e-5)
    merged = model.state_dict()
    assert merged.keys() == plain.keys()
    for name, value in plain.items():  # by the definition: W + alpha / rank · B A
        added = low_rank.get(name.removeprefix("encoder.").removesuffix(".weight"), 0.0) if "weight" in name else 0.0
        torch.testing.assert_close(merged[name], value + added if name.endswith("weight") else value)


def test_layers_to_adapt_can_be_named(make_encoder, taxonomy) -> None:
    model, _ = model_of("flat", make_encoder("bert"), taxonomy)
    add_adapters(model.encoder, LoraSettings(targets=["intermediate.dense", "encoder.layer.1.attention.self.query"]))
    adapted = {name.split(".lora_A")[0] for name in model.state_dict() if "lora_A" in name}
    assert adapted == {f"encoder.encoder.layer.{layer}.intermediate.dense" for layer in (0, 1)} | {
        "encoder.encoder.layer.1.attention.self.query"
    }
    model, _ = model_of("flat", make_encoder("bert"), taxonomy)
    with pytest.raises(InputError, match="'querry'"):
        add_adapters(model.encoder, LoraSettings(targets=["querry"]))


@pytest.fixture(scope="module", params=["flat", "hgclr"])
def system(request) -> str:
    return request.param


LORA = {"rank": 4, "alpha": 8, "dropout": 0.1}


@pytest.fixture(scope="module")
def finished(make_encoder, toy_data: Path, tmp_path_factory: pytest.TempPathFactory, system: str) -> Path:
    output = tmp_path_factory.mktemp("adapted") / "run"
    train(make_run(make_encoder("bert"), toy_data, output, model__lora=LORA, model__architecture=system))
    return output


@pytest.mark.slow
def test_what_is_deployed_is_a_plain_encoder(
    make_encoder, toy_data: Path, finished: Path, tmp_path: Path, monkeypatch, system: str
) -> None:
    train(make_run(make_encoder("bert"), toy_data, tmp_path / "run", training__epochs=1, model__architecture=system))
    for folder in ("model", "training-model"):
        saved = load_file(finished / folder / "model.safetensors")
        other = load_file(tmp_path / "run" / folder / "model.safetensors")
        assert {name: value.shape for name, value in saved.items()} == {n: v.shape for n, v in other.items()}
    assert not list(finished.glob("*model/adapter*"))
    saved = load_file(finished / "model" / "model.safetensors")
    before = load_file(Path(make_encoder("bert")) / "model.safetensors")
    ours = {name: value for name, value in before.items() if "pooler" not in name}
    changed = {name for name, value in ours.items() if not torch.equal(saved[f"encoder.{name}"], value)}
    assert changed == {
        f"encoder.layer.{layer}.attention.{name}.weight"
        for layer in (0, 1)
        for name in ("self.query", "self.key", "self.value", "output.dense")
    }
    monkeypatch.setitem(sys.modules, "peft", None)  # it cannot be imported
    assert len(HierarchicalClassifier.load(finished / "model").predict(["a lens"])) == 1


@pytest.mark.slow
def test_a_resumed_run_with_adapters_ends_with_the_same_weights(
    make_encoder, toy_data: Path, finished: Path, tmp_path: Path, system: str
) -> None:
    settings = {"model__lora": LORA, "model__architecture": system}
    with pytest.raises(KeyboardInterrupt):
        train(make_run(make_encoder("bert"), toy_data, tmp_path / "run", **settings), callbacks=[StopAfterSaving(4)])
    for changed, message in (({**LORA, "rank": 2}, r"model\.lora\.rank .*4.* 2"), (None, r"model\.lora .* None")):
        other = make_run(make_encoder("bert"), toy_data, tmp_path / "run", **settings | {"model__lora": changed})
        with pytest.raises(InputError, match=message):
            train(other, resume=True)
    result = train(make_run(make_encoder("bert"), toy_data, tmp_path / "run", **settings), resume=True)
    for folder in ("model", "training-model"):
        found, expected = (load_file(run / folder / "model.safetensors") for run in (result.model.parent, finished))
        assert all(torch.equal(found[name], value) for name, value in expected.items())


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.lora.rnk=4", "model.lora.rnk: unknown setting; did you mean 'rank'?"),
        ("model.lora.targets=[]", "model.lora.targets is empty: name linear layers, or give auto"),
        ("training.effort=head", "model.lora adapts a pretrained encoder in training, and training.effort is head"),
    ],
)
def test_a_wrong_setting_is_named(override: str, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        RunConfig.build({"data": {"path": "d"}, "output": "o"}, ["model.lora.alpha=16", override])


def test_adapters_take_a_higher_rate_and_the_head_does_not() -> None:
    sizes = {"documents": 1000, "encoder_parameters": 85_000_000}
    for recipe in ("default", "paper"):
        for chosen in ({}, {"learning_rate": 1e-4}):
            settings = TrainingSettings(recipe=recipe, **chosen)
            plain, adapted = (make_recipe(settings, **sizes, lora=lora) for lora in (False, True))
            if not chosen:
                assert adapted.learning_rate == pytest.approx(10 * plain.learning_rate)
                assert adapted.head_learning_rate == pytest.approx(plain.head_learning_rate)
            else:
                assert adapted.learning_rate == 1e-4
                assert adapted.head_learning_rate == pytest.approx(plain.head_learning_rate / 10)
