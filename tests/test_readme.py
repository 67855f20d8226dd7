"""What the README shows is run."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.usefixtures("default_encoder")
def test_the_python_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(example.strip().splitlines()) <= 12
    monkeypatch.chdir(tmp_path)
    for table in re.findall(r"examples/[\w.]+", example):
        (tmp_path / "examples").mkdir(exist_ok=True)
        shutil.copy(ROOT / table, tmp_path / table)
    exec(compile(example, "README.md", "exec"), {})
    assert "test Micro-F1" in capsys.readouterr().out
    assert (tmp_path / "runs" / "tickets" / "model" / "model.safetensors").is_file()


def test_it_is_short() -> None:
    lines = README.splitlines()
    assert len(lines) <= 120
    assert [line for line in lines if len(line) > 120] == []
    for command in ("make quickstart", "make test"):
        assert any(line.startswith(command) for line in lines[:30])


def test_the_files_it_names_exist() -> None:
    for target in re.findall(r"(?:\]\(|src=\")([^)#\"]+)", README):
        assert (ROOT / target).exists(), target


def test_the_map_of_the_code_names_what_is_there() -> None:
    page = (ROOT / "docs" / "project" / "architecture.md").read_text(encoding="utf-8")
    listed = page.partition("## Packages")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \|", listed, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`([^`]+)`", row)}
    assert [name for name in named if not (ROOT / name).exists()] == []
    packages = {f"src/hgclr/{path.parent.name}" for path in (ROOT / "src" / "hgclr").glob("*/__init__.py")}
    assert packages <= named
    figure = (ROOT / "docs" / "images" / "architecture.svg").read_text(encoding="utf-8")
    files = {*re.findall(r"`([\w/]+\.py)`", page), *re.findall(r"\b\w+/\w+\.py\b", figure)}
    assert len(files) > 30
    places = (ROOT, ROOT / "src" / "hgclr")
    assert [name for name in sorted(files) if not any((place / name).is_file() for place in places)] == []
