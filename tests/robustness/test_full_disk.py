"""A disk that is full or broken: one line, exit code 2, and what was there before is there still.

The limit on the size of a file makes every library fail in the middle of writing, whatever it is written in.
"""

from __future__ import annotations

import errno
import json
import os
import resource
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

import hgclr.files
from hgclr.cli.app import app
from hgclr.errors import InputError, system_failure
from hgclr.files import atomic_folder, write_json
from hgclr.models.base import save
from support.crash_points import run_forked
from support.toy import make_model

BYTES = 3_000


@pytest.fixture(scope="module")
def model(make_encoder, taxonomy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("full") / "model"
    network, tokenizer = make_model(make_encoder, taxonomy)
    save(network.deployed(), tokenizer, folder)
    return folder


def fails_in_one_line(arguments: list[str]) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (BYTES, BYTES))
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 2, (done.exit_code, done.exception, done.stderr)
    *_, last = done.stderr.splitlines()  # training tells how it goes before that
    assert last.startswith("error: "), done.stderr
    assert done.stderr.count("error") == 1, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ["export", "MODEL", "--to", "stock", "--output", "OUT/stock"],
        ["export", "MODEL", "--to", "onnx", "--output", "OUT/onnx"],
        ["predict", "MODEL", "--input", "TEXTS", "--output", "OUT/labels.jsonl"],
        ["predict", "MODEL", "--input", "TEXTS", "--output", "OUT/bulk/"],
        ["train", "RUN", "--output", "OUT/run"],
    ],
    ids=lambda command: " ".join(command[:4]),
)
def test_a_full_disk_is_one_line_and_leaves_no_output(
    command: list[str], model: Path, make_encoder, toy_data: Path, tmp_path: Path
) -> None:
    texts = tmp_path / "texts.jsonl"
    texts.write_text('{"text": "the lens of a prism"}\n' * 100)
    run = {
        "data": {"path": str(toy_data), "limit": 24},
        "model": {"encoder": make_encoder("bert")},
        "training": {"epochs": 1, "batch_size": 12, "precision": "fp32"},
    }
    (tmp_path / "run.yaml").write_text(json.dumps(run))
    out = tmp_path / "out"
    places = {"MODEL": str(model), "TEXTS": str(texts), "RUN": str(tmp_path / "run.yaml")}
    arguments = [places.get(word, word.replace("OUT", str(out))) for word in command]
    status = run_forked(partial(fails_in_one_line, arguments), tmp_path / "log")
    assert status == 0, (tmp_path / "log").read_text()
    for name in ("stock", "onnx", "labels.jsonl", "bulk/texts.jsonl", "run/model", "run/metrics.json"):
        assert not (out / name).exists()


@pytest.mark.parametrize("call", ["fsync", "chmod", "rename"])
def test_what_was_there_stays_there(call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_json(tmp_path / "a.json", "old")
    with atomic_folder(tmp_path / "folder") as folder:
        (folder / "b").write_text("old")

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, call, fail)
    monkeypatch.setattr(os, "replace", fail if call == "rename" else os.replace)
    monkeypatch.setattr(hgclr.files, "_renameat2", None)
    with pytest.raises(InputError):
        write_json(tmp_path / "a.json", "new")

    def write() -> None:
        with atomic_folder(tmp_path / "folder") as folder:
            (folder / "b").write_text("new")

    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        write()
    monkeypatch.undo()
    assert json.loads((tmp_path / "a.json").read_text()) == "old"
    assert (tmp_path / "folder" / "b").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "folder"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_a_full_standard_output_is_one_line(taxonomy, tmp_path: Path) -> None:
    taxonomy.write(tmp_path / "tree.tsv")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "hgclr", "taxonomy", "show", str(tmp_path / "tree.tsv")],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(errno.EROFS, "Read-only file system", "/a"), "/a: Read-only file system"),
        (RuntimeError("IoError: No space left on device (os error 28)"), "No space left on device"),
        (RuntimeError("PytorchStreamWriter failed writing file data/0"), "a file"),
        (MemoryError(), "out of memory"),
        (RuntimeError("a mistake of ours"), None),
    ],
)
def test_failures_of_the_machine_are_found(error: Exception, expected: str | None) -> None:
    found = system_failure(error)
    assert found is None if expected is None else (found or "").startswith(expected)
