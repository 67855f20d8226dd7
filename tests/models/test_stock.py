"""Forms for transformers and sentence-transformers: the same logits, and our model again, weights to the last bit."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from hgclr.models import FlatForSequenceClassification, load_deployed
from hgclr.models.base import load_tokenizer
from hgclr.models.stock import from_modules, from_stock, no_stock_form, to_stock, write_modules
from hgclr.taxonomy import Taxonomy
from hgclr.taxonomy.tree import read_model_tree

SHAPES = [(1, 1), (1, 30), (5, 17), (16, 3)]


@pytest.fixture
def make_flat(make_encoder, taxonomy):
    """Return a function that makes an untrained model whose logits are spread out."""

    def make(kind: str = "bert", pooling: str = "cls") -> FlatForSequenceClassification:
        torch.manual_seed(4)
        tokenizer = load_tokenizer(make_encoder(kind))
        settings = {"threshold": 0.4, "max_length": 40, "pooling": pooling}
        model = FlatForSequenceClassification.from_encoder(make_encoder(kind), taxonomy, tokenizer, **settings)
        torch.nn.init.normal_(model.classifier.weight, std=0.5)
        torch.nn.init.normal_(model.classifier.bias)
        for weight in model.parameters():  # as files lie in memory, sums would be taken in another order
            weight.data = weight.data.clone()
        return model.eval()

    return make


def logits_of(model: PreTrainedModel) -> list[torch.Tensor]:
    """Logits of random tokens, padded to the right by random amounts."""
    torch.manual_seed(0)
    found = []
    for rows, columns in SHAPES:
        mask = (torch.arange(columns) < torch.randint(1, columns + 1, (rows, 1))).long()
        ids = torch.where(mask == 1, torch.randint(4, 30, mask.shape), 1)
        with torch.inference_mode():
            found.append(model(input_ids=ids, attention_mask=mask).logits)
    return found


def test_several_parents_codes_and_alternative_names_stay_in_every_form(make_flat, tmp_path: Path) -> None:
    model = make_flat()
    tree = model.config.taxonomy
    further: list[tuple[int, ...]] = [()] * len(tree)
    further[tree.resolve("optics")] = (tree.resolve("society"),)
    codes = [f"{index}." for index in range(len(tree))]
    graph = Taxonomy(
        **tree.arguments() | {"more_parents": further, "codes": codes, "alternatives": [("x",)] * len(tree)}
    )
    model.config.set_taxonomy(graph)
    model.save_pretrained(tmp_path / "own")
    to_stock(model).save_pretrained(tmp_path / "stock")
    write_modules(model, tmp_path)
    loaded = [load_deployed(tmp_path / "own"), from_stock(tmp_path / "stock"), from_modules(tmp_path)]
    known = [
        *(each.config.taxonomy for each in loaded),
        read_model_tree(tmp_path / "own"),
        read_model_tree(tmp_path / "stock"),
    ]
    for found in known:
        assert found == graph
        assert (found.codes, found.alternatives) == (graph.codes, graph.alternatives)
    model.config.set_taxonomy(tree)
    assert model.config.taxonomy.is_tree
    assert "label_more_parents" not in to_stock(model).config.hgclr


def change(path: Path, **fields: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


@pytest.mark.parametrize("kind", ["bert", "roberta", "mpnet", "xlm-roberta", "camembert"])
def test_a_stock_class_has_the_same_logits_to_the_last_bit(make_flat, kind: str) -> None:
    model = make_flat(kind)
    stock = to_stock(model)
    assert type(stock).__module__.startswith("transformers.models.")
    for one, other in zip(logits_of(model), logits_of(stock), strict=True):
        assert one.abs().max() > 0.1
        assert torch.equal(one, other)


@pytest.mark.parametrize("size", [1e-3, 1e4])
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


@pytest.mark.parametrize(
    ("form", "kind", "pooling"),
    [
        ("stock", "bert", "cls"),
        ("stock", "roberta", "cls"),
        ("modules", "bert", "cls"),
        ("modules", "mpnet", "mean"),
        ("modules", "distilbert", "max"),
    ],
)
def test_it_becomes_our_model_again(make_flat, taxonomy, tmp_path: Path, form: str, kind: str, pooling: str) -> None:
    model = make_flat(kind, pooling)
    if form == "stock":
        to_stock(model).save_pretrained(tmp_path)
    else:
        write_modules(model, tmp_path)
    loaded = load_deployed(tmp_path)
    assert isinstance(loaded, FlatForSequenceClassification)
    weights, expected = loaded.state_dict(), model.state_dict()
    assert weights.keys() == expected.keys()
    assert all(torch.equal(weights[name], expected[name]) for name in expected)
    assert loaded.config.taxonomy == taxonomy
    assert (loaded.config.threshold, loaded.config.max_length, loaded.config.pooling) == (0.4, 40, pooling)
    assert "hgclr" not in loaded.config.text_encoder.to_dict()


@pytest.mark.parametrize("form", ["stock", "modules"])
def test_a_shift_of_the_logits_is_there_and_can_be_taken_away(make_flat, tmp_path: Path, form: str) -> None:
    model = make_flat("roberta")
    shift = np.linspace(-4, 4, model.config.label_count, dtype=np.float32)
    if form == "stock":
        shifted = to_stock(model, shift)
        shifted.save_pretrained(tmp_path)
    else:
        write_modules(model, tmp_path, shift)
        shifted = from_modules(tmp_path, shifted=True)
    expected = logits_of(model)
    for found, one in zip(logits_of(shifted), expected, strict=True):
        torch.testing.assert_close(found, one + torch.from_numpy(shift), atol=1e-5, rtol=0)
    for found, one in zip(logits_of(load_deployed(tmp_path)), expected, strict=True):
        torch.testing.assert_close(found, one, atol=2e-6, rtol=0)


@pytest.mark.parametrize(("kind", "pooling"), [("distilbert", "cls"), ("electra", "cls"), ("bert", "mean")])
def test_models_without_a_stock_form_are_refused(make_flat, kind: str, pooling: str) -> None:
    model = make_flat(kind, pooling)
    assert no_stock_form(model)
    with pytest.raises(ValueError, match="transformers' own class"):
        to_stock(model)


def test_a_stock_model_with_another_head_is_refused(make_flat, tmp_path: Path) -> None:
    stock = to_stock(make_flat())
    with torch.no_grad():
        stock.bert.pooler.dense.weight[3, 4] = 1e-9
    stock.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="head"):
        load_deployed(tmp_path)


@pytest.mark.parametrize("broken", [{}, {"head_scale": 0.5}, "text", None, "shift"])
def test_a_broken_field_of_ours_is_named(make_flat, tmp_path: Path, broken: object) -> None:
    to_stock(make_flat()).save_pretrained(tmp_path)
    ours = json.loads((tmp_path / "config.json").read_text())["hgclr"]
    change(tmp_path / "config.json", hgclr=ours | {"logit_shift": [0.5, 0.25]} if broken == "shift" else broken)
    with pytest.raises(ValueError, match="the field 'hgclr'"):
        load_deployed(tmp_path)


@pytest.mark.parametrize(
    ("file", "fields"),
    [
        ("1_Pooling/config.json", {"pooling_mode": "lasttoken"}),
        ("1_Pooling/config.json", {"pooling_mode_cls_token": True}),
        ("1_Pooling/config.json", {"include_prompt": False}),
        ("2_Dense/config.json", {"activation_function": "torch.nn.modules.activation.Tanh"}),
        ("2_Dense/config.json", {"use_residual": True}),
        ("2_Dense/config.json", {"out_features": 8}),
        ("config.json", {"hgclr": None}),
        ("config.json", {"id2label": {str(index): str(index) for index in range(8)}}),
    ],
)
def test_other_modules_are_refused(make_flat, tmp_path: Path, file: str, fields: dict) -> None:
    write_modules(make_flat(pooling="mean"), tmp_path)
    load_deployed(tmp_path)
    change(tmp_path / file, **fields)
    with pytest.raises(ValueError, match=r"pooling|Dense|modules|hgclr|labels"):
        load_deployed(tmp_path)


def test_another_list_of_modules_is_refused(make_flat, tmp_path: Path) -> None:
    write_modules(make_flat(pooling="mean"), tmp_path)
    listed = json.loads((tmp_path / "modules.json").read_text())
    for wrong in (listed[:2], [*listed[:2], listed[2] | {"path": "../elsewhere"}], [*listed, listed[2]], {}):
        (tmp_path / "modules.json").write_text(json.dumps(wrong))
        with pytest.raises(ValueError, match=r"modules\.json"):
            load_deployed(tmp_path)
    (tmp_path / "modules.json").write_text(json.dumps(listed))
    shutil.rmtree(tmp_path / "2_Dense")
    with pytest.raises(OSError, match="2_Dense"):
        load_deployed(tmp_path)
