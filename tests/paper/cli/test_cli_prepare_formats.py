from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hgclr.cli.app import app


def run(*arguments: object):
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, ["data", *map(str, arguments)])


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    """A folder of two documents in each format."""
    for name in ("hiagm", "neuralclassifier", "fasttext"):
        (tmp_path / name).mkdir()
    (tmp_path / "hiagm" / "x.taxonomy").write_text("Root\tA\nA\tB\n")
    (tmp_path / "hiagm" / "x_train.json").write_text('{"token": ["hello"], "label": ["A", "B"]}\n')
    (tmp_path / "hiagm" / "x_val.json").write_text('{"token": "world", "label": ["A"]}\n')
    (tmp_path / "neuralclassifier" / "x_train.json").write_text('{"doc_token": ["hello"], "doc_label": ["A--B"]}\n')
    (tmp_path / "neuralclassifier" / "x_dev.json").write_text('{"doc_token": ["world"], "doc_label": ["A"]}\n')
    (tmp_path / "fasttext" / "train.txt").write_text("__label__A/B hello\n")
    (tmp_path / "fasttext" / "valid.txt").write_text("__label__A world\n")
    return tmp_path


@pytest.mark.parametrize("name", ["hiagm", "neuralclassifier", "fasttext"])
def test_prepare(folders: Path, name: str) -> None:
    out = folders / "out"
    result = run("prepare", name, "--source", folders / name, "--output", out)
    assert result.exit_code == 0
    assert result.stderr == ""
    assert result.stdout == f"wrote {out}: train 1, dev 1\n"
    assert run("check", out).exit_code == 0


@pytest.mark.parametrize("name", ["hiagm", "neuralclassifier", "fasttext"])
def test_prepare_named_files_only(folders: Path, name: str) -> None:
    (train,) = (folders / name).glob("*train*")
    out = folders / "out"
    result = run("prepare", name, "--train", train, "--output", out)
    assert result.exit_code == 0
    assert result.stdout == f"wrote {out}: train 1\n"
    record = json.loads((out / "corpus.json").read_text())
    assert record["corpus"] == name
    assert record["settings"]["train"] == str(train)


def test_options_of_fasttext(folders: Path) -> None:
    (folders / "fasttext" / "train.txt").write_text("#A/B hello\n")
    options = ("--source", folders / "fasttext" / "train.txt", "--output", folders / "out", "--label-prefix", "#")
    assert run("prepare", "fasttext", *options, "--path-separator", "none").exit_code == 0
    labels = json.loads((folders / "out" / "taxonomy.json").read_text())["labels"]
    assert [label["id"] for label in labels] == ["A/B"]
    assert run("prepare", "fasttext", *options).exit_code == 0
    labels = json.loads((folders / "out" / "taxonomy.json").read_text())["labels"]
    assert [(label["id"], label["name"]) for label in labels] == [("A", "A"), ("A/B", "B")]


def test_ancestors_and_tree_as_options(folders: Path) -> None:
    (folders / "hiagm" / "x_train.json").write_text('{"token": ["hello"], "label": ["B"]}\n')
    tree = (folders / "hiagm" / "x.taxonomy").rename(folders / "tree.tsv")
    options = ("--source", folders / "hiagm", "--output", folders / "out", "--taxonomy", tree)
    result = run("prepare", "hiagm", *options)
    assert result.exit_code == 2
    assert f"{folders / 'hiagm' / 'x_train.json'}:1: label without its parent" in result.stderr
    assert run("prepare", "hiagm", *options, "--add-ancestors").exit_code == 0


@pytest.mark.parametrize("name", ["hiagm", "neuralclassifier", "fasttext"])
def test_errors_are_one_line(folders: Path, name: str) -> None:
    result = run("prepare", name, "--output", folders / "out")
    assert result.exit_code == 2
    assert result.stderr == (
        "error: nothing to read; name the folder with --source, or the files with --train and so on\n"
    )
    assert not (folders / "out").exists()


def test_what_is_left_out_is_said(folders: Path) -> None:
    with (folders / "fasttext" / "train.txt").open("a") as file:
        file.write("no label\nnone here\n")
    result = run("prepare", "fasttext", "--source", folders / "fasttext", "--output", folders / "out")
    assert result.exit_code == 0
    assert result.stderr == f"left out 2 documents: no labels; see {folders / 'out' / 'left-out.jsonl'}\n"
