"""The modules of sentence-transformers: written and read without the library, weights to the last bit."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from hgclr.models import FlatForSequenceClassification, HierarchicalPreTrainedModel, load_deployed
from hgclr.models.base import load_tokenizer
from hgclr.models.stock import from_modules, read_modules, write_modules

POOLINGS = ["cls", "mean", "max"]


@pytest.fixture
def make_flat(make_encoder, taxonomy):
    """Return a function that makes an untrained model whose logits are spread out."""

    def make(
        kind: str = "bert", cls: type[HierarchicalPreTrainedModel] = FlatForSequenceClassification, **settings
    ) -> HierarchicalPreTrainedModel:
        torch.manual_seed(4)
        tokenizer = load_tokenizer(make_encoder(kind))
        model = cls.from_encoder(
            make_encoder(kind), taxonomy, tokenizer, threshold=0.4, max_length=40, **{"pooling": "mean"} | settings
        )
        torch.nn.init.normal_(model.classifier.weight, std=0.5)
        torch.nn.init.normal_(model.classifier.bias)
        return model.eval()

    return make


@pytest.fixture
def written(make_flat, tmp_path: Path) -> Path:
    write_modules(make_flat(), tmp_path)
    return tmp_path


def change(path: Path, **fields: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("kind", ["bert", "mpnet", "distilbert"])
def test_it_becomes_our_model_again(make_flat, taxonomy, tmp_path: Path, kind: str, pooling: str) -> None:
    model = make_flat(kind, pooling=pooling)
    write_modules(model, tmp_path)
    for loaded in (from_modules(tmp_path), load_deployed(tmp_path)):
        assert isinstance(loaded, FlatForSequenceClassification)
        weights, expected = loaded.state_dict(), model.state_dict()
        assert weights.keys() == expected.keys()
        assert all(torch.equal(weights[name], expected[name]) for name in expected)
        assert loaded.config.taxonomy == taxonomy
        assert (loaded.config.threshold, loaded.config.max_length, loaded.config.pooling) == (0.4, 40, pooling)
        assert "hgclr" not in loaded.config.text_encoder.to_dict()


@pytest.mark.parametrize("pooling", POOLINGS)
def test_what_the_files_say_is_the_model_with_padding_of_any_size(make_flat, tmp_path: Path, pooling: str) -> None:
    model = make_flat(pooling=pooling)
    shift = np.linspace(-3, 3, model.config.label_count, dtype=np.float32)
    write_modules(model, tmp_path, shift)
    mask = (torch.arange(17) < torch.tensor([[17], [1], [9]])).long()
    ids = torch.where(mask == 1, torch.randint(4, 30, mask.shape), 0)
    with torch.inference_mode():
        expected = model(ids, mask).logits
        found = read_modules(tmp_path)(ids, mask)
        again = load_deployed(tmp_path)(ids, mask).logits
    assert expected.std() > 0.1
    torch.testing.assert_close(found, expected + torch.from_numpy(shift), atol=5e-6, rtol=0)
    torch.testing.assert_close(again, expected, atol=2e-6, rtol=0)


@pytest.mark.parametrize(
    ("file", "fields", "message"),
    [
        ("1_Pooling/config.json", {"pooling_mode": "lasttoken"}, "its pooling, .*, is none of ours"),
        ("1_Pooling/config.json", {"pooling_mode_cls_token": True}, "its pooling, .*, is none of ours"),
        ("1_Pooling/config.json", {"include_prompt": False}, "its pooling, .*, is none of ours"),
        ("2_Dense/config.json", {"activation_function": "torch.nn.modules.activation.Tanh"}, "is not linear"),
        ("2_Dense/config.json", {"use_residual": True}, "is not linear with a bias"),
        ("2_Dense/config.json", {"out_features": 8}, "its modules cannot be read: .*size mismatch"),
        ("config.json", {"hgclr": None}, "the field 'hgclr' of its configuration is not what hgclr export writes"),
    ],
)
def test_something_else_is_refused(written: Path, file: str, fields: dict, message: str) -> None:
    change(written / file, **fields)
    with pytest.raises(ValueError, match=f"(?s){message}"):
        load_deployed(written)


def test_other_modules_and_other_labels_are_refused(make_flat, written: Path, tmp_path_factory) -> None:
    listed = json.loads((written / "modules.json").read_text())
    for wrong in (listed[:2], [*listed[:2], listed[2] | {"path": "../elsewhere"}], [*listed, listed[2]]):
        (written / "modules.json").write_text(json.dumps(wrong))
        with pytest.raises(ValueError, match=r"modules\.json does not list Transformer, Pooling, Dense"):
            load_deployed(written)
    (written / "modules.json").write_text("{}")
    with pytest.raises(ValueError, match=r"modules\.json does not list"):
        load_deployed(written)
    (written / "modules.json").write_text(json.dumps(listed))
    config = json.loads((written / "config.json").read_text())
    labels = dict(list(config["id2label"].items())[:8])
    change(written / "config.json", id2label=labels, label2id={label: int(index) for index, label in labels.items()})
    with pytest.raises(ValueError, match="9 outputs for 8 labels"):
        load_deployed(written)
    shutil.rmtree(written / "2_Dense")
    with pytest.raises(OSError, match="2_Dense"):
        load_deployed(written)
