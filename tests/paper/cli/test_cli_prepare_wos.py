from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hgclr.cli.app import app
from hgclr.data import DataFolder

openpyxl = pytest.importorskip("openpyxl")
pytest.importorskip("sklearn")

HEADER = ["Y1", "Y2", "Y", "Domain", "area", "keywords", "Abstract"]


def run(*arguments: object):
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, ["data", "prepare", "wos", *map(str, arguments)])


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Eleven rows: area Rare has the same code as Common, and one row has no abstract."""
    workbook = openpyxl.Workbook()
    workbook.active.append(HEADER)
    for number in range(11):
        area = "Rare" if number == 10 else "Common"
        workbook.active.append([0, 1, 1, "CS", area, "", None if number == 5 else f"Text {number}"])
    path = tmp_path / "source" / "Meta-data" / "Data.xlsx"
    path.parent.mkdir(parents=True)
    workbook.save(path)
    return path


def refused(tmp_path: Path, source: Path) -> str:
    """The error of a source that cannot be used, after which nothing is left behind."""
    before = sorted(tmp_path.iterdir())
    result = run("--source", source, "--output", tmp_path / "out")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert sorted(tmp_path.iterdir()) == before
    (line,) = result.stderr.splitlines()
    return line


def test_prepare(source: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    result = run("--source", source.parents[1], "--output", output)
    assert result.exit_code == 0
    written = json.loads((output / "corpus.json").read_text())["documents"]
    assert sum(written.values()) == 10
    counts = f"train {written['train']}, dev {written['dev']}, test {written['test']}"
    assert result.stdout == f"wrote {output}: {counts}\n"
    assert f"left out 1 document: no abstract; see {output / 'left-out.jsonl'}" in result.stderr
    assert "11 rows, not the 46,985 of WOS-46985" in " ".join(result.stderr.split())
    assert DataFolder(output).taxonomy.ids == ("CS", "Common")
    assert CliRunner().invoke(app, ["data", "check", str(output)]).exit_code == 0


def test_original_labels(source: Path, tmp_path: Path) -> None:
    result = run("--source", source, "--output", tmp_path / "out", "--labels", "original")
    assert result.exit_code == 0
    assert DataFolder(tmp_path / "out").taxonomy.ids == ("CS", "Common", "Rare")
    result = run("--source", source, "--output", tmp_path / "out", "--labels", "merged")
    assert result.exit_code == 2


def test_a_truncated_spreadsheet(source: Path, tmp_path: Path) -> None:
    source.write_bytes(source.read_bytes()[:2000])
    line = refused(tmp_path, source)
    assert line.startswith(f"error: {source}: damaged, truncated or no XLSX file: ")
    assert line.endswith("; copy it again from its source")


def test_a_wrong_number_of_columns(tmp_path: Path) -> None:
    source = tmp_path / "Data.txt"
    source.write_text("\t".join(HEADER) + "\n0\t1\t1\tCS\tx\tk\ttext\n0\t1\t1\tCS\tx\ttext\n")
    assert refused(tmp_path, source) == (
        f"error: {source}:3: 6 columns instead of 7; a cell must hold neither tabs nor line breaks"
    )


def test_a_missing_file(tmp_path: Path) -> None:
    assert refused(tmp_path, tmp_path / "Data.xlsx") == f"error: {tmp_path / 'Data.xlsx'}: no such file or folder"


def test_an_earlier_build_survives_a_failure(source: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    assert run("--source", source, "--output", output).exit_code == 0
    before = {path.name: path.read_bytes() for path in output.iterdir()}
    source.write_bytes(b"no zip")
    assert run("--source", source, "--output", output).exit_code == 2
    assert {path.name: path.read_bytes() for path in output.iterdir()} == before


def test_help_names_the_options() -> None:
    result = run("--help")
    assert result.exit_code == 0
    for words in ("--source", "--output", "--labels", "Data.xlsx", "literature", "original"):
        assert words in result.stdout


def test_importing_the_command_imports_no_libraries() -> None:
    import subprocess

    code = (
        "import sys, hgclr.cli.prepare, hgclr.paper.corpora.wos; "
        "print({'openpyxl', 'sklearn', 'torch', 'datasets', 'pyarrow'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
