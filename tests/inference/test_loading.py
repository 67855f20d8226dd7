"""Loading: by folder or hub name, with torch or with onnxruntime alone; a broken folder is refused by name."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from hgclr.errors import InputError
from hgclr.export.onnx import export_onnx
from hgclr.inference import HierarchicalClassifier
from hgclr.inference.backends import OnnxBackend, TorchBackend
from hgclr.inference.loading import find_model, is_onnx, load_model

TEXTS = ["atom", "", "the lens of a prism in a lake is a mirror", "judge " * 100, "a boat", "goal"]
REVISION = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(scope="module")
def model(untrained: Callable[..., Path]) -> Path:
    """MPNet, so that nothing may take the padding token for 0."""
    return untrained("mpnet", threshold=0.4, max_length=40)


@pytest.fixture(scope="module")
def exported(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_onnx(model, tmp_path_factory.mktemp("loading") / "onnx").folder


@pytest.fixture
def copied(exported: Path, tmp_path: Path) -> Path:
    """A folder to break, without the manifest that would tell."""
    return shutil.copytree(exported, tmp_path / "copy", ignore=shutil.ignore_patterns("manifest.json"))


@pytest.mark.slow
def test_onnx_gives_the_parts_and_probabilities_of_torch(model: Path, exported: Path, taxonomy) -> None:
    with_torch, without = load_model(model), load_model(exported)
    assert isinstance(with_torch.backend, TorchBackend)
    assert isinstance(without.backend, OnnxBackend)
    for loaded in (with_torch, without):
        assert loaded.taxonomy == taxonomy
        assert (loaded.pad_token, loaded.max_length, loaded.decisions.thresholds) == (1, 40, 0.4)
    assert (is_onnx(model), is_onnx(exported)) == (False, True)
    expected, found = (HierarchicalClassifier.load(path).predict_proba(TEXTS) for path in (model, exported))
    np.testing.assert_allclose(found, expected, atol=1e-5)
    with pytest.raises(InputError):
        HierarchicalClassifier.load(exported, device="cuda")


@pytest.mark.slow
def test_onnx_needs_neither_torch_nor_transformers(exported: Path) -> None:
    code = (
        "import json, sys\n"
        "HIDDEN = ('torch', 'transformers', 'datasets', 'accelerate', 'onnx', 'onnxscript')\n"
        "class Hide:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in HIDDEN: raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Hide())\n"
        "import hgclr\n"
        "classifier = hgclr.HierarchicalClassifier.load(sys.argv[1])\n"
        "print(json.dumps(classifier.predict_proba(json.loads(sys.argv[2])).tolist()))\n"
    )
    command = [sys.executable, "-c", code, str(exported), json.dumps(TEXTS)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = np.array(json.loads(done.stdout))
    np.testing.assert_allclose(found, HierarchicalClassifier.load(exported).predict_proba(TEXTS), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("pad_token_id", -1),
        ("pad_token_id", True),
        ("max_length", 0),
        ("cut_length", "40"),
        ("threshold", 1.0),
        ("id2label", {"0": 7}),
        ("id2label", {"0": "a", "2": "b"}),
        ("label_parents", list(range(9))),
        ("label_names", [1]),
        ("label_names", ...),  # missing
    ],
)
def test_a_broken_configuration_is_refused(copied: Path, field: str, value: object) -> None:
    path = copied / "config.json"
    fields = json.loads(path.read_text()) | {field: value}
    path.write_text(json.dumps({name: value for name, value in fields.items() if value is not ...}))
    with pytest.raises(InputError) as caught:
        load_model(copied)
    assert caught.value.path == path
    assert caught.value.remedy


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", None),
        ("config.json", "[]"),
        ("tokenizer.json", None),
        ("tokenizer.json", "{}"),
        ("model.onnx", ""),
    ],
)
def test_a_broken_file_is_named(copied: Path, name: str, content: str | None) -> None:
    if content is None:
        (copied / name).unlink()
    else:
        (copied / name).write_text(content)
    with pytest.raises(InputError) as caught:
        load_model(copied)
    assert caught.value.path == copied / name
    assert caught.value.remedy


@pytest.mark.slow
def test_files_of_two_models_are_refused(copied: Path) -> None:
    path = copied / "config.json"
    fields = json.loads(path.read_text())
    fields["label_parents"].append(-1)
    fields["label_names"].append("new")
    fields["id2label"]["9"] = "new"
    path.write_text(json.dumps(fields))
    with pytest.raises(InputError) as caught:
        load_model(copied)
    assert caught.value.path == copied


@pytest.mark.parametrize("kind", ["empty", "pickled"])
def test_a_folder_without_safe_weights_is_refused(model: Path, tmp_path: Path, kind: str) -> None:
    if kind == "pickled":
        for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
            shutil.copy(model / name, tmp_path)
        (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(InputError):
        HierarchicalClassifier.load(tmp_path)


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

    def create_repo(self, name: str, **_: object) -> SimpleNamespace:
        return SimpleNamespace(repo_id=name)

    def upload_folder(self, repo_id: str, folder_path: Path, **_: object) -> None:
        shutil.copytree(folder_path, self.folder(repo_id), dirs_exist_ok=True)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PretendedHub:
    pretended = PretendedHub(tmp_path / "hub")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(pretended.cache))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.HfApi", lambda: pretended)
    return pretended


def test_a_pushed_model_is_loaded_by_its_name(hub: PretendedHub, model: Path) -> None:
    ours = HierarchicalClassifier.load(model)
    ours.decisions = ours.decisions.changed(rule="drop-orphans", threshold=0.25)
    ours.push_to_hub("me/sorter")
    theirs = HierarchicalClassifier.load("me/sorter")
    np.testing.assert_allclose(theirs.predict_proba(TEXTS), ours.predict_proba(TEXTS), atol=1e-6)
    assert theirs.decisions.to_json() == ours.decisions.to_json()


def test_a_folder_is_taken_before_a_name(hub: PretendedHub, tmp_path: Path, monkeypatch) -> None:
    hub.folder("me/sorter")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "me" / "sorter").mkdir(parents=True)
    assert find_model("me/sorter") == Path("me/sorter")
    for name in ("me/unknown", "runs/first/model", "/nowhere"):
        with pytest.raises(InputError) as caught:
            find_model(name)
        assert caught.value.remedy


# Python's own sockets are recorded and refused here. Those of a compiled library cannot be: that one is told by what it
# keeps in the user's cache, a number for the machine and a list of what to send, from the moment that it is imported.
WATCHED = """
import json, sys

