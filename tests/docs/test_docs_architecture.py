"""The extension that the page on the architecture writes is installed, trained and loaded."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hgclr.cli.app import app
from hgclr.registry import extensions
from support.doc_pages import DOCS, blocks, commands

PAGE = DOCS / "project" / "architecture.md"


@pytest.fixture
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package of the page where Python finds it, with its entry point."""
    place = tmp_path / "site"
    (entry_points,) = (block.text for block in blocks(PAGE) if block.language == "toml")
    section = entry_points.replace('project.entry-points."hgclr.extensions"', "hgclr.extensions").replace('"', "")
    files = {block.title: block.text for block in blocks(PAGE) if block.title}
    files["my_package-0.1.dist-info/METADATA"] = "Metadata-Version: 2.1\nName: my-package\nVersion: 0.1\n"
    files["my_package-0.1.dist-info/entry_points.txt"] = section
    for name, text in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(place)
    extensions.cache_clear()
    yield
    extensions.cache_clear()


@pytest.mark.usefixtures("_installed")
def test_the_architecture_can_be_trained(
    make_encoder, toy_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(toy_data, "my-data")
    (train,) = (words for block in blocks(PAGE) if block.language == "sh" for words in commands(block.text))
    short = ["--set", f"model.encoder={make_encoder('bert')}", "--set", "training.epochs=1"]
    model = "runs/my-data/model"
    calls = [[*train[1:], *short], ["predict", model, "a lens"], ["export", model, "--to", "onnx", "--output", "onnx"]]
    for call in calls:
        result = CliRunner().invoke(app, call)
        assert result.exit_code == 0, f"{result.output}\n{result.exception}"
    assert '"deep_width": 64' in Path(model, "config.json").read_text(encoding="utf-8")
    assert Path("onnx/model.onnx").is_file()
