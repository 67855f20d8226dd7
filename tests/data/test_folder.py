"""Data folders: labels in every form, bad rows raised or recorded, detection of splits and trees."""

from __future__ import annotations

import csv
import gzip
import json
import logging
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hgclr.data import DataFolder, Document
from hgclr.data.folder import LabelReader, RowForm
from hgclr.errors import InputError
from hgclr.taxonomy import Taxonomy

# Two labels are called "news": ids are unique, names are not.
TREE = Taxonomy(
    ["sci", "phy", "opt", "soc", "news-sci", "news-soc"],
    [-1, 0, 1, -1, 0, 3],
    ["science", "physics", "optics", "society", "news", "news"],
)
SCIENCE, PHYSICS, OPTICS, SOCIETY, NEWS_SCIENCE, NEWS_SOCIETY = range(6)
GOOD: dict[str, object] = {"text": "light", "labels": ["science", "physics"]}
FORMS = ["jsonl", "jsonl.gz", "csv", "csv.gz", "tsv", "tsv.gz", "parquet"]


def write_split(folder: Path, rows: list[dict[str, object]], form: str = "jsonl", name: str = "train") -> Path:
    """Write rows in any form; tables join the labels with semicolons."""
    path = folder / f"{name}.{form}"
    if form == "parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
        return path
    open_text = gzip.open if form.endswith("gz") else open
    with open_text(path, "wt", encoding="utf-8", newline="") as stream:
        if form.startswith("jsonl"):
            stream.writelines(json.dumps(row) + "\n" for row in rows)
        else:
            writer = csv.writer(stream, delimiter="," if form.startswith("csv") else "\t")
            writer.writerow(rows[0])
            for row in rows:
                writer.writerow([";".join(cell) if isinstance(cell, list) else cell for cell in row.values()])
    return path


def first_row(form: str) -> int:
    """Return the number of the first row: tables have a header before it."""
    return 2 if form.startswith(("csv", "tsv")) else 1


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    TREE.write(tmp_path / "taxonomy.json")
    return tmp_path


@pytest.mark.parametrize("form", FORMS)
def test_ids_names_and_paths_in_every_form(folder: Path, form: str) -> None:
    rows: list[dict[str, object]] = [
        {"text": "ids", "labels": ["opt", "phy", "sci"]},
        {"text": "names", "labels": ["science", "physics", "science"]},
        {"text": "a path brings its ancestors", "labels": ["science > physics > optics"]},
        {"text": "a path tells the two apart, also beside names", "labels": ["society > news", "science"]},
    ]
    write_split(folder, rows, form)
    data = DataFolder(folder)
    assert data.taxonomy == TREE
    assert [document.labels for document in data.documents("train")] == [
        (SCIENCE, PHYSICS, OPTICS),
        (SCIENCE, PHYSICS),
        (SCIENCE, PHYSICS, OPTICS),
        (SCIENCE, SOCIETY, NEWS_SOCIETY),
    ]
    assert [document.text for document in data.documents("train")] == [row["text"] for row in rows]


def test_leaves_only(folder: Path) -> None:
    path = write_split(folder, [{"text": "x", "labels": ["optics"]}, {"text": "y", "labels": ["news-soc"]}])
    data = DataFolder(folder, add_ancestors=True)
    assert [d.labels for d in data.documents("train")] == [
        (SCIENCE, PHYSICS, OPTICS),
        (SOCIETY, NEWS_SOCIETY),
    ]
    with pytest.raises(InputError) as caught:
        list(DataFolder(folder).documents("train"))
    assert (caught.value.path, caught.value.line) == (path, 1)
    assert "--add-ancestors" in str(caught.value.remedy)


