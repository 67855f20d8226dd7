"""Statistics and findings of a data folder against brute force, networkx and numpy."""

from __future__ import annotations

import json
import logging
import random
import shutil
from collections import Counter
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hgclr.data import DataFolder
from hgclr.data.check import Histogram, Statistics, check, describe, findings
from hgclr.errors import InputError
from hgclr.taxonomy import Taxonomy

SPLITS = {"train": 60, "dev": 20, "test": 30}


@pytest.fixture(scope="module")
def tree() -> Taxonomy:
    """A random tree of 40 labels, six of them at the top."""
    random = np.random.default_rng(11)
    parents = [-1 if index < 6 else int(random.integers(0, index)) for index in range(40)]
    order = random.permutation(40)  # parents may follow their children
    places = np.argsort(order)
    return Taxonomy(
        [f"label {index}" for index in order],
        [-1 if parents[index] < 0 else int(places[parents[index]]) for index in order],
    )


@pytest.fixture(scope="module")
def graph(tree: Taxonomy) -> nx.DiGraph:
    edges = [("root" if parent < 0 else tree.ids[parent], tree.ids[i]) for i, parent in enumerate(tree.parents)]
    return nx.DiGraph(edges)


@pytest.fixture(scope="module")
def rows(graph: nx.DiGraph, tree: Taxonomy) -> dict[str, list[tuple[str, set[str]]]]:
    """Texts and label sets by split; the last ten labels are never drawn."""
    random = np.random.default_rng(12)
    drawn = tree.ids[:30]
    made: dict[str, list[tuple[str, set[str]]]] = {}
    for split, count in SPLITS.items():
        made[split] = []
        for _ in range(count):
            labels: set[str] = set()
            for end in random.choice(drawn, size=random.integers(1, 4)):
                labels |= {str(end)} | (nx.ancestors(graph, str(end)) - {"root"})
            text = " ".join(random.choice(["the", "quantum", "lens", "boat"], size=random.integers(1, 30)))
            made[split].append((text, labels))
    return made


