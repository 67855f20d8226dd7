from __future__ import annotations

import csv
import datetime
import gzip
import json
import logging
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hgclr.data import DataFolder
from hgclr.data.check import check
from hgclr.data.split import LabelledTexts, deal_at_random, deal_evenly, give_train_every_label, split_data
from hgclr.errors import InputError, MissingExtraError

pytest.importorskip("iterstrat")

TREE = "Root\tA\tB\tC\nA\tA1\tA2\tA3\nB\tB1\n"
PARENT = {"A1": "A", "A2": "A", "A3": "A", "B1": "B"}


def documents(count: int, seed: int = 0) -> list[dict[str, object]]:
    """Documents with labels of very different frequency, among them one with a single document."""
    random = np.random.default_rng(seed)
    rows = []
    for number in range(count):
        chosen = random.choice(
            ["A1", "A2", "A3", "B1", "C"], size=1 + number % 2, replace=False, p=[0.6, 0.2, 0.1, 0.07, 0.03]
        )
        labels = sorted({*chosen.tolist(), *(PARENT[label] for label in chosen if label in PARENT)})
        rows.append({"text": f"text {number}", "labels": labels, "id": number})
    return rows


def write(path: Path, rows: list[dict[str, object]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def read(folder: Path) -> dict[str, list[dict[str, object]]]:
    splits = {}
    for path in sorted(folder.glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            splits[path.name.partition(".")[0]] = [json.loads(line) for line in lines]
    return splits


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    path = tmp_path / "taxonomy.tsv"
    path.write_text(TREE)
    return path


@pytest.mark.parametrize("stratify", [True, False])
def test_every_row_is_in_one_split_as_it_was_and_in_order(tmp_path: Path, tree: Path, stratify: bool) -> None:
    rows = documents(400)
    result = split_data(write(tmp_path / "mine.jsonl", rows), tmp_path / "out", stratify=stratify)
    splits = read(tmp_path / "out")
    assert sorted((row for split in splits.values() for row in split), key=lambda row: row["id"]) == rows
    for name, split in splits.items():
        assert [row["id"] for row in split] == sorted(row["id"] for row in split)
        assert result.summary.documents[name] == len(split)
    assert len(splits["dev"]) == pytest.approx(40, abs=4)
    assert len(splits["test"]) == pytest.approx(40, abs=4)
    data = DataFolder(tmp_path / "out")
    assert data.taxonomy == DataFolder(tmp_path / "out", taxonomy=tree).taxonomy
    assert check(data).bad_rows == 0


def test_figures_of_the_result(tmp_path: Path, tree: Path) -> None:
    result = split_data(write(tmp_path / "mine.jsonl", documents(100)), tmp_path / "out")
    splits = read(tmp_path / "out")
    everything = [set(row["labels"]) for split in splits.values() for row in split]
    used = set().union(*everything)
    assert result.labels == len(used)
    for name, split in splits.items():
        sets = [set(row["labels"]) for row in split]
        assert result.labels_without[name] == sum(not any(label in labels for labels in sets) for label in used)
        gaps = [
            abs(
                sum(label in labels for labels in sets) / len(sets)
                - sum(label in labels for labels in everything) / 100
            )
            for label in used
        ]
        assert result.deviation[name] == pytest.approx(sum(gaps) / len(gaps))
    assert json.loads(json.dumps(result.to_json())) == {
        "output": str(tmp_path / "out"),
        "documents": {name: len(splits[name]) for name in ("train", "dev", "test")},
        "left_out": {},
        "labels": len(used),
        "labels_without": result.labels_without,
        "deviation": result.deviation,
        "shared_texts": 0,
    }


def test_stratified_shares_are_closer_than_random_ones(tmp_path: Path, tree: Path) -> None:
    source = write(tmp_path / "mine.jsonl", documents(1000))
    rare = sum("C" in row["labels"] for row in documents(1000))
    deviation: dict[tuple[str, bool], float] = {}
    for seed in range(5):
        for stratify in (True, False):
            result = split_data(source, tmp_path / "out", seed=seed, stratify=stratify)
            for name in ("dev", "test"):
                deviation[name, stratify] = deviation.get((name, stratify), 0) + result.deviation[name]
                if stratify:  # the rarest label is dealt out first: it is off by less than a document
                    assert abs(sum("C" in row["labels"] for row in read(tmp_path / "out")[name]) - 0.1 * rare) < 1
    for name in ("dev", "test"):
        assert deviation[name, True] < deviation[name, False] / 2


def test_the_seed_decides(tmp_path: Path, tree: Path) -> None:
    source = write(tmp_path / "mine.jsonl", documents(200))
    for stratify in (True, False):
        split_data(source, tmp_path / "one", stratify=stratify, seed=3)
        first = {path.name: path.read_bytes() for path in (tmp_path / "one").iterdir()}
        split_data(source, tmp_path / "one", stratify=stratify, seed=3)  # over the earlier build
        assert {path.name: path.read_bytes() for path in (tmp_path / "one").iterdir()} == first
        split_data(source, tmp_path / "one", stratify=stratify, seed=4)
        assert (tmp_path / "one" / "test.jsonl.gz").read_bytes() != first["test.jsonl.gz"]


def test_the_same_text_stays_together(tmp_path: Path, tree: Path) -> None:
    rows = documents(150)
    for number in range(60):
        text = str(rows[number]["text"])
        rows += [{"text": text.upper(), "labels": ["B"], "id": 1000 + number}]
        rows += [{"text": f"  {text.replace(' ', chr(10))} ", "labels": ["C"], "id": 2000 + number}]
    rows += [{"text": "café", "labels": ["B"], "id": 1}, {"text": "cafe\u0301", "labels": ["C"], "id": 2}]
    source = write(tmp_path / "mine.jsonl", rows)
    for stratify in (True, False):
        split_data(source, tmp_path / "out", stratify=stratify)
        place: dict[str, set[str]] = {}
        for name, split in read(tmp_path / "out").items():
            for row in split:
                text = unicodedata.normalize("NFC", " ".join(str(row["text"]).lower().split()))
                place.setdefault(text, set()).add(name)
        assert len(place) == 151
        assert all(len(names) == 1 for names in place.values())
        assert check(DataFolder(tmp_path / "out")).shared_texts == {}


def test_a_label_of_one_document_goes_to_train(tmp_path: Path, tree: Path) -> None:
    rows = [{"text": f"text {number}", "labels": ["A"]} for number in range(50)]
    rows[17]["labels"] = ["B", "B1"]
    source = write(tmp_path / "mine.jsonl", rows)
    for seed in range(10):
        for stratify in (True, False):
            result = split_data(source, tmp_path / "out", dev=0.3, test=0.5, seed=seed, stratify=stratify)
            assert "text 17" in [row["text"] for row in read(tmp_path / "out")["train"]]
            assert result.labels_without == {"train": 0, "dev": 2, "test": 2}


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    sets=st.lists(st.sets(st.integers(0, 7), min_size=1, max_size=4), min_size=1, max_size=30),
    dev=st.sampled_from([0.0, 0.1, 0.45]),
    test=st.sampled_from([0.1, 0.5]),
    seed=st.integers(0, 3),
)
def test_no_label_is_without_training_text(sets: list[set[int]], dev: float, test: float, seed: int) -> None:
    used = sorted(set().union(*sets))
    text = np.array([number for number, labels in enumerate(sets) for _ in labels])
    label = np.array([used.index(label) for labels in sets for label in sorted(labels)])
    pairs = LabelledTexts(len(sets), len(used), text, label)
    shares = np.array([1 - dev - test, dev, test])
    for dealt in (deal_evenly(pairs, shares, seed=seed), deal_at_random(len(sets), shares, seed=seed)):
        before = dealt.copy()
        give_train_every_label(pairs, dealt)
        trained = set().union(*(labels for labels, place in zip(sets, dealt, strict=True) if place == 0))
        assert trained == set(used)
        assert set(dealt.tolist()) <= {0, 1, 2}
        assert all(place == 0 for place in dealt[dealt != before])
        missing = set(used) - set().union(*(labels for labels, place in zip(sets, before, strict=True) if place == 0))
        assert np.count_nonzero(dealt != before) <= len(missing)


def test_random_shares_are_exact() -> None:
    dealt = deal_at_random(1000, np.array([0.7, 0.1, 0.2]), seed=0)
    assert np.bincount(dealt).tolist() == [700, 100, 200]
    assert np.bincount(deal_at_random(10, np.array([0.9, 0.0, 0.1]), seed=0)).tolist() == [9, 0, 1]


def test_a_table_that_is_too_large_is_refused() -> None:
    pairs = LabelledTexts(2_000_000, 5_000, np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
    with pytest.raises(InputError, match=r"2,000,000 texts over 5,000 labels would take 27\.9 GB; --no-stratify"):
        deal_evenly(pairs, np.array([0.8, 0.1, 0.1]), seed=0)


def test_long_work_is_announced(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hgclr.data.split.SECONDS_PER_CELL", 10.0)
    pairs = LabelledTexts(10, 1, np.arange(10), np.zeros(10, dtype=np.int64))
    with caplog.at_level(logging.WARNING):
        deal_evenly(pairs, np.array([0.8, 0.1, 0.1]), seed=0)
    assert caplog.messages == [
        "stratifying 10 texts over 1 labels may take some 2 minutes; --no-stratify splits at random, at once"
    ]


def test_a_table_keeps_its_columns(tmp_path: Path, tree: Path) -> None:
    with (tmp_path / "mine.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["number", "body", "tags"])
        table.writerows([number, f"a, b\n{number}", "A/A1|B" if number % 2 else "C"] for number in range(40))
    options = {"text_column": "body", "label_column": "tags", "label_separator": "|", "path_separator": "/"}
    split_data(tmp_path / "mine.csv", tmp_path / "out", **options)
    rows = sorted(
        (row for split in read(tmp_path / "out").values() for row in split), key=lambda row: int(row["number"])
    )
    assert rows[:2] == [
        {"number": "0", "body": "a, b\n0", "tags": "C"},
        {"number": "1", "body": "a, b\n1", "tags": "A/A1|B"},
    ]
    assert check(DataFolder(tmp_path / "out", **options)).bad_rows == 0


def test_only_deepest_labels(tmp_path: Path, tree: Path) -> None:
    source = write(tmp_path / "mine.jsonl", [{"text": f"t{n}", "labels": ["A1"]} for n in range(30)])
    with pytest.raises(InputError, match=r"mine\.jsonl:1: label without its parent: 'A1'"):
        split_data(source, tmp_path / "out")
    assert split_data(source, tmp_path / "out", add_ancestors=True).labels == 2
    assert read(tmp_path / "out")["dev"][0]["labels"] == ["A1"]


def test_parquet_keeps_all_columns(tmp_path: Path, tree: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")

    day = datetime.date(2024, 5, 6)
    columns = {
        "day": [day] * 30,
        "text": [f"t{n}" for n in range(30)],
        "labels": [["A", "A1"]] * 30,
        "more": [{"score": 0.5, "tags": ["x"]}] * 30,
    }
    parquet.write_table(pyarrow.table(columns), tmp_path / "mine.parquet")
    split_data(tmp_path / "mine.parquet", tmp_path / "out")
    row = read(tmp_path / "out")["train"][0]
    assert row.pop("text").startswith("t")
    assert row == {"day": "2024-05-06", "labels": ["A", "A1"], "more": {"score": 0.5, "tags": ["x"]}}
    parquet.write_table(pyarrow.table({**columns, "day": [b"\xff"] * 30}), tmp_path / "mine.parquet")
    with pytest.raises(
        InputError, match=r"mine\.parquet:1: wrong type: column 'day' holds a bytes, which JSON lines ca"
    ):
        split_data(tmp_path / "mine.parquet", tmp_path / "out")
    (tmp_path / "mine.parquet").write_bytes(b"PAR1 no more")
    with pytest.raises(InputError, match=r"mine\.parquet:1: damaged, or no Parquet file"):
        split_data(tmp_path / "mine.parquet", tmp_path / "out")


def test_a_datasets_folder(tmp_path: Path, tree: Path) -> None:
    datasets = pytest.importorskip("datasets")
    rows = {"text": [f"t{n}" for n in range(30)], "labels": [["C"]] * 30, "n": list(range(30))}
    datasets.Dataset.from_dict(rows).save_to_disk(str(tmp_path / "saved"))
    split_data(tmp_path / "saved", tmp_path / "out")
    assert sorted(row["n"] for split in read(tmp_path / "out").values() for row in split) == list(range(30))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    path.mkdir()
    (path / "taxonomy.tsv").write_text(TREE)
    write(path / "train.jsonl", documents(100))
    return path


def test_a_data_folder_keeps_its_test_split(folder: Path, tmp_path: Path) -> None:
    kept = [
        {"text": "TEXT 3", "labels": ["C"]},
        {"text": "another", "labels": ["B"]},
        {"text": "text  3", "labels": ["C"]},
    ]
    write(folder / "test.jsonl", kept)
    with pytest.raises(InputError, match=r"data: there is a test split already: test\.jsonl; --test 0 keeps it, or"):
        split_data(folder, tmp_path / "out")
    result = split_data(folder, tmp_path / "out", test=0)
    splits = read(tmp_path / "out")
    assert splits["test"] == kept
    assert len(splits["train"]) + len(splits["dev"]) == 100
    assert result.summary.documents["test"] == 3
    assert set(result.deviation) == set(result.labels_without) == {"train", "dev"}
    assert result.shared_texts == 1


def test_without_a_test_split(folder: Path, tmp_path: Path) -> None:
    split_data(folder, tmp_path / "out", test=0)
    assert sorted(read(tmp_path / "out")) == ["dev", "train"]


def test_refusals_leave_nothing_behind(folder: Path, tmp_path: Path) -> None:
    def refused(message: str, source: Path = folder, **options: object) -> None:
        with pytest.raises(InputError, match=message):
            split_data(source, options.pop("output", tmp_path / "out"), **options)
        assert not (tmp_path / "out").exists()

    refused("the shares of dev and test are 0.5 and 0.5; give shares", dev=0.5, test=0.5)
    refused("the shares of dev and test are -0.1 and 0.1", dev=-0.1)
    refused("nothing to split", dev=0, test=0)
    refused("separator must not be empty", label_separator="")
    refused("absent: no such file or folder", tmp_path / "absent")
    refused("the output would stand in the place of the source", output=folder)
    refused("the output would stand in the place of the source", folder / "train.jsonl", output=folder)
    refused("there is no such file", taxonomy=tmp_path / "absent")
    lone = write(tmp_path / "lone.jsonl", documents(3))
    refused("lone.jsonl: no label tree beside the documents; name its file with --taxonomy", lone)
    refused(
        "none of the 3 different texts is left for the split 'dev'; give it", lone, taxonomy=folder / "taxonomy.tsv"
    )
    refused("empty split: no rows", write(tmp_path / "lone.jsonl", []), taxonomy=folder / "taxonomy.tsv")
    (folder / "train.jsonl").rename(folder / "dev.jsonl")
    refused("no train split to draw from; it has: dev")
    assert not list(tmp_path.glob(".*"))


def test_other_peoples_files_are_not_replaced(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("precious")
    with pytest.raises(InputError, match=r"such as 'thesis\.tex', which would be lost"):
        split_data(folder, tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["thesis.tex"]


def test_bad_rows(folder: Path, tmp_path: Path) -> None:
    with (folder / "train.jsonl").open("a") as file:
        file.write('{"text": "x", "labels": ["Z"]}\n{broken\n{"text": "x", "labels": ["A"], "note": "\\ud800"}\n')
    with pytest.raises(InputError, match=r"train\.jsonl:101: unknown label 'Z'; .*--skip-bad-rows"):
        split_data(folder, tmp_path / "out")
    result = split_data(folder, tmp_path / "out", skip_bad_rows=True)
    assert result.summary.left_out == {"bad row": 3}
    assert sum(map(len, read(tmp_path / "out").values())) == 100
    left = [json.loads(line) for line in (tmp_path / "out" / "left-out.jsonl").read_text().splitlines()]
    assert [(row["where"].rpartition(":")[2], row["detail"].partition(":")[0]) for row in left] == [
        ("101", "unknown label 'Z'"),
        ("102", "broken JSON"),
        ("103", "not UTF-8"),
    ]


def test_progress_goes_over_the_rows_twice(folder: Path, tmp_path: Path) -> None:
    write(folder / "train.jsonl", documents(1500))
    seen: list[tuple[int, int | None]] = []
    split_data(folder, tmp_path / "out", stratify=False, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1000, None), (2000, 3000), (3000, 3000)]


def test_missing_extra(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'hgclr\[data\]'"):
        split_data(folder, tmp_path / "out")
    assert split_data(folder, tmp_path / "out", stratify=False).summary.documents["train"]


def test_benchmark_set(shared_data: Path, tmp_path: Path) -> None:
    """CLINC150 has 150 leaves with 100 documents each in train: each split gets its exact share."""
    result = split_data(shared_data / "clinc150" / "train.jsonl.gz", tmp_path / "out", dev=0.1, test=0.2)
    assert sum(result.summary.documents.values()) == 15_000
    assert result.labels_without == {"train": 0, "dev": 0, "test": 0}
    assert max(result.deviation.values()) < 0.0002
