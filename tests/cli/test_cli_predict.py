"""``hgclr predict`` with one input: the output is what it is called, every column stays, nothing is no success."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

from hgclr.cli.app import app
from support.bulk_cases import expected, read_lines, write_model

ROWS = [{"id": "7", "text": "atom"}, {"id": "8", "text": "judge, statute"}, {"id": "9", "text": " "}]


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(write_model(tmp_path / "model"))


@pytest.fixture(params=["t.csv", "t.jsonl", "t.parquet"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The same rows in each format."""
    path = tmp_path / request.param
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), path)
    elif path.suffix == ".csv":
        with path.open("w", encoding="utf-8-sig", newline="") as file:
            table = csv.DictWriter(file, ["id", "text"])
            table.writeheader()
            table.writerows(ROWS)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    return path


def run(*arguments: str | Path, code: int = 0, given: str | None = None):
    result = CliRunner().invoke(app, ["predict", *map(str, arguments)], input=given)
    assert result.exit_code == code, result.output
    return result


def ids(text: str) -> str:
    return ";".join(str(label["id"]) for label in expected(text))


@pytest.mark.parametrize("name", ["out.csv", "out.csv.gz", "out.jsonl", "out.parquet", "out"])
def test_the_ending_is_the_format_and_every_column_stays(name: str, source: Path, model: str, tmp_path: Path) -> None:
    target = tmp_path / name
    result = run(model, "--input", source, "--output", target)
    assert "1 empty or blank text without a label" in result.stderr
    if "csv" in name:
        content = gzip.decompress(target.read_bytes()) if name.endswith(".gz") else target.read_bytes()
        rows = list(csv.DictReader(io.StringIO(content.decode(), newline="")))
        assert list(rows[0]) == ["id", "text", "labels", "probabilities"]
        assert [row["labels"] for row in rows] == [*(ids(row["text"]) for row in ROWS[:2]), ""]
    else:
        rows = pyarrow.parquet.read_table(target).to_pylist() if name.endswith("parquet") else read_lines(target)
        assert [row["predictions"] for row in rows] == [*(expected(row["text"]) for row in ROWS[:2]), []]
        if "parquet" not in name:
            assert ["note" in row for row in rows] == [False, False, True]
    assert [{"id": row["id"], "text": row["text"]} for row in rows] == ROWS


def test_format_overrides_the_ending_and_makes_no_folder(model: str, tmp_path: Path) -> None:
    source = tmp_path / "t.txt"
    source.write_text("atom\njudge\n", encoding="utf-8")
    run(model, "--input", source, "--output", tmp_path / "a.csv", "--format", "csv")
    run(model, "--input", source, "--output", tmp_path / "b.txt", "--format", "csv")
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.txt").read_bytes()
    assert run(model, "--input", source, "--format", "csv").stdout == (tmp_path / "a.csv").read_text(encoding="utf-8")
    run(model, "--input", source, "--output", tmp_path / "c.csv", "--format", "jsonl")
    assert [row["text"] for row in read_lines(tmp_path / "c.csv")] == ["atom", "judge"]
    for name in ("x.xlsx", "x.json"):
        failed = run(model, "--input", source, "--output", tmp_path / name, code=2)
        assert f"{name}: unknown format" in failed.stderr
        assert "--format" in failed.stderr
        assert not (tmp_path / name).exists()
    assert "Parquet is not written to standard output" in run(model, "atom", "--format", "parquet", code=2).stderr


def test_leaf_paths(model: str, tmp_path: Path) -> None:
    run(model, "atom statute", "law", "--output", tmp_path / "out.csv", "--leaf-paths")
    with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["text", "labels", "paths", "probabilities"]
    assert [row["paths"] for row in rows] == ["law;science > physics", ""]
    (tmp_path / "in.csv").write_text("text\natom\n", encoding="utf-8")
    run(model, "--input", tmp_path / "in.csv", "--output", f"{tmp_path}/folder/", "--leaf-paths")
    assert "science > physics" in (tmp_path / "folder" / "in.csv").read_text(encoding="utf-8")
    failed = run(model, "--input", tmp_path / "in.csv", "--output", f"{tmp_path}/folder/", code=2)
    assert "made with another choice of --leaf-paths" in failed.stderr


def test_bad_rows_stop_it_or_say_why(model: str, tmp_path: Path) -> None:
    source = tmp_path / "texts.jsonl"
    source.write_text('{"body": "atom"}\n{"body": 3}\n{"body": "a\\ud800"}\n', encoding="utf-8")
    given = [model, "--input", source, "--text-column", "body", "--output", tmp_path / "out.csv"]
    assert "texts.jsonl:2: column 'body': expected a text, got int 3" in run(*given, code=2).stderr
    assert not (tmp_path / "out.csv").exists()
    (tmp_path / "texts.jsonl").write_text('{"body": "atom"}\n{"body": 3}\n{"body": ""}\n', encoding="utf-8")
    assert "1 row without a usable text" in run(*given, "--skip-bad-rows").stderr
    with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as file:
        errors = [row["error"] for row in csv.DictReader(file)]
    assert errors == ["", "row 2: column 'body': expected a text, got int 3", "the text is empty or blank"]


@pytest.mark.parametrize("name", ["e.jsonl", "e.csv", "e.txt", "-"])
def test_an_empty_input_is_no_success(name: str, model: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("text\n" if name == "e.csv" else "", encoding="utf-8")
    source = "-" if name == "-" else tmp_path / name
    failed = run(model, "--input", source, "--output", tmp_path / "out.csv", code=2, given="")
    assert "no text to label: the input is empty" in failed.stderr
    assert not (tmp_path / "out.csv").exists()


def test_an_output_that_cannot_be_written_is_one_line(model: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    failed = run(model, "atom", "--output", tmp_path / "file" / "out.csv", code=2)
    assert failed.stderr.splitlines() == [f"error: {tmp_path}/file/out.csv: cannot be written: Not a directory"]