@pytest.fixture(scope="module")
def folder(tree: Taxonomy, rows, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("statistics")
    tree.write(path / "taxonomy.json")
    for split, documents in rows.items():
        lines = [json.dumps({"text": text, "labels": sorted(labels)}) + "\n" for text, labels in documents]
        (path / f"{split}.jsonl").write_text("".join(lines))
    return path


@pytest.fixture(scope="module")
def statistics(folder: Path) -> Statistics:
    return describe(DataFolder(folder))


@settings(deadline=None, max_examples=50, derandomize=True)
@given(st.lists(st.integers(0, 60), min_size=1, max_size=50), st.floats(0, 1), st.integers(0, 60))
def test_histogram_agrees_with_numpy(values: list[int], share: float, limit: int) -> None:
    histogram = Histogram(values)
    assert histogram.total() == len(values)
    assert histogram.mean == pytest.approx(np.mean(values))
    assert histogram.maximum == max(values)
    assert histogram.quantile(share) == pytest.approx(np.quantile(values, share))
    assert histogram.above(limit) == sum(value > limit for value in values)
    assert (Histogram().mean, Histogram().maximum, Histogram().quantile(0.5)) == (0, 0, 0)


def test_table1(statistics: Statistics, rows, graph: nx.DiGraph) -> None:
    values = statistics.to_json()["table1"]
    everything = [labels for documents in rows.values() for _, labels in documents]
    assert values["labels"] == len(graph) - 1
    assert values["depth"] == nx.dag_longest_path_length(graph)
    assert values["labels_per_document"] == pytest.approx(np.mean([len(labels) for labels in everything]))
    assert values["documents"] == SPLITS


@pytest.mark.slow
def test_table1_of_the_paper_for_wos(shared_data: Path, tmp_path: Path) -> None:
    """The literature's tree, labels and splits of Web of Science, with a stand-in for the texts."""
    import csv
    import gzip

    with gzip.open(shared_data / "wos" / "wos46985_index.tsv.gz", "rt", encoding="utf-8") as file:
        index = list(csv.DictReader(file, delimiter="\t"))
    for split in ("train", "dev", "test"):
        rows = [{"text": "x", "labels": [row["domain"], row["area"]]} for row in index if row["split"] == split]
        (tmp_path / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    tree = Taxonomy.read(shared_data / "taxonomies" / "wos.taxonomy")
    assert describe(DataFolder(tmp_path, taxonomy=tree)).to_json()["table1"] == {
        "labels": 141,
        "depth": 2,
        "labels_per_document": 2.0,
        "documents": {"train": 30_070, "dev": 7_518, "test": 9_397},
    }


def test_levels(statistics: Statistics, rows, graph: nx.DiGraph) -> None:
    depth = nx.shortest_path_length(graph, "root")
    everything = [labels for documents in rows.values() for _, labels in documents]
    train = Counter(label for _, labels in rows["train"] for label in labels)
    used = set().union(*everything)
    for level in statistics.levels():
        labels = [label for label in graph if depth[label] == level.level]
        counts = [train[label] for label in labels]
        assert level.labels == len(labels)
        assert level.leaves == sum(graph.out_degree(label) == 0 for label in labels)
        assert level.used == len(used & set(labels))
        assert level.documents == sum(bool(document & set(labels)) for document in everything)
        assert (level.largest, level.median, level.smallest) == (max(counts), np.median(counts), min(counts))


def test_frequency(statistics: Statistics, rows, tree: Taxonomy) -> None:
    train = Counter(label for _, labels in rows["train"] for label in labels)
    counts = [train[label] for label in tree.ids]
    found = statistics.frequency()
    assert (found.largest, found.median) == (max(counts), np.median(counts))
    assert found.smallest == min(count for count in counts if count)
    assert found.unused == counts.count(0) > 0
    assert (found.below_5, found.below_10) == (sum(c < 5 for c in counts), sum(c < 10 for c in counts))


def test_paths_and_inner_ends(statistics: Statistics, rows, graph: nx.DiGraph) -> None:
    for split, documents in rows.items():
        paths, inner = [], 0
        for _, labels in documents:
            ends = [label for label in labels if not nx.descendants(graph, label) & labels]
            paths.append(len(ends))
            inner += any(graph.out_degree(label) for label in ends)
        assert statistics.splits[split].paths == Counter(paths)
        assert statistics.splits[split].above_leaf == inner > 0
    values = statistics.to_json()["documents"]
    assert sum(values["paths"].values()) == sum(SPLITS.values())


def test_tree(statistics: Statistics, graph: nx.DiGraph) -> None:
    degrees = [graph.out_degree(label) for label in graph if label != "root" and graph.out_degree(label)]
    tree = statistics.to_json()["tree"]
    assert tree["top_labels"] == graph.out_degree("root")
    assert tree["leaves"] == sum(graph.out_degree(label) == 0 for label in graph)
    assert tree["children"]["mean"] == pytest.approx(np.mean(degrees))
    assert tree["children"]["max"] == max(degrees)
    assert tree["only_children"] == degrees.count(1)


def test_words(statistics: Statistics, rows) -> None:
    for split, documents in rows.items():
        lengths = [len(text.split(" ")) for text, _ in documents]
        values = statistics.to_json()["splits"][split]["words"]
        assert values["mean"] == pytest.approx(np.mean(lengths))
        assert values["median"] == np.median(lengths)
        assert values["p95"] == pytest.approx(np.percentile(lengths, 95))
        assert values["max"] == max(lengths)


def test_unused_branches(statistics: Statistics, rows, graph: nx.DiGraph, tree: Taxonomy) -> None:
    used = set().union(*(labels for documents in rows.values() for _, labels in documents))
    expected = {}
    for label in set(graph) - used - {"root"}:
        (parent,) = graph.predecessors(label)
        if parent == "root" or parent in used:
            expected[label] = 1 + len(nx.descendants(graph, label))
    branches = statistics.unused_branches()
    assert {branch.top: branch.labels for branch in branches} == expected
    assert len(branches) > 1
    for branch in branches:
        assert branch.path == " > ".join(nx.shortest_path(graph, "root", branch.top)[1:])


def test_without_train_all_splits_count(folder: Path, rows, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    (copy / "train.jsonl").unlink()
    found = describe(DataFolder(copy))
    both = Counter(label for split in ("dev", "test") for _, labels in rows[split] for label in labels)
    assert found.frequency().largest == max(both.values())
    assert found.to_json()["label_frequency"]["split"] == "all splits"


def test_bad_rows_stop_or_are_skipped(folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    with (copy / "dev.jsonl").open("a") as file:
        file.write("{oops\n")
    with pytest.raises(InputError) as caught:
        describe(DataFolder(copy))
    assert caught.value.line == 21
    with caplog.at_level(logging.WARNING, logger="hgclr"):
        found = describe(DataFolder(copy, skip_bad_rows=True))
    assert found.splits["dev"].documents == 20
    assert "bad rows skipped: 1" in caplog.text
    (copy / "dev.jsonl").write_text("{oops\n")
    with pytest.raises(InputError):
        describe(DataFolder(copy, skip_bad_rows=True))


def row(text: str, *labels: str) -> str:
    return json.dumps({"text": text, "labels": labels})


@pytest.fixture
def small(tmp_path: Path) -> Path:
    (tmp_path / "taxonomy.tsv").write_text("Root\tA\tB\nA\tA1\tA2\n")
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


def test_report(small: Path) -> None:
    report = check(DataFolder(small))
    train, dev, test = (report.splits[name] for name in ("train", "dev", "test"))
    assert (len(report.taxonomy), report.taxonomy.depth, report.bad_rows) == (4, 2, 3)
    assert (train.documents, dev.documents, test.documents) == (4, 2, 3)
    assert (train.bad_rows, dev.bad_rows, test.bad_rows) == (1, 0, 2)
    assert [bad.number for bad in test.first_bad_rows] == [4, 5]
    assert train.first_bad_rows[0].number == 4
    assert train.labels.mean == (2 + 1 + 1 + 3) / 4
    assert train.words.mean == (3 + 1 + 1 + 1) / 4
    assert (train.words.maximum, train.labels_used, train.repeated_texts) == (3, 3, 1)
    assert report.label_problems()["unused"] == ["A2"]
    assert report.empty_splits == []


def test_the_same_text_is_found_whatever_its_case_space_and_composition(small: Path) -> None:
    assert check(DataFolder(small)).shared_texts() == {
        ("train", "dev"): 1,
        ("train", "test"): 2,
        ("dev", "test"): 2,
    }


def test_texts_with_different_labels(small: Path) -> None:
    report = check(DataFolder(small))
    # "one two three": {A, A1} in train, {A} in dev and test; all other repeated texts have the same labels everywhere.
    assert report.conflicting_texts == 1
    (conflict,) = report.first_conflicts
    assert conflict.text == "one two three"
    assert conflict.splits == ("train", "dev")
    assert conflict.labels == (("A", "A1"), ("A",))


def test_conflicts_agree_with_brute_force(tmp_path: Path) -> None:
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
def lopsided(tmp_path: Path) -> Statistics:
    """A on every training document, C for testing only, D and all below it never used."""
    (tmp_path / "taxonomy.tsv").write_text("Root\tA\tC\nA\tA1\tA2\tD\nD\tD1\tD2\nD1\tD3\n")
    rows = {
        "train": [row("a b c", "A", "A1"), row("a b d", "A", "A2"), row("word " * 600, "A")],
        "dev": [row("x", "C"), row("y z", "A")],
    }
    for name, lines in rows.items():
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    return check(DataFolder(tmp_path))


def test_labels_out_of_balance(lopsided: Statistics) -> None:
    problems = lopsided.label_problems()
    assert sorted(problems["unused"]) == ["C", "D", "D1", "D2", "D3"]
    assert (problems["unseen"], problems["constant"]) == (["C"], ["A"])
    assert [(one.top, one.path, one.labels) for one in lopsided.unused_branches()] == [("D", "A > D", 4)]
    splits = lopsided.to_json()["splits"].values()
    assert [(split["short_texts"], split["long_texts"]) for split in splits] == [(0, 1), (2, 0)]


def test_findings(lopsided: Statistics, small: Path) -> None:
    assert [found.kind for found in findings(lopsided)] == ["warning"] * 3 + ["note"] * 2
    texts = [found.text for found in findings(check(DataFolder(small)))]
    assert texts[:3] == [
        "1 text is in both train and dev",
        "2 texts are in both train and test",
        "2 texts are in both dev and test",
    ]
    assert "'one two three' (train: A, A1; dev: A)" in texts[3]


def test_every_bad_row_goes_to_the_side_file_but_few_to_the_report(small: Path) -> None:
    (small / "dev.jsonl").write_text("oops\n" * 25)
    report = check(DataFolder(small), bad_rows=small / "bad.jsonl")
    assert report.splits["dev"].bad_rows == 25
    assert len(report.splits["dev"].first_bad_rows) == 10
    assert report.empty_splits == ["dev"]
    records = [json.loads(line) for line in (small / "bad.jsonl").read_text().splitlines()]
    files = [Path(record["file"]).name for record in records]
    assert files == ["train.jsonl"] + ["dev.jsonl"] * 25 + ["test.jsonl"] * 2


@pytest.mark.slow
def test_benchmark_set(shared_data: Path) -> None:
    import gzip

    report = check(DataFolder(shared_data / "clinc150"))
    assert report.bad_rows == 0
    assert report.label_problems()["unused"] == []
    texts = {}
    for name in ("train", "dev", "test"):
        with gzip.open(shared_data / "clinc150" / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
            texts[name] = {" ".join(json.loads(line)["text"].lower().split()) for line in lines}
    shared = {
        (first, second): len(texts[first] & texts[second])
        for first, second in (("train", "dev"), ("train", "test"), ("dev", "test"))
    }
    assert report.shared_texts() == {pair: count for pair, count in shared.items() if count}
