from __future__ import annotations

import json
from pathlib import Path

import pytest

from hgclr.data import DataFolder
from hgclr.data.check import CheckReport, check, findings
from hgclr.data.rows import text_hash
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
    assert (len(report.statistics.taxonomy), report.statistics.taxonomy.depth, report.bad_rows) == (4, 2, 3)
    assert (train.documents, dev.documents, test.documents) == (4, 2, 3)
    assert (train.bad_rows, dev.bad_rows, test.bad_rows) == (1, 0, 2)
    assert [(bad.number, bad.reason) for bad in test.first_bad_rows] == [
        (4, "empty text"),
        (5, "label without its parent: 'A1' is given, 'A' is not"),
    ]
    assert train.first_bad_rows[0].number == 4
    assert train.labels.mean == (2 + 1 + 1 + 3) / 4
    assert train.words.mean == (3 + 1 + 1 + 1) / 4
    assert (train.words.maximum, train.labels_used, train.repeated_texts) == (3, 3, 1)
    assert report.unused_labels == ["A2"]
    assert report.empty_splits == []


def test_the_same_text_is_found_whatever_its_case_space_and_composition(folder: Path) -> None:
    assert check(DataFolder(folder)).shared_texts == {
        ("train", "dev"): 1,
        ("train", "test"): 2,
        ("dev", "test"): 2,
    }


def test_the_hash_of_a_text() -> None:
    import hashlib
    import unicodedata

    normal = unicodedata.normalize("NFC", "cafe\u0301 noir strasse")
    assert text_hash(" CAF\u00c9\tnoir\nStra\u00dfe ") == int.from_bytes(
        hashlib.blake2b(normal.encode(), digest_size=8).digest(), "little"
    )


def test_texts_with_different_labels(folder: Path) -> None:
    report = check(DataFolder(folder))
    # "one two three": {A, A1} in train, {A} in dev and test; all other repeated texts have the same labels everywhere.
    assert report.conflicting_texts == 1
    (conflict,) = report.first_conflicts
    assert conflict.text == "one two three"
    assert conflict.splits == ("train", "dev")
    assert conflict.labels == (("A", "A1"), ("A",))


def test_conflicts_agree_with_brute_force(tmp_path: Path) -> None:
    import random

    draw = random.Random(4)
    (tmp_path / "taxonomy.tsv").write_text("Root\tA\tB\tC\n")
    seen: dict[str, set[tuple[str, ...]]] = {}
    first: dict[str, tuple[str, tuple[str, ...]]] = {}
    for split in ("train", "dev", "test"):
        lines = []
        for _ in range(80):
            text, labels = f"text {draw.randrange(90)}", tuple(sorted(draw.sample("ABC", draw.choice([1, 1, 2]))))
            seen.setdefault(text, set()).add(labels)
            first.setdefault(text, (split, labels))
            lines += [row(text, *labels), "{"] if draw.random() < 0.2 else [row(text, *labels)]
        (tmp_path / f"{split}.jsonl").write_text("\n".join(lines))
    expected = [text for text, label_sets in seen.items() if len(label_sets) > 1]
    report = check(DataFolder(tmp_path))
    assert report.conflicting_texts == len(expected) > 10
    assert [conflict.text for conflict in report.first_conflicts] == expected[:10]
    for conflict in report.first_conflicts:
        assert (conflict.splits[0], conflict.labels[0]) == first[conflict.text]
        assert conflict.labels[0] != conflict.labels[1]
        assert set(conflict.labels) <= seen[conflict.text]


@pytest.fixture
def lopsided(tmp_path: Path) -> CheckReport:
    """A on every training document, C for testing only, D and all below it never used."""
    (tmp_path / "taxonomy.tsv").write_text("Root\tA\tC\nA\tA1\tA2\tD\nD\tD1\tD2\nD1\tD3\n")
    rows = {
        "train": [row("a b c", "A", "A1"), row("a b d", "A", "A2"), row("word " * 600, "A")],
        "dev": [row("x", "C"), row("y z", "A")],
    }
    for name, lines in rows.items():
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    return check(DataFolder(tmp_path))


def test_labels_out_of_balance(lopsided: CheckReport) -> None:
    assert sorted(lopsided.unused_labels) == ["C", "D", "D1", "D2", "D3"]
    assert lopsided.unseen_labels == ["C"]
    assert [(one.top, one.path, one.labels) for one in lopsided.unused_branches] == [("D", "A > D", 4)]
    assert lopsided.constant_labels == ["A"]
    assert [split.short_texts for split in lopsided.splits.values()] == [0, 2]
    assert [split.long_texts for split in lopsided.splits.values()] == [1, 0]


def test_findings_in_words(lopsided: CheckReport) -> None:
    assert [(found.kind, found.text) for found in findings(lopsided)] == [
        ("warning", "1 label has documents in dev, but none in train: C"),
        ("warning", "1 branch of the tree has no document in any split (4 labels): A > D (4 labels)"),
        ("warning", "1 label is on every document of train: A"),
        ("note", "2 texts have fewer than 3 words (40.0 %)"),
        ("note", "1 text has more than 512 words (20.0 %); most encoders read 512 tokens"),
    ]


def test_findings_about_texts_in_words(folder: Path) -> None:
    texts = [found.text for found in findings(check(DataFolder(folder)))]
    assert texts[:4] == [
        "1 text is in both train and dev",
        "2 texts are in both train and test",
        "2 texts are in both dev and test",
        "1 text has different labels in different documents: 'one two three' (train: A, A1; dev: A)",
    ]


def test_findings_name_the_largest_branches_and_few_labels(tmp_path: Path) -> None:
    tops = [f"T{number:02}" for number in range(12)]
    (tmp_path / "taxonomy.tsv").write_text("Root\tA\t" + "\t".join(tops) + "\nT07\tlow\n")
    (tmp_path / "train.jsonl").write_text(row("a b c", "A") + "\n" + row("c d e", "A"))
    (branches,) = (found.text for found in findings(check(DataFolder(tmp_path))) if "branch" in found.text)
    assert branches == (
        "12 branches of the tree have no document in any split (13 labels): T07 (2 labels), T00, T01, T02, T03, …"
    )


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
    assert values["unused_branches"] == [{"top": "A2", "path": "A > A2", "labels": 1}]
    assert values["first_conflicts"][0]["text"] == "one two three"


def test_progress_counts_every_row(folder: Path) -> None:
    seen: list[int] = []
    check(DataFolder(folder), progress=seen.append)
    assert sum(seen) == 5 + 2 + 5


def test_without_a_train_split_no_label_is_called_unused(folder: Path) -> None:
    (folder / "train.jsonl").unlink()
    report = check(DataFolder(folder))
    assert (report.unused_labels, report.unseen_labels, report.constant_labels) == ([], [], [])
    assert [branch.top for branch in report.unused_branches] == ["A1", "A2"]


def test_a_damaged_file_is_an_error(folder: Path) -> None:
    (folder / "dev.jsonl").unlink()
    (folder / "dev.csv").write_text("words,labels\n")
    with pytest.raises(InputError, match=r"dev\.csv:1: missing column 'text'"):
        check(DataFolder(folder))


@pytest.mark.slow
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
