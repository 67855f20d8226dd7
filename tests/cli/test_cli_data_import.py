"""``hgclr data import``: from a spreadsheet to a folder that every other command reads without a further word."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hgclr.cli.app import app

pytest.importorskip("iterstrat")
DESKS = ["Home > Garden", "Home>Kitchen", "Travel > Train", "travel > Bus"]


def run(*arguments: object):
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Semicolons, a byte order mark, columns of its own, a twin, a contradiction, two bad rows."""
    rows = [[f"letter {number} about this and that", DESKS[number % 3], "web"] for number in range(60)]
    rows += [["letter 0 about this and that", "Travel > Train", "web"], ["", "Home", "web"], ["lost", "", "mail"]]
    rows += [[f"a bus {number} to somewhere else", DESKS[3], "mail"] for number in range(10)]
    path = tmp_path / "letters.csv"
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        csv.writer(file, delimiter=";").writerows([["Brief", "Thema", "Kanal"], *rows])
    return path


def test_it_says_what_it_did_and_what_comes_next(table: Path, tmp_path: Path) -> None:
    out, report = tmp_path / "my-data", tmp_path / "report.json"
    result = run("data", "import", table, "--output", out, "--json", report)
    assert result.exit_code == 0, result.output
    said = result.stdout
    assert "read 73 rows: text in 'Brief', labels in 'Thema', '>' between the names of a path" in said
    assert "not read: 'Kanal' (--id keeps a column as the documents' ids)" in said
    assert "7 labels on 2 levels (3, 4)" in said
    assert "warning: differ only in case or spaces: 'Travel' (21) and 'travel' (10)" in said
    assert (
        f"skipped 2 rows, all in {out / 'left-out.jsonl'}:\n  {table}:63: empty text\n  {table}:64: no labels" in said
    )
    assert "merged 1 row into others with the same text" in said
    assert f"Home > Garden ({table}:2), Travel > Train ({table}:62)" in said
    assert said.endswith(f"written: {out}\nnext: hgclr data check {out}\n      hgclr train {out}\n")
    content = json.loads(report.read_text(encoding="utf-8"))
    assert (content["rows"], content["merged"], content["contradictions"], content["levels"]) == (73, 1, 1, [3, 4])
    assert sum(content["documents"].values()) == 70


def test_what_is_next_needs_no_options(table: Path, tmp_path: Path) -> None:
    out = tmp_path / "my-data"
    assert run("data", "import", table, "--output", out, "--merge-twins").exit_code == 0
    for command in ("check", "stats"):
        result = run("data", command, out)
        assert result.exit_code == 0, result.output
    assert "6 labels" in run("data", "check", out).stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--text", "Letter"], "no column 'Letter'; the columns are 'Brief', 'Thema', 'Kanal'"),
        (["--labels", "Thema", "--levels", "Thema,Kanal"], "--labels and --levels are both given"),
        (["--dev", "half"], "--dev 'half' is neither a share such as 0.1 nor a file"),
        (["--dev", "0.6", "--test", "0.5"], "the shares of dev and test are 0.6 and 0.5"),
    ],
)
def test_mistakes_are_one_line(table: Path, tmp_path: Path, options: list[str], message: str) -> None:
    result = run("data", "import", table, "--output", tmp_path / "out", *options)
    assert result.exit_code == 2
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_an_empty_table_is_no_success(tmp_path: Path) -> None:
    (tmp_path / "empty.csv").write_text("text,labels\n", encoding="utf-8")
    result = run("data", "import", tmp_path / "empty.csv", "--output", tmp_path / "out")
    assert (result.exit_code, "no rows" in result.stderr) == (2, True)


def test_new_tables_have_their_text_where_the_old_ones_had_it(table: Path, tmp_path: Path, make_encoder) -> None:
    from hgclr.cli.predict import _text_column
    from hgclr.training.run import new_model
    from hgclr.training.settings import RunConfig

    out, model = tmp_path / "my-data", tmp_path / "model"
    assert run("data", "import", table, "--output", out).exit_code == 0
    made, _, _ = new_model(RunConfig.read(out, [f"model.encoder={make_encoder('bert')}"]))
    made.config.save_pretrained(model)
    assert _text_column(str(model), [str(table)]) == "Brief"
    assert _text_column(str(model), [str(out / "test.jsonl.gz")]) == "text"  # which comes first
    assert _text_column(str(out), [str(table)]) == "text"


def test_a_folder_that_was_split_remembers_its_columns(tmp_path: Path) -> None:
    rows = [{"body": f"text {number}", "topics": "A/A1,B" if number % 2 else "B"} for number in range(40)]
    (tmp_path / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (tmp_path / "taxonomy.tsv").write_text("Root\tA\tB\nA\tA1\n", encoding="utf-8")
    options = ["--text-column", "body", "--label-column", "topics", "--label-separator", ",", "--path-separator", "/"]
    assert run("data", "split", tmp_path / "mine.jsonl", "--output", tmp_path / "out", *options).exit_code == 0
    assert run("data", "check", tmp_path / "out").exit_code == 0
    assert run("data", "check", tmp_path / "out", "--text-column", "text").exit_code == 2  # what is told comes first
    (tmp_path / "out" / "corpus.json").write_text('["somebody else\'s"]', encoding="utf-8")
    assert "missing column 'text'" in run("data", "check", tmp_path / "out").stderr
    assert run("data", "check", tmp_path / "out", *options).exit_code == 0
