from __future__ import annotations

import gzip
import json
import random
import tracemalloc
from collections import Counter
from datetime import date
from pathlib import Path

import pytest

from hgclr.data import DataFolder
from hgclr.data.check import check
from hgclr.errors import InputError
from hgclr.paper.corpora.arxiv import ALIASES, build_arxiv, category_tree
from hgclr.taxonomy import Taxonomy

GROUPS = {"cs", "econ", "eess", "grp_physics", "math", "q-bio", "q-fin", "stat"}


def record(identifier: str, categories: str = "cs.CL", **fields: object) -> dict[str, object]:
    """A record as the snapshot has it: its fields in its order, line ends in title and abstract."""
    return {
        "id": identifier,
        "submitter": "Ada Author",
        "authors": "Ada Author (1), Bob Author (2) ((1) Here, (2) There)",
        "title": f"A study of\n  paper {identifier}",
        "comments": "12 pages",
        "journal-ref": None,
        "doi": None,
        "report-no": None,
        "categories": categories,
        "license": "http://arxiv.org/licenses/nonexclusive-distrib/1.0/",
        "abstract": f"  We study paper {identifier}\nat length.\n",
        "versions": [
            {"version": "v1", "created": "Mon, 2 Apr 2007 19:18:42 GMT"},
            {"version": "v2", "created": "Tue, 24 Jul 2012 20:10:27 GMT"},
        ],
        "update_date": "2012-07-26",
        "authors_parsed": [["Author", "Ada", "", "Here"], ["Author", "Bob", "", "There"]],
        **fields,
    }


def on(day: str) -> dict[str, object]:
    """The versions of a paper whose first is of this day."""
    return {"versions": [{"version": "v1", "created": day}]}


def snapshot(folder: Path, *records: dict[str, object]) -> Path:
    path = folder / "arxiv-metadata-oai-snapshot.json"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def rows(folder: Path) -> dict[str, list[dict[str, object]]]:
    splits = {}
    for name in ("train", "dev", "test"):
        path = folder / f"{name}.jsonl.gz"
        if path.exists():
            with gzip.open(path, "rt", encoding="utf-8") as lines:
                splits[name] = [json.loads(line) for line in lines]
    return splits


def ids(folder: Path) -> dict[str, set[object]]:
    return {split: {row["id"] for row in found} for split, found in rows(folder).items()}


def all_for_training(source: Path, output: Path, **options: object) -> list[dict[str, object]]:
    build_arxiv(source, output, dev_share=0, test_share=0, **options)
    return rows(output)["train"]


def path_of(code: str) -> list[str]:
    """The labels of a code, derived from how arXiv's codes are written."""
    archive = code.split(".")[0]
    top = [archive] if archive in GROUPS else ["grp_physics", archive]
    return top if code == archive else [*top, code]


def test_text_and_labels(tmp_path: Path) -> None:
    source = snapshot(
        tmp_path,
        record("0704.0001", "hep-ph", title="Photon  pairs\n  at the collider", abstract="  We compute\npairs.\n"),
        record("0704.0002", "stat.ML cs.LG astro-ph.CO", title="Is it learnable?", abstract="  It is: $O(n)$.\n "),
        record("cmp-lg/9404001", "cmp-lg cs.CL", title="Étude", abstract='  Gr\\"ober \u2264 Gröber.\n'),
    )
    assert all_for_training(source, tmp_path / "out") == [
        {
            "id": "0704.0001",
            "text": "Photon pairs at the collider. We compute pairs.",
            "labels": ["grp_physics", "hep-ph"],
        },
        {
            "id": "0704.0002",
            "text": "Is it learnable? It is: $O(n)$.",
            "labels": ["grp_physics", "astro-ph", "astro-ph.CO", "cs", "cs.LG", "stat", "stat.ML"],
        },
        {"id": "cmp-lg/9404001", "text": 'Étude. Gr\\"ober ≤ Gröber.', "labels": ["cs", "cs.CL"]},
    ]
    report = check(DataFolder(tmp_path / "out"))
    assert (len(report.statistics.taxonomy), report.statistics.taxonomy.depth, report.bad_rows) == (161, 3, 0)


