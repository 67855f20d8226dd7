"""The manifest: a folder whose files are not those that were written is refused, as are pickles and code."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from hgclr.errors import InputError
from hgclr.model_files import check_folder, fingerprint, write_manifest

FILES = {"config.json": b"{}", "model.safetensors": b"weights", "vocab.txt": b"a b", "decisions.json": b"[]"}
REMEDY = "copy or download the folder again, or write it again with hgclr export"


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


def test_a_changed_file_is_refused_with_both_hashes(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"weight")
    old, new = (hashlib.sha256(content).hexdigest()[:12] for content in (b"weights", b"weight"))
    with pytest.raises(InputError) as caught:
        check_folder(folder)
    assert str(caught.value) == (
        f"{folder / 'model.safetensors'}: not the file that was exported: its SHA-256 is {new}…,"
        f" manifest.json says {old}…; {REMEDY}"
    )


def test_a_missing_file_is_refused(folder: Path) -> None:
    (folder / "vocab.txt").unlink()
    with pytest.raises(InputError, match=f"'vocab.txt' is in manifest.json and not in the folder; {REMEDY}"):
        check_folder(folder)


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
    with pytest.raises(InputError, match=r"2_Dense/config\.json: not the file that was exported"):
        check_folder(folder)
    (folder / "manifest.json").unlink()
    (folder / "2_Dense" / "pytorch_model.bin").touch()
    with pytest.raises(InputError, match=r"2_Dense/pytorch_model\.bin may be a pickle"):
        check_folder(folder)


@pytest.mark.parametrize("name", ["adapter_config.json", "added.TXT", "modeling.py", "model.onnx"])
def test_a_file_that_was_slipped_in_is_refused(folder: Path, name: str) -> None:
    (folder / name).write_bytes(b"{}")
    with pytest.raises(InputError, match=f"'{name}' is not in manifest.json; delete it, or delete manifest.json"):
        check_folder(folder)


def test_what_people_may_change_is_left_to_them(folder: Path) -> None:
    (folder / "README.md").write_text("a better card")
    (folder / "decisions.json").write_text("{}")
    (folder / ".gitattributes").write_text("*.safetensors filter=lfs")
    (folder / "curve.png").write_bytes(b"a picture")
    check_folder(folder)
    (folder / "decisions.json").unlink()
    check_folder(folder)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "training_args.bin", "optimizer.PT", "head.pkl", "x.joblib"])
def test_pickles_are_refused_with_a_manifest_and_without(folder: Path, name: str) -> None:
    (folder / name).write_bytes(b"")
    for _ in range(2):
        with pytest.raises(InputError, match=f"no model could be loaded: {name} may be a pickle, which runs code.*; a"):
            check_folder(folder)
        (folder / "manifest.json").unlink(missing_ok=True)


def test_code_that_comes_with_a_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"auto_map": {"AutoModel": "modeling.Model"}}')
    with pytest.raises(InputError, match=r"config\.json: 'auto_map' asks for code .* never run; hgclr needs none"):
        check_folder(tmp_path)


def test_a_folder_without_a_manifest_is_taken_as_it_is(folder: Path) -> None:
    (folder / "manifest.json").unlink()
    (folder / "vocab.txt").unlink()
    check_folder(folder)


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"files": []}', '{"files": {"config.json": 7}}', "null"])
def test_a_broken_manifest_is_named(folder: Path, content: str) -> None:
    (folder / "manifest.json").write_text(content)
    with pytest.raises(InputError, match=rf"manifest\.json: (broken|not JSON): .*; {REMEDY}"):
        check_folder(folder)


def test_a_name_never_leads_out_of_the_folder(folder: Path) -> None:
    outside = folder.parent / "outside.json"
    outside.write_bytes(b"{}")
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"]["../outside.json"] = hashlib.sha256(b"{}").hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(InputError, match=r"'\.\./outside\.json' is in manifest\.json and not in"):
        check_folder(folder)
    outside.unlink()


def test_a_copy_is_as_good(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    check_folder(shutil.copytree(folder, tmp_path_factory.mktemp("copies") / "copy"))


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
