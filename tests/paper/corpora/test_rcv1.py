"""RCV1-V2: texts, topics and splits of the Reuters disks; lists of ids; damaged archives."""

from __future__ import annotations

import csv
import gzip
import json
import logging
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from hgclr.data.check import check
from hgclr.data.folder import DataFolder
from hgclr.errors import InputError
from hgclr.paper.corpora.rcv1 import build_rcv1, read_topics, split_training
from hgclr.taxonomy import Taxonomy

TOPIC_FILE = """\
parent: None    child: Root    child-description: No Description
parent: CCAT    child: C15     child-description: PERFORMANCE
parent: C15     child: C151    child-description: ACCOUNTS/EARNINGS
parent: C151    child: C1511   child-description: ANNUAL RESULTS
parent: Root    child: CCAT    child-description: CORPORATE/INDUSTRIAL
parent: ECAT    child: E51     child-description: TRADE/RESERVES
parent: E51     child: E512    child-description: MERCHANDISE TRADE
parent: Root    child: ECAT    child-description: ECONOMICS
parent: GCAT    child: GCRIM   child-description: CRIME, LAW ENFORCEMENT
parent: Root    child: GCAT    child-description: GOVERNMENT/SOCIAL
"""


def codes(kind: str, found: Sequence[str]) -> str:
    if not found:
        return ""
    lines = "".join(
        f'  <code code="{code}">\n    <editdetail attribution="Reuters BIP Coding Group" action="confirmed"'
        ' date="1996-08-20"/>\n  </code>\n'
        for code in found
    )
    return f'<codes class="bip:{kind}:1.0">\n{lines}</codes>\n'


def item(
    number: int | str,
    topics: Sequence[str] = ("GCAT",),
    text: str = "<p>Some news.</p>",
    regions: Sequence[str] = ("MEX",),
) -> bytes:
    """Return a news item as the disks hold it."""
    return f"""\
<?xml version="1.0" encoding="iso-8859-1" ?>
<newsitem itemid="{number}" id="root" date="1996-08-20" xml:lang="en">
<title>MEXICO: Recovery excitement brings Mexican markets to life.</title>
<headline>Recovery excitement brings Mexican markets to life.</headline>
<byline>Henry Tricks</byline>
<dateline>MEXICO CITY</dateline>
<text>
{text}
</text>
<copyright>(c) Reuters Limited 1996</copyright>
<metadata>
{codes("countries", regions)}{codes("industries", ["I81402"])}{codes("topics", topics)}\
<dc element="dc.publisher" value="Reuters Holdings Plc"/>
<dc element="dc.date.published" value="1996-08-20"/>
</metadata>
</newsitem>
""".encode("latin-1")


def write_disks(source: Path, archives: dict[str, dict[str, bytes]], training: Sequence[int]) -> None:
    """Write archives (by path, the members by name), the token file and the topic file."""
    for path, members in archives.items():
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(source / path, "w") as archive:
            for name, data in members.items():
                archive.writestr(name, data)
    tokens = "".join(f".I {number}\n.W\nrecov excit bring\nmexic market\n\n" for number in training)
    (source / "lyrl2004_tokens_train.dat").write_text(tokens)
    (source / "rcv1.topics.hier.orig").write_text(TOPIC_FILE)


def day(*items: bytes) -> dict[str, bytes]:
    """Return an archive of items under the publisher's file names."""
    numbers = [data.partition(b'itemid="')[2].partition(b'"')[0].decode() for data in items]
    return {f"{number}newsML.xml": data for number, data in zip(numbers, items, strict=True)}


def read(folder: Path, split: str) -> list[dict[str, object]]:
    path = folder / f"{split}.jsonl.gz"
    return [json.loads(line) for line in gzip.open(path, "rt", encoding="utf-8")] if path.exists() else []


def left_out(folder: Path) -> list[tuple[str, str, str | None]]:
    rows = [json.loads(line) for line in (folder / "left-out.jsonl").read_text(encoding="utf-8").splitlines()]
    return [(row["where"], row["reason"], row.get("detail")) for row in rows]


ODD = day(
    item(2300, ["C1511"], "<p>First  paragraph.</p>\n<p>\n Second\tone. </p><p> </p>\n<p>Third</p>"),
    item(2301, ["E512", "GCAT", "E51", "E512"], "<p>A <b>bold<i>er</i></b> claim &amp; 5 &lt; 6 &quot;now&quot;.</p>"),
    item(2302, ["GCRIM"], "<p>Caf\xe9 in M\xfcnchen &#163;5 &eacute;t&#xe9;</p>"),
    item(2303, ["1POL", "CCAT"]),
    item(2304, ["1POL", "2ECO"]),
    item(2305, [], "<p>No topic.</p>"),
    item(2306, regions=[]),
    item(2307, text="<p> </p>"),
    item(2308, text=""),
    item("many"),
)


