"""``hgclr predict`` and ``hgclr explain``: formats, columns, bulk into a folder; explanations and refusals."""

from __future__ import annotations

import csv
import gzip
import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

from hgclr.cli.app import app
from hgclr.inference import HierarchicalClassifier, loading
from hgclr.models import HGCLRForSequenceClassification
from support.bulk_cases import check_lines, expected, prediction, read_lines, write_lines, write_model
from support.without_torch import without_torch

TEXT = "Laser of the <laser>, a prism"
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
    return list(csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline="")))


@pytest.mark.parametrize("name", ["out.csv.gz", "out.jsonl", "out.parquet", "out"])
def test_the_ending_is_the_format_and_every_column_stays(name: str, source: Path, model: str, tmp_path: Path) -> None:
    target = tmp_path / name
    run(model, "--input", source, "--output", target)
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
    assert "--format" in run(model, "--input", source, "--output", tmp_path / "x.ods", code=2).stderr
    for kind in ("parquet", "xlsx"):
        run(model, "atom", "--format", kind, code=2)  # to standard output


def test_bad_rows_stop_it_or_say_why(model: str, tmp_path: Path) -> None:
    source = tmp_path / "texts.jsonl"
    source.write_text('{"body": "atom"}\n{"body": 3}\n{"body": ""}\n', encoding="utf-8")
    given = [model, "--input", source, "--text-column", "body", "--output", tmp_path / "out.csv"]
    assert f"{source}:2:" in run(*given, code=2).stderr
    assert not (tmp_path / "out.csv").exists()
    run(*given, "--skip-bad-rows")
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
    assert run(*given, out).stdout == ""
    for part in range(2):
        check_lines(out / f"part-{part}.jsonl", 10 * part, 10)
    times = [path.stat().st_mtime_ns for path in sorted(out.glob("*.jsonl"))]
    run(*given, out)
    assert [path.stat().st_mtime_ns for path in sorted(out.glob("*.jsonl"))] == times
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
    pytest.importorskip("ray", reason="needs the extra ray")
    write_lines(tmp_path / "t.jsonl", 0, 50)
    command = [sys.executable, "-c", "from hgclr.cli.app import app; app()", "predict", model, "--engine", "ray"]
    command += ["--workers", "1", "--input", str(tmp_path / "t.jsonl"), "--output", str(tmp_path / "out")]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    check_lines(tmp_path / "out" / "t.jsonl", 0, 50)
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1  # and nothing of Ray


# explain


def invoke(*arguments: object, **options: str):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], **options)


@pytest.fixture(scope="module")
def torch_model(untrained: Callable[..., Path]) -> Path:
    return untrained()


