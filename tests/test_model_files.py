"""The manifest: changed files, pickles and code in a model folder are errors."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from hgclr.errors import InputError
from hgclr.model_files import check_folder, fingerprint, write_manifest

FILES = {"config.json": b"{}", "model.safetensors": b"weights", "vocab.txt": b"a b", "decisions.json": b"[]"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "README.md").write_text("a card")
    write_manifest(tmp_path)
    return tmp_path


def test_it_names_every_file_with_its_hash(folder: Path) -> None:
    from importlib.metadata import version

    content = json.loads((folder / "manifest.json").read_text())
    covered = ("config.json", "model.safetensors", "vocab.txt")
    expected = {name: hashlib.sha256(FILES[name]).hexdigest() for name in covered}
    assert content == {"hgclr": version("hgclr"), "files": expected}
    check_folder(folder)


def refused(folder: Path) -> InputError:
    with pytest.raises(InputError) as caught:
        check_folder(folder)
    assert caught.value.remedy
    return caught.value


def test_a_changed_or_missing_file_is_refused(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"weight")
    assert refused(folder).path == folder / "model.safetensors"
    write_manifest(folder)
    (folder / "vocab.txt").unlink()
    assert refused(folder).path == folder / "vocab.txt"


def test_folders_of_modules_are_covered_and_no_others(folder: Path) -> None:
    for name in ("2_Dense", "reports"):
        (folder / name).mkdir()
        (folder / name / "config.json").write_text("{}")
    write_manifest(folder)
    files = json.loads((folder / "manifest.json").read_text())["files"]
    assert files["2_Dense/config.json"] == hashlib.sha256(b"{}").hexdigest()
    assert not [name for name in files if name.startswith("reports")]
    check_folder(folder)
    (folder / "reports" / "config.json").write_text("[]")
    check_folder(folder)
    (folder / "2_Dense" / "config.json").write_text("[]")
    assert refused(folder).path == folder / "2_Dense" / "config.json"
    (folder / "manifest.json").unlink()
    (folder / "2_Dense" / "pytorch_model.bin").touch()
    assert refused(folder).path == folder / "2_Dense" / "pytorch_model.bin"


@pytest.mark.parametrize("name", ["adapter_config.json", "added.TXT", "modeling.py", "model.onnx"])
def test_a_file_that_was_slipped_in_is_refused(folder: Path, name: str) -> None:
    (folder / name).write_bytes(b"{}")
    assert refused(folder).path == folder / name


def test_what_people_may_change_is_left_to_them(folder: Path) -> None:
    (folder / "README.md").write_text("a better card")
    (folder / "decisions.json").write_text("{}")
    (folder / ".gitattributes").write_text("*.safetensors filter=lfs")
    (folder / "curve.png").write_bytes(b"a picture")
    check_folder(folder)
    (folder / "decisions.json").unlink()
    check_folder(folder)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "optimizer.PT", "head.pkl"])
def test_pickles_are_refused_with_a_manifest_and_without(folder: Path, name: str) -> None:
    (folder / name).write_bytes(b"")
    for _ in range(2):
        assert refused(folder).path == folder / name
        (folder / "manifest.json").unlink(missing_ok=True)


def test_code_that_comes_with_a_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"auto_map": {"AutoModel": "modeling.Model"}}')
    assert refused(tmp_path).path == tmp_path / "config.json"


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"files": 7}', "null"])
def test_a_broken_manifest_is_named(folder: Path, content: str) -> None:
    (folder / "manifest.json").write_text(content)
    assert refused(folder).path == folder / "manifest.json"


def test_a_name_never_leads_out_of_the_folder(folder: Path) -> None:
    outside = folder.parent / "outside.json"
    outside.write_bytes(b"{}")
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"]["../outside.json"] = hashlib.sha256(b"{}").hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))
    assert refused(folder).path == folder / "../outside.json"
    outside.unlink()


def test_a_fingerprint_is_of_all_that_is_computed_with(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    weights = tmp_path / "2_Dense" / "model.safetensors"
    weights.parent.mkdir()
    weights.write_bytes(b"a")
    before = fingerprint(tmp_path)
    for name in ("decisions.json", "manifest.json", "notes.md"):
        (tmp_path / name).write_text("{}")
    assert fingerprint(tmp_path) == before
    weights.write_bytes(b"b")
    assert fingerprint(tmp_path) != before
