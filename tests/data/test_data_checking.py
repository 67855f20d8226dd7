from __future__ import annotations

import json
from pathlib import Path

import pytest

from hgclr.data import DataFolder
from hgclr.data.checking import check
from hgclr.errors import InputError

TAXONOMY = "Root\tA\tB\nA\tA1\tA2\n"


def row(text: str, *labels: str) -> str:
    return json.dumps({"text": text, "labels": labels})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "taxonomy.tsv").write_text(TAXONOMY)
    train = [
        row("one two three", "A", "A1"),
        row("four", "B"),
        row("Four", "B"),
        "{",
        row("x", "A", "A1", "B"),
    ]
    dev = [row("ONE  two\nthree", "A"), row("caf\u00e9 noir", "A")]
    test = [
        row("cafe\u0301 noir", "A"),
        row("one two three", "A"),
        row("four", "B"),
        row("", "A"),
        row("y", "A1"),
    ]
    for name, rows in (("train", train), ("dev", dev), ("test", test)):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(rows) + "\n")
    return tmp_path


def test_report(folder: Path) -> None:
    report = check(DataFolder(folder))
    train, dev, test = (report.splits[name] for name in ("train", "dev", "test"))
    assert (report.labels, report.depth, report.bad_rows) == (4, 2, 3)
    assert (train.documents, dev.documents, test.documents) == (4, 2, 3)
    assert (train.bad_rows, dev.bad_rows, test.bad_rows) == (1, 0, 2)
    assert [(bad.number, bad.reason) for bad in test.first_bad_rows] == [
        (4, "empty text"),
        (5, "label without its parent: 'A1' is given, 'A' is not"),
    ]
    assert train.first_bad_rows[0].number == 4
    assert train.labels_per_document == (2 + 1 + 1 + 3) / 4
    assert train.words_per_text == (3 + 1 + 1 + 1) / 4
    assert (train.longest_text, train.labels_used, train.repeated_texts) == (3, 3, 1)
    assert report.unused_labels == ["A2"]
    assert report.empty_splits == []


def test_the_same_text_is_found_whatever_its_case_space_and_composition(folder: Path) -> None:
    assert check(DataFolder(folder)).shared_texts == {
        ("train", "dev"): 1,
        ("train", "test"): 2,
        ("dev", "test"): 2,
    }


def test_every_bad_row_goes_to_the_side_file_but_few_to_the_report(folder: Path) -> None:
    (folder / "dev.jsonl").write_text("oops\n" * 25)
    report = check(DataFolder(folder), bad_rows=folder / "bad.jsonl")
    assert report.splits["dev"].bad_rows == 25
    assert len(report.splits["dev"].first_bad_rows) == 10
    assert report.empty_splits == ["dev"]
    records = [json.loads(line) for line in (folder / "bad.jsonl").read_text().splitlines()]
    files = [Path(record["file"]).name for record in records]
    assert files == ["train.jsonl"] + ["dev.jsonl"] * 25 + ["test.jsonl"] * 2


def test_report_as_json(folder: Path) -> None:
    values = json.loads(json.dumps(check(DataFolder(folder)).to_json()))
    assert values["splits"]["train"]["documents"] == 4
    assert values["splits"]["train"]["first_bad_rows"][0]["row"] == 4
    assert {"splits": ["train", "dev"], "texts": 1} in values["shared_texts"]
    assert values["unused_labels"] == ["A2"]


def test_progress_counts_every_row(folder: Path) -> None:
    seen: list[int] = []
    check(DataFolder(folder), progress=seen.append)
    assert sum(seen) == 5 + 2 + 5


def test_without_a_train_split_no_label_is_called_unused(folder: Path) -> None:
    (folder / "train.jsonl").unlink()
    assert check(DataFolder(folder)).unused_labels == []


def test_a_damaged_file_is_an_error(folder: Path) -> None:
    (folder / "dev.jsonl").unlink()
    (folder / "dev.csv").write_text("words,labels\n")
    with pytest.raises(InputError, match=r"dev\.csv:1: missing column 'text'"):
        check(DataFolder(folder))


def test_benchmark_set(shared_data: Path) -> None:
    import gzip

    report = check(DataFolder(shared_data / "clinc150"))
    assert report.bad_rows == 0
    assert report.unused_labels == []
    texts = {}
    for name in ("train", "dev", "test"):
        with gzip.open(shared_data / "clinc150" / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
            texts[name] = {" ".join(json.loads(line)["text"].lower().split()) for line in lines}
    shared = {
        (first, second): len(texts[first] & texts[second])
        for first, second in (("train", "dev"), ("train", "test"), ("dev", "test"))
    }
    assert report.shared_texts == {pair: count for pair, count in shared.items() if count}
