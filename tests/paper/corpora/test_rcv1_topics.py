from __future__ import annotations

import csv
from pathlib import Path

import pytest

from hgclr.errors import InputError
from hgclr.paper.corpora.rcv1 import read_topics
from hgclr.taxonomy import Taxonomy

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


def test_codes_are_the_names_unless_descriptions_are_wanted(file: Path) -> None:
    ids = ("CCAT", "GCAT", "C15", "C151", "C1511", "GCRIM")
    tree = read_topics(file)
    assert tree.ids == tree.names == ids
    assert tree.parents.tolist() == [-1, -1, 0, 2, 3, 1]
    described = read_topics(file, "descriptions")
    assert described.ids == ids
    assert described.parents.tolist() == tree.parents.tolist()
    assert described.names == (
        "CORPORATE/INDUSTRIAL",
        "GOVERNMENT/SOCIAL",
        "PERFORMANCE",
        "ACCOUNTS/EARNINGS",
        "ANNUAL RESULTS",
        "CRIME, LAW ENFORCEMENT",
    )


@pytest.mark.parametrize("space", [" ", "        ", "\t"])
def test_white_space_of_any_width(tmp_path: Path, space: str) -> None:
    path = tmp_path / "topics"
    path.write_text(
        f"parent: Root{space}child: CCAT{space}child-description: CORPORATE/INDUSTRIAL  \r\n"
        f"\nparent: CCAT{space}child: C11{space}child-description:{space}STRATEGY/PLANS"
    )
    tree = read_topics(path, "descriptions")
    assert (tree.ids, tree.names) == (("CCAT", "C11"), ("CORPORATE/INDUSTRIAL", "STRATEGY/PLANS"))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("parent: G15     child: G151    child-description: EC", "the parent 'G15' of 'G151' is not listed as a label"),
        ("parent: CCAT    child: C151    child-description: TWICE", "the label 'C151' has two parents"),
        ("CCAT\tC11", r"not a line of a topic file: 'CCAT\\tC11'; write 'parent: CODE  child: CODE  child-desc"),
        ("parent: CCAT    child: C11     child-description:", "not a line of a topic file"),
        ("parent: X    child: X     child-description: SELF", "labels form a cycle"),
    ],
)
def test_bad_lines(file: Path, line: str, message: str) -> None:
    file.write_text(SMALL + line + "\n")
    with pytest.raises(InputError, match=message) as caught:
        read_topics(file)
    assert (caught.value.path, caught.value.line) == (file, 8)


def test_two_siblings_of_one_description(file: Path) -> None:
    file.write_text(SMALL + "parent: GCAT    child: GVIO    child-description: CRIME, LAW ENFORCEMENT\n")
    assert len(read_topics(file)) == 7
    with pytest.raises(InputError, match=r":8: the label 'CRIME, LAW ENFORCEMENT' is listed twice under 'GCAT'"):
        read_topics(file, "descriptions")


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
