"""Labels with several parents, from the files of a label tree to predictions in every format."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path

import pyarrow.parquet
import pytest
from typer.testing import CliRunner

from hgclr.cli.app import app
from hgclr.cli.tables import prediction_tree
from hgclr.inference import HierarchicalClassifier
from hgclr.taxonomy import Taxonomy
from hgclr.taxonomy.changes import compare
from support.bulk_cases import write_model
from support.vocabulary import TURTLE

MAIN, OTHER = ["science", "physics"], ["law", "physics"]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """The model of bulk_cases; physics is below science and below law."""
    folder = write_model(tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    config |= {"label_more_parents": [[], [2], [], []], "label_codes": ["", "53", "", ""]}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture
def tree(model: Path, tmp_path: Path) -> Path:
    HierarchicalClassifier.load(model).taxonomy.write(tmp_path / "tree.json")
    return tmp_path / "tree.json"


def run(*arguments: object, code: int = 0, given: str | None = None):
    words = [str(argument) for argument in arguments]
    result = CliRunner(env={"COLUMNS": "80"}).invoke(app, words, input=given)
    assert result.exit_code == code, result.output
    return result


def test_a_label_brings_all_its_ancestors_and_all_its_paths(model: Path) -> None:
    given = run("predict", model, "atom", "--rule", "closure").stdout
    (label,) = [label for label in json.loads(given)["prediction"]["labels"] if label["id"] == "physics"]
    assert (label["path"], label["paths"]) == (MAIN, [MAIN, OTHER])
    ids = {label["id"]: label for label in json.loads(given)["prediction"]["labels"]}
    assert list(ids) == ["law", "science", "physics"]
    assert "paths" not in ids["law"]
    assert ids["law"]["probability"] == ids["physics"]["probability"]
    dropped = json.loads(run("predict", model, "atom", "--rule", "drop-orphans").stdout)
    assert [label["id"] for label in dropped["prediction"]["labels"]] == ["science"]


@pytest.mark.parametrize("name", ["out.csv", "out.parquet"])
def test_tables_have_all_paths(name: str, model: Path, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"text": "atom"}\n')
    target = tmp_path / name
    options = ["--leaf-paths"] if name == "out.csv" else []
    run("predict", model, "--input", tmp_path / "in.jsonl", "--output", target, "--rule", "closure", *options)
    if name == "out.csv":
        (row,) = csv.DictReader(io.StringIO(target.read_text("utf-8-sig")))
        assert row["labels"] == "law;science;physics"
        assert row["paths"] == "science > physics;law > physics"
    else:
        (row,) = pyarrow.parquet.read_table(target).to_pylist()
        assert [label["paths"] for label in row["prediction"]["labels"]] == [None, None, [MAIN, OTHER]]


def test_the_terminal_shows_the_other_paths_beside_the_label(model: Path) -> None:
    (prediction,) = HierarchicalClassifier.load(model).predict(["atom"], rule="closure")
    (science,) = [node for node in prediction_tree("atom", prediction).children if "science" in str(node.label)]
    (physics,) = science.children
    assert "also under law" in str(physics.label)


def test_check_show_and_convert(tree: Path, tmp_path: Path) -> None:
    assert "several parents 1" in run("taxonomy", "check", tree).stdout
    assert "also under law" in run("taxonomy", "show", tree).stdout
    for name in ("out.csv", "out.tsv"):
        refused = run("taxonomy", "convert", tree, tmp_path / name, code=2)
        assert "--main-parents" in refused.stderr
        assert not (tmp_path / name).exists()
        run("taxonomy", "convert", tree, tmp_path / name, "--main-parents")
        assert Taxonomy.read(tmp_path / name).is_tree
    run("taxonomy", "convert", tree, tmp_path / "copy.json")
    assert Taxonomy.read(tmp_path / "copy.json") == Taxonomy.read(tree)


def test_a_changed_further_parent_is_a_move(tree: Path) -> None:
    graph = Taxonomy.read(tree)
    changes = compare(graph, Taxonomy(**graph.arguments() | {"more_parents": None}))
    assert [graph.ids[pair.new] for pair in changes.moved] == ["physics"]
    assert not compare(graph, graph)


@pytest.mark.parametrize("preset", ["paper", "published"])
def test_the_presets_of_the_paper_need_a_tree(preset: str, tree: Path, make_encoder, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    Taxonomy.read(tree).write(data / "taxonomy.json")
    (data / "train.jsonl").write_text(json.dumps({"text": "atom", "labels": ["53", "science", "law"]}) + "\n")
    options = "--preset", preset, "--set", f"model.encoder={make_encoder('bert')}", "--output", tmp_path / "run"
    refused = run("train", data, *options, code=2)
    assert "several parents" in refused.stderr
    assert not (tmp_path / "run").exists()


def test_a_thesaurus_is_the_label_tree_of_a_data_folder(make_encoder, tmp_path: Path) -> None:
    pytest.importorskip("rdflib")
    tree, data, table = tmp_path / "v.ttl.gz", tmp_path / "data", tmp_path / "texts.csv"
    tree.write_bytes(gzip.compress(TURTLE.encode()))
    table.write_text("text,label\n" + "".join(f"a lens {number},Optics\n" for number in range(20)))
    run("data", "import", table, "--taxonomy", tree, "--output", data)
    imported = Taxonomy.read(data / "taxonomy.json")
    (data / "taxonomy.json").unlink()
    tree.rename(data / "taxonomy.ttl.gz")
    settings = ("--set", f"model.encoder={make_encoder('bert')}", "--set", "training.effort=names")
    run("train", data, *settings, "--output", tmp_path / "run")
    trained = HierarchicalClassifier.load(tmp_path / "run" / "model").taxonomy
    assert trained == imported
    assert trained.alternatives == imported.alternatives != ((),) * len(trained)
    assert not trained.is_tree
    run("evaluate", tmp_path / "run" / "model", data, "--output", tmp_path / "report")
    assert "1 have several parents" in (tmp_path / "report" / "report.html").read_text()


def test_a_row_needs_all_parents(tree: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    Taxonomy.read(tree).write(data / "taxonomy.json")
    rows = [["53", "science", "law"], ["law > physics"], ["physics", "science"]]
    lines = (json.dumps({"text": f"atom {number}", "labels": row}) + "\n" for number, row in enumerate(rows))
    (data / "train.jsonl").write_text("".join(lines))
    problems = run("data", "check", data, code=2).output
    assert problems.count("label without its parent") == 1
    assert "train.jsonl:3" in problems


def test_an_audit_and_an_explanation_have_all_paths(model: Path, tree: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    Taxonomy.read(tree).write(data / "taxonomy.json")
    rows = [{"text": f"atom {number}", "labels": ["law", "courts"]} for number in range(12)]
    (data / "dev.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run("audit", model, data, "--split", "dev", "--output", tmp_path / "audit")
    found = json.loads((tmp_path / "audit" / "audit.json").read_text())
    (label,) = [label for label in found["findings"][0]["predicted"] if label["id"] == "physics"]
    assert (label["path"], label["paths"]) == (MAIN, [MAIN, OTHER])
    assert "paths" not in found["findings"][0]["gold"][0]
    assert "law › physics" in (tmp_path / "audit" / "audit.html").read_text()
    shown = run("explain", model, "atom experiment", "--rule", "closure").output
    assert "also under law" in shown
