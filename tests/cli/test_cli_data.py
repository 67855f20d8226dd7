from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hgclr.cli.app import app

TAXONOMY = "Root\tA\tB\nA\tA1\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    path.mkdir()
    (path / "taxonomy.tsv").write_text(TAXONOMY)
    rows = [{"text": "one two", "labels": ["A", "A1"]}, {"text": "three", "labels": ["A"]}]
    for name in ("train", "dev"):
        (path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def run(*arguments: object):
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, ["data", *map(str, arguments)])


def test_check_prints_a_table_and_warnings(folder: Path) -> None:
    result = run("check", folder)
    assert result.exit_code == 0
    (train,) = [line.split() for line in result.stdout.splitlines() if line.startswith("train")]
    assert train == ["train", "2", "0", "1.50", "1.5", "2", "2", "0"]
    assert "3 labels, depth 2" in result.stdout
    assert "warning: 2 texts are in both train and dev" in result.stdout
    assert "warning: 1 branch of the tree has no document in any split (1 label): B" in result.stdout
    assert "warning: 1 label is on every document of train: A" in result.stdout
    assert "note: 4 texts have fewer than 3 words (100.0 %)" in result.stdout
    assert result.stderr == ""


def test_check_lists_the_first_ten_bad_rows(folder: Path, tmp_path: Path) -> None:
    (folder / "train.jsonl").write_text('{"text": "x", "labels": ["A"]}\n' + "{broken\n" * 12)
    (folder / "dev.jsonl").write_text('{"text": "x", "labels": ["A"]}\n{"text": "x", "labels": ["C"]}\n')
    side = tmp_path / "bad.jsonl"
    result = run("check", folder)
    assert result.exit_code == 2
    lines = result.stderr.splitlines()
    assert [line.split(": ")[0] for line in lines[:10]] == [f"{folder / 'train.jsonl'}:{row}" for row in range(2, 12)]
    assert all("broken JSON" in line for line in lines[:10])
    assert lines[10:] == ["and 3 more; --bad-rows FILE writes all of them"]
    result = run("check", folder, "--bad-rows", side)
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1] == f"and 3 more; all are in {side}"
    assert len(side.read_text().splitlines()) == 13


def test_check_may_skip_bad_rows(folder: Path, tmp_path: Path) -> None:
    with (folder / "dev.jsonl").open("a") as file:
        file.write("[]\n")
    side = tmp_path / "bad.jsonl"
    result = run("check", folder, "--skip-bad-rows", "--bad-rows", side)
    assert result.exit_code == 0
    (dev,) = [line.split() for line in result.stdout.splitlines() if line.startswith("dev")]
    assert dev[1:3] == ["2", "1"]
    assert json.loads(side.read_text())["row"] == 3


def test_an_empty_split_fails_even_so(folder: Path) -> None:
    (folder / "dev.jsonl").write_text("[]\n")
    result = run("check", folder, "--skip-bad-rows")
    assert result.exit_code == 2
    assert f"{folder / 'dev.jsonl'}: empty split: no good row" in result.stderr


def test_check_options(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("body,tags\nx,A/A1|B\ny,A1\n")
    tree = tmp_path / "elsewhere.tsv"
    tree.write_text(TAXONOMY)
    report = tmp_path / "out" / "report.json"
    options = [
        "--text-column",
        "body",
        "--label-column",
        "tags",
        "--label-separator",
        "|",
        "--path-separator",
        "/",
    ]
    result = run("check", tmp_path, *options, "--taxonomy", tree)
    assert result.exit_code == 2
    assert "train.csv:3: label without its parent: 'A1'" in result.stderr
    result = run("check", tmp_path, *options, "--taxonomy", tree, "--add-ancestors", "--json", report)
    assert result.exit_code == 0
    assert json.loads(report.read_text())["splits"]["train"]["labels_per_document"] == (3 + 2) / 2


@pytest.mark.slow
def test_check_writes_a_report_also_when_it_fails(folder: Path, tmp_path: Path) -> None:
    with (folder / "dev.jsonl").open("a") as file:
        file.write("[]\n")
    result = run("check", folder, "--output", tmp_path / "report")
    assert result.exit_code == 2
    assert f"written: {tmp_path / 'report' / 'report.html'}" in result.stdout
    assert "wrong type: the row is a list" in (tmp_path / "report" / "report.html").read_text()
    assert json.loads((tmp_path / "report" / "check.json").read_text())["splits"]["dev"]["bad_rows"] == 1


def test_check_refuses_a_file_as_report_folder_before_it_reads(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = run("check", folder, "--output", tmp_path / "file")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "the output is a file; give a folder" in result.stderr


def test_markup_in_the_data_is_printed_as_it_is(folder: Path) -> None:
    (folder / "train.jsonl").write_text(json.dumps({"text": "[red]one[/]", "labels": ["A"]}) + "\n")
    (folder / "dev.jsonl").write_text(json.dumps({"text": "[red]one[/]", "labels": ["A", "A1"]}) + "\n")
    assert "'[red]one[/]' (train: A; dev: A, A1)" in run("check", folder).stdout


def test_errors_are_one_line(tmp_path: Path) -> None:
    result = run("check", tmp_path / "absent")
    assert result.exit_code == 2
    assert result.stderr == f"error: {tmp_path / 'absent'}: no such data folder\n"


def test_prepare_names_its_corpora() -> None:
    result = run("prepare", "--help")
    assert result.exit_code == 0
    assert "icd10cm" in result.stdout


@pytest.mark.slow
@pytest.mark.parametrize("command", ["check", "stats"])
def test_looking_at_data_imports_no_training_stack(folder: Path, command: str) -> None:
    import subprocess

    code = (
        "import sys; from hgclr.cli.app import app; app(sys.argv[1:], standalone_mode=False); "
        "print({'torch', 'transformers', 'datasets', 'pyarrow', 'matplotlib', 'tokenizers'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "data", command, str(folder)], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "set()"
