# ruff: noqa: NPY002 - the literature shuffles with numpy's old generator, and the tests do as it does
"""Web of Science: the literature's texts, labels and splits; tables and JSON lines; bad input."""

from __future__ import annotations

import gzip
import json
import logging
import math
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hgclr.errors import InputError
from hgclr.paper.corpora.wos import (
    GIT_BLOBS,
    TableRow,
    build_wos,
    clean_text,
    git_blob,
    label_tree,
    merge_names,
    split_rows,
)
from hgclr.taxonomy import Taxonomy

openpyxl = pytest.importorskip("openpyxl")
pytest.importorskip("sklearn")

HEADER = ["Y1", "Y2", "Y", "Domain", "area", "keywords", "Abstract"]

ROWS: list[list[object]] = [
    [1, 9, 25, "ECE ", "Electrical generator", "rotor; coil", "\"It's a generator, isn't it?\""],
    [1, 9, 25, "ECE", " Analog signal processing", "filter", "Filters &lt; 5 dB & <b>more</b>"],
    [1, 9, 25, "ECE", "Electrical generator ", "", "  Two   spaces\u00a0\u2003here "],
    [1, 9, 25, "ECE", "Analog signal processing", "", 'A "quoted" word'],
    [5, 7, 79, " Medical", "Atrial Fibrillation", "", "We've heard; they're fast, he'd run, we'll see"],
    [5, 7, 79, "Medical", "Atrial Fibrillation", "", "Heart 2"],
    [5, 7, 79, "Medical", "Depression", "", "Mood 1"],
    [2, 13, 42, "Psychology", "Depression", "", "Mood 2"],
    [2, 13, 42, "Psychology", "Depression", "", "Mood 3"],
    [2, 13, 42, "Psychology", "Depression", "", "Größe: µm"],
]

TEXTS = [
    "it 's a generator, is n't it?",
    "filters &lt; 5 db & <b>more</b>",
    "two spaces here",
    'a "quoted" word',
    "we 've heard; they 're fast, he 'd run, we 'll see",
    "heart 2",
    "mood 1",
    "mood 2",
    "mood 3",
    "größe: µm",
]

LITERATURE = [
    ["ECE", "Electrical generator"],  # tied with Analog signal processing, so nothing is merged
    ["ECE", "Analog signal processing"],
    ["ECE", "Electrical generator"],
    ["ECE", "Analog signal processing"],
    ["Medical", "Atrial Fibrillation"],
    ["Medical", "Atrial Fibrillation"],
    ["Medical", "Atrial Fibrillation"],
    ["Psychology", "Depression"],
    ["Psychology", "Depression"],
    ["Psychology", "Depression"],
]


def write_xlsx(path: Path, rows: Sequence[Sequence[object]], header: Sequence[object] = HEADER) -> Path:
    workbook = openpyxl.Workbook()
    for row in (header, *rows):
        workbook.active.append(row)
    path.parent.mkdir(parents=True, exist_ok=True)
    workbook.save(path)
    return path


def write_json(path: Path, rows: Sequence[tuple[str, Sequence[str]]]) -> Path:
    with path.open("w", encoding="utf-8") as file:
        for text, labels in rows:
            row = {"doc_token": text, "doc_label": labels, "doc_topic": [], "doc_keyword": []}
            file.write(json.dumps(row) + "\n")
    return path


def expected(texts: Sequence[str], labels: Sequence[Sequence[str]]) -> dict[str, list[dict[str, object]]]:
    return {
        split: [{"text": texts[row], "labels": list(labels[row])} for row in rows if texts[row]]
        for split, rows in split_rows(len(texts)).items()
    }


