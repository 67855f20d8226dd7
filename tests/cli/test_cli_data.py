"""``hgclr data`` as a user runs it: import, check, stats."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hgclr.cli.app import app
from hgclr.data import DataFolder

TAXONOMY = "Root\tA\tB\nA\tA1\n"
COLUMNS = ["--text-column", "body", "--label-column", "tags", "--label-separator", "|", "--path-separator", "/"]
DESKS = ["Home > Garden", "Home>Kitchen", "Travel > Train", "travel > Bus"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    path.mkdir()
    (path / "taxonomy.tsv").write_text(TAXONOMY)
    rows = {
        "train": [("one two", ["A", "A1"]), ("three", ["A", "B"]), ("four five six", ["B"])],
        "test": [("seven", ["A"])],
    }
    for name, documents in rows.items():
        lines = [json.dumps({"text": text, "labels": labels}) + "\n" for text, labels in documents]
        (path / f"{name}.jsonl").write_text("".join(lines))
    return path


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Semicolons, a byte order mark, a twin, a contradiction, two bad rows."""
    rows = [[f"letter {number} about this and that", DESKS[number % 3], "web"] for number in range(60)]
    rows += [["letter 0 about this and that", "Travel > Train", "web"], ["", "Home", "web"], ["lost", "", "mail"]]
    rows += [[f"a bus {number} to somewhere else", DESKS[3], "mail"] for number in range(10)]
    path = tmp_path / "letters.csv"
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        csv.writer(file, delimiter=";").writerows([["Brief", "Thema", "Kanal"], *rows])
    return path


def run(*arguments: object, columns: int = 200):
    return CliRunner(env={"COLUMNS": str(columns)}).invoke(app, ["data", *map(str, arguments)])


def line(output: str, start: str) -> list[str]:
    """Return the cells of the only line that starts so."""
    (found,) = (line.split() for line in output.splitlines() if line.split()[:1] == [start])
    return found


def test_check_prints_a_table_and_warnings(folder: Path, tmp_path: Path) -> None:
    (folder / "test.jsonl").write_text(json.dumps({"text": "[red]THREE[/]", "labels": ["A"]}) + "\n")
    with (folder / "train.jsonl").open("a") as file:
        file.write(json.dumps({"text": "[red]three[/]", "labels": ["B"]}) + "\n")
    result = run("check", folder, "--json", tmp_path / "out" / "check.json")
    assert (result.exit_code, result.stderr) == (0, "")
    assert line(result.stdout, "train") == ["train", "4", "0", "1.50", "1.8", "3", "3", "0"]
    assert "[red]" in result.stdout, "markup in the data is printed as it is"
    assert json.loads((tmp_path / "out" / "check.json").read_text())["conflicting_texts"] == 1


@pytest.mark.parametrize("command", ["check", "stats"])
def test_reading_options(tmp_path: Path, command: str) -> None:
    (tmp_path / "train.csv").write_text("body,tags\nx,A/A1|B\ny,A1\n")
    tree, report = tmp_path / "elsewhere.tsv", tmp_path / "report.json"
    tree.write_text(TAXONOMY)
    assert run(command, tmp_path, *COLUMNS, "--taxonomy", tree).exit_code == 2
    options = [*COLUMNS, "--taxonomy", tree, "--add-ancestors", "--json", report]
    assert run(command, tmp_path, *options).exit_code == 0
    assert json.loads(report.read_text())["splits"]["train"]["labels_per_document"] == (3 + 2) / 2


@pytest.mark.slow
def test_reports(folder: Path, tmp_path: Path) -> None:
    with (folder / "test.jsonl").open("a") as file:
        file.write("[]\n")
    out = tmp_path / "report"
    result = run("check", folder, "--output", out)
    assert result.exit_code == 2, "a report is written nevertheless"
    assert (out / "report.html").is_file()
    assert json.loads((out / "stats.json").read_text())["splits"]["test"]["bad_rows"] == 1
    assert run("stats", folder, "--skip-bad-rows", "--output", out).exit_code == 0


