"""Formats of the literature: HiAGM's and NeuralClassifier's JSON lines, fastText's lines."""

from __future__ import annotations

import gzip
import json
import logging
from functools import partial
from pathlib import Path

import pytest
from hypothesis import strategies as st

from hgclr.data import DataFolder
from hgclr.data.check import check
from hgclr.errors import InputError
from hgclr.paper.corpora.formats import prepare_format

prepare_hiagm = partial(prepare_format, "hiagm")

TREE = "Root\tCCAT\tGCAT\nCCAT\tC15\nC15\tC151\nGCAT\tGCRIM\n"


def line(token: object, label: object, **more: object) -> str:
    return json.dumps({"token": token, "label": label, **more}) + "\n"


def rows(folder: Path, split: str) -> list[dict[str, object]]:
    with gzip.open(folder / f"{split}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(row) for row in lines]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "hiagm"
    folder.mkdir()
    (folder / "rcv1.taxonomy").write_text(TREE)
    (folder / "rcv1_train.json").write_text(
        line(["Chinas", "top", "maker"], ["C151", "C15", "CCAT"])
        + line(["Mexican", "authorities"], ["GCAT", "GCRIM"], doc_topic=["x"], doc_keyword=[])
    )
    (folder / "rcv1_val.json").write_text(line("One string, as it is", ["CCAT"]))
    (folder / "rcv1_test.json").write_text(
        json.dumps({"doc_token": ["of", "scripts"], "doc_label": ["GCAT"], "doc_topic": [], "doc_keyword": []}) + "\n"
    )
    return folder


def test_texts_labels_and_splits(source: Path, tmp_path: Path) -> None:
    summary = prepare_hiagm(source, tmp_path / "out")
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
    assert tree.path_name(3) == "CCAT > C15 > C151"
    assert check(DataFolder(tmp_path / "out")).bad_rows == 0
    record = json.loads((tmp_path / "out" / "corpus.json").read_text())
    assert record["settings"]["dev"] == str(source / "rcv1_val.json")


def test_documents_without_text_or_labels_are_left_out(source: Path, tmp_path: Path) -> None:
    with (source / "rcv1_train.json").open("a") as file:
        file.write("\n" + line([], ["CCAT"]) + line(["x"], []) + line("  ", ["CCAT"]) + line("a \ud800", ["CCAT"]))
    summary = prepare_hiagm(source, tmp_path / "out")
    assert summary.left_out == {"no text": 2, "no labels": 1, "not UTF-8: the text has a lone surrogate": 1}
    left = [json.loads(row) for row in (tmp_path / "out" / "left-out.jsonl").read_text().splitlines()]
    assert left[0] == {"where": f"{source / 'rcv1_train.json'}:4", "reason": "no text"}  # line 3 is blank


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"token": "x"}', '{"token": ["x", 1], "label": ["CCAT"]}', line(["x"], ["none"])]
)
def test_bad_lines(source: Path, tmp_path: Path, text: str) -> None:
    path = source / "rcv1_train.json"
    number = len(path.read_text().splitlines()) + 1
    with path.open("a") as file:
        file.write(text.rstrip("\n") + "\n")
    with pytest.raises(InputError) as error:
        prepare_hiagm(source, tmp_path / "out")
    assert (error.value.path, error.value.line) == (path, number)
    assert not (tmp_path / "out").exists()


def test_files_that_are_missing_or_too_many(source: Path, tmp_path: Path) -> None:
    for folder in (None, tmp_path / "absent", tmp_path):
        with pytest.raises(InputError):
            prepare_hiagm(folder, tmp_path / "out")
    for name in ("docidnewnyt_train.json", "nyt.taxonomy"):
        (source / name).touch()
        with pytest.raises(InputError):
            prepare_hiagm(source, tmp_path / "out")
        (source / name).unlink()
    (source / "rcv1.taxonomy").unlink()
    with pytest.raises(InputError):
        prepare_hiagm(source, tmp_path / "out")


def test_ancestors_are_added_if_asked_for(source: Path, tmp_path: Path) -> None:
    (source / "rcv1_train.json").write_text(line(["x"], ["C151"]))
    prepare_hiagm(source, tmp_path / "out", add_ancestors=True)
    assert rows(tmp_path / "out", "train")[0]["labels"] == ["CCAT", "C15", "C151"]


