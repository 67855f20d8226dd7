"""Formats of the literature: HiAGM's and NeuralClassifier's JSON lines, fastText's lines."""

from __future__ import annotations

import gzip
import json
from functools import partial
from pathlib import Path

import pytest

from hgclr.data import DataFolder
from hgclr.data.check import check
from hgclr.errors import InputError
from hgclr.paper.corpora.formats import prepare_format

TREE = "Root\tCCAT\tGCAT\nCCAT\tC15\nC15\tC151\nGCAT\tGCRIM\n"


def line(token: object, label: object, **more: object) -> str:
    return json.dumps({"token": token, "label": label, **more}) + "\n"


def paths_line(words: str, *labels: str) -> str:
    return json.dumps({"doc_label": labels, "doc_token": words.split(), "doc_keyword": [], "doc_topic": []}) + "\n"


def rows(folder: Path, split: str) -> list[dict[str, object]]:
    with gzip.open(folder / f"{split}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(row) for row in lines]


@pytest.fixture
def hiagm(tmp_path: Path):
    """Prepare two documents for training, one for dev and one for test."""
    (tmp_path / "rcv1.taxonomy").write_text(TREE)
    files = {split: tmp_path / f"{split}.json" for split in ("train", "dev", "test")}
    files["train"].write_text(
        line(["Chinas", "top", "maker"], ["C151", "C15", "CCAT"])
        + line(["Mexican", "authorities"], ["GCAT", "GCRIM"], doc_topic=["x"], doc_keyword=[])
    )
    files["dev"].write_text(line("One string, as it is", ["CCAT"]))
    files["test"].write_text(paths_line("of scripts", "GCAT"))
    return partial(prepare_format, "hiagm", output=tmp_path / "out", taxonomy=tmp_path / "rcv1.taxonomy", **files)


def test_texts_labels_and_splits(hiagm, tmp_path: Path) -> None:
    summary = hiagm()
    assert summary.documents == {"train": 2, "dev": 1, "test": 1}
    assert not summary.left_out
    assert rows(tmp_path / "out", "train") == [
        {"text": "Chinas top maker", "labels": ["CCAT", "C15", "C151"]},
        {"text": "Mexican authorities", "labels": ["GCAT", "GCRIM"]},
    ]
    assert rows(tmp_path / "out", "dev") == [{"text": "One string, as it is", "labels": ["CCAT"]}]
    assert rows(tmp_path / "out", "test") == [{"text": "of scripts", "labels": ["GCAT"]}]
    tree = DataFolder(tmp_path / "out").taxonomy
    assert tree.ids == ("CCAT", "GCAT", "C15", "C151", "GCRIM")
    assert check(DataFolder(tmp_path / "out")).bad_rows == 0
    record = json.loads((tmp_path / "out" / "corpus.json").read_text())
    assert record["settings"]["dev"] == str(tmp_path / "dev.json")


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"token": "x"}', '{"token": ["x", 1], "label": ["CCAT"]}', line(["x"], ["none"])]
)
def test_bad_lines(hiagm, tmp_path: Path, text: str) -> None:
    with (tmp_path / "train.json").open("a") as file:
        file.write(text.rstrip("\n") + "\n")
    with pytest.raises(InputError) as error:
        hiagm()
    assert (error.value.path, error.value.line) == (tmp_path / "train.json", 3)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("tree", "labels"), [("wos", 141), ("nyt", 166), ("rcv1", 103)])
def test_the_taxonomies_of_the_literature(shared_data: Path, hiagm, tmp_path: Path, tree: str, labels: int) -> None:
    """One document with every label of the tree, as the file lists them."""
    path = shared_data / "taxonomies" / f"{tree}.taxonomy"
    listed = [name for row in path.read_text().splitlines() for name in row.split("\t")[1:]]
    assert len(listed) == labels
    (tmp_path / "train.json").write_text(line(["x"], listed))
    hiagm(taxonomy=path, dev=None, test=None)
    assert sorted(rows(tmp_path / "out", "train")[0]["labels"]) == sorted(listed)


