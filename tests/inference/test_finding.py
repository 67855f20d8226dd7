"""Models by hub name, without a network: a pretended hub keeps what is pushed and puts it where downloads go."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from hgclr.errors import InputError
from hgclr.export.onnx import export_onnx
from hgclr.export.stock import export_stock
from hgclr.inference import HierarchicalClassifier
from hgclr.inference.backends import OnnxBackend, TorchBackend
from hgclr.inference.loading import find_model
from hgclr.models import FlatForSequenceClassification
from hgclr.models.base import load_tokenizer

TEXTS = ["atom", "the lens of a prism", "a boat in a lake"]
REVISION = "0123456789abcdef0123456789abcdef01234567"


class PretendedHub:
    """Keeps pushed files in the layout of the hub's cache, from which names are loaded when there is no network."""

    def __init__(self, cache: Path) -> None:
        self.cache = cache

    def folder(self, name: str) -> Path:
        place = self.cache / f"models--{name.replace('/', '--')}"
        snapshot = place / "snapshots" / REVISION
        snapshot.mkdir(parents=True, exist_ok=True)
        (place / "refs").mkdir(exist_ok=True)
        (place / "refs" / "main").write_text(REVISION)
        return snapshot

    def create_repo(self, repo_id: str, **_: object) -> SimpleNamespace:
        self.folder(repo_id)
        return SimpleNamespace(repo_id=repo_id)

    def create_commit(self, repo_id: str, operations: list, **_: object) -> None:
        for operation in operations:
            content = operation.path_or_fileobj
            target = self.folder(repo_id) / operation.path_in_repo
            if isinstance(content, bytes):
                target.write_bytes(content)
            else:
                shutil.copy(content, target)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PretendedHub:
    pretended = PretendedHub(tmp_path / "hub")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(pretended.cache))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("transformers.utils.hub.hf_api", lambda: pretended)
    return pretended


@pytest.fixture(scope="module")
def model(untrained: Callable[..., Path]) -> Path:
    return untrained(threshold=0.4)


@pytest.fixture(scope="module")
def expected(model: Path) -> np.ndarray:
    return HierarchicalClassifier.load(model).predict_proba(TEXTS)


def test_a_pushed_model_is_loaded_by_its_name(hub: PretendedHub, model: Path, expected: np.ndarray) -> None:
    FlatForSequenceClassification.from_pretrained(model).push_to_hub("me/sorter")
    load_tokenizer(str(model)).push_to_hub("me/sorter")
    assert (hub.folder("me/sorter") / "model.safetensors").is_file()
    assert (
        FlatForSequenceClassification.from_pretrained("me/sorter").config.taxonomy
        == FlatForSequenceClassification.from_pretrained(model).config.taxonomy
    )
    classifier = HierarchicalClassifier.load("me/sorter")
    np.testing.assert_allclose(classifier.predict_proba(TEXTS), expected, atol=1e-6)
    assert classifier.decisions.thresholds == 0.4


@pytest.mark.slow
@pytest.mark.parametrize(("export", "backend"), [(export_stock, TorchBackend), (export_onnx, OnnxBackend)])
def test_an_uploaded_export_is_loaded_by_its_name(
    hub: PretendedHub, model: Path, expected: np.ndarray, tmp_path: Path, export, backend: type
) -> None:
    folder = export(model, tmp_path / "export").folder
    decisions = HierarchicalClassifier.load(folder).decisions
    decisions.changed(rule="drop-orphans", threshold=0.25).write(folder)
    shutil.copytree(folder, hub.folder("me/export"), dirs_exist_ok=True)
    classifier = HierarchicalClassifier.load("me/export")
    assert isinstance(classifier.backend, backend)
    np.testing.assert_allclose(classifier.predict_proba(TEXTS), expected, atol=1e-5)
    assert classifier.decisions.rule == "drop-orphans"
    assert classifier.decisions.thresholds == 0.25


def test_what_comes_from_a_hub_is_checked(hub: PretendedHub, model: Path, tmp_path: Path) -> None:
    folder = export_stock(model, tmp_path / "export").folder
    shutil.copytree(folder, hub.folder("me/damaged"), dirs_exist_ok=True)
    with (hub.folder("me/damaged") / "model.safetensors").open("ab") as file:
        file.write(b"0")
    with pytest.raises(InputError, match=r"model\.safetensors: not the file that was exported"):
        HierarchicalClassifier.load("me/damaged")


def test_a_folder_is_taken_before_a_name(hub: PretendedHub, tmp_path: Path, monkeypatch) -> None:
    hub.folder("me/sorter")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "me" / "sorter").mkdir(parents=True)
    assert find_model("me/sorter") == Path("me/sorter")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("me/unknown", "no model could be loaded from me/unknown: "),
        ("runs/first/model", "from runs/first/model: no such folder, and no name on a hub; give the folder 'model'"),
        ("/nowhere", "from /nowhere: no such folder, and no name on a hub; give the folder 'model'"),
    ],
)
def test_neither_a_folder_nor_a_name_is_refused(hub: PretendedHub, name: str, reason: str) -> None:
    with pytest.raises(InputError) as caught:
        find_model(name)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)