def test_files_by_name(source: Path, tmp_path: Path) -> None:
    odd = (source / "rcv1_train.json").rename(source / "documents.json")
    with pytest.raises(InputError, match="there is no file for training; name it with --train"):
        prepare_hiagm(source, tmp_path / "out")
    assert prepare_hiagm(source, tmp_path / "out", train=odd).documents == {"train": 2, "dev": 0, "test": 0}
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "corpus.json",
        "taxonomy.json",
        "train.jsonl.gz",
    ]
    # Without a folder: the tree beside the file is taken; a single file as the source is train.
    for files in ({"source": None, "train": odd, "dev": source / "rcv1_val.json"}, {"source": odd}):
        assert prepare_hiagm(output=tmp_path / "out", **files).documents["train"] == 2


@pytest.mark.parametrize(("tree", "labels"), [("wos", 141), ("nyt", 166), ("rcv1", 103)])
def test_the_taxonomies_of_the_literature(shared_data: Path, tmp_path: Path, tree: str, labels: int) -> None:
    """One document with every label of the tree, as the file lists them."""
    path = shared_data / "taxonomies" / f"{tree}.taxonomy"
    listed = [name for row in path.read_text().splitlines() for name in row.split("\t")[1:]]
    assert len(listed) == labels
    (tmp_path / "x_train.json").write_text(line(["x"], listed))
    prepare_hiagm(tmp_path, tmp_path / "out", taxonomy=path)
    assert sorted(rows(tmp_path / "out", "train")[0]["labels"]) == sorted(listed)


prepare_neuralclassifier = partial(prepare_format, "neuralclassifier")

README = {
    "doc_label": ["Computer--MachineLearning--DeepLearning", "Neuro--ComputationalNeuro"],
    "doc_token": ["I", "love", "deep", "learning"],
    "doc_keyword": ["deep learning"],
    "doc_topic": ["AI", "Machine learning"],
}


def paths_line(words: str, *labels: str) -> str:
    return json.dumps({"doc_label": labels, "doc_token": words.split(), "doc_keyword": [], "doc_topic": []}) + "\n"


def test_the_tree_is_drawn_from_the_paths_in_the_order_seen(tmp_path: Path) -> None:
    (tmp_path / "x_train.json").write_text(json.dumps(README) + "\n" + paths_line("spikes", "Neuro"))
    (tmp_path / "x_dev.json").write_text(paths_line("nets", "Neuro--DeepLearning", "Computer--MachineLearning"))
    prepare_neuralclassifier(tmp_path, tmp_path / "out")
    assert rows(tmp_path / "out", "train") == [
        {
            "text": "I love deep learning",
            "labels": [
                "Computer",
                "Computer--MachineLearning",
                "Computer--MachineLearning--DeepLearning",
                "Neuro",
                "Neuro--ComputationalNeuro",
            ],
        },
        {"text": "spikes", "labels": ["Neuro"]},
    ]
    assert rows(tmp_path / "out", "dev")[0]["labels"] == [
        "Neuro",
        "Neuro--DeepLearning",
        "Computer",
        "Computer--MachineLearning",
    ]
    tree = DataFolder(tmp_path / "out").taxonomy
    assert tree.ids == (*rows(tmp_path / "out", "train")[0]["labels"], "Neuro--DeepLearning")
    assert tree.names == (
        "Computer",
        "MachineLearning",
        "DeepLearning",
        "Neuro",
        "ComputationalNeuro",
        "DeepLearning",
    )
    assert tree.parents.tolist() == [-1, 0, 1, -1, 3, 3]
    assert check(DataFolder(tmp_path / "out")).bad_rows == 0


def test_with_a_tree_labels_are_paths_ids_or_both(tmp_path: Path) -> None:
    """The program's own RCV1 sample: C15 is a node of the tree, CCAT--C15--C152 a path of such nodes."""
    (tmp_path / "rcv1.taxonomy").write_text("Root\tCCAT\tECAT\nCCAT\tC11\tC15\nC15\tC151\tC152\nECAT\tE41\n")
    (tmp_path / "rcv1_train.hierar.json").write_text(
        paths_line("oil", "CCAT--C15--C152") + paths_line("jobs", "CCAT--C11", "ECAT--E41", "ECAT")
    )
    (tmp_path / "rcv1_dev.json").write_text(paths_line("oil", "C152", "C15", "CCAT"))
    prepare_neuralclassifier(tmp_path, tmp_path / "out")
    assert [row["labels"] for row in rows(tmp_path / "out", "train")] == [
        ["CCAT", "C15", "C152"],
        ["CCAT", "ECAT", "C11", "E41"],
    ]
    assert rows(tmp_path / "out", "dev")[0]["labels"] == ["CCAT", "C15", "C152"]
    (tmp_path / "rcv1_dev.json").write_text(paths_line("oil", "C152"))
    with pytest.raises(InputError, match=r"rcv1_dev\.json:1: label without its parent: 'C152'"):
        prepare_neuralclassifier(tmp_path, tmp_path / "out")
    prepare_neuralclassifier(tmp_path, tmp_path / "out", add_ancestors=True)
    assert rows(tmp_path / "out", "dev")[0]["labels"] == ["CCAT", "C15", "C152"]
    (tmp_path / "rcv1_dev.json").write_text(paths_line("oil", "CCAT--C151"))
    with pytest.raises(InputError, match=r"rcv1_dev\.json:1: unknown label 'CCAT--C151'"):
        prepare_neuralclassifier(tmp_path, tmp_path / "out")


