"""What a service opens and what is written: no pickles, no code, the files that were published; whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from hgclr.errors import InputError
from hgclr.files import atomic_file, atomic_folder
from hgclr.inference import HierarchicalClassifier
from support.fake_service import TREE


@pytest.fixture(scope="module")
def original(untrained: Callable[..., Path]) -> Path:
    return untrained(max_length=16)


@pytest.fixture
def published(original: Path, tmp_path: Path) -> Path:
    """A model folder with a manifest, which a test may damage."""
    folder = tmp_path / "model"
    shutil.copytree(original, folder)
    hashes = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.iterdir()}
    (folder / "manifest.json").write_text(json.dumps({"files": hashes}), encoding="utf-8")
    return folder


class Trap:
    """A pickle that would leave a trace."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self):
        return Path.touch, (self.trace,)


def test_a_folder_as_it_was_published_is_opened(published: Path) -> None:
    assert len(HierarchicalClassifier.load(published).predict(["atom"])) == 1


@pytest.mark.parametrize("name", ["pytorch_model.bin", "training_args.bin", "head.pkl"])
def test_a_pickle_is_refused_unread(published: Path, tmp_path: Path, name: str) -> None:
    (published / name).write_bytes(pickle.dumps(Trap(tmp_path / "trace")))
    with pytest.raises(InputError, match="may be a pickle"):
        HierarchicalClassifier.load(published)
    assert not (tmp_path / "trace").exists()


def test_code_that_comes_with_a_model_is_not_run(original: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(original, folder)
    (folder / "trap.py").write_text(f"open({str(tmp_path / 'trace')!r}, 'w')\nclass Config: pass\n", encoding="utf-8")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config["auto_map"] = {"AutoConfig": "trap.Config", "AutoModel": "trap.Config"}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(InputError, match="auto_map"):
        HierarchicalClassifier.load(folder)
    assert not (tmp_path / "trace").exists()


def test_a_file_that_is_another_than_published_is_refused(published: Path) -> None:
    weights = published / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(InputError, match=r"model\.safetensors: not the file that was exported"):
        HierarchicalClassifier.load(published)


def test_labels_are_data_and_never_paths(client: httpx.Client) -> None:
    label = TREE.ids[-1]
    assert label == "../sports"
    assert label in [row["id"] for row in client.get("/taxonomy").json()["labels"]]
    answer = client.post("/predict", json={"text": "goal", "threshold": 0, "probabilities": True}).json()
    assert label in answer["predictions"][0]["probabilities"]
    explained = client.post("/explain", json={"text": "goal", "labels": [label]}).json()
    assert [row["id"] for row in explained["labels"]] == [label]
    unknown = client.post("/explain", json={"text": "goal", "labels": ["law", "../../etc/passwd"]})
    assert unknown.json()["error"]["field"] == "labels.1"


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    file, folder = tmp_path / "file", tmp_path / "folder"
    for text in ("old", "new"):
        with atomic_file(file) as path:
            path.write_text(text, encoding="utf-8")
            assert path.parent == tmp_path  # on the same disk, so that a rename is enough
        with atomic_folder(folder) as path:
            (path / "inside").write_text(text, encoding="utf-8")

    def fail(atomic, target: Path) -> None:
        with atomic(target) as path:
            (path if target is file else path / "inside").write_text("half", encoding="utf-8")
            raise ZeroDivisionError

    for atomic, target in ((atomic_file, file), (atomic_folder, folder)):
        with pytest.raises(ZeroDivisionError):
            fail(atomic, target)
    assert file.read_text(encoding="utf-8") == (folder / "inside").read_text(encoding="utf-8") == "new"
    assert {path.name for path in tmp_path.iterdir()} == {"file", "folder"}


def test_what_is_written_is_flushed_before_it_is_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[tuple[str, str]] = []
    sync, rename = os.fsync, Path.replace

    def synced(descriptor: int) -> None:
        events.append(("sync", Path(f"/proc/self/fd/{descriptor}").readlink().name))
        sync(descriptor)

    def renamed(source: Path, target: Path) -> Path:
        events.append(("rename", source.name))
        return rename(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", renamed)
    with atomic_file(tmp_path / "file") as path:
        path.write_text("text", encoding="utf-8")
    assert events == [("sync", path.name), ("rename", path.name), ("sync", tmp_path.name)]


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_modes_are_those_that_the_umask_asks_for(tmp_path: Path, mask: int, mode: int) -> None:
    before = os.umask(mask)
    try:
        with atomic_folder(tmp_path / "folder") as path:
            (path / "file").touch(mode=0o600)
    finally:
        os.umask(before)
    assert (tmp_path / "folder" / "file").stat().st_mode & 0o777 == mode
