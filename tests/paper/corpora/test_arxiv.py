"""arXiv: texts, labels, splits by hash or date, limits; damaged snapshots."""

from __future__ import annotations

import gzip
import json
import random
import tracemalloc
import zipfile
from collections import Counter
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest

from hgclr.data import DataFolder
from hgclr.data.check import check
from hgclr.errors import InputError
from hgclr.paper.corpora.arxiv import ALIASES, Paper, build_arxiv, category_tree, read_paper, records

GROUPS = {"cs", "econ", "eess", "grp_physics", "math", "q-bio", "q-fin", "stat"}


def record(identifier: str, categories: str = "cs.CL", **fields: object) -> dict[str, object]:
    """A record as the snapshot has it: its fields in its order, line ends in title and abstract."""
    return {
        "id": identifier,
        "submitter": "Ada Author",
        "title": f"A study of\n  paper {identifier}",
        "comments": "12 pages",
        "categories": categories,
        "abstract": f"  We study paper {identifier}\nat length.\n",
        "versions": [
            {"version": "v1", "created": "Mon, 2 Apr 2007 19:18:42 GMT"},
            {"version": "v2", "created": "Tue, 24 Jul 2012 20:10:27 GMT"},
        ],
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
    assert (len(report.taxonomy), report.taxonomy.depth, report.bad_rows) == (161, 3, 0)


def test_every_category_and_alias_brings_its_path(tmp_path: Path) -> None:
    codes = {code: code for code in category_tree().ids if code != "grp_physics"} | ALIASES
    source = snapshot(tmp_path, *(record(code, code) for code in codes))
    for row in all_for_training(source, tmp_path / "out"):
        assert row["labels"] == path_of(codes[row["id"]])


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
        ("3", "a lone surrogate in the text", "3"),
        ("4", "no abstract", "4\\udc00"),
    ]


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


@pytest.mark.parametrize(
    "options",
    [
        {"dev_from": date(2020, 1, 1)},
        {"test_from": date(2020, 1, 1)},
        {"dev_from": date(2020, 1, 1), "test_from": date(2020, 1, 1)},
        {"dev_from": date(2020, 1, 1), "test_from": date(2021, 1, 1), "dev_share": 0.2},
        {"dev_from": date(1999, 1, 1), "test_from": date(2020, 1, 1)},
        {"dev_share": 0.5, "test_share": 0.5},
        {"test_share": -0.1},
        {"since": date(2020, 1, 2), "until": date(2020, 1, 1)},
        {"per_category": 0},
    ],
)
def test_options_that_make_no_sense(tmp_path: Path, options: dict[str, object]) -> None:
    source = snapshot(tmp_path, record("1"))
    with pytest.raises(InputError) as caught:
        build_arxiv(source, tmp_path / "out", **options)
    assert caught.value.remedy
    assert list(tmp_path.iterdir()) == [source]


@pytest.mark.slow
def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    source = snapshot(tmp_path, *(record(str(number), comments="long " * 1000) for number in range(3000)))
    assert source.stat().st_size > 15e6
    build_arxiv(source, tmp_path / "out")  # what is imported and compiled once does not count
    tracemalloc.start()
    try:
        build_arxiv(source, tmp_path / "out", per_category=10)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2e6


def read(title: str, abstract: str) -> Paper | str:
    fields = {"id": "1", "title": title, "abstract": abstract, "categories": "cs.CL"}
    return read_paper(fields, {"cs.CL"}, Counter(), dated=False)


@pytest.mark.parametrize(
    "abstract",
    [
        "This paper has been withdrawn by the author due to a crucial error in equation 1.",
        "This paper has been\nwithdrawn.",
        "The manuscript was withdrawn because it is part of another one.",
        "This article is being temporarily withdrawn pending revision.",
        "  [Paper withdrawn due to an error]",
        "Withdrawn by the authors.",
        "The authors have withdrawn this paper.",
    ],
)
def test_notices_of_withdrawal(abstract: str) -> None:
    assert read("Title", abstract) == "withdrawn"


NAME = "arxiv-metadata-oai-snapshot.json"


def line(number: int) -> bytes:
    fields = {"id": str(number), "title": "T", "abstract": f"A {number * 7919}", "categories": "cs.CL", "doi": None}
    return json.dumps(fields).encode() + b"\n"


LINES = b"".join(line(number) for number in range(1, 3001))


def plain(folder: Path, content: bytes) -> Path:
    path = folder / NAME
    path.write_bytes(content)
    return path


def gzipped(folder: Path, content: bytes) -> Path:
    path = folder / f"{NAME}.gz"
    path.write_bytes(gzip.compress(content))
    return path


def zipped(folder: Path, content: bytes) -> Path:
    path = folder / "archive.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(NAME, content)
    return path


def error_of(source: Path) -> InputError:
    """Return the error of a build that leaves nothing behind."""
    before = sorted(source.parent.iterdir())
    with pytest.raises(InputError) as caught:
        build_arxiv(source, source.parent / "out")
    assert sorted(source.parent.iterdir()) == before
    assert caught.value.path == source
    return caught.value


@pytest.mark.parametrize("pack", [plain, gzipped, zipped])
def test_packed_or_not(tmp_path: Path, pack: Callable[[Path, bytes], Path]) -> None:
    source = pack(tmp_path, LINES)
    seen: list[int] = []
    found = list(records(source, seen.append))
    assert [(number, record["id"]) for number, record in found] == [(n, str(n)) for n in range(1, 3001)]
    assert seen == sorted(seen)
    assert len(seen) == 4
    assert seen[-1] == source.stat().st_size


def test_truncated_and_damaged_files(tmp_path: Path) -> None:
    assert error_of(plain(tmp_path, LINES[:-20])).line == 3000
    assert error_of(gzipped(tmp_path, LINES[:-20])).line == 3000
    source = gzipped(tmp_path, LINES * 4)
    source.write_bytes(source.read_bytes()[:-5000])
    assert 1 < (error_of(source).line or 0) < 12_000
    source = zipped(tmp_path, LINES)
    source.write_bytes(source.read_bytes()[:-5000])
    assert error_of(source).line is None
    for pack in (gzipped, zipped):
        source = pack(tmp_path, LINES)
        content = bytearray(source.read_bytes())
        content[len(content) // 2] ^= 0xFF
        source.write_bytes(content)
        assert error_of(source).line is not None


def test_archives_that_cannot_be_unpacked(tmp_path: Path) -> None:
    source = zipped(tmp_path, LINES)
    content = bytearray(source.read_bytes())
    for header, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):  # the flag "encrypted" of the format
        content[content.index(header) + flags] |= 1
    source.write_bytes(content)
    assert "unpack" in error_of(source).remedy
    with zipfile.ZipFile(source, "w") as archive:
        archive.writestr("readme.txt", "hello")
    assert "unpack" in error_of(source).remedy


@pytest.mark.parametrize(
    "content",
    [
        b'{"id": "2",\n',
        b'{"id": "\xff"}\n',
        b"[" * 100_000 + b"\n",
        b"[]\n",
        b'{"id": "2", "title": "T", "categories": "cs.CL"}\n',
        line(2).replace(b'"cs.CL"', b'["cs.CL"]'),
    ],
)
def test_broken_records(tmp_path: Path, content: bytes) -> None:
    assert error_of(plain(tmp_path, line(1) + content + line(3))).line == 2
