"""Every example and notebook runs, with a tiny encoder and one epoch."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hgclr.cli.app import app

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPTS = sorted(path.name for path in EXAMPLES.glob("*.py") if path.name != "tickets.py")
NOTEBOOKS = sorted(path.name for path in EXAMPLES.glob("*.ipynb"))
EXPECTED = {
    "decide.py": ["as tuned", "one half", "best path", "two paths", "held-out Micro-F1"],
    "explain_and_audit.py": ["because of", "row "],
    "in_memory.py": ["epoch 1: dev Micro-F1", "test Micro-F1"],
    "onnx_export.py": ["MB became", "of 12 tickets"],
    "own_csv.py": ["Micro-F1 on 12 tickets held out"],
    "trainer.py": ["epoch 1: Micro-F1"],
    "own_csv.ipynb": ["Micro-F1 on the last 12 rows", "<-"],
    "paper_table.ipynb": ["HGCLR", "BERT"],
}


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """A script run from the folder of the examples, in this process, which has imported torch already."""
    monkeypatch.chdir(EXAMPLES)
    monkeypatch.syspath_prepend(EXAMPLES)

    def run(*command: str) -> str:
        monkeypatch.setattr("sys.argv", list(command))
        runpy.run_path(command[0], run_name="__main__")
        return capfd.readouterr().out

    return run


def test_all_are_listed() -> None:
    readme = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert len(SCRIPTS) == 6
    assert len(NOTEBOOKS) == 2
    assert set(EXPECTED) == {*SCRIPTS, *NOTEBOOKS}
    for name in (*SCRIPTS, *NOTEBOOKS):
        assert f"[{name}]({name})" in readme


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_run(name: str, run: Callable[..., str], make_encoder) -> None:
    output = run(name, "--encoder", make_encoder("bert"), "--epochs", "1")
    for words in EXPECTED[name]:
        assert words in output


@pytest.fixture
def _commands_run_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give what is run as ``python -m hgclr`` to this process, which has imported torch already."""
    in_process_of_its_own = subprocess.run

    def run(command: list[str], **options: Any) -> object:
        if command[:3] != [sys.executable, "-m", "hgclr"]:
            return in_process_of_its_own(command, **options)
        result = CliRunner().invoke(app, command[3:])
        assert (result.exit_code, options) == (0, {"check": True}), result.output
        return result

    monkeypatch.setattr(subprocess, "run", run)


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTEBOOKS)
@pytest.mark.usefixtures("_commands_run_here")
def test_notebooks_run(name: str, run: Callable[..., str], make_encoder, tmp_path: Path) -> None:
    """The cells of a notebook, one after the other, as a script."""
    cells = json.loads((EXAMPLES / name).read_text(encoding="utf-8"))["cells"]
    code = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    assert "all-MiniLM-L6-v2" in code
    code = code.replace('"all-MiniLM-L6-v2"', repr(make_encoder("bert")))
    (tmp_path / "notebook.py").write_text(code.replace(", 10\n", ", 1\n"), encoding="utf-8")
    output = run(str(tmp_path / "notebook.py"))
    for words in EXPECTED[name]:
        assert words in output