@pytest.mark.parametrize("command", ["check", "stats"])
def test_mistakes_are_one_line(folder: Path, tmp_path: Path, command: str) -> None:
    (tmp_path / "file").touch()
    for arguments in ([folder, "--output", tmp_path / "file"], [tmp_path / "absent"]):
        result = run(command, *arguments)
        assert (result.exit_code, result.stdout) == (2, "")
        assert len(result.stderr.splitlines()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("command", ["check", "stats"])
def test_looking_at_data_imports_no_training_stack(folder: Path, command: str) -> None:
    code = (
        "import sys; from hgclr.cli.app import app; app(sys.argv[1:], standalone_mode=False); "
        "print({'torch', 'transformers', 'datasets', 'pyarrow', 'matplotlib', 'tokenizers'} & set(sys.modules))"
    )
    arguments = [sys.executable, "-c", code, "data", command, str(folder)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"


def test_import_reports_columns_rows_and_splits(table: Path, tmp_path: Path) -> None:
    pytest.importorskip("iterstrat")
    out, report = tmp_path / "my-data", tmp_path / "report.json"
    result = run("import", table, "--output", out, "--json", report)
    assert result.exit_code == 0, result.output
    for part in ("'Brief'", "'Thema'", "'Kanal'", "'Travel' (21) and 'travel' (10)", "--keep-twins", f"{table}:63:"):
        assert part in result.stdout
    assert line(result.stdout, "train")[:2] == ["train", "56"]
    content = json.loads(report.read_text(encoding="utf-8"))
    assert (content["rows"], content["merged"], content["contradictions"], content["levels"]) == (73, 1, 1, [2, 4])
    assert sum(content["documents"].values()) == 70


def test_an_imported_folder_needs_no_options(table: Path, tmp_path: Path) -> None:
    out, again = tmp_path / "my-data", tmp_path / "again"
    assert run("import", table, "--output", out, "--keep-twins", "--no-stratify", "--test", 0).exit_code == 0
    assert len(DataFolder(out).taxonomy.levels[0]) == 3
    for command in ("check", "stats"):
        result = run(command, out)
        assert result.exit_code == 0, result.output
    result = run("import", out, "--output", again, "--no-stratify")
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in again.glob("*.gz")) == [f"{name}.jsonl.gz" for name in ("dev", "test", "train")]


def test_import_lists_placeholders_and_changes(tmp_path: Path) -> None:
    rows = [[f"letter {number}", DESKS[number % 3]] for number in range(40)]
    rows += [[text, f"Home > {number}"] for text in ("n/a", "-") for number in range(6)]
    path, out = tmp_path / "a.csv", tmp_path / "out"
    for kitchen in ("Kitchen", "Stove"):
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([["text", "labels"], *([a, b.replace("Kitchen", kitchen)] for a, b in rows)])
        result = run("import", path, "--output", out, "--no-stratify", "--json", tmp_path / "report.json")
        assert result.exit_code == 0, result.output
        assert "6 rows: 'n/a'" in result.stdout
        assert "6 rows: '-'" in result.stdout
    assert line(result.stdout, "added") == ["added", "1"]
    content = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert (sum(content["placeholders"].values()), content["left_out"]) == (12, {"placeholder": 12})
    assert [label["id"] for label in content["changes"]["removed"]] == ["Home > Kitchen"]
    (tmp_path / "map.json").write_text('{"Stove": "Home > Oven"}', encoding="utf-8")
    assert run("import", path, "--output", out, "--changes", tmp_path / "map.json").exit_code == 2
    path.write_text(path.read_text(encoding="utf-8").replace("Stove", "Oven"), encoding="utf-8")
    result = run("import", path, "--output", out, "--no-stratify", "--changes", tmp_path / "map.json")
    assert line(result.stdout, "renamed") == ["renamed", "1"]


@pytest.mark.parametrize(
    "options",
    [
        ["--text", "Letter"],
        ["--labels", "Thema", "--levels", "Thema,Kanal"],
        ["--dev", "half"],
        ["--dev", "0.6", "--test", "0.5"],
    ],
)
def test_mistakes_of_an_import_are_one_line(table: Path, tmp_path: Path, options: list[str]) -> None:
    result = run("import", table, "--output", tmp_path / "out", *options)
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_icd10cm_is_prepared(tmp_path: Path) -> None:
    pytest.importorskip("simple_icd_10_cm")
    folder = tmp_path / "icd"
    result = run("prepare", "icd10cm", "--output", folder, "--levels", 3, "--seed", 3)
    assert result.exit_code == 0, result.output
    record = json.loads((folder / "corpus.json").read_text())
    assert record["settings"] == {"levels": 3, "seed": 3}
    assert all(f"{split} {count:,}" in result.stdout for split, count in record["documents"].items())
    assert str(folder / "left-out.jsonl") in result.stderr
    files = {f"{split}.jsonl.gz" for split in ("train", "dev", "test")}
    assert {path.name for path in folder.iterdir()} == files | {"taxonomy.json", "corpus.json", "left-out.jsonl"}


def test_a_corpus_leaves_the_files_of_others(tmp_path: Path) -> None:
    pytest.importorskip("simple_icd_10_cm")
    (tmp_path / "notes.txt").write_text("precious")
    result = run("prepare", "icd10cm", "--output", tmp_path)
    assert result.exit_code == 2
    assert "'notes.txt'" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.slow
def test_a_corpus_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("simple_icd_10_cm")

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    for levels in (0, 8):
        assert run("prepare", "icd10cm", "--output", tmp_path / "icd", "--levels", levels).exit_code == 2
    monkeypatch.setattr("hgclr.data.folder.CorpusWriter.add", interrupt)
    assert run("prepare", "icd10cm", "--output", tmp_path / "icd").exit_code not in (0, 2)
    assert list(tmp_path.iterdir()) == []