def test_a_drawn_tree_of_one_level_is_said_to_be_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "x_train.json").write_text(paths_line("x", "C152", "C15", "CCAT"))
    with caplog.at_level(logging.WARNING):
        prepare_neuralclassifier(tmp_path, tmp_path / "out")
    assert caplog.messages == [
        "the 3 labels form no tree: there is no taxonomy file, and no label holds '--'; --taxonomy names one"
    ]


prepare_fasttext = partial(prepare_format, "fasttext")


@pytest.fixture
def fasttext_source(tmp_path: Path) -> Path:
    folder = tmp_path / "fasttext"
    folder.mkdir()
    (folder / "cooking.train").write_text(
        "__label__food/sauce __label__food/cheese How much does potato starch affect a cheese sauce ?\n"
        "\n"
        "__label__tools\t__label__food/sauce   pans \t and\u00a0pots\r\n"
    )
    (folder / "cooking.valid").write_text("Is it __label__food safe ?\n")
    return folder


def test_fasttext_texts_labels_and_the_drawn_tree(fasttext_source: Path, tmp_path: Path) -> None:
    summary = prepare_fasttext(fasttext_source, tmp_path / "out")
    assert summary.documents == {"train": 2, "dev": 1, "test": 0}
    assert rows(tmp_path / "out", "train") == [
        {
            "text": "How much does potato starch affect a cheese sauce ?",
            "labels": ["food", "food/sauce", "food/cheese"],
        },
        {"text": "pans and\u00a0pots", "labels": ["tools", "food", "food/sauce"]},
    ]
    assert rows(tmp_path / "out", "dev") == [{"text": "Is it safe ?", "labels": ["food"]}]
    tree = DataFolder(tmp_path / "out").taxonomy
    assert tree.ids == ("food", "food/sauce", "food/cheese", "tools")
    assert tree.names == ("food", "sauce", "cheese", "tools")
    assert check(DataFolder(tmp_path / "out")).bad_rows == 0


def test_fasttext_with_a_tree(fasttext_source: Path, tmp_path: Path) -> None:
    tree = tmp_path / "tree.tsv"
    tree.write_text("Root\ttools\tfood\nfood\tcheese\tsauce\n")
    prepare_fasttext(fasttext_source, tmp_path / "out", taxonomy=tree)
    assert rows(tmp_path / "out", "train")[1]["labels"] == ["tools", "food", "sauce"]
    (fasttext_source / "cooking.valid").write_text("__label__food/salt x\n")
    with pytest.raises(InputError, match=r"cooking\.valid:1: unknown label 'food/salt'"):
        prepare_fasttext(fasttext_source, tmp_path / "out", taxonomy=tree)
    (fasttext_source / "cooking.valid").write_text("__label__sauce x\n")
    prepare_fasttext(fasttext_source, tmp_path / "out", taxonomy=tree, add_ancestors=True)
    assert rows(tmp_path / "out", "dev")[0]["labels"] == ["food", "sauce"]
    with pytest.raises(InputError, match=r"cooking\.train:1: unknown label 'food/sauce'"):
        prepare_fasttext(fasttext_source, tmp_path / "out", taxonomy=tree, path_separator=None)


def test_lines_without_text_or_label(fasttext_source: Path, tmp_path: Path) -> None:
    with (fasttext_source / "cooking.train").open("a") as file:
        file.write("__label__food\nno label here\n")
    assert prepare_fasttext(fasttext_source, tmp_path / "out").left_out == {"no text": 1, "no labels": 1}


WORD = st.text(st.characters(exclude_characters=" \t\v\f\r\n\0", codec="utf-8"), min_size=1).filter(
    lambda word: not word.startswith(("__label__", "\ufeff"))
)
