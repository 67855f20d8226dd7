"""The tutorial is followed from its first step to its last, with a tiny encoder in the place of the real one."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from hgclr.cli import machine as doctor
from hgclr.cli.app import app
from hgclr.cli.machine import HealthCheck
from support.doc_pages import DOCS, Block, blocks, commands

PAGE = DOCS / "tutorial" / "index.md"
SHELL = [block for block in blocks(PAGE) if block.language == "sh"]


@pytest.fixture(autouse=True)
def _nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the doctor from looking for networks."""
    for check in ("_hub", "_index", "_devices"):
        monkeypatch.setattr(doctor, check, lambda: HealthCheck("outside", "ok", "answers"))


def test_what_it_shows_of_the_files_is_in_them() -> None:
    (table,) = (block for block in blocks(PAGE) if block.language == "csv")
    messages = (DOCS / "tutorial" / "messages.csv").read_text(encoding="utf-8").splitlines()
    assert set(table.text.splitlines()) <= set(messages)
    assert f"{len(messages) - 1} messages" in PAGE.read_text(encoding="utf-8")


def test_test_is_used_once() -> None:
    """Only ``hgclr evaluate`` scores test, and no output before it shows a score of test."""
    calls = [words for block in SHELL for words in commands(block.text)]
    assert [words[1] for words in calls if words[1] == "evaluate" or "test" in words] == ["evaluate"]
    (evaluated,) = (block.line for block in SHELL if block.text.startswith("hgclr evaluate"))
    shown = [block for block in blocks(PAGE) if block.language == "text" and "Micro-F1" in block.text]
    assert len(shown) > 1
    for block in shown:
        assert block.line > evaluated or "test" not in block.text


@pytest.mark.slow
def test_it_can_be_followed(default_encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "tutorial"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for name in ("messages.csv", "labels.txt"):
        shutil.copy(DOCS / "tutorial" / name, folder)
    for block in blocks(PAGE):
        if block.title:
            (folder / block.title).write_text(block.text, encoding="utf-8")
    run: list[str] = []
    for words in (words for block in SHELL for words in commands(block.text) if words[1] != "serve"):
        result = CliRunner().invoke(app, words[1:])
        assert result.exit_code == 0, f"{' '.join(words)}\n{result.output}\n{result.exception}"
        run.append(words[1])
    assert " ".join(run) == "doctor encoders taxonomy data data data train predict explain calibrate evaluate export"
    for left in ("runs/library/model/decisions.json", "my-report/report.html", "library-int8/model.onnx"):
        assert (folder / left).is_file()
    ask(SHELL, folder)


def ask(shell: list[Block], folder: Path) -> None:
    """Start the service as the page says, on a free port, and send it what the page sends."""
    (serve,) = (words for block in shell for words in commands(block.text) if words[1] == "serve")
    (curl,) = (shlex.split(block.text) for block in shell if block.text.startswith("curl "))
    program = [sys.executable, "-c", "from hgclr.cli.app import app; app()", *serve[1:], "--port", "0"]
    with subprocess.Popen(program, cwd=folder, stderr=subprocess.PIPE, text=True) as service:
        try:
            said = ""
            while not (address := re.search(r"http://127\.0\.0\.1:\d+", said)):
                line = service.stderr.readline()
                assert line, f"the service has ended: {said}"
                said += line
            assert curl[1] == "localhost:8000/predict"
            answer = post(f"{address[0]}/predict", json.loads(curl[curl.index("--json") + 1]))
        finally:
            service.terminate()
            service.stderr.read()
    assert service.returncode == 0
    (prediction,) = answer["predictions"]
    assert {"labels", "abstained", "truncated"} <= prediction.keys()


def post(address: str, request: dict[str, object]) -> dict[str, list[dict[str, object]]]:
    """Ask once the service has warmed up."""
    for _ in range(100):
        response = httpx.post(address, json=request, trust_env=False)
        if response.status_code != httpx.codes.SERVICE_UNAVAILABLE:
            break
        time.sleep(0.1)
    assert response.status_code == httpx.codes.OK, response.text
    return response.json()
