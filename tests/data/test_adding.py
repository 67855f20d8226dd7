"""Rows added to train: every format of a split and every way to write a label; dev and test stay as they are."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from filelock import FileLock

from hgclr.data import DataFolder
from hgclr.data.adding import LOCK, SUGGESTIONS, add_tables
from hgclr.data.layout import Layout
from hgclr.data.table_import import import_tables
from hgclr.errors import InputError

TREE = "child,parent,name\ns,,Science\np,s,Physics\nc,s,Chemistry\nl,,Law; courts\n7,l,Seven\n"
OLD = {"an atom": ["s", "p"], "an acid": ["s", "c"]}
FORMATS = ["jsonl", "jsonl.gz", "csv", "tsv", "csv.gz", "parquet", "xlsx"]
REVIEW = [
    "text",
    *(name for number in "123" for name in (f"path {number}", f"probability {number}")),
    "reason",
    "label",
]


def write_split(path: Path, rows: Mapping[str, list[str]]) -> None:
    if path.name.endswith("xlsx"):
        workbook = pytest.importorskip("openpyxl").Workbook()
        for row in [("text", "n", "labels"), *((text, 1, ";".join(labels)) for text, labels in rows.items())]:
            workbook.active.append(row)
        workbook.save(path)
        return
    if path.name.endswith("parquet"):
        table = [{"n": n, "text": text, "labels": labels} for n, (text, labels) in enumerate(rows.items())]
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(table), path)
        return
    lines = [json.dumps({"labels": labels, "text": text, "more": [1]}) for text, labels in rows.items()]
    if "csv" in path.name or "tsv" in path.name:
        sign = ";" if "csv" in path.name else "\t"
        lines = [
            sign.join(each)
            for each in [("labels", "id", "text"), *((f'"{";".join(v)}"', "", k) for k, v in rows.items())]
        ]
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


@pytest.mark.parametrize("folder", FORMATS, indirect=True)
def test_every_format_is_kept_and_only_train_changes(folder: Path, tmp_path: Path) -> None:
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
    if "jsonl" in result.train.name:
        lines = gzip.decompress(after[result.train.name]) if result.train.suffix == ".gz" else after[result.train.name]
        assert json.dumps({"labels": ["s", "c"], "text": "an acid", "more": [1]}) in lines.decode().splitlines()
        assert json.loads(lines.splitlines()[0])["more"] == [1]
    if result.train.suffix == ".parquet":
        assert [row["n"] for row in pyarrow.parquet.read_table(result.train).to_pylist()] == [0, 1, None]


def test_nothing_new_leaves_train_as_it_is(folder: Path, tmp_path: Path) -> None:
    stamp = (folder / "train.jsonl").stat()
    result = add_tables(folder, [table(tmp_path / "new.csv", [("an atom", "p")])])
    assert (result.added, result.corrected, result.unchanged) == (0, 0, 1)
    assert (folder / "train.jsonl").stat().st_ino == stamp.st_ino


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


@pytest.mark.parametrize("folder", ["csv"], indirect=True)
def test_a_label_with_the_separator_in_its_id_is_refused(folder: Path, tmp_path: Path) -> None:
    (folder / "taxonomy.csv").write_text("child,parent\ns,\np,s\nc,s\na;b,\n")
    with pytest.raises(InputError):
        add_tables(folder, [table(tmp_path / "new.csv", [("a laser", "a;b")])], layout=Layout(label_separator="|"))
    assert train(folder) == {text: set(labels) for text, labels in OLD.items()}


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


def test_a_split_in_another_encoding_becomes_utf8(folder: Path, tmp_path: Path) -> None:
    (folder / "train.jsonl").unlink()
    lines = [f"{text} für Grüße an Müller,{';'.join(labels)}\r\n" for text, labels in OLD.items()]
    (folder / "train.csv").write_bytes("".join(["text,labels\r\n", *lines]).encode("cp1252"))
    add_tables(folder, [table(tmp_path / "new.csv", [("ein λ-Laser", "p")])])
    assert set(train(folder)) == {"ein λ-Laser", *(f"{text} für Grüße an Müller" for text in OLD)}
    assert (folder / "train.csv").read_bytes().count(b"\r\n") == 4
