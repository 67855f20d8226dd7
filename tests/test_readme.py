"""What the README shows is run."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.usefixtures("default_encoder")
def test_the_python_example_runs(
    toy_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(example.strip().splitlines()) <= 12
    monkeypatch.chdir(tmp_path)
    shutil.copytree(toy_data, tmp_path / "my-data")
    exec(compile(example, "README.md", "exec"), {})
    assert "test Macro-F1" in capsys.readouterr().out
    assert (tmp_path / "runs" / "first" / "model" / "model.safetensors").is_file()


def test_the_files_it_names_exist() -> None:
    root = Path(__file__).parents[1]
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (root / target).exists(), target
    for row in re.findall(r"^\| (`.*?) \|", README, re.MULTILINE):
        for name in re.findall(r"`([^`]+)`", row):
            path = root / name if (root / name).exists() else root / "src" / "hgclr" / name
            assert path.exists(), name