def test_labels_with_words_and_numbers_are_shown(torch_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    result = invoke("explain", torch_model, TEXT, "--rule", "closure", "--label", "law", "--label", "physics")
    assert result.exit_code == 0, result.output
    classifier = HierarchicalClassifier.load(torch_model)
    decisions = classifier.decisions.changed(rule="closure")
    expected = classifier.explain(TEXT, labels=["law", "physics"], decisions=decisions)
    lines = result.stdout.splitlines()
    assert lines[0] == TEXT  # without colours the text is shown once
    for label in expected.labels:
        (heading,) = (line for line in lines if "%" in line[:4] and " > ".join(label.label.path) in line)
        assert heading.startswith(f"{label.label.probability:4.0%} ")
        assert ("(not predicted)" in heading) == (label.status == "not predicted")
        for index in (one for side in expected.strongest(label, 1) for one in side):
            assert f"{expected.word(index)} {label.relevance[index]:+.2f}" in result.stdout
    assert max(map(len, lines)) <= 80


def test_json_and_page_hold_all_texts(torch_model: Path, tmp_path: Path) -> None:
    source = tmp_path / "texts.txt"
    source.write_text(f"{TEXT}\n\njudge of the court\n", encoding="utf-8")
    page, report = tmp_path / "why.html", tmp_path / "why.json"
    how = ("--method", "occlusion")
    result = invoke("explain", torch_model, "--input", source, "--html", page, "--json", report, *how)
    assert result.exit_code == 0, result.output
    found = json.loads(report.read_text(encoding="utf-8"))
    assert found["model"] == str(torch_model)
    assert [one["text"] for one in found["explanations"]] == [TEXT, "judge of the court"]
    assert {one["method"] for one in found["explanations"]} == {"occlusion"}
    assert page.read_text(encoding="utf-8").count("<section") == 2
    to_stdout = invoke("explain", torch_model, "--input", "-", "--json", "-", *how, input=f"{TEXT}\n")
    assert json.loads(to_stdout.stdout)["explanations"] == found["explanations"][:1]


@pytest.fixture(scope="module")
def hgclr_model(untrained: Callable[..., Path]) -> Path:
    return untrained(cls=HGCLRForSequenceClassification, keep_at_least=0)


def test_a_positive_sample_is_shown_and_written(
    hgclr_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    page, report = tmp_path / "kept.html", tmp_path / "kept.json"
    given = ("explain", hgclr_model, TEXT, "judge of the court", "--positive-sample", "--label", "science > physics")
    result = invoke(*given, "--html", page, "--json", report)
    assert result.exit_code == 0, result.output
    assert max(map(len, result.stdout.splitlines())) <= 80
    found = json.loads(report.read_text(encoding="utf-8"))["positive_samples"]
    assert [one["text"] for one in found] == [TEXT, "judge of the court"]
    for one in found:
        assert set(one["labels"]) == {"science", "physics"}
        marked = "".join(f"[{part['text']}]" if part["kept"] else part["text"] for part in one["first_draw"])
        assert marked in result.stdout
    assert page.read_text(encoding="utf-8").count("<section") == 2
    to_stdout = invoke(*given, "--html", "-")
    assert to_stdout.stdout == page.read_text(encoding="utf-8")


def test_bad_input_of_a_positive_sample_is_refused(hgclr_model: Path, torch_model: Path) -> None:
    for arguments in (
        [torch_model, "a"],  # a flat model, and nothing beside it
        [hgclr_model, "a", "--keep", "0"],
        [hgclr_model, "a", "--method", "occlusion"],
        [hgclr_model, "a", "--label", "nothing"],
    ):
        result = invoke("explain", *arguments, "--positive-sample")
        assert result.exit_code == 2, (arguments, result.output)
        assert len(result.stderr.strip().splitlines()) == 1


@pytest.mark.slow
def test_an_exported_model_is_explained_without_torch(torch_model: Path, tmp_path: Path) -> None:
    exported = tmp_path / "onnx"
    assert invoke("export", torch_model, "--to", "onnx", "--output", exported).exit_code == 0
    done = without_torch("explain", exported, TEXT, "--json", tmp_path / "without.json")
    assert done.returncode == 0, done.stderr
    same = invoke("explain", torch_model, TEXT, "--method", "occlusion", "--json", tmp_path / "with.json")
    assert same.exit_code == 0, same.output
    one, other = (
        json.loads((tmp_path / f"{name}.json").read_text(encoding="utf-8"))["explanations"][0]
        for name in ("with", "without")
    )
    assert other["words"] == one["words"]
    for label, same_label in zip(other["labels"], one["labels"], strict=True):
        assert label["id"] == same_label["id"]
        assert label["relevance"] == pytest.approx(same_label["relevance"], abs=1e-3)
        assert label["probability_only_kept"] == pytest.approx(same_label["probability_only_kept"], abs=1e-3)
    refused = without_torch("explain", exported, TEXT, "--method", "integrated")
    assert refused.returncode == 2


def test_bad_input_of_explain_is_one_line(torch_model: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n \n", encoding="utf-8")
    (tmp_path / "latin.txt").write_bytes("größer\n".encode() + b"b\xf6se\n")
    (tmp_path / "odd.txt").write_text("good\n\u200b\n", encoding="utf-8")
    model = torch_model
    for arguments, place in (
        ([model], ""),
        ([model, "a", "--input", "b"], ""),
        ([model, ""], ""),
        ([model, "a", "--label", "nothing"], "nothing"),
        ([model, "a", "--keep", "0"], "0.0"),
        ([model, "--input", tmp_path / "nowhere"], "nowhere: "),
        ([model, "--input", tmp_path / "empty.txt"], "empty.txt: "),
        ([model, "--input", tmp_path / "latin.txt"], "latin.txt:2: "),
        ([model, "--input", tmp_path / "odd.txt"], "odd.txt:2: "),
        ([model, "a", "--html", tmp_path], "cannot be written"),
        (["nowhere", "a"], "nowhere"),
    ):
        result = invoke("explain", *arguments)
        assert result.exit_code == 2, (arguments, result.output)
        assert place in " ".join(result.stderr.split()), (arguments, result.stderr)


def test_a_review_says_what_to_do_next(model: str, source: Path, tmp_path: Path) -> None:
    target = tmp_path / "review.csv"
    result = CliRunner().invoke(app, ["review", model, str(source), "--output", str(target), "--top", "1"])
    assert result.exit_code == 0, result.output
    assert "not compared" in result.stdout
    assert f"hgclr data add my-data {target}" in result.stdout
    assert len(list(csv.DictReader(io.StringIO(target.read_text("utf-8-sig"))))) == 1


@pytest.mark.parametrize(
    "arguments", [["nothing.csv"], ["{source}", "--data", "nowhere"], ["{source}", "--text-column", "x"]]
)
def test_a_review_of_nothing_is_one_line(model: str, source: Path, tmp_path: Path, arguments: list[str]) -> None:
    arguments = [argument.format(source=source) for argument in arguments]
    result = CliRunner().invoke(app, ["review", model, *arguments, "--output", str(tmp_path / "review.csv")])
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert not (tmp_path / "review.csv").exists()