def documents(folder: Path) -> dict[str, list[dict[str, object]]]:
    splits = {}
    for name in ("train", "dev", "test"):
        with gzip.open(folder / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
            splits[name] = [json.loads(line) for line in lines]
    return splits


def test_sources_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "Data.xls").touch()
    write_parts(tmp_path / "json")
    (tmp_path / "json" / "wos_val.json").unlink()
    (tmp_path / "cut.xlsx").write_bytes(write_xlsx(tmp_path / "Data.xlsx", ROWS).read_bytes()[:2000])
    for source in ("absent", "empty", "Data.xls", "json", "json/wos_train.json", "cut.xlsx"):
        with pytest.raises(InputError) as error:
            build_wos(tmp_path / source, tmp_path / "out")
        assert error.value.path == tmp_path / source
        assert not (tmp_path / "out").exists()


def test_a_row_without_an_abstract_keeps_its_place_in_the_split(tmp_path: Path) -> None:
    lacking = split_rows(10)["dev"][0]
    rows = [[*row[:6], ' "" ' if place == lacking else row[6]] for place, row in enumerate(ROWS)]
    texts = ["" if place == lacking else text for place, text in enumerate(TEXTS)]
    summary = build_wos(write_xlsx(tmp_path / "Data.xlsx", rows), tmp_path / "out")
    assert documents(tmp_path / "out") == expected(texts, LITERATURE)
    assert summary.documents == {"train": 6, "dev": 1, "test": 2}
    left_out = [json.loads(line) for line in (tmp_path / "out" / "left-out.jsonl").read_text().splitlines()]
    assert left_out == [{"where": f"Data.xlsx:{lacking + 2}", "reason": "no abstract"}]


def write_parts(folder: Path) -> dict[str, list[dict[str, object]]]:
    """The three files of the literature, split otherwise than it would."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = {"train": slice(0, 5), "val": slice(5, 8), "test": slice(8, 10)}
    for name, part in parts.items():
        write_json(folder / f"wos_{name}.json", list(zip(TEXTS[part], LITERATURE[part], strict=True)))
    return {
        {"val": "dev"}.get(name, name): [
            {"text": text, "labels": labels} for text, labels in zip(TEXTS[part], LITERATURE[part], strict=True)
        ]
        for name, part in parts.items()
    }


def test_json_lines_with_a_split_of_their_own(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    wanted = write_parts(tmp_path / "json")
    with caplog.at_level(logging.WARNING):
        build_wos(tmp_path / "json", tmp_path / "out")
    assert documents(tmp_path / "out") == wanted
    for name, blob in GIT_BLOBS.items():
        found = git_blob(tmp_path / "json" / name)
        (message,) = [record.getMessage() for record in caplog.records if name in record.getMessage()]
        assert found in message
        assert blob in message
    record = json.loads((tmp_path / "out" / "corpus.json").read_text())
    assert record["settings"]["source"] == ["wos_train.json", "wos_val.json", "wos_test.json"]


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        '{"doc_token": "x"}',
        '{"doc_token": ["x"], "doc_label": ["CS", "x"]}',
        '{"doc_token": "x", "doc_label": ["CS"]}',
        '{"doc_token": "x\\ud800", "doc_label": ["CS", "x"]}',
    ],
)
def test_broken_json_lines(line: str, tmp_path: Path) -> None:
    source = write_json(tmp_path / "wos_total.json", [("x", ["CS", "x"])] * 3)
    with source.open("a") as file:
        file.write(line + "\n")
    with pytest.raises(InputError) as error:
        build_wos(source, tmp_path / "out")
    assert (error.value.path, error.value.line) == (source, 4)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "row",
    [
        [0, 1, 1, "CS", "x", "k", "text", "more"],
        ["A", 1, 1, "CS", "x", "k", "text"],
        [0, 1.5, 1, "CS", "x", "k", "text"],
        [0, 1, 1, " ", "x", "k", "text"],
        [0, 1, 1, "CS", "", "k", "text"],
    ],
)
def test_bad_rows_of_a_table(row: list[object], tmp_path: Path) -> None:
    source = write_xlsx(tmp_path / "Data.xlsx", [*ROWS, row])
    with pytest.raises(InputError) as error:
        build_wos(source, tmp_path / "out")
    assert (error.value.path, error.value.line) == (source, 12)
    assert not (tmp_path / "out").exists()


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
