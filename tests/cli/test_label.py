"""``hgclr label status``, ``export`` and ``import`` as a user runs them."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from hgclr.cli import label as module
from hgclr.cli.app import Commands
from hgclr.data import DataFolder
from hgclr.labelling.store import Answer, Store
from hgclr.taxonomy import Taxonomy

PROGRAM = typer.Typer(cls=Commands)
PROGRAM.add_typer(module.label, name="label")


def run(*arguments: object, code: int = 0):
    found = CliRunner(env={"COLUMNS": "200"}).invoke(PROGRAM, ["label", *map(str, arguments)])
    assert found.exit_code == code, (found.output, found.exception)
    return found


@pytest.fixture
def folder(tmp_path: Path, taxonomy: Taxonomy) -> Path:
    path = tmp_path / "texts.csv"
    path.write_text("text\n" + "".join(f"text number {number}\n" for number in range(40)))
    store = Store.open(tmp_path / "labels", [path], taxonomy)
    for text in store.documents()[:30]:
        store.add(Answer(text.id, "anna", "labels", ("optics" if text.id % 2 else "law",)))
    store.add(Answer(0, "bert", "labels", ("optics",)))
    store.add(Answer(30, "anna", "skip"))
    store.close()
    return tmp_path / "labels"


def test_export_a_data_folder(folder: Path, tmp_path: Path) -> None:
    table = tmp_path / "disagreements.csv"
    found = run("export", folder, "--output", tmp_path / "data", "--disagreements", table, "--json", "-")
    result = json.loads(found.stdout)
    assert sum(result["documents"].values()) == 29
    assert result["left_out"] == {"people disagree": 1, "skipped": 1}
    assert result["written"] == [str(tmp_path / "data"), str(table)]
    assert result["disagreements"] == 1
    assert len(list(DataFolder(tmp_path / "data").documents("train"))) == result["documents"]["train"]
    with table.open(encoding="utf-8-sig", newline="") as stream:
        (row,) = csv.DictReader(stream)
    assert (row["gold"], row["predicted"], row["verdict"]) == ("society > law", "science > physics > optics", "")
    assert "next: hgclr train" in run("export", folder, "--output", tmp_path / "data").output


@pytest.mark.parametrize("name", ["tasks.json", "tasks.csv"])
def test_export_and_import_with_another_tool(folder: Path, tmp_path: Path, taxonomy: Taxonomy, name: str) -> None:
    form = {"json": "label-studio", "csv": "csv"}[name.partition(".")[2]]
    run("export", folder, "--format", form, "--output", tmp_path / name)
    assert "0 added, 32 are here already" in run("import", folder, tmp_path / name, "--format", form).output
    other = tmp_path / "other"
    Store.open(other, [tmp_path / "texts.csv"], taxonomy).close()
    options = [] if form == "csv" else ["--format", form]
    result = json.loads(run("import", other, tmp_path / name, *options, "--json", "-").stdout)
    assert result == {"rows": 41 if form == "csv" else 40, "added": 32, "unchanged": 0, "left_out": {"no answer": 9}}


def test_suggestions_of_a_model(folder: Path, tmp_path: Path, taxonomy: Taxonomy, monkeypatch) -> None:
    from hgclr.decisions.settings import Decisions

    row = np.array([[0.9 if name in ("society", "sports", "tennis") else 0.1 for name in taxonomy.ids]], np.float32)
    model = SimpleNamespace(
        taxonomy=taxonomy,
        decisions=Decisions(taxonomy),
        probabilities=lambda texts: (row for _ in texts),  # a window for each text
    )
    monkeypatch.setattr(module, "open_classifier", lambda _: model)
    path = tmp_path / "tasks.jsonl"
    run("export", folder, "--format", "prodigy", "--model", "runs/first", "--output", path)
    tasks = [json.loads(line) for line in path.read_text().splitlines()]
    open_texts = {text.text for text in Store.open(folder).documents()[30:] if text.id != 30 and not text.random}
    assert {task["text"] for task in tasks if "answer" not in task and task["accept"] == ["tennis"]} == open_texts


def test_status_prints_one_page(folder: Path) -> None:
    store = Store.open(folder)
    store.add(Answer(1, "bert", "labels", ("optics",)))
    store.add_model(25, "head", {"macro_f1": 0.5, "low": 0.4, "high": 0.6, "agreement": None})
    output = run("status", folder).output
    for part in ("30 of 40", "skipped: 1", "anna 30, bert 2", "50.0", "40.0 to 60.0", "society > sports > tennis"):
        assert part in output
    cells = [line.split() for line in output.splitlines() if line.strip()[:1] in ("1", "2", "3")]
    assert cells == [
        ["1", "2", "2", "100%", "0.00"],
        ["2", "4", "2", "50%", "0.00"],
        ["3", "3", "1", "33%", "0.00"],
    ]
    content = json.loads(run("status", folder, "--json", "-").stdout)
    assert content["levels"][2] == {"labels": 3, "covered": 1, "agreement": 0.0}
    assert content["curve"] == [[25, 0.5, 0.4, 0.6]]
    assert (content["answers"], content["model"], content["disagreements"]) == (30, 1, 1)


def test_errors_exit_with_2(folder: Path, tmp_path: Path) -> None:
    for command in (["status"], ["export", "--output", tmp_path / "x"], ["import", tmp_path / "t.csv"]):
        run(command[0], tmp_path / "absent", *command[1:], code=2)
    assert not (tmp_path / "absent").exists()
    assert not (tmp_path / "x").exists()
    run("export", folder, "--output", tmp_path / "t.json", "--format", "brat", code=2)
    run("export", folder, "--output", tmp_path / "t.txt", "--format", "csv", code=2)
    run("export", folder, "--output", tmp_path / "data", "--model", "runs/first", code=2)
    run("export", folder, "--output", tmp_path / "data", "--disagreements", tmp_path / "table.txt", code=2)
    assert not (tmp_path / "data").exists()
    run("import", folder, tmp_path / "texts.json", code=2)
    run("import", folder, tmp_path / "absent.csv", code=2)
    run("import", folder, tmp_path / "texts.csv", "--user", " ", code=2)
    path = tmp_path / "bad.csv"
    path.write_text("text,labels\ntext number 1,nowhere\n")
    assert "bad.csv:2:" in run("import", folder, path, code=2).output.replace("\n", "")


def test_simulate_writes_results_with_their_provenance(tmp_path: Path, taxonomy: Taxonomy, make_encoder) -> None:
    data = tmp_path / "data"
    data.mkdir()
    taxonomy.write(data / "taxonomy.json")
    words = {"law": "court", "tennis": "racket"}
    for split, count in (("train", 60), ("test", 10)):
        rows = [
            {"text": f"{words[label]} {n}", "labels": list(taxonomy.path_names(taxonomy.resolve(label)))}
            for n in range(count)
            for label in words
        ]
        (data / f"{split}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    options = ["--answers", 25, "--seeds", 2, "--texts", 50, "--encoder", make_encoder("bert"), "--output"]
    printed = run("simulate", data, *options, tmp_path / "out", "--strategies", "random, margin").output
    assert all(line.split()[1:2] == ["25"] for line in printed.splitlines() if line[:6] in ("random", "margin"))
    assert max(map(len, printed.split("written")[0].splitlines())) <= 80
    content = json.loads((tmp_path / "out" / "simulate.json").read_text())
    assert [(row["strategy"], row["answers"]) for row in content["rows"]] == [("random", 25), ("margin", 25)]
    assert content["command"].startswith("hgclr")
    assert content["machine"]["packages"]["scikit-learn"]
    assert (tmp_path / "out" / "simulate.md").read_text().count("\n") == 4
    assert b"</svg>" in (tmp_path / "out" / "simulate.svg").read_bytes()
    run("simulate", data, *options, tmp_path / "other", "--strategies", "best", code=2)
    assert not (tmp_path / "other").exists()
