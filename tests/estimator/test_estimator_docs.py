"""What docs/how-to/scikit-learn.md shows is run."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from hgclr import hardware
from hgclr.encoders import DEFAULT_ENCODER, ENCODERS, NOTE
from hgclr.hardware import Probe

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "scikit-learn.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_examples_run(
    make_encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HGCLR_CACHE", str(tmp_path / "cache"))
    # A tiny random encoder stands where the real one would be fetched to.
    cached = Path(shutil.copytree(make_encoder("bert"), tmp_path / "cache" / "encoders" / DEFAULT_ENCODER))
    for name in (NOTE, *ENCODERS[DEFAULT_ENCODER].sha256):
        if not (cached / name).exists():
            (cached / name).write_text("{}")
    monkeypatch.setattr(hardware, "bf16_probe", lambda: Probe("slow", "not tried", 1.0))
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
