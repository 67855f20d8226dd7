"""``hgclr predict``: the output is what its name says, every column stays, and bulk goes into a folder."""

from __future__ import annotations

import csv
import gzip
import io
import json
import subprocess
import sys
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

from hgclr.cli.app import app
from hgclr.inference import loading
from support.bulk_cases import check_lines, expected, prediction, read_lines, write_lines, write_model

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
    if code == 2:
        assert len([line for line in result.stderr.splitlines() if line.startswith("error:")]) == 1
    return result


def read_table(path: Path) -> list[dict[str, str]]:
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return list(csv.DictReader(io.StringIO(content.decode(), newline="")))


@pytest.mark.parametrize("name", ["out.csv.gz", "out.jsonl", "out.parquet", "out"])
def test_the_ending_is_the_format_and_every_column_stays(name: str, source: Path, model: str, tmp_path: Path) -> None:
    target = tmp_path / name
    result = run(model, "--input", source, "--output", target)
    assert "1 empty or blank text without a label" in result.stderr
    if "csv" in name:
        rows = read_table(target)
        assert list(rows[0]) == ["id", "text", "labels", "probabilities"]
        wanted = [";".join(str(label["id"]) for label in expected(row["text"])) for row in ROWS[:2]]
        assert [row["labels"] for row in rows] == [*wanted, ""]
    else:
        rows = pyarrow.parquet.read_table(target).to_pylist() if name.endswith("parquet") else read_lines(target)
        found = [row["prediction"] for row in rows]
        assert [each["labels"] for each in found] == [*(expected(row["text"]) for row in ROWS[:2]), []]
        assert [bool(each.get("note")) for each in found] == [False, False, True]
    assert [{"id": row["id"], "text": row["text"]} for row in rows] == ROWS


def test_arguments_and_standard_input(model: str) -> None:
    for result in (run(model, "atom", "judge"), run(model, given="atom\njudge\n")):
        rows = [json.loads(line) for line in result.stdout.splitlines()]
        assert rows == [{"text": text, "prediction": prediction(text)} for text in ("atom", "judge")]
    assert "physics" in run(model, "atom", "--show", "tree").stdout


def test_format_overrides_the_ending(model: str, tmp_path: Path) -> None:
    source = tmp_path / "t.txt"
    source.write_text("atom\njudge\n", encoding="utf-8")
    run(model, "--input", source, "--output", tmp_path / "a.csv", "--format", "csv")
    run(model, "--input", source, "--output", tmp_path / "b.txt", "--format", "csv")
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.txt").read_bytes()
    assert run(model, "--input", source, "--format", "csv").stdout == (tmp_path / "a.csv").read_text(encoding="utf-8")
    run(model, "--input", source, "--output", tmp_path / "c.csv", "--format", "jsonl")
    assert [row["text"] for row in read_lines(tmp_path / "c.csv")] == ["atom", "judge"]
    assert "--format" in run(model, "--input", source, "--output", tmp_path / "x.xlsx", code=2).stderr
    run(model, "atom", "--format", "parquet", code=2)  # to standard output


def test_leaf_paths(model: str, tmp_path: Path) -> None:
    run(model, "atom statute", "law", "--output", tmp_path / "out.csv", "--leaf-paths")
    rows = read_table(tmp_path / "out.csv")
    assert list(rows[0]) == ["text", "labels", "paths", "probabilities"]
    assert [row["paths"] for row in rows] == ["law;science > physics", ""]


def test_bad_rows_stop_it_or_say_why(model: str, tmp_path: Path) -> None:
    source = tmp_path / "texts.jsonl"
    source.write_text('{"body": "atom"}\n{"body": 3}\n{"body": ""}\n', encoding="utf-8")
    given = [model, "--input", source, "--text-column", "body", "--output", tmp_path / "out.csv"]
    assert f"{source}:2:" in run(*given, code=2).stderr
    assert not (tmp_path / "out.csv").exists()
    assert "1 row without a usable text" in run(*given, "--skip-bad-rows").stderr
    errors = [row["error"] for row in read_table(tmp_path / "out.csv")]
    assert [error[:5] for error in errors] == ["", "row 2", "the t"]


@pytest.mark.parametrize("name", ["e.jsonl", "e.csv", "e.txt", "-"])
def test_an_empty_input_is_no_success(name: str, model: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("text\n" if name == "e.csv" else "", encoding="utf-8")
    source = "-" if name == "-" else tmp_path / name
    run(model, "--input", source, "--output", tmp_path / "out.csv", code=2, given="")
    assert not (tmp_path / "out.csv").exists()


def test_the_model_is_looked_up_once(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up: list[str] = []

    def local(place: str, *_: object) -> Path:
        looked_up.append(place)
        return Path(model)

    monkeypatch.setattr(loading, "local", local)
    source = write_lines(tmp_path / "t.jsonl", 0, 3)
    for number, arguments in enumerate((["atom"], ["--input", str(source), "--output", f"{tmp_path}/out/"]), 1):
        run("s3://a-bucket/model", *arguments)
        assert len(looked_up) == number


def test_a_pattern_goes_into_a_folder(model: str, tmp_path: Path) -> None:
    for part in range(2):
        write_lines(tmp_path / f"part-{part}.jsonl", 10 * part, 10)
    out, given = tmp_path / "out", [model, "--input", tmp_path / "part-*.jsonl", "--output"]
    result = run(*given, out)
    assert result.stdout == ""
    assert f"20 rows of 2 files labelled into {out}" in result.stderr
    for part in range(2):
        check_lines(out / f"part-{part}.jsonl", 10 * part, 10)
    assert "2 files had been finished before" in run(*given, out).stderr
    run(*given, out, "--rule", "closure", code=2)
    run(*given, out, "--rule", "closure", "--overwrite")


def test_options_arrive_in_bulk(model: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("body,id\natom,1\n", encoding="utf-8")
    options = ["--text-column", "body", "--abstain-below", "0.95", "--format", "jsonl", "--engine", "local"]
    run(model, "--input", tmp_path / "t.csv", "--output", tmp_path / "out", *options)
    (row,) = read_lines(tmp_path / "out" / "t.jsonl")
    assert row == {"body": "atom", "id": "1", "prediction": prediction("", abstained=expected("atom"))}


@pytest.mark.parametrize(
    "arguments",
    [
        ["text", "--input", "t.jsonl"],
        ["--input", "."],
        ["--input", "t.jsonl", "--input", "-", "--output", "out"],
        ["--input", "t.jsonl", "--workers", "2"],
        ["text", "--engine", "ray"],
        ["--input", ".", "--output", "o", "--ray-address", "auto"],
        ["--input", ".", "--output", "o", "--show", "tree"],
        ["--input", "x*.csv", "--output", "o"],
        ["--input", "missing.csv"],
    ],
)
def test_options_that_do_not_go_together(
    arguments: list[str], model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_lines(tmp_path / "t.jsonl", 0, 1)
    run(model, *arguments, code=2)
    assert not (tmp_path / "o").exists()


@pytest.mark.slow
def test_ray_is_started_where_there_is_none(model: str, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'hgclr[ray]'")
    write_lines(tmp_path / "t.jsonl", 0, 50)
    command = [sys.executable, "-c", "from hgclr.cli.app import app; app()", "predict", model, "--engine", "ray"]
    command += ["--workers", "1", "--input", str(tmp_path / "t.jsonl"), "--output", str(tmp_path / "out")]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    check_lines(tmp_path / "out" / "t.jsonl", 0, 50)
    assert result.stdout == ""
    assert result.stderr.split() == f"50 rows of 1 file labelled into {tmp_path}/out".split()  # and nothing of Ray
