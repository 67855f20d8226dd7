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


def test_labels_that_are_paths(tmp_path: Path) -> None:
    """New York Times: the ids are paths with slashes."""
    (tmp_path / "nyt.taxonomy").write_text("Root\tTop/News\nTop/News\tTop/News/Health\n")
    (tmp_path / "nyt_train_all.json").write_text(line(["flu"], ["Top/News", "Top/News/Health"]))
    prepare_hiagm(tmp_path, tmp_path / "out")
    assert rows(tmp_path / "out", "train")[0]["labels"] == ["Top/News", "Top/News/Health"]
    assert DataFolder(tmp_path / "out").taxonomy.names == ("News", "Health")


def test_the_taxonomy_as_the_script_for_web_of_science_spells_it(source: Path, tmp_path: Path) -> None:
    (source / "rcv1.taxonomy").rename(source / "wos.taxnomy")
    assert prepare_hiagm(source, tmp_path / "out").documents["train"] == 2


def test_documents_without_text_or_labels_are_left_out(source: Path, tmp_path: Path) -> None:
    with (source / "rcv1_train.json").open("a") as file:
        file.write("\n" + line([], ["CCAT"]) + line(["x"], []) + line("  ", ["CCAT"]) + line("a \ud800", ["CCAT"]))
    summary = prepare_hiagm(source, tmp_path / "out")
    assert summary.left_out == {"no text": 2, "no labels": 1, "not UTF-8: the text has a lone surrogate": 1}
    left = [json.loads(row) for row in (tmp_path / "out" / "left-out.jsonl").read_text().splitlines()]
    assert left[0] == {"where": f"{source / 'rcv1_train.json'}:4", "reason": "no text"}  # line 3 is blank


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (line(["x"], ["C155"]), r"rcv1_train\.json:3: unknown label 'C155'; did you mean 'C15'"),
        (line(["x"], ["C151", "CCAT"]), r":3: label without its parent: 'C151' is given, 'C15' is not; .*--add-ances"),
        ('{"token": ["x"], "lab', r":3: broken JSON: .*; mend the line"),
        ('["x"]\n', r":3: wrong type: the row is a list, not an object; mend the line$"),
        (
            '{"token": ["x"], "doc_label": []}\n',
            r":3: the line lacks 'token' and 'label' or 'doc_token' and 'doc_label'",
        ),
        (line(["x", 3], ["CCAT"]), r":3: 'token' is \['x', 3\], not a list of strings"),
        (line(["x"], "CCAT"), r":3: 'label' is 'CCAT', not a list of strings"),
    ],
)
def test_bad_lines(source: Path, tmp_path: Path, text: str, message: str) -> None:
    with (source / "rcv1_train.json").open("a") as file:
        file.write(text)
    with pytest.raises(InputError, match=message):
        prepare_hiagm(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["hiagm"]


def test_a_line_that_is_not_utf8(source: Path, tmp_path: Path) -> None:
    (source / "rcv1_val.json").write_bytes(b'{"token": "caf\xe9", "label": ["CCAT"]}\n')
    with pytest.raises(InputError, match=r"rcv1_val\.json:1: not UTF-8: byte 0xe9 at byte 15"):
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


def test_files_that_are_missing_or_too_many(source: Path, tmp_path: Path) -> None:
    def refused(message: str, folder: Path | None = source, **files: Path) -> None:
        with pytest.raises(InputError, match=message):
            prepare_hiagm(folder, tmp_path / "out", **files)

    refused("nothing to read; name the folder with --source", None)
    refused("absent: no such file", tmp_path / "absent")
    refused("absent: no such file", train=tmp_path / "absent")
    refused("no file here is called '…train.json' or", tmp_path)
    refused("there is no such file; check the path of the label file", taxonomy=tmp_path / "absent")
    (source / "docidnewnyt_train.json").touch()
    refused("several files may be the split 'train': docidnewnyt_train.json and rcv1_train.json; name all files with")
    (source / "docidnewnyt_train.json").unlink()
    (source / "nyt.taxonomy").touch()
    refused("several files may be the label tree: nyt.taxonomy and rcv1.taxonomy; name it with --taxonomy")
    (source / "nyt.taxonomy").unlink()
    (source / "rcv1.taxonomy").unlink()
    refused("no label tree beside the documents; name the .taxonomy file with --taxonomy")


def test_other_files_of_the_program_are_no_splits(source: Path, tmp_path: Path) -> None:
    for name in ("rcv1_prob.json", "rcv1_overall_corpus_train_prob.json", "train.txt", ".rcv1_train.json"):
        (source / name).write_text("none of ours")
    assert prepare_hiagm(source, tmp_path / "out").documents["train"] == 2


def test_progress_and_the_same_bytes(source: Path, tmp_path: Path) -> None:
    (source / "rcv1_train.json").write_text(line(["x"], ["CCAT"]) * 2500)
    seen: list[tuple[int, int | None]] = []
    prepare_hiagm(source, tmp_path / "out", progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1000, None), (2000, None)]
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    prepare_hiagm(source, tmp_path / "out")
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before


@pytest.mark.parametrize(("tree", "labels"), [("wos", 141), ("nyt", 166), ("rcv1", 103)])
def test_the_taxonomies_of_the_literature(shared_data: Path, tmp_path: Path, tree: str, labels: int) -> None:
    """One document with every label of the tree, as the file lists them."""
    path = shared_data / "taxonomies" / f"{tree}.taxonomy"
    listed = [name for row in path.read_text().splitlines() for name in row.split("\t")[1:]]
    assert len(listed) == labels
    (tmp_path / "x_train.json").write_text(line(["x"], listed))
    prepare_hiagm(tmp_path, tmp_path / "out", taxonomy=path)
    assert sorted(rows(tmp_path / "out", "train")[0]["labels"]) == sorted(listed)