def test_what_was_done_is_recorded(tmp_path: Path) -> None:
    source = snapshot(tmp_path, record("1"), record("2", abstract=" "))
    build_arxiv(source, tmp_path / "out", since=date(2001, 2, 3), dev_share=0, test_share=0, seed=4)
    assert json.loads((tmp_path / "out" / "corpus.json").read_text()) == {
        "corpus": "arxiv",
        "settings": {
            "source": "arxiv-metadata-oai-snapshot.json",
            "since": "2001-02-03",
            "until": None,
            "dev_from": None,
            "test_from": None,
            "per_category": None,
            "primary_only": False,
            "dev_share": 0,
            "test_share": 0,
            "seed": 4,
        },
        "labels": 161,
        "documents": {"train": 1, "dev": 0, "test": 0},
        "left_out": {"no abstract": 1},
    }


def test_every_category_and_alias_brings_its_path(tmp_path: Path) -> None:
    codes = {code: code for code in category_tree().ids if code != "grp_physics"} | ALIASES
    source = snapshot(tmp_path, *(record(code, code) for code in codes))
    for row in all_for_training(source, tmp_path / "out"):
        assert row["labels"] == path_of(codes[row["id"]])


def test_the_tree_is_arxivs() -> None:
    tree = category_tree()
    assert {tree.ids[index] for index in tree.levels[0]} == GROUPS
    assert tree.path_name(tree.resolve("cond-mat.soft")) == "Physics > Condensed Matter > Soft Condensed Matter"
    assert tree.path_name(tree.resolve("cs.CL")) == "Computer Science > Computation and Language"
    assert set(ALIASES).isdisjoint(tree.ids)
    assert set(ALIASES.values()) <= set(tree.ids)


def test_the_tree_is_that_of_the_benchmark_set(shared_data: Path) -> None:
    lines = (shared_data / "arxiv" / "labels.tsv").read_text(encoding="utf-8").splitlines()[1:]
    codes = {node: code for node, code, _ in (line.split("\t") for line in lines)}
    theirs = Taxonomy.read(shared_data / "arxiv" / "taxonomy.tsv", format="literature")
    ours = category_tree()
    # Groups have no code there; they are told by their names.
    expected = {}
    for index, node in enumerate(theirs.ids):
        above = None if theirs.parents[index] < 0 else theirs.ids[theirs.parents[index]]
        expected[codes[node] or node] = above and (codes[above] or above)
    found = {}
    for index, code in enumerate(ours.ids):
        above = None if ours.parents[index] < 0 else int(ours.parents[index])
        key = ours.names[index] if above is None else code
        found[key] = above if above is None else ours.names[above] if ours.parents[above] < 0 else ours.ids[above]
        assert above is None or theirs.resolve(f"{ours.names[index]} ({code})") >= 0  # the names are the same
    assert len(ours) == 161
    assert found == expected


def test_primary_only(tmp_path: Path) -> None:
    source = snapshot(tmp_path, record("1", "math.MP math-ph cs.LG"), record("2", "cs.LG stat.ML"))
    train = all_for_training(source, tmp_path / "out", primary_only=True)
    assert [row["labels"] for row in train] == [["grp_physics", "math-ph"], ["cs", "cs.LG"]]


def test_unknown_categories_are_dropped_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = snapshot(tmp_path, record("1", "cs.XX cs.CL"), record("2", "cs.XX"), record("3", "nope cs.XX cs.AI"))
    train = all_for_training(source, tmp_path / "out", per_category=5)
    assert [row["labels"] for row in train] == [["cs", "cs.CL"], ["cs", "cs.AI"]]
    (message,) = caplog.messages
    assert message == f"{source}: categories that arXiv does not have were dropped: 'cs.XX' (3), 'nope' (1)"
    assert [json.loads(line) for line in (tmp_path / "out" / "left-out.jsonl").read_text().splitlines()] == [
        {"where": "arxiv-metadata-oai-snapshot.json:2", "reason": "no known category", "detail": "2"}
    ]


def test_papers_that_cannot_be_used(tmp_path: Path) -> None:
    source = snapshot(
        tmp_path,
        record("1", abstract=" \n"),
        record("2", abstract="  This paper has been withdrawn by the authors\ndue to an error in Eq. 3.\n"),
        record("3", abstract="half \ud83d of a pair"),
        record("4\udc00", abstract=""),
        record("5", versions=[]),  # a date is not needed here
    )
    assert [row["id"] for row in all_for_training(source, tmp_path / "out")] == ["5"]
    left_out = [json.loads(line) for line in (tmp_path / "out" / "left-out.jsonl").read_text().splitlines()]
    assert [(line["where"].rpartition(":")[2], line["reason"], line["detail"]) for line in left_out] == [
        ("1", "no abstract", "1"),
        ("2", "withdrawn", "2"),
        ("3", "half a character in the text", "3"),
        ("4", "no abstract", "4\\udc00"),
    ]


