# ruff: noqa: NPY002 - the literature shuffles with numpy's old generator, and the tests do as it does
from __future__ import annotations

import gzip
import math
import subprocess
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hgclr.paper.corpora.wos import TableRow, clean_text, git_blob, label_tree, merge_names, split_rows
from hgclr.taxonomy import Taxonomy

pytest.importorskip("sklearn")


@pytest.mark.parametrize(
    ("abstract", "text"),
    [
        ("Plain", "plain"),
        (' \t"Quotes and space" \n', "quotes and space"),
        ('""Twice""', "twice"),
        ('" "inner" kept"', '"inner" kept'),
        ("the dog's", "the dog 's"),
        ("'stuff", "'stuff"),
        ("a 'stuff", "a 'stuff"),
        ("a'stuff", "a 'stuff"),
        ("can't won't", "ca n't wo n't"),
        ("shouldn't've", "should n't 've"),
        ("he'd we're they'll", "he 'd we 're they 'll"),
        ("IT'S DON'T", "it's don't"),  # contractions are looked for before the text becomes lower case
        ("one\ntwo\n\nthree", "one\ntwo three"),  # a single line break is no run
        ('"', ""),
        ("", ""),
    ],
)
def test_clean_text(abstract: str, text: str) -> None:
    assert clean_text(abstract) == text


def table(*rows: tuple[tuple[int, int], str, str]) -> list[TableRow]:
    return [TableRow(number, *row, "") for number, row in enumerate(rows, 2)]


def test_rows_before_the_first_of_a_more_frequent_name_keep_their_own() -> None:
    generator = ((1, 9), "ECE", "Electrical generator")
    analog = ((1, 9), "ECE", "Analog signal processing")
    assert merge_names(table(generator, generator, analog, generator, analog, analog, analog)) == [
        "Electrical generator",
        "Electrical generator",
        *["Analog signal processing"] * 5,
    ]


def test_the_first_more_frequent_name_wins_not_the_most_frequent() -> None:
    motor = ((1, 10), "ECE", "Electric motor")
    radio = ((1, 10), "ECE", "Satellite radio")
    power = ((1, 10), "ECE", "Single-phase electric power")
    rows = table(radio, radio, motor, motor, motor, power, radio)[:-1]
    assert merge_names(rows) == [*["Satellite radio"] * 2, *["Electric motor"] * 3, "Satellite radio"]


def test_names_are_counted_within_their_domain() -> None:
    fibrillation = ((5, 7), "Medical", "Atrial Fibrillation")
    medical = ((5, 7), "Medical", "Depression")
    psychology = ((2, 13), "Psychology", "Depression")
    merged = merge_names(table(*[psychology] * 5, fibrillation, fibrillation, medical))
    assert merged == [*["Depression"] * 5, *["Atrial Fibrillation"] * 3]


@settings(deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.tuples(st.just(0), st.integers(0, 2)), st.sampled_from("XY"), st.sampled_from("abcd"))))
def test_merge_names_against_loops(entries: list[tuple[tuple[int, int], str, str]]) -> None:
    def count(domain: str, area: str) -> int:
        return sum(1 for _, *names in entries if names == [domain, area])

    wanted = []
    for place, (code, domain, area) in enumerate(entries):
        names = [name for other, _, name in entries[: place + 1] if other == code]
        better = [name for name in names if count(domain, name) > count(domain, area)]
        wanted.append((better or [area])[0])
    assert merge_names(table(*entries)) == wanted


def literature_split(count: int) -> dict[str, list[int]]:
    """The literature's split from numpy alone; scikit-learn takes the test rows from the front of a permutation."""
    state = np.random.get_state()
    np.random.seed(7)
    rows = list(range(count))
    np.random.shuffle(rows)
    np.random.set_state(state)

    def halves(rows: list[int]) -> tuple[list[int], list[int]]:
        places = np.random.RandomState(0).permutation(len(rows)).tolist()
        held = math.ceil(0.2 * len(rows))
        return [rows[place] for place in places[held:]], [rows[place] for place in places[:held]]

    rest, test = halves(rows)
    train, dev = halves(rest)
    return {"train": train, "dev": dev, "test": test}


