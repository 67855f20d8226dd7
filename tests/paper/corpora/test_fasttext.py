from __future__ import annotations

import gzip
import json
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hgclr.data import DataFolder
from hgclr.data.check import check
from hgclr.errors import InputError
from hgclr.paper.corpora.formats import fasttext_lines, prepare_format

prepare_fasttext = partial(prepare_format, "fasttext")


def rows(folder: Path, split: str) -> list[dict[str, object]]:
    with gzip.open(folder / f"{split}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(row) for row in lines]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "fasttext"
    folder.mkdir()
    (folder / "cooking.train").write_text(
        "__label__food/sauce __label__food/cheese How much does potato starch affect a cheese sauce ?\n"
        "\n"
        "__label__tools\t__label__food/sauce   pans \t and\u00a0pots\r\n"
    )
    (folder / "cooking.valid").write_text("Is it __label__food safe ?\n")
    return folder


def test_texts_labels_and_the_drawn_tree(source: Path, tmp_path: Path) -> None:
    summary = prepare_fasttext(source, tmp_path / "out")
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


def test_flat_labels(source: Path, tmp_path: Path) -> None:
    (source / "cooking.train").write_text("__label__HIV/AIDS text\n")
    prepare_fasttext(source, tmp_path / "out", path_separator=None)
    assert rows(tmp_path / "out", "train")[0]["labels"] == ["HIV/AIDS"]
    assert DataFolder(tmp_path / "out").taxonomy.depth == 1


def test_another_prefix_and_separator(source: Path, tmp_path: Path) -> None:
    (source / "cooking.train").write_text("#a.b #c #d_e text __label__x\n")
    (source / "cooking.valid").unlink()
    prepare_fasttext(source, tmp_path / "out", path_separator=".", label_prefix="#")
    assert rows(tmp_path / "out", "train") == [{"text": "text __label__x", "labels": ["a", "a.b", "c", "d_e"]}]


def test_with_a_tree(source: Path, tmp_path: Path) -> None:
    tree = tmp_path / "tree.tsv"
    tree.write_text("Root\ttools\tfood\nfood\tcheese\tsauce\n")
    prepare_fasttext(source, tmp_path / "out", taxonomy=tree)
    assert rows(tmp_path / "out", "train")[1]["labels"] == ["tools", "food", "sauce"]
    (source / "cooking.valid").write_text("__label__food/salt x\n")
    with pytest.raises(InputError, match=r"cooking\.valid:1: unknown label 'food/salt'"):
        prepare_fasttext(source, tmp_path / "out", taxonomy=tree)
    (source / "cooking.valid").write_text("__label__sauce x\n")
    prepare_fasttext(source, tmp_path / "out", taxonomy=tree, add_ancestors=True)
    assert rows(tmp_path / "out", "dev")[0]["labels"] == ["food", "sauce"]
    with pytest.raises(InputError, match=r"cooking\.train:1: unknown label 'food/sauce'"):
        prepare_fasttext(source, tmp_path / "out", taxonomy=tree, path_separator=None)


def test_lines_without_text_or_label(source: Path, tmp_path: Path) -> None:
    with (source / "cooking.train").open("a") as file:
        file.write("__label__food\nno label here\n")
    assert prepare_fasttext(source, tmp_path / "out").left_out == {"no text": 1, "no labels": 1}


def test_bad_lines(source: Path, tmp_path: Path) -> None:
    (source / "cooking.valid").write_bytes(b"__label__food ok\n__label__food caf\xe9\n")
    with pytest.raises(InputError, match=r"cooking\.valid:2: not UTF-8: byte 0xe9 at byte 18 of the line; save the"):
        prepare_fasttext(source, tmp_path / "out")
    (source / "cooking.valid").write_text("__label__ x\n")
    with pytest.raises(InputError, match=r"cooking\.valid:1: the label '' has an empty part"):
        prepare_fasttext(source, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["fasttext"]


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot be read: Is a directory"):
        list(fasttext_lines(tmp_path, "__label__"))


@pytest.mark.parametrize("options", [{"label_prefix": ""}, {"label_prefix": "a b"}, {"path_separator": ""}])
def test_senseless_options(source: Path, tmp_path: Path, options: dict[str, str]) -> None:
    with pytest.raises(InputError, match=r"must not be empty, and the prefix holds no space; .*--path-separator none"):
        prepare_fasttext(source, tmp_path / "out", **options)


@pytest.mark.parametrize("name", ["train", "train.txt", "dbpedia.train", "dbpedia_train.txt", "Train.ft.txt"])
def test_names_of_files(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("__label__a x\n")
    (tmp_path / "model.train.bin").write_text("none of ours")
    assert prepare_fasttext(tmp_path, tmp_path / "out").documents["train"] == 1


WORD = st.text(st.characters(exclude_characters=" \t\v\f\r\n\0", codec="utf-8"), min_size=1).filter(
    lambda word: not word.startswith(("__label__", "\ufeff"))
)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(
    documents=st.lists(
        st.tuples(st.lists(WORD, min_size=1), st.lists(WORD, min_size=1), st.sampled_from([" ", "\t", "  "])),
        max_size=5,
    )
)
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, documents: list[tuple[list[str], list[str], str]]
) -> None:
    path = tmp_path_factory.mktemp("lines") / "train.txt"
    lines = [space.join([*(f"__label__{label}" for label in labels), *words]) for labels, words, space in documents]
    path.write_bytes("".join(line + "\n" for line in lines).encode())
    found = [(line.number, line.labels, line.text) for line in fasttext_lines(path, "__label__")]
    assert found == [(n, labels, " ".join(words)) for n, (labels, words, _) in enumerate(documents, 1)]