def test_dates(tmp_path: Path) -> None:
    source = snapshot(
        tmp_path,
        record("before", **on("Fri, 31 Dec 1999 23:59:59 GMT")),
        record("first", **on("Sat, 1 Jan 2000 00:00:00 GMT")),
        record("train", **on("Mon, 31 Dec 2001 23:59:59 GMT")),
        record("dev", **on("Tue, 1 Jan 2002 00:00:01 GMT")),
        record("test", **on("Wed, 1 Jan 2003 12:00:00 GMT")),
        record("last", **on("Wed, 31 Dec 2003 23:59:59 GMT")),
        record("after", **on("Thu, 1 Jan 2004 00:00:00 GMT")),
        record("undated", **on("long ago")),
        record("unversioned", versions=[]),
    )
    time = {"since": date(2000, 1, 1), "until": date(2003, 12, 31)}
    summary = build_arxiv(source, tmp_path / "out", **time, dev_from=date(2002, 1, 1), test_from=date(2003, 1, 1))
    assert ids(tmp_path / "out") == {"train": {"first", "train"}, "dev": {"dev"}, "test": {"test", "last"}}
    assert summary.left_out == {"no date of the first version": 2}


def test_dates_that_leave_nothing(tmp_path: Path) -> None:
    source = snapshot(tmp_path, record("1"))
    with pytest.raises(InputError, match=r"snapshot\.json: the dates leave no paper for training; choose other dates"):
        build_arxiv(source, tmp_path / "out", dev_from=date(1999, 1, 1), test_from=date(2020, 1, 1))
    assert list(tmp_path.iterdir()) == [source]


@pytest.mark.slow
def test_the_split_is_drawn_by_id_and_seed_alone(tmp_path: Path) -> None:
    records = [record(f"{number:04d}") for number in range(4000)]
    build_arxiv(snapshot(tmp_path, *records), tmp_path / "out", dev_share=0.05, test_share=0.2)
    drawn = ids(tmp_path / "out")
    assert {split: len(found) / 4000 for split, found in drawn.items()} == {
        "train": pytest.approx(0.75, abs=0.03),
        "dev": pytest.approx(0.05, abs=0.015),
        "test": pytest.approx(0.2, abs=0.025),
    }
    random.Random(1).shuffle(records)
    build_arxiv(snapshot(tmp_path, *records[:1000]), tmp_path / "some", dev_share=0.05, test_share=0.2)
    chosen = {paper["id"] for paper in records[:1000]}
    assert ids(tmp_path / "some") == {split: found & chosen for split, found in drawn.items()}
    build_arxiv(snapshot(tmp_path, *records), tmp_path / "other", dev_share=0.05, test_share=0.2, seed=1)
    assert len(ids(tmp_path / "other")["test"] & drawn["test"]) / 4000 == pytest.approx(0.04, abs=0.015)


def test_a_tenth_each_unless_told(tmp_path: Path) -> None:
    source = snapshot(tmp_path, *(record(str(number)) for number in range(2000)))
    summary = build_arxiv(source, tmp_path / "out")
    build_arxiv(source, tmp_path / "told", dev_share=0.1, test_share=0.1)
    assert ids(tmp_path / "out") == ids(tmp_path / "told")
    assert sum(summary.documents.values()) == 2000
    assert summary.documents["test"] == pytest.approx(200, abs=40)


def test_at_most_so_many_of_a_category(tmp_path: Path) -> None:
    records = [record(f"a{number}", "cs.LG stat.ML") for number in range(600)]
    records += [record(f"b{number}", "stat.ML cs.LG") for number in range(300)]
    records += [record(f"c{number}", "cs.NA math.NA") for number in range(5)]
    records += [record(f"a-empty{number}", "cs.LG", abstract="") for number in range(300)]
    records += [record(f"a-early{number}", "cs.LG", **on("Mon, 1 Jan 1990 00:00:00 GMT")) for number in range(300)]
    options = {"per_category": 100, "since": date(2000, 1, 1)}
    build_arxiv(snapshot(tmp_path, *records), tmp_path / "out", **options)
    drawn = ids(tmp_path / "out")
    taken = set().union(*drawn.values())
    assert Counter(str(paper)[0] for paper in taken) == {"a": 100, "b": 100, "c": 5}
    assert not [paper for paper in taken if "-" in str(paper)]
    # They are from all over the file, and of all splits.
    places = [int(str(paper)[1:]) for paper in taken if str(paper).startswith("a")]
    assert sum(place < 300 for place in places) == pytest.approx(50, abs=17)
    assert len(drawn["train"]) / 205 == pytest.approx(0.8, abs=0.1)
    # Neither the order nor who else is there matters, the seed does.
    random.Random(1).shuffle(records)
    build_arxiv(snapshot(tmp_path, *records), tmp_path / "shuffled", **options)
    assert ids(tmp_path / "shuffled") == drawn
    build_arxiv(snapshot(tmp_path, *records), tmp_path / "other", **options, seed=1)
    assert len(set().union(*ids(tmp_path / "other").values()) & taken) < 120
    build_arxiv(snapshot(tmp_path, *records), tmp_path / "fewer", per_category=30)
    fewer = set().union(*ids(tmp_path / "fewer").values())
    assert {paper for paper in fewer if str(paper).startswith("b")} < taken


