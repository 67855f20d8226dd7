from __future__ import annotations

import json
import re
from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hgclr.cli.app import app
from hgclr.errors import InputError

pytestmark = pytest.mark.skipif(find_spec("simple_icd_10_cm") is None, reason="the book is not installed")


def run(*arguments: object):
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, ["data", "prepare", "icd10cm", *map(str, arguments)])


@pytest.mark.slow
def test_prepare(tmp_path: Path) -> None:
    folder = tmp_path / "icd"
    result = run("--output", folder, "--levels", "3", "--seed", "3")
    assert result.exit_code == 0, result.output
    record = json.loads((folder / "corpus.json").read_text())
    assert record["settings"] == {"levels": 3, "seed": 3}
    counts = ", ".join(f"{split} {count:,}" for split, count in record["documents"].items())
    assert result.stdout == f"wrote {folder}: {counts}\n"
    left_out = rf"left out \d+ documents: it cites a code of its own block; see {folder / 'left-out.jsonl'}\n"
    assert re.fullmatch(left_out, result.stderr)
    assert {path.name for path in folder.iterdir()} == {
        "train.jsonl.gz",
        "dev.jsonl.gz",
        "test.jsonl.gz",
        "taxonomy.json",
        "corpus.json",
        "left-out.jsonl",
    }


@pytest.mark.slow
def test_chapters_and_blocks_unless_told(tmp_path: Path) -> None:
    assert run("--output", tmp_path / "icd").exit_code == 0
    labels = json.loads((tmp_path / "icd" / "taxonomy.json").read_text())["labels"]
    tops = {label["id"] for label in labels if label["parent"] is None}
    assert len(tops) == 22
    assert {label["parent"] for label in labels} == {None, *tops}


def test_other_peoples_files_stay(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("precious")
    result = run("--output", tmp_path)
    assert result.exit_code == 2
    assert "'notes.txt'" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.slow
def test_too_many_levels_are_one_line_and_leave_nothing(tmp_path: Path) -> None:
    result = run("--output", tmp_path / "icd", "--levels", "8")
    assert result.exit_code == 2
    assert result.stderr == "error: 8 levels of a book that has 7; ask for 1 to 7\n"
    assert list(tmp_path.iterdir()) == []
    assert run("--output", tmp_path / "icd", "--levels", "0").exit_code == 2


@pytest.mark.slow
def test_an_interruption_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(text: str, seed: int) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("hgclr.data.icd10cm._split", interrupt)
    result = run("--output", tmp_path / "icd")
    assert result.exit_code not in (0, 2)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("options", "levels"), [([], 2), (["--categories"], 3)])
def test_quickstart_builds_these_levels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], levels: int
) -> None:
    pytest.importorskip("torch")
    asked = []

    def build(output: Path, *, levels: int, seed: int = 0) -> None:
        asked.append((output, levels, seed))
        raise InputError("enough")

    monkeypatch.setattr("hgclr.cli.prepare.build_icd10cm_with_bar", build)
    monkeypatch.setattr("hgclr.encoders.cached_encoder", lambda _: tmp_path)
    result = CliRunner().invoke(app, ["quickstart", "--output", str(tmp_path), *options])
    assert result.exit_code == 2
    assert asked == [(tmp_path / "icd10cm", levels, 0)]