SOME = ["jsonl", "csv", "parquet"]
BAD = [
    ({"text": "x", "labels": ["science", "phisics"]}, "unknown label 'phisics'", SOME),
    ({"text": "x", "labels": ["society", "news"]}, "the label 'news' is ambiguous", SOME),
    ({"text": "x", "labels": ["science", "optics"]}, "label without its parent: 'optics'", SOME),
    ({"text": " \n ", "labels": ["science"]}, "empty text", SOME),
    ({"text": None, "labels": ["science"]}, "empty text", SOME),
    ({"text": "x", "labels": []}, "no labels", SOME),
    ({"text": "x", "labels": None}, "no labels", SOME),
    ({"text": 3, "labels": ["science"]}, "expected", ["jsonl"]),
    ({"text": "x", "labels": [0]}, "wrong type", ["jsonl"]),
    ({"text": "x", "labels": {"a": 1}}, "wrong type", ["jsonl"]),
    ({"text": "x\ud800", "labels": ["science"]}, "not UTF-8", ["jsonl"]),
    ({"text": "x\0", "labels": ["science"]}, "the text has a NUL", ["jsonl"]),
]


@pytest.mark.parametrize(
    ("row", "reason", "form"), [(row, reason, form) for row, reason, forms in BAD for form in forms]
)
def test_bad_rows_stop_reading_or_are_skipped_and_recorded(
    folder: Path, caplog: pytest.LogCaptureFixture, row: dict[str, object], reason: str, form: str
) -> None:
    path = write_split(folder, [GOOD, row, GOOD], form)
    number = first_row(form) + 1
    with pytest.raises(InputError) as caught:
        list(DataFolder(folder).documents("train"))
    assert (caught.value.path, caught.value.line) == (path, number)
    assert caught.value.what.startswith(reason)
    assert "--skip-bad-rows" in caught.value.remedy

    side = folder / "out" / "bad.jsonl"
    with caplog.at_level(logging.WARNING):
        documents = list(DataFolder(folder, skip_bad_rows=True).documents("train", bad_rows=side))
    assert documents == [Document("light", (SCIENCE, PHYSICS))] * 2
    (record,) = map(json.loads, side.read_text().splitlines())
    assert (record["file"], record["row"]) == (str(path), number)
    assert record["reason"].startswith(reason)
    if form == "jsonl":
        assert record["content"] == row
    (warning,) = caplog.messages
    assert str(side) in warning


def test_rows_the_reader_refuses_are_handled_alike(folder: Path) -> None:
    path = write_split(folder, [GOOD, GOOD, GOOD | {"text": "née"}], "csv")
    path.write_bytes(path.read_bytes().replace(b"light", b"l\xff", 1))
    with pytest.raises(InputError, match="not UTF-8") as caught:
        list(DataFolder(folder).documents("train"))
    assert caught.value.line == 2
    data = DataFolder(folder, skip_bad_rows=True)
    assert len(list(data.documents("train", bad_rows=folder / "bad.jsonl"))) == 2
    assert "l\\\\xff" in (folder / "bad.jsonl").read_text()


def test_other_columns_and_separators(folder: Path) -> None:
    (folder / "train.csv").write_text("body,tags,text,labels\nlight,science/physics|society,wrong,wrong\n")
    data = DataFolder(folder, text_column="body", label_column="tags", label_separator="|", path_separator="/")
    assert list(data.documents("train")) == [Document("light", (SCIENCE, PHYSICS, SOCIETY))]


def test_empty_label_parts_of_a_string_do_not_count(folder: Path) -> None:
    (folder / "train.csv").write_text("text,labels\nx, science ;; physics;\ny, ; \n")
    data = DataFolder(folder, skip_bad_rows=True)
    assert list(data.documents("train")) == [Document("x", (SCIENCE, PHYSICS))]
    with pytest.raises(InputError, match=r"train\.csv:3: "):
        list(DataFolder(folder).documents("train"))


def test_an_empty_split_is_an_error_even_when_skipping(folder: Path) -> None:
    path = write_split(folder, [{"text": " ", "labels": ["science"]}] * 2)
    side = folder / "bad.jsonl"
    with pytest.raises(InputError, match="all 2 rows are bad") as caught:
        list(DataFolder(folder, skip_bad_rows=True).documents("train", bad_rows=side))
    assert caught.value.path == path
    assert len(side.read_text().splitlines()) == 2


@pytest.mark.parametrize(("content", "suffix"), [("", "jsonl"), ("\n\n", "csv")])
def test_a_file_without_rows_is_an_empty_split(folder: Path, content: str, suffix: str) -> None:
    (folder / f"train.{suffix}").write_text(content)
    with pytest.raises(InputError, match="empty split"):
        list(DataFolder(folder).documents("train"))


