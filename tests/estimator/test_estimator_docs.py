"""What docs/how-to/scikit-learn.md shows is run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "scikit-learn.md").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.usefixtures("default_encoder")
def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    examples = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(examples) == 3
    names: dict[str, object] = {}
    for example in examples:
        exec(compile(example, "scikit-learn.md", "exec"), names)
    printed = capsys.readouterr().out
    assert "'science > physics > optics'" in printed
    assert "hgclrclassifier__learning_rate" in printed
    assert names["labels"].shape == names["probabilities"].shape == (24, 6)
    assert (tmp_path / "my-model" / "model.safetensors").is_file()


def test_the_pages_it_links_to_exist() -> None:
    for target in re.findall(r"\]\(([^)#]+)", PAGE):
        assert (Path(__file__).parents[2] / "docs" / "how-to" / target).exists(), target
