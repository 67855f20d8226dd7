"""Nothing calls out: onnxruntime's telemetry, which is on unless told otherwise, never starts in a process of ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hgclr.export.onnx import export_onnx
from hgclr.models.base import save
from support.toy import make_model

# Python's own sockets are recorded and refused here. Those of a compiled library cannot be: that one is told by what it
# keeps in the user's cache, a number for the machine and a list of what to send, from the moment that it is imported.
WATCHED = """
import json, sys

tried = []
def watch(event, arguments):
    if event.startswith("socket."):
        tried.append(event)
        raise PermissionError(event)
sys.addaudithook(watch)

from hgclr.cli.app import app

app(sys.argv[1:], standalone_mode=False)
print(json.dumps({"tried": tried, "onnxruntime": "onnxruntime" in sys.modules}))
"""


@pytest.mark.slow
def test_predicting_with_onnxruntime_tries_no_connection_and_leaves_no_number(
    make_encoder, taxonomy, tmp_path: Path
) -> None:
    save(*make_model(make_encoder, taxonomy), tmp_path / "model")
    export_onnx(tmp_path / "model", tmp_path / "onnx")
    (tmp_path / "texts.jsonl").write_text('{"text": "atom"}\n')
    home = tmp_path / "home"
    home.mkdir()
    # Machines that test others' changes, which onnxruntime knows by these, send nothing anyway.
    kept = {name: value for name, value in os.environ.items() if name not in ("CI", "TF_BUILD", "GITHUB_ACTIONS")}
    environment = kept | {"HOME": str(home), "XDG_CACHE_HOME": str(home / "cache"), "TMPDIR": str(home)}
    for arguments in (
        ["predict", str(tmp_path / "onnx"), "the lens"],
        [
            "predict",
            str(tmp_path / "onnx"),
            "--input",
            str(tmp_path / "texts.jsonl"),
            "--output",
            str(tmp_path / "out"),
        ],
    ):
        done = subprocess.run(
            [sys.executable, "-c", WATCHED, *arguments], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout.splitlines()[-1]) == {"tried": [], "onnxruntime": True}
        assert [path for path in home.rglob("*") if path.is_file()] == []
