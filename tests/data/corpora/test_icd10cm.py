from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest

from hgclr.data import DataFolder
from hgclr.data.checking import check
from hgclr.data.corpora.icd10cm import build_icd10cm
from hgclr.errors import InputError, MissingExtraError

icd = pytest.importorskip("simple_icd_10_cm")


def rows(folder: Path) -> dict[str, list[dict[str, object]]]:
    splits = {}
    for name in ("train", "dev", "test"):
        with gzip.open(folder / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
            splits[name] = [json.loads(line) for line in lines]
    return splits


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_icd10cm(tmp_path_factory.mktemp("icd") / "data")


@pytest.fixture(scope="module")
def with_categories(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_icd10cm(tmp_path_factory.mktemp("icd") / "data", categories=True)


@pytest.fixture(scope="module")
def places() -> dict[str, set[str]]:
    """The blocks of every text, straight from the package's flat list of codes."""
    places: dict[str, set[str]] = {}
    for code in dict.fromkeys(icd.get_all_codes()):
        if icd.is_category_or_subcategory(code) and not icd.is_extended_subcategory(code):
            category = code.split(".")[0]
            block = category if icd.is_block(category) else icd.get_parent(category)
            for text in (icd.get_description(code), *icd.get_inclusion_term(code)):
                places.setdefault(" ".join(text.split()).casefold(), set()).add(block)
    return places


def test_chapters_and_blocks(built: Path) -> None:
    data = DataFolder(built)
    tree = data.taxonomy
    assert tree.depth == 2
    assert len(tree.levels[0]) == 22
    blocks = {code for code in icd.get_all_codes() if icd.is_block(code)}
    headings = {code for code in blocks if not icd.get_children(code, prioritize_blocks=True)}
    assert {tree.ids[index] for index in tree.levels[1]} == blocks - headings
    assert "C00-C96" in headings
    flu = tree.resolve("J09-J18")
    assert tree.names[flu] == "Influenza and pneumonia"
    assert tree.path_name(flu) == "Diseases of the respiratory system > Influenza and pneumonia"
    assert tree.ids[tree.parents[flu]] == "J00-J99"
    assert not [name for name in tree.names if re.search(r"\([A-Z]\d\w", name)]


def test_the_report_is_clean(built: Path, with_categories: Path) -> None:
    for folder in (built, with_categories):
        report = check(DataFolder(folder))
        assert report.bad_rows == 0
        assert report.shared_texts == {}
        assert [split.repeated_texts for split in report.splits.values()] == [0, 0, 0]
        assert report.unused_labels == []


def test_texts_and_their_blocks(built: Path, places: dict[str, set[str]]) -> None:
    tree = DataFolder(built).taxonomy
    found = {}
    for split in rows(built).values():
        for row in split:
            below = [label for label in row["labels"] if tree.depths[tree.ids.index(label)] == 2]
            found[row["text"].casefold()] = set(below)
    dropped = {text: blocks for text, blocks in places.items() if text not in found}
    assert {text: places[text] for text in found} == found
    assert 20 < len(dropped) < 100
    assert "any condition in i00 with pericarditis" in dropped
    for text, blocks in dropped.items():  # each cites a code of its own block
        cited = {code.upper() for code in re.findall(r"\b[a-z]\d\w\b", text)}
        owners = {code if icd.is_block(code) else icd.get_parent(code) for code in cited if icd.is_valid_item(code)}
        assert owners & blocks


def test_a_text_in_two_places_has_the_labels_of_both(built: Path) -> None:
    (row,) = [row for split in rows(built).values() for row in split if row["text"] == "Viral pericarditis"]
    assert set(row["labels"]) == {"A00-B99", "B25-B34", "I00-I99", "I30-I5A"}


def test_no_seventh_characters(built: Path) -> None:
    texts = {row["text"] for split in rows(built).values() for row in split}
    assert "Unspecified multiple injuries" in texts
    assert "Unspecified multiple injuries, initial encounter" not in texts


def test_splits(built: Path) -> None:
    splits = rows(built)
    total = sum(map(len, splits.values()))
    assert 55_000 < total < 62_000
    assert len(splits["dev"]) / total == pytest.approx(0.1, abs=0.005)
    assert len(splits["test"]) / total == pytest.approx(0.1, abs=0.005)
    names = {name.casefold() for name in DataFolder(built).taxonomy.names}
    assert not [row for name in ("dev", "test") for row in splits[name] if row["text"].casefold() in names]


def test_the_split_is_decided_by_the_seed_alone(built: Path, tmp_path: Path) -> None:
    again = build_icd10cm(tmp_path / "again")
    for path in built.iterdir():
        assert (again / path.name).read_bytes() == path.read_bytes()
    other = build_icd10cm(again, seed=1)  # over an earlier build
    assert (other / "test.jsonl.gz").read_bytes() != (built / "test.jsonl.gz").read_bytes()


def test_categories(with_categories: Path) -> None:
    tree = DataFolder(with_categories).taxonomy
    assert tree.depth == 3
    categories = {code for code in icd.get_all_codes() if icd.is_category(code)}
    single = {code for code in categories if icd.is_block(code)}
    assert {tree.ids[index] for index in tree.levels[2]} == categories - single
    assert {tree.ids[index] for index in tree.levels[1]} >= single
    assert tree.names[tree.resolve("J10")] == icd.get_description("J10")


def test_progress_goes_over_the_chapters(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    build_icd10cm(tmp_path / "data", progress=lambda done, total: seen.append((done, total)))
    assert seen == [(done, 22) for done in range(1, 23)]


def test_other_peoples_files_are_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(InputError, match=r"other files, such as 'thesis\.tex', which would be lost; name a new"):
        build_icd10cm(tmp_path)
    with pytest.raises(InputError, match="this is a file"):
        build_icd10cm(tmp_path / "thesis.tex")
    assert (tmp_path / "thesis.tex").read_text() == "precious"


def test_missing_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'hgclr\[icd10cm\]'"):
        build_icd10cm(tmp_path / "data")
