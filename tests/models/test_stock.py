"""A class of transformers' own gives the same logits to the last bit, and becomes our model again."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, PreTrainedModel

from hgclr.models import FlatForSequenceClassification, HierarchicalPreTrainedModel, load_deployed
from hgclr.models.base import load_tokenizer
from hgclr.models.stock import from_stock, no_stock_form, to_stock

KINDS = ["bert", "roberta", "mpnet", "xlm-roberta", "camembert"]
SHAPES = [(1, 1), (1, 30), (5, 17), (16, 3)]


@pytest.fixture
def make_flat(make_encoder, taxonomy):
    """Return a function that makes an untrained model whose logits are spread out."""

    def make(
        kind: str = "bert", cls: type[HierarchicalPreTrainedModel] = FlatForSequenceClassification, **settings
    ) -> HierarchicalPreTrainedModel:
        torch.manual_seed(4)
        model = cls.from_encoder(
            make_encoder(kind), taxonomy, load_tokenizer(make_encoder(kind)), threshold=0.4, max_length=40, **settings
        )
        torch.nn.init.normal_(model.classifier.weight, std=0.5)
        torch.nn.init.normal_(model.classifier.bias)
        for weight in model.parameters():  # as files lie in memory, sums would be taken in another order
            weight.data = weight.data.clone()
        return model.eval()

    return make


def logits_of(model: PreTrainedModel, seed: int = 0) -> list[torch.Tensor]:
    """Logits of random tokens, padded to the right by random amounts."""
    torch.manual_seed(seed)
    found = []
    for rows, columns in SHAPES:
        mask = (torch.arange(columns) < torch.randint(1, columns + 1, (rows, 1))).long()
        ids = torch.where(mask == 1, torch.randint(4, 30, mask.shape), 1)
        with torch.inference_mode():
            found.append(model(input_ids=ids, attention_mask=mask).logits)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_the_same_to_the_last_bit(make_flat, kind: str) -> None:
    model = make_flat(kind)
    stock = to_stock(model)
    assert type(stock).__module__.startswith("transformers.models.")
    assert type(stock).__name__.endswith("ForSequenceClassification")
    for one, other in zip(logits_of(model), logits_of(stock), strict=True):
        assert one.abs().max() > 0.1
        assert torch.equal(one, other)


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e4])
def test_vectors_of_any_size_stay_where_tanh_is_straight(make_flat, size: float) -> None:
    model = make_flat()
    with torch.no_grad():
        model.encoder.encoder.layer[-1].output.LayerNorm.weight.mul_(size)
    for one, other in zip(logits_of(model), logits_of(to_stock(model)), strict=True):
        assert torch.equal(one, other)


def test_the_scale_leaves_room_for_every_vector_there_can_be(make_flat) -> None:
    """The largest feature that a layer norm gives is that of a vector with a single one different from the rest."""
    model = make_flat()
    norm = model.encoder.encoder.layer[-1].output.LayerNorm
    with torch.no_grad():
        torch.nn.init.normal_(norm.weight, std=3)
        torch.nn.init.normal_(norm.bias, std=3)
        scale = to_stock(model).config.hgclr["head_scale"]
        worst = max(norm(sign * 1e3 * torch.eye(32)).abs().max() for sign in (-1, 1))
        many = scale * worst * torch.linspace(-1, 1, 100_001)
    assert torch.equal(torch.tanh(many), many)
    assert 2**-14 < scale * worst <= 2**-12  # and no smaller than it must be
    assert torch.frexp(torch.tensor(scale)).mantissa == 0.5  # a power of two


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_it_becomes_our_model_again(make_flat, taxonomy, tmp_path: Path, kind: str) -> None:
    model = make_flat(kind)
    to_stock(model).save_pretrained(tmp_path)
    for loaded in (from_stock(tmp_path), load_deployed(tmp_path)):
        assert isinstance(loaded, FlatForSequenceClassification)
        weights, expected = loaded.state_dict(), model.state_dict()
        assert weights.keys() == expected.keys()
        assert all(torch.equal(weights[name], expected[name]) for name in expected)
        assert loaded.config.taxonomy == taxonomy
        assert (loaded.config.threshold, loaded.config.max_length, loaded.config.pooling) == (0.4, 40, "cls")
        assert "hgclr" not in loaded.config.text_encoder.to_dict()
    again = to_stock(from_stock(tmp_path))
    first = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert all(torch.equal(weight, first.state_dict()[name]) for name, weight in again.state_dict().items())


@pytest.mark.parametrize(
    ("kind", "cls", "settings", "reason"),
    [
        (
            "distilbert",
            FlatForSequenceClassification,
            {},
            "own class for distilbert has no head that a linear layer can be written in",
        ),
        (
            "electra",
            FlatForSequenceClassification,
            {},
            "own class for electra has no head that a linear layer can be written in",
        ),
        (
            "bert",
            FlatForSequenceClassification,
            {"pooling": "mean"},
            "reads the first token, this model's pooling is mean",
        ),
    ],
)
def test_what_has_no_stock_form_is_told_why(make_flat, kind: str, cls, settings: dict, reason: str) -> None:
    model = make_flat(kind, cls, **settings)
    assert reason in str(no_stock_form(model))
    with pytest.raises(ValueError, match=reason):
        to_stock(model)


def test_one_that_was_trained_further_is_not_taken_for_ours(make_flat, tmp_path: Path) -> None:
    stock = to_stock(make_flat())
    with torch.no_grad():
        stock.bert.pooler.dense.weight[3, 4] = 1e-9
    stock.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="its head is not the one that hgclr export wrote"):
        from_stock(tmp_path)


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_a_shift_of_the_logits_is_there_and_can_be_taken_away(make_flat, tmp_path: Path, kind: str) -> None:
    model = make_flat(kind)
    shift = np.linspace(-4, 4, model.config.label_count, dtype=np.float32)
    stock = to_stock(model, shift)
    for one, other in zip(logits_of(model), logits_of(stock), strict=True):
        torch.testing.assert_close(other, one + torch.from_numpy(shift), atol=1e-5, rtol=0)
    stock.save_pretrained(tmp_path)
    loaded = load_deployed(tmp_path)
    for one, other in zip(logits_of(model), logits_of(loaded), strict=True):
        torch.testing.assert_close(other, one, atol=2e-6, rtol=0)


def test_a_shift_for_other_labels_is_refused(make_flat, tmp_path: Path) -> None:
    to_stock(make_flat()).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["hgclr"]["logit_shift"] = [0.5, 0.25]
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"not what hgclr export writes: logit_shift has the shape \(2,\)"):
        load_deployed(tmp_path)


@pytest.mark.parametrize("broken", [{}, {"head_scale": 0.5}, "text", None])
def test_a_broken_field_of_ours_is_named(make_flat, tmp_path: Path, broken: object) -> None:
    to_stock(make_flat()).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"hgclr": broken}))
    with pytest.raises(ValueError, match="the field 'hgclr' of its configuration is not what hgclr export writes"):
        load_deployed(tmp_path)