@pytest.mark.parametrize("count", [3, 4, 5, 10, 101, 46_985])
def test_split_rows_is_the_literatures(count: int) -> None:
    np.random.seed(11)
    before = np.random.get_state()[1].copy()
    splits = {split: rows.tolist() for split, rows in split_rows(count).items()}
    assert splits == literature_split(count)
    assert list(splits) == ["train", "dev", "test"]
    assert sorted(chain(*splits.values())) == list(range(count))
    assert np.array_equal(np.random.get_state()[1], before)
    if count == 46_985:
        assert [len(rows) for rows in splits.values()] == [30_070, 7_518, 9_397]


@pytest.fixture(scope="module")
def index(shared_data: Path) -> list[dict[str, str]]:
    """The 46,985 rows of the real file: split, codes and merged names, no text."""
    path = shared_data / "wos" / "wos46985_index.tsv.gz"
    if not path.is_file():
        pytest.skip("the index of WOS-46985 (../shared/data/wos) is not on this machine")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        names, *rows = (line.rstrip("\n").split("\t") for line in lines)
    return [dict(zip(names, row, strict=True)) for row in rows]


def real_rows(index: list[dict[str, str]]) -> list[TableRow]:
    return [
        TableRow(int(row["row"]) + 2, (int(row["Y1"]), int(row["Y2"])), row["domain"], row["area"], "") for row in index
    ]


def test_every_row_of_the_real_index(index: list[dict[str, str]]) -> None:
    rows = real_rows(index)
    found: list[tuple[str, str, str]] = [("", "", "")] * len(rows)
    areas = merge_names(rows)
    for split, places in split_rows(len(rows)).items():
        for place in places:
            found[place] = (split, rows[place].domain, areas[place])
    wanted = [(row["split"], row["domain"], row["area"]) for row in index]
    assert len(found) == 46_985
    assert found == wanted


def test_the_tree_of_the_real_file(index: list[dict[str, str]], shared_data: Path) -> None:
    # The index has Electrical generator merged everywhere. The literature keeps those before the first Analog row,
    # which by the order of its tree comes after the first Operational amplifier and before State space representation.
    rows = real_rows(index)
    areas = [row.area for row in rows]
    first = areas.index("Operational amplifier")
    assert first < areas.index("State space representation")
    rows = [
        row._replace(area="Electrical generator") if row.area == "Analog signal processing" and place < first else row
        for place, row in enumerate(rows)
    ]
    merged = merge_names(rows)
    tree, ids = label_tree((row.domain, area) for row, area in zip(rows, merged, strict=True))
    assert len(tree) == 141
    assert tree == Taxonomy.read(shared_data / "taxonomies" / "wos.taxonomy")
    assert all(names == pair for pair, names in ids.items())


def test_ids_where_names_repeat() -> None:
    tree, ids = label_tree([("A", "x"), ("B", "A"), ("A", "y"), ("B", "x"), ("A", "x")])
    assert tree.ids == ("A", "B", "A/x", "y", "B/A", "B/x")
    assert tree.names == ("A", "B", "x", "y", "A", "x")
    assert tree.parents.tolist() == [-1, -1, 0, 0, 1, 1]
    assert ids == {("A", "x"): ("A", "A/x"), ("A", "y"): ("A", "y"), ("B", "A"): ("B", "B/A"), ("B", "x"): ("B", "B/x")}


def test_git_blob_is_what_git_says(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"hello world\n" * 200_000)  # more than one piece
    try:
        said = subprocess.run(["git", "hash-object", "--no-filters", path], capture_output=True, text=True, check=True)
    except FileNotFoundError:
        pytest.skip("git is not on this machine")
    assert git_blob(path) == said.stdout.strip()
