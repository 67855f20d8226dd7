"""Rows added to train: every format of a split and every way to write a label; dev and test stay as they are."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from filelock import FileLock

from hgclr.data import DataFolder
from hgclr.data.adding import LOCK, SUGGESTIONS, add_tables
from hgclr.data.layout import Layout
from hgclr.data.table_import import import_tables
from hgclr.errors import InputError

TREE = "child,parent,name\ns,,Science\np,s,Physics\nc,s,Chemistry\nl,,Law; courts\n7,l,Seven\n"
OLD = {"an atom": ["s", "p"], "an acid": ["s", "c"]}
REVIEW = [
    "text",
    *(name for number in "123" for name in (f"path {number}", f"probability {number}")),
    "reason",
    "label",
]


def write_split(path: Path, rows: Mapping[str, list[str]]) -> None:
    lines = [json.dumps({"labels": labels, "text": text, "more": [1]}) for text, labels in rows.items()]
    content = "\n".join(lines).encode()  # without a line end
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


@pytest.fixture(params=["jsonl"])
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "taxonomy.csv").write_text(TREE)
    write_split(folder / f"train.{request.param}", OLD)
    write_split(folder / f"valid.{request.param}", {"In  dev": ["s"]})
    write_split(folder / f"test.{request.param}", {"in test": ["s"]})
    return folder


def table(path: Path, rows: Iterable[tuple[str, str]]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("text", "labels"), *rows])
    return path


def review_file(path: Path, labels: Mapping[str, str]) -> Path:
    paths = ["Science > Physics", "0.9", "Science > Chemistry", "0.1", "Law; courts", "0.01"]
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([REVIEW, *([text, *paths, "no doubt", label] for text, label in labels.items())])
    return path


def train(folder: Path) -> dict[str, set[str]]:
    data = DataFolder(folder)
    return {each.text: {data.taxonomy.ids[label] for label in each.labels} for each in data.documents("train")}


@pytest.mark.parametrize("folder", ["jsonl", "jsonl.gz"], indirect=True)
def test_only_train_changes(folder: Path, tmp_path: Path) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    rows = [
        ("a laser", "Science > Physics"),
        ("AN ATOM", "c"),
        ("an acid", "Chemistry"),
        ("in dev", "p"),
        ("in test", "p"),
    ]
    result = add_tables(folder, [table(tmp_path / "new.csv", rows)])
    assert (result.rows, result.added, result.corrected, result.unchanged) == (5, 1, 1, 1)
    assert result.held_out == [f"{tmp_path / 'new.csv'}:5 (dev)", f"{tmp_path / 'new.csv'}:6 (test)"]
    assert train(folder) == {"an atom": {"s", "c"}, "an acid": {"s", "c"}, "a laser": {"s", "p"}}
    after = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert {name for name, content in after.items() if before.get(name) != content} == {result.train.name}
    lines = gzip.decompress(after[result.train.name]) if result.train.suffix == ".gz" else after[result.train.name]
    assert json.dumps({"labels": ["s", "c"], "text": "an acid", "more": [1]}) in lines.decode().splitlines()
    assert json.loads(lines.splitlines()[0])["more"] == [1]


def test_a_split_in_another_format_is_refused_until_it_is_imported(folder: Path, tmp_path: Path) -> None:
    lines = (folder / "train.jsonl").read_text().splitlines()
    (folder / "train.jsonl").unlink()
    rows = [(row["text"], ";".join(row["labels"])) for row in map(json.loads, lines)]
    table(folder / "train.csv", rows)
    before = (folder / "train.csv").read_bytes()
    new = table(tmp_path / "new.csv", [("a laser", "p")])
    with pytest.raises(InputError) as error:
        add_tables(folder, [new])
    assert error.value.path == folder / "train.csv"
    assert f"hgclr data import {folder} --output" in (error.value.remedy or "")
    assert (folder / "train.csv").read_bytes() == before
    import_tables([folder], tmp_path / "converted")
    add_tables(tmp_path / "converted", [new])
    assert train(tmp_path / "converted") == {text: set(labels) for text, labels in OLD.items()} | {
        "a laser": {"s", "p"}
    }


def test_rows_of_train_that_cannot_be_read_stay(folder: Path, tmp_path: Path) -> None:
    lines = (folder / "train.jsonl").read_bytes()
    (folder / "train.jsonl").write_bytes(b"{broken\n\n" + lines)
    add_tables(folder, [table(tmp_path / "new.csv", [("an atom", "c")])])
    assert (folder / "train.jsonl").read_bytes().startswith(b"{broken\n\n{")


def test_nothing_new_leaves_train_as_it_is(folder: Path, tmp_path: Path) -> None:
    before = (folder / "train.jsonl").read_bytes()
    result = add_tables(folder, [table(tmp_path / "new.csv", [("an atom", "p")])])
    assert (result.added, result.corrected, result.unchanged) == (0, 0, 1)
    assert (folder / "train.jsonl").read_bytes() == before + b"\n"


def test_labels_in_a_review_file(folder: Path, tmp_path: Path) -> None:
    written = {"a": "1", "b": " 2 ", "c": "p", "d": "Chemistry", "e": "Science>Physics", "f": "1; 2;7", "g": ""}
    written |= {"h": "3", "i": "1;2", "j": "Law; courts > Seven", "'=k": "2"}
    path = review_file(tmp_path / "review.csv", written)
    result = add_tables(folder, [path])
    assert (result.rows, result.added, result.unlabelled) == (11, 10, 1)
    physics, chemistry, law = {"s", "p"}, {"s", "c"}, {"l"}
    assert train(folder) == {
        "an atom": physics,
        "an acid": chemistry,
        "a": physics,
        "b": chemistry,
        "c": physics,
        "d": chemistry,
        "e": physics,
        "f": physics | chemistry | {"l", "7"},
        "h": law,
        "i": physics | chemistry,
        "j": {"l", "7"},
        "=k": chemistry,
    }


def test_a_review_file_may_be_a_workbook_with_other_columns(folder: Path, tmp_path: Path) -> None:
    workbook = pytest.importorskip("openpyxl").Workbook()
    for row in [["No", "Letter", *REVIEW[1:]], [1, "a very long letter", *[None] * 7, 3.0], [2, "another long letter"]]:
        workbook.active.append(row)
    workbook.active.cell(2, 3 + 4).value = "Science"
    workbook.save(tmp_path / "review.xlsx")
    result = add_tables(folder, [tmp_path / "review.xlsx"], layout=Layout(text="Letter"))
    assert (result.added, result.unlabelled) == (1, 1)
    assert train(folder)["a very long letter"] == {"s"}


@pytest.mark.parametrize("label", ["Phisics", "Science > Law", "4", "1; nothing"])
def test_an_unknown_label_is_named_and_nothing_is_written(folder: Path, tmp_path: Path, label: str) -> None:
    before = {path: path.read_bytes() for path in folder.iterdir()}
    path = review_file(tmp_path / "review.csv", {"a": "1", "b": label})
    with pytest.raises(InputError) as error:
        add_tables(folder, [path])
    assert (error.value.path, error.value.line) == (path, 3)
    if label == "Phisics":
        assert "'Physics'" in (error.value.remedy or "")
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_a_number_that_is_also_a_label_is_refused(folder: Path, tmp_path: Path) -> None:
    (folder / "taxonomy.csv").write_text(TREE + "1,,One\n")
    with pytest.raises(InputError) as error:
        add_tables(folder, [review_file(tmp_path / "review.csv", {"a": "1"})])
    assert error.value.line == 2
    add_tables(folder, [review_file(tmp_path / "review.csv", {"a": "One", "b": "2"})])
    assert train(folder)["a"] == {"1"}


def test_rows_with_one_text_are_united(folder: Path, tmp_path: Path) -> None:
    path = table(tmp_path / "new.csv", [("a laser", "p"), ("A laser", "Law; courts"), ("a lens", "p")])
    result = add_tables(folder, [path], layout=Layout(labels=("labels",), label_separator="|"))
    assert (result.added, result.contradictions) == (2, 1)
    assert train(folder)["a laser"] == {"s", "p", "l"}


def test_an_imported_folder_counts_its_documents(tmp_path: Path) -> None:
    rows = [(f"a letter about the matter {number}", "A > B" if number % 2 else "C") for number in range(40)]
    import_tables([table(tmp_path / "all.csv", rows)], tmp_path / "data", stratify=False)
    counts = json.loads((tmp_path / "data" / "corpus.json").read_text())["documents"]
    add_tables(tmp_path / "data", [table(tmp_path / "new.csv", [("something new", "B"), ("one more", "A > B")])])
    after = json.loads((tmp_path / "data" / "corpus.json").read_text())["documents"]
    assert after == counts | {"train": counts["train"] + 2}
    assert len(train(tmp_path / "data")) == after["train"]


def test_one_process_adds_at_a_time(folder: Path, tmp_path: Path) -> None:
    path = table(tmp_path / "new.csv", [("a laser", "p")])
    with FileLock(folder / LOCK), pytest.raises(InputError):
        add_tables(folder, [path])
    add_tables(folder, [path])
    assert not (folder / LOCK).exists()


def test_the_suggestions_are_columns_of_a_review() -> None:
    assert set(SUGGESTIONS.values()) < set(REVIEW)
