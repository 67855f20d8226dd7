"""Statistics against brute force over the rows, networkx over the tree, numpy over the lengths."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hgclr.data import DataFolder
from hgclr.data.statistics import (
    Histogram,
    SplitSurvey,
    Statistics,
    agreement,
    describe,
    statistics_json,
    unused_branches,
)
from hgclr.data.tokens import token_lengths
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


@settings(deadline=None, max_examples=100, derandomize=True)
@given(st.lists(st.integers(0, 60), min_size=1, max_size=50), st.floats(0, 1), st.integers(0, 60))
def test_histogram_agrees_with_numpy(values: list[int], share: float, limit: int) -> None:
    histogram = Histogram(values)
    assert histogram.total == len(values)
    assert histogram.mean == pytest.approx(np.mean(values))
    assert histogram.maximum == max(values)
    assert histogram.quantile(share) == pytest.approx(np.quantile(values, share))
    assert histogram.above(limit) == sum(value > limit for value in values)
    half = len(values) // 2
    assert (Histogram(values[:half]) + Histogram(values[half:])).counts == Counter(values)


def test_empty_histogram() -> None:
    empty = Histogram()
    assert (empty.total, empty.mean, empty.maximum, empty.quantile(0.5), empty.share_above(3)) == (0, 0, 0, 0, 0)


def test_table1(statistics: Statistics, rows, graph: nx.DiGraph) -> None:
    values = statistics_json(statistics)["table1"]
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
    assert statistics_json(describe(DataFolder(tmp_path, taxonomy=tree)))["table1"] == {
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
    assert found.imbalance == found.largest / found.smallest


def test_paths_and_inner_ends(statistics: Statistics, rows, graph: nx.DiGraph) -> None:
    for split, documents in rows.items():
        paths, inner = [], 0
        for _, labels in documents:
            ends = [label for label in labels if not nx.descendants(graph, label) & labels]
            paths.append(len(ends))
            inner += any(graph.out_degree(label) for label in ends)
        assert statistics.splits[split].paths.counts == Counter(paths)
        assert statistics.splits[split].above_leaf == inner > 0
    values = statistics_json(statistics)["documents"]
    assert sum(values["paths"].values()) == sum(SPLITS.values())


def test_tree(statistics: Statistics, graph: nx.DiGraph) -> None:
    degrees = [graph.out_degree(label) for label in graph if label != "root" and graph.out_degree(label)]
    tree = statistics_json(statistics)["tree"]
    assert tree["top_labels"] == graph.out_degree("root")
    assert tree["leaves"] == sum(graph.out_degree(label) == 0 for label in graph)
    assert tree["children"]["mean"] == pytest.approx(np.mean(degrees))
    assert tree["children"]["max"] == max(degrees)
    assert tree["only_children"] == degrees.count(1)


def test_words(statistics: Statistics, rows) -> None:
    for split, documents in rows.items():
        lengths = [len(text.split(" ")) for text, _ in documents]
        values = statistics_json(statistics)["splits"][split]["words"]
        assert values["mean"] == pytest.approx(np.mean(lengths))
        assert values["median"] == np.median(lengths)
        assert values["p95"] == pytest.approx(np.percentile(lengths, 95))
        assert values["max"] == max(lengths)


def test_every_label_is_counted_in_every_split(statistics: Statistics, rows) -> None:
    counts = {split: Counter(one for _, labels in documents for one in labels) for split, documents in rows.items()}
    for label in statistics_json(statistics)["labels"]:
        assert {split: label[split] for split in rows} == {split: counts[split][label["id"]] for split in rows}


def test_distance_from_train_is_total_variation(statistics: Statistics, rows, tree: Taxonomy) -> None:
    shares = {}
    for split, documents in rows.items():
        counts = Counter(label for _, labels in documents for label in labels)
        shares[split] = [counts[label] / counts.total() for label in tree.ids]
    expected = sum(max(0.0, p - q) for p, q in zip(shares["train"], shares["dev"], strict=True))
    found = statistics.agreement("dev")
    assert found is not None
    assert found.distance == pytest.approx(expected)
    assert statistics.agreement("train") is None


def test_distance_by_chance_is_what_dealing_at_random_gives() -> None:
    random = np.random.default_rng(3)
    labels = random.random((500, 20)) < random.uniform(0.05, 0.6, 20)  # 500 documents, 20 labels
    labels[:, 1] &= labels[:, 0]  # as a child is only where its parent is
    sizes = (350, 150)

    def survey(chosen: np.ndarray) -> SplitSurvey:
        return SplitSurvey(Path("x"), chosen.sum(axis=0), words=Histogram([1] * len(chosen)))

    distances, by_chance = [], []
    for _ in range(200):
        order = random.permutation(500)
        found = agreement(survey(labels[order[: sizes[0]]]), survey(labels[order[sizes[0] :]]))
        assert found is not None
        distances.append(found.distance)
        by_chance.append(found.by_chance)
    assert np.mean(by_chance) == pytest.approx(np.mean(distances), rel=0.05)


def test_unused_branches(statistics: Statistics, rows, graph: nx.DiGraph, tree: Taxonomy) -> None:
    used = set().union(*(labels for documents in rows.values() for _, labels in documents))
    expected = {}
    for label in set(graph) - used - {"root"}:
        (parent,) = graph.predecessors(label)
        if parent == "root" or parent in used:
            expected[label] = 1 + len(nx.descendants(graph, label))
    branches = unused_branches(tree, statistics.all_counts)
    assert {branch.top: branch.labels for branch in branches} == expected
    assert len(branches) > 1
    for branch in branches:
        assert branch.path == " > ".join(nx.shortest_path(graph, "root", branch.top)[1:])


def test_a_tree_without_documents_is_one_branch_per_top_label(tree: Taxonomy) -> None:
    branches = unused_branches(tree, np.zeros(len(tree), dtype=np.int64))
    assert sorted(branch.top for branch in branches) == sorted(tree.ids[index] for index in tree.levels[0])
    assert sum(branch.labels for branch in branches) == len(tree)


def test_branch_sums(tree: Taxonomy, graph: nx.DiGraph) -> None:
    values = np.arange(len(tree))
    expected = [
        values[index] + sum(values[tree.ids.index(below)] for below in nx.descendants(graph, label))
        for index, label in enumerate(tree.ids)
    ]
    assert tree.branch_sums(values).tolist() == expected


def test_tokens_are_the_encoders(folder: Path, rows, make_encoder: Callable[[str], str]) -> None:
    from transformers import AutoTokenizer

    encoder = make_encoder("bert")
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    found = describe(DataFolder(folder), encoder=encoder, max_length=20)
    for split, documents in rows.items():
        lengths = [len(tokenizer(text, truncation=False)["input_ids"]) for text, _ in documents]
        assert found.splits[split].tokens.counts == Counter(lengths)
        values = statistics_json(found)["splits"][split]["tokens"]
        assert values["share_cut_at"] == {"20": np.mean([length > 20 for length in lengths]), "512": 0.0}


def test_tokens_of_more_documents_than_a_batch(tmp_path: Path, tree: Taxonomy, make_encoder) -> None:
    tree.write(tmp_path / "taxonomy.json")
    top = tree.ids[tree.levels[0][0]]
    rows = [json.dumps({"text": "lens " * (1 + n % 3), "labels": [top]}) for n in range(600)]
    (tmp_path / "train.jsonl").write_text("\n".join(rows))
    found = describe(DataFolder(tmp_path), encoder=make_encoder("bert"))
    assert found.splits["train"].tokens.counts == {3: 200, 4: 200, 5: 200}


def test_encoders_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"textrcnn are the words.*leave out --encoder"):
        token_lengths("textrcnn")
    with pytest.raises(InputError, match=r"no tokenizer\.json in it; give the folder"):
        token_lengths(str(tmp_path))
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(InputError, match=r"tokenizer\.json: not a tokenizer: .*; copy it again"):
        token_lengths(str(tmp_path))
    with pytest.raises(InputError, match=r"there is no folder '\./absent'"):
        token_lengths("./absent")


@pytest.mark.parametrize("name", ["all-mpnet-base-v2", "sentence-transformers/all-mpnet-base-v2", "nobody/no-such"])
def test_an_encoder_that_is_not_here_is_not_downloaded(
    name: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("HGCLR_CACHE", str(tmp_path))
    monkeypatch.setattr("hgclr.encoders.fetch_encoder", lambda *_: pytest.fail("a download"))
    with caplog.at_level(logging.WARNING, logger="hgclr"):
        found = describe(DataFolder(folder), encoder=name, max_length=20)
    assert found.encoder is None
    assert not found.together("tokens").total
    (message,) = caplog.messages
    assert message.startswith(f"tokens are not counted: the encoder {name} is not on this machine; ")
    assert ("hgclr encoders get all-mpnet-base-v2" in message) == ("mpnet" in name)


def test_without_train_all_splits_count(folder: Path, rows, tmp_path: Path) -> None:
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    (copy / "train.jsonl").unlink()
    found = describe(DataFolder(copy))
    both = Counter(label for split in ("dev", "test") for _, labels in rows[split] for label in labels)
    assert found.frequency().largest == max(both.values())
    assert statistics_json(found)["label_frequency"]["split"] == "all splits"
    assert found.agreement("test") is None


def test_bad_rows_stop_or_are_skipped(folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    with (copy / "dev.jsonl").open("a") as file:
        file.write("{oops\n")
    with pytest.raises(InputError, match=r"dev\.jsonl:21: broken JSON.*--skip-bad-rows"):
        describe(DataFolder(copy))
    with caplog.at_level(logging.WARNING, logger="hgclr"):
        found = describe(DataFolder(copy, skip_bad_rows=True))
    assert found.splits["dev"].documents == 20
    assert "skipped 1 bad row" in caplog.text
    (copy / "dev.jsonl").write_text("{oops\n")
    with pytest.raises(InputError, match=r"dev\.jsonl: empty split: all 1 rows are bad"):
        describe(DataFolder(copy, skip_bad_rows=True))


def test_progress_counts_every_row(folder: Path) -> None:
    seen: list[int] = []
    describe(DataFolder(folder), progress=seen.append)
    assert sum(seen) == sum(SPLITS.values())
