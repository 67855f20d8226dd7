"""A folder whose weights are not those of its configuration is refused by whoever loads it, with the tensor's name."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForMaskedLM, BertForPreTraining
from typer.testing import CliRunner

from hgclr.cli.app import app
from hgclr.errors import InputError
from hgclr.inference import HierarchicalClassifier
from hgclr.models import FlatForSequenceClassification
from hgclr.models.base import save
from hgclr.models.hgclr import load_training_model
from hgclr.models.stock import to_stock, write_modules
from hgclr.training import RunConfig
from hgclr.training.run import started_model
from support.toy import make_model

RENAMED = "output.LayerNorm.bias"


def rename_tensor(folder: Path) -> str:
    """Give the last tensor of that kind another name, as a single byte of the header would; return its name."""
    file = folder / "model.safetensors"
    tensors = load_file(file)
    name = max(name for name in tensors if name.endswith(RENAMED))
    tensors[name.replace("bias", "biaz")] = tensors.pop(name)
    save_file(tensors, file, {"format": "pt"})
    return name


def change_config(folder: Path, layers: int) -> None:
    file = folder / "config.json"
    config = json.loads(file.read_text())
    config.get("encoder_config", config)["num_hidden_layers"] = layers
    file.write_text(json.dumps(config))


SPOILS = {
    "renamed": (rename_tensor, rf"the weights lack \S*{RENAMED}"),
    "more layers": (lambda folder: change_config(folder, 3), r"the weights lack \S*layer\.2\.\S+ and 15 more tensors"),
    "fewer layers": (lambda folder: change_config(folder, 1), r"the weights contain \S*layer\.1\.\S+ and 15 more"),
}


@pytest.fixture(scope="module")
def saved(make_encoder, taxonomy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One model as it is deployed, as it was trained, in a stock class, and for sentence-transformers."""
    folder = tmp_path_factory.mktemp("saved")
    model, tokenizer = make_model(make_encoder, taxonomy)
    save(model.deployed(), tokenizer, folder / "deployed")
    save(model, tokenizer, folder / "started")
    to_stock(model.deployed()).save_pretrained(folder / "stock")
    (folder / "modules").mkdir()
    write_modules(model.deployed(), folder / "modules")
    for name in ("stock", "modules"):
        tokenizer.save_pretrained(folder / name)
    return folder


@pytest.mark.parametrize("spoil", SPOILS)
@pytest.mark.parametrize("form", ["deployed", "stock", "modules"])
def test_no_form_of_a_model_is_filled_with_random_numbers(saved: Path, tmp_path: Path, form: str, spoil: str) -> None:
    folder = shutil.copytree(saved / form, tmp_path / form)
    HierarchicalClassifier.load(folder)
    change, message = SPOILS[spoil]
    change(folder)
    with pytest.raises(InputError, match=f"^{folder}: {message}"):
        HierarchicalClassifier.load(folder)


@pytest.mark.parametrize("spoil", SPOILS)
def test_a_model_to_train_on_from_is_refused_too(saved: Path, toy_data: Path, tmp_path: Path, spoil: str) -> None:
    folder = shutil.copytree(saved / "started", tmp_path / "started")
    run = RunConfig.build({"data": {"path": toy_data}, "model": {"start": folder}, "output": tmp_path / "run"})
    started_model(run, folder)
    change, message = SPOILS[spoil]
    change(folder)
    with pytest.raises(InputError, match=f"^{folder}: {message}"):
        started_model(run, folder)
    with pytest.raises(InputError, match=f"^{folder}: {message}"):
        load_training_model(folder)


@pytest.mark.parametrize("spoil", SPOILS)
def test_an_encoder_is_refused_too(make_encoder, taxonomy, tokenizer, tmp_path: Path, spoil: str) -> None:
    folder = Path(shutil.copytree(make_encoder("bert"), tmp_path / "encoder"))
    change, message = SPOILS[spoil]
    change(folder)
    with pytest.raises(InputError, match=f"^{folder}: {message}"):
        FlatForSequenceClassification.from_encoder(str(folder), taxonomy, tokenizer)


@pytest.mark.parametrize("kind", ["bert", "roberta", "mpnet", "distilbert", "electra"])
def test_heads_that_an_encoder_was_pretrained_with_are_left_out(
    make_encoder, taxonomy, tokenizer, tmp_path: Path, kind: str
) -> None:
    config = AutoConfig.from_pretrained(make_encoder(kind))
    pretrained = BertForPreTraining(config) if kind == "bert" else AutoModelForMaskedLM.from_config(config)
    pretrained.save_pretrained(tmp_path)
    model = FlatForSequenceClassification.from_encoder(str(tmp_path), taxonomy, tokenizer)
    words = pretrained.get_input_embeddings().weight
    assert torch.equal(model.encoder.get_input_embeddings().weight, words)


def test_a_model_that_computes_no_numbers_is_refused(saved: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(saved / "deployed", tmp_path / "model")
    tensors = load_file(folder / "model.safetensors")
    tensors["classifier.bias"][0] = np.nan
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    done = CliRunner().invoke(app, ["predict", str(folder), "the lens"])
    assert (done.exit_code, done.stdout) == (2, "")