def test_a_paper_that_stands_twice_does_not_break_the_limit(tmp_path: Path) -> None:
    records = [record(str(number)) for number in range(20)] * 2
    for size in (*range(1, 9), 39, 40, 41):
        summary = build_arxiv(snapshot(tmp_path, *records), tmp_path / "out", per_category=size, dev_share=0)
        assert sum(summary.documents.values()) == min(size, 40)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dev_from": date(2020, 1, 1)}, "a day on which dev begins, but none for test; give --test-from, too"),
        ({"test_from": date(2020, 1, 1)}, "a day on which test begins, but none for dev; give --dev-from, too"),
        (
            {"dev_from": date(2020, 1, 1), "test_from": date(2020, 1, 1)},
            "dev begins on 2020-01-01, test on 2020-01-01; let dev begin before test",
        ),
        (
            {"dev_from": date(2020, 1, 1), "test_from": date(2021, 1, 1), "dev_share": 0.2},
            "both shares and days for the splits; give --dev-from and --test-from, or shares",
        ),
        (
            {"dev_share": 0.5, "test_share": 0.5},
            "a share of 0.5 for dev and 0.5 for test; give shares of at least 0 whose sum is below 1",
        ),
        (
            {"test_share": -0.1},
            "a share of 0.1 for dev and -0.1 for test; give shares of at least 0 whose sum is below 1",
        ),
        (
            {"since": date(2020, 1, 2), "until": date(2020, 1, 1)},
            "no day is both since 2020-01-02 and until 2020-01-01; exchange the two",
        ),
        ({"per_category": 0}, "at most 0 papers of a category; give at least 1"),
    ],
)
def test_options_that_make_no_sense(tmp_path: Path, options: dict[str, object], message: str) -> None:
    source = snapshot(tmp_path, record("1"))
    with pytest.raises(InputError) as caught:
        build_arxiv(source, tmp_path / "out", **options)
    assert str(caught.value) == message
    assert list(tmp_path.iterdir()) == [source]


def test_progress_is_in_bytes_of_all_readings(tmp_path: Path) -> None:
    source = snapshot(tmp_path, *(record(str(number)) for number in range(2500)))
    size = source.stat().st_size
    for options, readings in (({}, 1), ({"per_category": 9}, 2)):
        seen: list[tuple[int, int | None]] = []
        build_arxiv(source, tmp_path / "out", progress=lambda *at, seen=seen: seen.append(at), **options)
        assert [done for done, _ in seen] == sorted({done for done, _ in seen})
        assert {total for _, total in seen} == {readings * size}
        assert len(seen) == 3 * readings
        assert seen[-1] == (readings * size, readings * size)


def test_an_interrupted_build_leaves_the_earlier_one(tmp_path: Path) -> None:
    def interrupt(done: int, total: int | None) -> None:
        raise KeyboardInterrupt

    source = snapshot(tmp_path, record("1"), record("2"))
    with pytest.raises(KeyboardInterrupt):
        build_arxiv(source, tmp_path / "out", progress=interrupt)
    assert list(tmp_path.iterdir()) == [source]
    build_arxiv(source, tmp_path / "out", dev_share=0, test_share=0)
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    with pytest.raises(KeyboardInterrupt):
        build_arxiv(source, tmp_path / "out", seed=7, progress=interrupt)
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before
    build_arxiv(source, tmp_path / "out", dev_share=0, test_share=0)  # the same again, byte for byte
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before
    assert {path.name for path in tmp_path.iterdir()} == {source.name, "out"}


@pytest.mark.slow
def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    source = snapshot(tmp_path, *(record(str(number), comments="long " * 1000) for number in range(3000)))
    assert source.stat().st_size > 16e6
    build_arxiv(source, tmp_path / "out")  # what is imported and compiled once does not count
    tracemalloc.start()
    try:
        build_arxiv(source, tmp_path / "out", per_category=10)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2e6