tried = []
def watch(event, arguments):
    if event.startswith("socket."):
        tried.append(event)
        raise PermissionError(event)
sys.addaudithook(watch)

from hgclr.cli.app import app

app(sys.argv[1:], standalone_mode=False)
print(json.dumps({"tried": tried, "onnxruntime": "onnxruntime" in sys.modules}))
"""


@pytest.mark.slow
def test_predicting_with_onnxruntime_tries_no_connection_and_leaves_no_number(exported: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.jsonl").write_text('{"text": "atom"}\n')
    home = tmp_path / "home"
    home.mkdir()
    # Machines that test others' changes, which onnxruntime knows by these, send nothing anyway.
    kept = {name: value for name, value in os.environ.items() if name not in ("CI", "TF_BUILD", "GITHUB_ACTIONS")}
    environment = kept | {"HOME": str(home), "XDG_CACHE_HOME": str(home / "cache"), "TMPDIR": str(home)}
    bulk = ["--input", str(tmp_path / "texts.jsonl"), "--output", str(tmp_path / "out")]
    for arguments in (["predict", str(exported), "the lens"], ["predict", str(exported), *bulk]):
        done = subprocess.run(
            [sys.executable, "-c", WATCHED, *arguments], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout.splitlines()[-1]) == {"tried": [], "onnxruntime": True}
        assert [path for path in home.rglob("*") if path.is_file()] == []
