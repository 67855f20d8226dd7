"""A wrong path or setting is told before torch is imported, which takes seconds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CASES = [
    ("train nowhere.yaml", "nowhere.yaml: no such file or folder"),
    ("train run.yaml --set training.epoch=3", "did you mean 'epochs'?"),
    ("train data --set model.keep_treshold=3", "did you mean 'keep_threshold'?"),
    ("train data --set training.effort=half", "training.effort"),
    ("train data", "no train, dev or test split"),
    ("train data --from nowhere", "no such folder to start from"),
    ("tune nowhere.yaml", "nowhere.yaml: no such file or folder"),
    ("audit --folds 2 --config nowhere.yaml", "nowhere.yaml: no such file or folder"),
    ("predict nowhere text", "no model could be loaded from nowhere: no such folder"),
    ("predict data --input nowhere.csv", "nowhere.csv: no such file or folder"),
    ("evaluate nowhere data", "no model could be loaded from nowhere"),
    ("evaluate data nowhere", "nowhere: no such data folder"),
    ("calibrate data nowhere", "nowhere: no such data folder"),
    ("explain nowhere text", "no model could be loaded from nowhere"),
    ("export nowhere --to stock --output out", "no model could be loaded from nowhere"),
    ("settings training", None),
    ("data import nowhere.csv --output out", "nowhere.csv: no such file"),
]
PROGRAM = """
import sys
from typer.testing import CliRunner
from hgclr.cli.app import app
for line in sys.stdin.read().splitlines():
    result = CliRunner(env={"COLUMNS": "500"}).invoke(app, line.split())
    print(result.exit_code, "torch" in sys.modules, result.stderr.replace("\\n", " "), sep="\\t")
"""


def test_mistakes_are_told_without_torch(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "run.yaml").write_text("data: {path: data}\n", encoding="utf-8")
    told = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input="\n".join(command for command, _ in CASES),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert len(told) == len(CASES)
    for (command, message), line in zip(CASES, told, strict=True):
        code, with_torch, said = line.split("\t")
        assert (command, with_torch) == (command, "False")
        assert (command, code) == (command, "0" if message is None else "2")
        assert (message or "") in said, command
