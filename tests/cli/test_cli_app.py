"""The command line as a whole: help, errors on one line with exit code 2, outputs that cannot be written, pipes."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hgclr.cli.app import app
from support.bulk_cases import path_to, write_model

ROWS = [
    {"text": f"{word} {number}", "labels": path_to(label)}
    for number in range(8)
    for word, label in (("atom", "physics"), ("judge", "courts"), ("experiment", "science"))
]


def run(*arguments: object, text: str | None = None):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=text)


@pytest.mark.slow
def test_help_is_instant_and_loads_nothing_heavy(in_time) -> None:
    code = (
        "import sys\n"
        "from hgclr.cli.app import app\n"
        "app(['--help'], standalone_mode=False)\n"
        "print('HEAVY', [m for m in ('torch', 'transformers', 'datasets', 'numpy', 'yaml') if m in sys.modules])"
    )
    for _ in range(3):  # one run may be slow because files are read for the first time
        before = os.times()
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        after = os.times()  # CPU time, not the wall clock: other tests run beside this one
        assert done.stdout.splitlines()[-1] == "HEAVY []"
        seconds = after.children_user + after.children_system - before.children_user - before.children_system
        if in_time(seconds, 0.5):
            break
    else:
        pytest.fail(f"help takes {seconds:.2f} s")


MISTAKES = [
    ("train nowhere.yaml", "nowhere.yaml"),
    ("train run.yaml --set training.epoch=3", "epochs"),
    ("train data --set model.keep_treshold=3", "keep_threshold"),
    ("train data --set training.effort=half", "training.effort"),
    ("train data", "data"),
    ("train data --from nowhere", "nowhere"),
    ("tune nowhere.yaml", "nowhere.yaml"),
    ("audit nowhere.yaml", "nowhere.yaml"),
    ("predict nowhere text", "nowhere"),
    ("predict data --input nowhere.csv", "nowhere.csv"),
    ("predict nowhere text --input x", "--input"),
    ("evaluate nowhere data", "nowhere"),
    ("evaluate data nowhere", "nowhere"),
    ("calibrate data nowhere", "nowhere"),
    ("explain nowhere text", "nowhere"),
    ("export nowhere --to stock --output out", "nowhere"),
    ("taxonomy check nowhere", "nowhere"),
    ("data check nowhere", "nowhere"),
    ("data import nowhere.csv --output out", "nowhere.csv"),
    ("encoders get no-such", "no-such"),
]
PROGRAM = """
import sys
from typer.testing import CliRunner
from hgclr.cli.app import app
for line in sys.stdin.read().splitlines():
    result = CliRunner(env={"COLUMNS": "500"}).invoke(app, line.split())
    print(result.exit_code, "torch" in sys.modules, repr(result.stdout), repr(result.stderr), sep="\\t")
"""


def test_mistakes_are_one_line_before_torch_is_imported(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "run.yaml").write_text("data: {path: data}\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input="\n".join(command for command, _ in MISTAKES),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    for (command, named), line in zip(MISTAKES, done.stdout.splitlines(), strict=True):
        code, with_torch, output, error = line.split("\t")
        assert (command, code, with_torch, output) == (command, "2", "False", "''")
        assert error.startswith(("'error: ", '"error: ')), command
        assert named in error, command
        assert error.count("\\n") == 1, command


def test_a_missing_extra_is_one_line(toy_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A finder that hides torch stands for an installation without the train extra."""
    real = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name, package=None: None if name == "torch" else real(name, package)
    )
    monkeypatch.chdir(tmp_path)
    (model := tmp_path / "model").mkdir()
    for command in (["train", "x.yaml"], ["predict", model, "text"], ["evaluate", model, toy_data], ["quickstart"]):
        result = run(*command)
        assert result.exit_code == 2, result.output
        (line,) = result.stderr.splitlines()
        assert "[train]" in line


@pytest.mark.parametrize(
    "command", ["settings training", "data check {}", "data stats {}", "taxonomy diff {0}/taxonomy.tsv {0}", "doctor"]
)
def test_a_dash_as_the_file_of_json_is_standard_output(
    command: str, toy_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hgclr.cli.machine.examine", lambda _: [])
    words = command.format(toy_data).split()
    to_file, printed = run(*words, "--json", tmp_path / "file.json"), run(*words, "--json", "-")
    assert to_file.exit_code == printed.exit_code == 0, printed.output
    assert printed.stdout == (tmp_path / "file.json").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_reader_that_leaves_is_no_error(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model")  # whose process need not import torch
    command = f"yes 'the lens' | head -n 20000 | '{sys.executable}' -m hgclr predict {model} | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=600, check=False)
    assert json.loads(done.stdout)["text"] == "the lens"
    assert done.stderr == ""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, data, a tree, settings, and a file where the outputs would need a folder."""
    folder = tmp_path_factory.mktemp("place")
    write_model(folder / "model")
    (folder / "data").mkdir()
    for name in ("data/taxonomy.json", "old.json", "new.json"):
        (folder / name).write_text('{"science": {"physics": {}}, "law": {"courts": {}}}', encoding="utf-8")
    for split in ("train", "dev", "test"):
        lines = "".join(json.dumps(row) + "\n" for row in ROWS)
        (folder / "data" / f"{split}.jsonl").write_text(lines, encoding="utf-8")
    (folder / "run.yaml").write_text("data:\n  path: data\nmodel:\n  encoder: nowhere\n", encoding="utf-8")
    (folder / "file").touch()
    return folder


FAST = [
    "train run.yaml --output file/out",
    "audit model data --output file/out",
    "evaluate model data --json file/out.json",
    "predict model atom --output file/out.csv",
    "predict model --input data/test.jsonl --output file/out/",
    "export model --to onnx --output file/out",
    "taxonomy convert old.json file/new.csv",
    "taxonomy diff old.json new.json --json file/out.json",
    "data check data --json file/out.json",
]
SLOW = [
    "tune run.yaml --trials 1 --set model.architecture=hgclr --output file/out",
    "quickstart --output file/out",
    "calibrate model data --folds 2 --config run.yaml --output file/out",
    "audit model data --split dev --json file/out.json",
    "audit run.yaml --effort full --output file/out",
    "evaluate model data --output file/out",
    "explain model atom --json file/out.json",
    "data check data --bad-rows file/out.jsonl",
    "data import data/train.jsonl --taxonomy old.json --output file/out",
    "data stats data --json file/out.json",
    "data stats data --output file/out",
]


@pytest.mark.parametrize("command", [*FAST, *(pytest.param(command, marks=pytest.mark.slow) for command in SLOW)])
def test_an_output_that_cannot_be_written_is_one_line(
    command: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    result = run(*command.split())
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit), result.exception
    (error,) = (line for line in result.stderr.splitlines() if line.startswith("error:"))
    assert "file" in error
    assert (place / "file").read_bytes() == b""


@pytest.mark.parametrize("command", ["evaluate model empty", "calibrate model empty"])
def test_a_split_without_a_document_is_no_success(command: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "empty").mkdir(exist_ok=True)
    for split in ("dev", "test"):
        (place / "empty" / f"{split}.jsonl").touch()
    monkeypatch.chdir(place)
    result = run(*command.split())
    assert result.exit_code == 2, result.output
    assert ".jsonl" in result.stderr
    assert not (place / "model" / "decisions.json").exists()