def test_texts_and_labels(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    unclosed = item(2309).replace(b"</text>", b"")
    line = unclosed.partition(b"</newsitem>")[0].count(b"\n") + 1  # where the mistake shows
    broken = {"2309newsML.xml": unclosed, "readme.txt": b"no item", "x.xml": b"<html/>"}
    write_disks(
        tmp_path / "disks", {"cd1/19960820.zip": day(item(1), item(2)), "cd1/19960821.zip": ODD | broken}, [1, 2]
    )
    with caplog.at_level(logging.WARNING):
        summary = build_rcv1(tmp_path / "disks", tmp_path / "data")
    assert read(tmp_path / "data", "test") == [
        {"id": "2300", "text": "First paragraph. Second one. Third", "labels": ["CCAT", "C15", "C151", "C1511"]},
        {"id": "2301", "text": 'A bolder claim & 5 < 6 "now".', "labels": ["ECAT", "GCAT", "E51", "E512"]},
        {"id": "2302", "text": "Café in München £5 été", "labels": ["GCAT", "GCRIM"]},
        {"id": "2303", "text": "Some news.", "labels": ["CCAT"]},
    ]
    here = "cd1/19960821.zip"
    assert left_out(tmp_path / "data") == [
        (f"{here}/2304newsML.xml", "no topic of the topic file", "1POL 2ECO"),
        (f"{here}/2305newsML.xml", "no topic", None),
        (f"{here}/2306newsML.xml", "no region", None),
        (f"{here}/2307newsML.xml", "no text", None),
        (f"{here}/2308newsML.xml", "no text", None),
        (f"{here}/2309newsML.xml", "broken XML", f"mismatched tag: line {line}, column 2"),
        (f"{here}/manynewsML.xml", "not a news item with an id", None),
        (f"{here}/x.xml", "not a news item with an id", None),
    ]
    assert summary.documents == {"train": 1, "dev": 1, "test": 4}
    assert summary.left_out["no text"] == 2
    topics, size = [record.getMessage() for record in caplog.records]
    assert "1POL (2), 2ECO (1)" in topics
    assert "804,414" in size
    report = check(DataFolder(tmp_path / "data"))
    assert report.bad_rows == 0


def test_splits_and_order(tmp_path: Path) -> None:
    training = range(100, 130)
    archives = {
        "b/19970101.zip": day(*(item(number) for number in (1000, 999, 20, *training))),
        "c/19960820.zip": day(item(5000), item(998)),
    }
    write_disks(tmp_path / "disks", archives, list(reversed(training)))
    unpacked = tmp_path / "disks" / "a" / "19980101"
    unpacked.mkdir(parents=True)
    for name, data in day(item(3), item(10), item(2)).items():
        (unpacked / name).write_bytes(data)
    build_rcv1(tmp_path / "disks", tmp_path / "data")
    test = [row["id"] for row in read(tmp_path / "data", "test")]
    assert test == ["998", "5000", "20", "999", "1000", "2", "3", "10"]
    model_selection = pytest.importorskip("sklearn.model_selection")
    train, dev = model_selection.train_test_split(list(training), test_size=0.1, random_state=0)
    assert [row["id"] for row in read(tmp_path / "data", "train")] == [str(number) for number in sorted(train)]
    assert [row["id"] for row in read(tmp_path / "data", "dev")] == [str(number) for number in sorted(dev)]


@pytest.mark.parametrize("count", [2, 9, 10, 11, 37, 23_149])
def test_the_split_is_that_of_scikit_learn(count: int) -> None:
    model_selection = pytest.importorskip("sklearn.model_selection")
    ids = [3 * number + 7 for number in range(count)]
    train, dev = model_selection.train_test_split(ids, test_size=0.1, random_state=0)
    assert split_training(reversed(ids)) == dict.fromkeys(train, "train") | dict.fromkeys(dev, "dev")


def test_a_list_of_ids_replaces_the_rule(tmp_path: Path) -> None:
    source = tmp_path / "disks"
    write_disks(source, {"1.zip": day(item(1), item(2), item(3, regions=[]), item(4), item(5, []))}, [1, 2])
    ids = tmp_path / "rcv1v2-ids.dat.gz"
    ids.write_bytes(gzip.compress(b"1\n2\n3\n5\n"))
    build_rcv1(source, tmp_path / "data", ids=ids)
    assert [row["id"] for row in read(tmp_path / "data", "test")] == ["3"]
    assert left_out(tmp_path / "data") == [
        ("1.zip/4newsML.xml", "not in the list of ids", "4"),
        ("1.zip/5newsML.xml", "no topic", None),
    ]
    ids.write_bytes(gzip.compress(b"1\n2\n30\n"))
    with pytest.raises(InputError, match=r"rcv1v2-ids\.dat\.gz:3: document 30 is not in the archives"):
        build_rcv1(source, tmp_path / "data", ids=ids)
    assert [row["id"] for row in read(tmp_path / "data", "test")] == ["3"]  # the earlier build


def test_training_documents_that_are_missing(tmp_path: Path) -> None:
    # 3 is broken and reported as such; 4 and 5 are in no archive.
    archive = day(item(1), item(2)) | {"3newsML.xml": b"<newsitem"}
    write_disks(tmp_path / "disks", {"1.zip": archive}, [1, 5, 3, 2, 4])
    with pytest.raises(
        InputError, match=r"train\.dat:6: document 5 and 1 more .* not in the archives; check"
    ) as caught:
        build_rcv1(tmp_path / "disks", tmp_path / "data")
    assert caught.value.path == tmp_path / "disks" / "lyrl2004_tokens_train.dat"
    assert {path.name for path in tmp_path.iterdir()} == {"disks"}


def test_damage_within_an_archive(tmp_path: Path) -> None:
    write_disks(tmp_path / "disks", {"1.zip": day(item(1), item(2), item(3, text="<p>Intact words.</p>"))}, [1, 2])
    archive = tmp_path / "disks" / "1.zip"
    whole = archive.read_bytes()
    archive.write_bytes(whole.replace(b"Intact words", b"Damage words"))  # stored as it is, so the sum is wrong now
    build_rcv1(tmp_path / "disks", tmp_path / "data")
    assert left_out(tmp_path / "data") == [
        ("1.zip/3newsML.xml", "damaged in its archive", "Bad CRC-32 for file '3newsML.xml'")
    ]
    archive.write_bytes(whole.replace(b"PK\x01\x02", b"PK\x09\x09"))  # the list of members
    with pytest.raises(InputError, match=r"1\.zip: truncated or not a zip file: .*; copy it from the disk again"):
        build_rcv1(tmp_path / "disks", tmp_path / "data")
    encrypted = bytearray(whole)
    for mark, offset in ((b"PK\x01\x02", 8), (b"PK\x03\x04", 6)):
        encrypted[whole.index(mark) + offset] |= 1
    archive.write_bytes(encrypted)
    with pytest.raises(InputError, match=r"1\.zip: 1newsML\.xml cannot be unpacked: .*password"):
        build_rcv1(tmp_path / "disks", tmp_path / "data")


# As the publisher prints it: sorted by code, so that parents may follow their children, in columns.
SMALL = """\
parent: None    child: Root    child-description: No Description
parent: CCAT    child: C15     child-description: PERFORMANCE
parent: C15     child: C151    child-description: ACCOUNTS/EARNINGS
parent: C151    child: C1511   child-description: ANNUAL  RESULTS
parent: Root    child: CCAT    child-description: CORPORATE/INDUSTRIAL
parent: GCAT    child: GCRIM   child-description: CRIME, LAW ENFORCEMENT
parent: Root    child: GCAT    child-description: GOVERNMENT/SOCIAL
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "rcv1.topics.hier.orig"
    path.write_text(SMALL)
    return path


def test_the_real_tree(tmp_path: Path, shared_data: Path) -> None:
    with (shared_data / "taxonomies" / "rcv1.topics.tsv").open(newline="") as table:
        rows = list(csv.DictReader(table, delimiter="\t"))
    assert len(rows) == 103
    file = tmp_path / "rcv1.topics.hier.orig"
    with file.open("w") as output:
        output.write("parent: None    child: Root    child-description: No Description\n")
        for row in sorted(rows, key=lambda row: row["code"]):
            output.write(
                f"parent: {row['parent']:<7} child: {row['code']:<7} child-description: {row['description']}\n"
            )
    literature = Taxonomy.read(shared_data / "taxonomies" / "rcv1.taxonomy")
    tree = read_topics(file)
    assert tree == literature  # ids, names, parents and their order
    assert tree.depth == 4
    described = read_topics(file, "descriptions")
    assert described.ids == literature.ids
    assert described.parents.tolist() == literature.parents.tolist()
    assert dict(zip(described.ids, described.names, strict=True)) == {row["code"]: row["description"] for row in rows}


@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        ("lyrl2004_tokens_train.dat", ".I 2286\n.W\nfoo\n.I\n", 4),
        ("lyrl2004_tokens_train.dat", "foo\n", None),
        ("rcv1.topics.hier.orig", SMALL + "parent: G15     child: G151    child-description: EC\n", 8),
        ("rcv1.topics.hier.orig", SMALL + "parent: CCAT    child: C151    child-description: TWICE\n", 8),
        ("rcv1.topics.hier.orig", SMALL + "CCAT\tC11\n", 8),
        ("rcv1.topics.hier.orig", SMALL + "parent: X    child: X     child-description: SELF\n", 8),
        ("19960820.zip", "no archive", None),
    ],
)
def test_files_that_are_wrong(name: str, content: str, line: int | None, tmp_path: Path) -> None:
    write_disks(tmp_path, {"19960820.zip": day(item(1), item(2))}, [1, 2])
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError) as error:
        build_rcv1(tmp_path, tmp_path / "data")
    assert (error.value.path, error.value.line) == (tmp_path / name, line)
