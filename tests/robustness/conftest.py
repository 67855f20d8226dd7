"""One model in all its forms."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from support.toy import make_model


@pytest.fixture(scope="session")
def models(make_encoder, taxonomy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model as trained, as everything that it can be exported to, and with the encoder it has."""
    from hgclr.export.onnx import export_onnx
    from hgclr.export.stock import export_sentence_transformers, export_stock
    from hgclr.models.base import save

    folder = tmp_path_factory.mktemp("models")
    model, tokenizer = make_model(make_encoder, taxonomy)
    save(model.deployed(), tokenizer, folder / "torch")
    shutil.copytree(make_encoder("bert"), folder / "encoder")
    export_stock(folder / "torch", folder / "stock")
    export_sentence_transformers(folder / "torch", folder / "modules")
    export_onnx(folder / "torch", folder / "onnx")
    export_onnx(folder / "torch", folder / "int8", int8=True)
    return folder