def test_the_tree_is_drawn_from_the_paths_in_the_order_seen(tmp_path: Path) -> None:
    train, dev, out = tmp_path / "train.json", tmp_path / "dev.json", tmp_path / "out"
    train.write_text(paths_line("I love it", "Computer--ML--Deep", "Neuro--Nets") + paths_line("spikes", "Neuro"))
    dev.write_text(paths_line("nets", "Neuro--Deep", "Computer--ML"))
    prepare_format("neuralclassifier", train, out, dev=dev)
    assert [(row["text"], row["labels"]) for row in rows(out, "train")] == [
        ("I love it", ["Computer", "Computer--ML", "Computer--ML--Deep", "Neuro", "Neuro--Nets"]),
        ("spikes", ["Neuro"]),
    ]
    assert rows(out, "dev")[0]["labels"] == ["Neuro", "Neuro--Deep", "Computer", "Computer--ML"]
    tree = DataFolder(out).taxonomy
    assert tree.names == ("Computer", "ML", "Deep", "Neuro", "Nets", "Deep")
    assert tree.parents.tolist() == [-1, 0, 1, -1, 3, 3]
    assert check(DataFolder(out)).bad_rows == 0


def test_with_a_tree_labels_are_paths_ids_or_both(tmp_path: Path) -> None:
    """The program's own RCV1 sample: C15 is a node of the tree, CCAT--C15--C152 a path of such nodes."""
    tree, train, out = tmp_path / "rcv1.taxonomy", tmp_path / "train.json", tmp_path / "out"
    tree.write_text("Root\tCCAT\tECAT\nCCAT\tC11\tC15\nC15\tC151\tC152\nECAT\tE41\n")
    good = paths_line("oil", "CCAT--C15--C152") + paths_line("jobs", "CCAT--C11", "ECAT--E41", "ECAT")
    train.write_text(good + paths_line("oil", "C152", "C15", "CCAT"))
    prepare_format("neuralclassifier", train, out, taxonomy=tree)
    assert [row["labels"] for row in rows(out, "train")] == [
        ["CCAT", "C15", "C152"],
        ["CCAT", "ECAT", "C11", "E41"],
        ["CCAT", "C15", "C152"],
    ]
    for label in ("C152", "CCAT--C151"):  # without its parent; no path of the tree
        train.write_text(good + paths_line("oil", label))
        with pytest.raises(InputError) as error:
            prepare_format("neuralclassifier", train, out, taxonomy=tree)
        assert (error.value.path, error.value.line) == (train, 3)


def test_files_and_options_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    train, out = tmp_path / "train.json", tmp_path / "out"
    train.write_text(paths_line("oil", "C152"))
    for name, options in (
        ("neuralclassifier", {"dev": tmp_path / "absent"}),
        ("neuralclassifier", {"add_ancestors": True}),
        ("hiagm", {}),
        ("fasttext", {"label_prefix": ""}),
    ):
        with pytest.raises(InputError):
            prepare_format(name, train, out, **options)
        assert not out.exists()


@pytest.fixture
def fasttext(tmp_path: Path):
    (tmp_path / "train.txt").write_text(
        "__label__food/sauce __label__food/cheese How much does potato starch affect a cheese sauce ?\n"
        "\n"
        "__label__tools\t__label__food/sauce   pans \t and\u00a0pots\r\n"
        "__label__food\nno label here\n"
    )
    (tmp_path / "valid.txt").write_text("Is it __label__food safe ?\n")
    return partial(prepare_format, "fasttext", tmp_path / "train.txt", tmp_path / "out", dev=tmp_path / "valid.txt")


def test_fasttext_texts_labels_and_the_drawn_tree(fasttext, tmp_path: Path) -> None:
    summary = fasttext()
    assert summary.documents == {"train": 2, "dev": 1, "test": 0}
    assert summary.left_out == {"no text": 1, "no labels": 1}
    assert [(row["text"], row["labels"]) for row in rows(tmp_path / "out", "train")] == [
        ("How much does potato starch affect a cheese sauce ?", ["food", "food/sauce", "food/cheese"]),
        ("pans and\u00a0pots", ["tools", "food", "food/sauce"]),
    ]
    assert rows(tmp_path / "out", "dev") == [{"text": "Is it safe ?", "labels": ["food"]}]
    tree = DataFolder(tmp_path / "out").taxonomy
    assert tree.ids == ("food", "food/sauce", "food/cheese", "tools")
    assert tree.names == ("food", "sauce", "cheese", "tools")
