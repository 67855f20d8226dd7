from __future__ import annotations

import gzip
import json
import logging
from functools import partial
from pathlib import Path

import pytest

from hgclr.data import DataFolder
from hgclr.data.check import check
from hgclr.errors import InputError
from hgclr.paper.corpora.formats import prepare_format

prepare_neuralclassifier = partial(prepare_format, "neuralclassifier")

README = {
    "doc_label": ["Computer--MachineLearning--DeepLearning", "Neuro--ComputationalNeuro"],
    "doc_token": ["I", "love", "deep", "learning"],
    "doc_keyword": ["deep learning"],
    "doc_topic": ["AI", "Machine learning"],
}


def line(words: str, *labels: str) -> str:
    return json.dumps({"doc_label": labels, "doc_token": words.split(), "doc_keyword": [], "doc_topic": []}) + "\n"


def rows(folder: Path, split: str) -> list[dict[str, object]]:
    with gzip.open(folder / f"{split}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(row) for row in lines]


def test_the_tree_is_drawn_from_the_paths_in_the_order_seen(tmp_path: Path) -> None:
    (tmp_path / "x_train.json").write_text(json.dumps(README) + "\n" + line("spikes", "Neuro"))
    (tmp_path / "x_dev.json").write_text(line("nets", "Neuro--DeepLearning", "Computer--MachineLearning"))
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
        line("oil", "CCAT--C15--C152") + line("jobs", "CCAT--C11", "ECAT--E41", "ECAT")
    )
    (tmp_path / "rcv1_dev.json").write_text(line("oil", "C152", "C15", "CCAT"))
    prepare_neuralclassifier(tmp_path, tmp_path / "out")
    assert [row["labels"] for row in rows(tmp_path / "out", "train")] == [
        ["CCAT", "C15", "C152"],
        ["CCAT", "ECAT", "C11", "E41"],
    ]
    assert rows(tmp_path / "out", "dev")[0]["labels"] == ["CCAT", "C15", "C152"]
    (tmp_path / "rcv1_dev.json").write_text(line("oil", "C152"))
    with pytest.raises(InputError, match=r"rcv1_dev\.json:1: label without its parent: 'C152'"):
        prepare_neuralclassifier(tmp_path, tmp_path / "out")
    prepare_neuralclassifier(tmp_path, tmp_path / "out", add_ancestors=True)
    assert rows(tmp_path / "out", "dev")[0]["labels"] == ["CCAT", "C15", "C152"]
    (tmp_path / "rcv1_dev.json").write_text(line("oil", "CCAT--C151"))
    with pytest.raises(InputError, match=r"rcv1_dev\.json:1: unknown label 'CCAT--C151'"):
        prepare_neuralclassifier(tmp_path, tmp_path / "out")


@pytest.mark.parametrize("label", ["A----B", "--A", "A--", "", "A-- --B"])
def test_a_path_with_an_empty_part(tmp_path: Path, label: str) -> None:
    (tmp_path / "x_train.json").write_text(line("x", "A--B") + line("x", label))
    with pytest.raises(InputError, match=rf"x_train\.json:2: the label '{label}' has an empty part; give every label"):
        prepare_neuralclassifier(tmp_path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_label_that_is_not_unicode(tmp_path: Path) -> None:
    (tmp_path / "x_train.json").write_text(line("x", "A--\ud800"))
    with pytest.raises(InputError, match=r"x_train\.json:1: the label 'A--\\ud800' is not Unicode"):
        prepare_neuralclassifier(tmp_path, tmp_path / "out")


def test_a_drawn_tree_of_one_level_is_said_to_be_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "x_train.json").write_text(line("x", "C152", "C15", "CCAT"))
    with caplog.at_level(logging.WARNING):
        prepare_neuralclassifier(tmp_path, tmp_path / "out")
    assert caplog.messages == [
        "the 3 labels form no tree: there is no taxonomy file, and no label holds '--'; --taxonomy names one"
    ]


def test_ancestors_need_a_tree(tmp_path: Path) -> None:
    (tmp_path / "x_train.json").write_text(line("x", "A--B"))
    with pytest.raises(InputError, match="--add-ancestors needs a label tree; name its file with --taxonomy"):
        prepare_neuralclassifier(tmp_path, tmp_path / "out", add_ancestors=True)


def test_nothing_to_train_on(tmp_path: Path) -> None:
    (tmp_path / "x_train.json").write_text(line("", "A--B"))
    with pytest.raises(InputError, match=r"no document for training was found; left out: 1 \(no text\)"):
        prepare_neuralclassifier(tmp_path, tmp_path / "out")