def test_a_side_file_of_an_older_run_is_deleted(folder: Path) -> None:
    write_split(folder, [GOOD, {"text": "", "labels": []}])
    side = folder / "bad.jsonl"
    side.write_text("from an older run\n")
    with pytest.raises(InputError):
        list(DataFolder(folder).documents("train", bad_rows=side))
    assert sorted(path.name for path in folder.iterdir()) == ["taxonomy.json", "train.jsonl"]
    write_split(folder, [GOOD])
    list(DataFolder(folder, skip_bad_rows=True).documents("train", bad_rows=side))
    assert not side.exists()  # nothing was skipped


def test_what_was_skipped_is_recorded_when_the_caller_stops_early(folder: Path) -> None:
    write_split(folder, [{"text": "", "labels": []}, GOOD, GOOD])
    documents = DataFolder(folder, skip_bad_rows=True).documents("train", bad_rows=folder / "bad.jsonl")
    next(documents)
    documents.close()
    assert len((folder / "bad.jsonl").read_text().splitlines()) == 1


def test_names_of_splits(folder: Path) -> None:
    for name in ("dev", "validation", "valid", "val"):
        path = write_split(folder, [GOOD], name=name)
        assert DataFolder(folder).splits == {"dev": path}
        path.unlink()
    write_split(folder, [GOOD])
    (folder / "train.csv").touch()
    with pytest.raises(InputError, match=r"train\.jsonl and train\.csv"):
        DataFolder(folder)


def test_finding_the_taxonomy(tmp_path: Path) -> None:
    write_split(tmp_path, [{"text": "x", "labels": ["A"]}])
    with pytest.raises(InputError, match=r"taxonomy\.tsv"):
        DataFolder(tmp_path)
    (tmp_path / "toy.taxonomy").write_text("Root\tA\n")
    assert DataFolder(tmp_path).taxonomy.ids == ("A",)
    (tmp_path / "taxonomy.tsv").write_text("Root\tB\n")
    with pytest.raises(InputError, match=r"taxonomy\.tsv and toy\.taxonomy"):
        DataFolder(tmp_path)
    assert DataFolder(tmp_path, taxonomy=tmp_path / "taxonomy.tsv").taxonomy.ids == ("B",)
    assert DataFolder(tmp_path, taxonomy=TREE).taxonomy is TREE


def test_folders_that_are_none(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(InputError, match="no such data folder"):
        DataFolder(tmp_path / "absent")
    with pytest.raises(InputError, match="no train, dev or test split"):
        DataFolder(folder)
    write_split(folder, [GOOD])
    with pytest.raises(InputError, match="no split 'test'"):
        list(DataFolder(folder).documents("test"))
    with pytest.raises(InputError, match="must not be empty"):
        DataFolder(folder, label_separator="")


@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 5), min_size=1), st.booleans())
def test_labels_are_the_brute_force_closure(indices: list[int], by_path: bool) -> None:
    written = [TREE.path_name(i) if by_path else TREE.ids[i] for i in indices]
    expected = set()
    for index in indices:
        while index != -1:
            expected.add(index)
            index = int(TREE.parents[index])
    reader = LabelReader(TREE, RowForm(add_ancestors=not by_path))
    assert reader.read(written) == reader.read(";".join(written)) == tuple(sorted(expected))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "column", "sizes"),
    [
        ("arxiv_mini", "labels", {"train": 998, "dev": 250, "test": 312}),
        ("arxiv", "primary", {"dev": 7549, "test": 9436}),
        ("clinc150", "labels", {"train": 15000, "dev": 3000, "test": 4500}),
    ],
)
def test_the_benchmark_sets_read_without_complaint(
    shared_data: Path, name: str, column: str, sizes: dict[str, int]
) -> None:
    data = DataFolder(shared_data / name, label_column=column)
    assert set(data.splits) == {"train", "dev", "test"}
    assert {split: sum(1 for _ in data.documents(split)) for split in sizes} == sizes
