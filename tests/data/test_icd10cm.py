from __future__ import annotations

import gzip
import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hgclr.data import DataFolder
from hgclr.data.icd10cm import build_icd10cm
from hgclr.errors import InputError
from hgclr.taxonomy import Taxonomy

pytestmark = pytest.mark.slow
icd: Any = None

DEEPEST = 7
"""Levels of the book: chapter, block, and codes of three to seven characters."""

LEVELS = (1, 2, 3, 4, DEEPEST)

PART = ("1", "2", "9", "10")
"""The chapters used to compare builds: the whole book takes seconds, half of it for injuries."""


def block_of(code: str) -> str:
    category = code.split(".")[0]
    return category if icd.is_block(category) else icd.get_parent(category)


def rows(folder: Path) -> dict[str, list[dict[str, Any]]]:
    splits = {}
    for name in ("train", "dev", "test"):
        with gzip.open(folder / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
            splits[name] = [json.loads(line) for line in lines]
    return splits


@pytest.fixture(scope="module", autouse=True)
def _the_book() -> None:
    """Imported only when these tests run, because the import takes seconds."""
    global icd
    icd = pytest.importorskip("simple_icd_10_cm")


@contextmanager
def only_the_part() -> Iterator[None]:
    """Reduce the package's flat list of codes to a few chapters."""
    listed, chapter = [], ""
    for code in icd.get_all_codes():
        chapter = code if icd.is_chapter(code) else chapter
        if chapter in PART:
            listed.append(code)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(icd, "get_all_codes", lambda: list(listed))
        yield


@pytest.fixture
def part_only() -> Iterator[None]:
    """A book of a few chapters, of which one goes down to the deepest level."""
    with only_the_part():
        yield


@pytest.fixture(scope="module")
def progress() -> list[tuple[int, int | None]]:
    """The progress reports while the whole book was read."""
    return []


@pytest.fixture(scope="module")
def summary(tmp_path_factory: pytest.TempPathFactory, progress: list[tuple[int, int | None]]) -> Any:
    """The data folder of the whole book, with the default levels."""
    return build_icd10cm(tmp_path_factory.mktemp("icd") / "2", progress=lambda *told: progress.append(told))


@pytest.fixture(scope="module")
def built(summary: Any) -> Path:
    return summary.output


@pytest.fixture(scope="module")
def splits(built: Path) -> dict[str, list[dict[str, Any]]]:
    return rows(built)


@pytest.fixture(scope="module")
def all_levels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole book with all its levels."""
    return build_icd10cm(tmp_path_factory.mktemp("icd") / "deepest", levels=DEEPEST).output


@pytest.fixture(scope="module")
def all_labels(all_levels: Path) -> Taxonomy:
    return DataFolder(all_levels).taxonomy


@pytest.fixture(scope="module")
def by_levels(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """The part of the book, with every number of levels."""
    folder = tmp_path_factory.mktemp("part")
    with only_the_part():
        return {levels: build_icd10cm(folder / str(levels), levels=levels).output for levels in LEVELS}


def codes_of_texts() -> list[str]:
    """Return the categories and subcategories that no 7th character extends, from the package's flat list."""
    return [
        code
        for code in dict.fromkeys(icd.get_all_codes())
        if icd.is_category_or_subcategory(code) and not icd.is_extended_subcategory(code)
    ]


@pytest.fixture(scope="module")
def codes() -> list[str]:
    return codes_of_texts()


@pytest.fixture(scope="module")
def places(codes: list[str]) -> dict[str, set[str]]:
    """The blocks of every text, straight from the package's flat list of codes."""
    places: dict[str, set[str]] = {}
    for code in codes:
        for text in (icd.get_description(code), *icd.get_inclusion_term(code)):
            places.setdefault(" ".join(text.split()).casefold(), set()).add(block_of(code))
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


def test_texts_and_their_blocks(
    built: Path, splits: dict[str, list[dict[str, Any]]], places: dict[str, set[str]]
) -> None:
    tree = DataFolder(built).taxonomy
    depths = dict(zip(tree.ids, tree.depths.tolist(), strict=True))
    found = {}
    for split in splits.values():
        for row in split:
            below = [label for label in row["labels"] if depths[label] == 2]
            found[row["text"].casefold()] = set(below)
    dropped = {text: blocks for text, blocks in places.items() if text not in found}
    assert {text: places[text] for text in found} == found
    assert 20 < len(dropped) < 100
    assert "any condition in i00 with pericarditis" in dropped
    for text, blocks in dropped.items():  # each cites a code of its own block
        cited = {code.upper() for code in re.findall(r"\b[a-z]\d\w\b", text)}
        owners = {code if icd.is_block(code) else icd.get_parent(code) for code in cited if icd.is_valid_item(code)}
        assert owners & blocks


def test_a_text_in_two_places_has_the_labels_of_both(splits: dict[str, list[dict[str, Any]]]) -> None:
    (row,) = [row for split in splits.values() for row in split if row["text"] == "Viral pericarditis"]
    assert set(row["labels"]) == {"A00-B99", "B25-B34", "I00-I99", "I30-I5A"}


def test_no_seventh_characters(splits: dict[str, list[dict[str, Any]]]) -> None:
    texts = {row["text"] for split in splits.values() for row in split}
    assert "Unspecified multiple injuries" in texts
    assert "Unspecified multiple injuries, initial encounter" not in texts


def test_splits(built: Path, splits: dict[str, list[dict[str, Any]]]) -> None:
    total = sum(map(len, splits.values()))
    assert 55_000 < total < 62_000
    assert len(splits["dev"]) / total == pytest.approx(0.1, abs=0.005)
    assert len(splits["test"]) / total == pytest.approx(0.1, abs=0.005)
    names = {name.casefold() for name in DataFolder(built).taxonomy.names}
    assert not [row for name in ("dev", "test") for row in splits[name] if row["text"].casefold() in names]


@pytest.mark.usefixtures("part_only")
def test_the_split_is_decided_by_the_seed_alone_and_noted(by_levels: dict[int, Path], tmp_path: Path) -> None:
    again = build_icd10cm(tmp_path / "again").output
    for path in by_levels[2].iterdir():
        assert (again / path.name).read_bytes() == path.read_bytes()
    summary = build_icd10cm(again, levels=1, seed=3)  # over an earlier build
    record = json.loads((again / "corpus.json").read_text())
    assert (record["corpus"], record["settings"], record["labels"]) == ("icd10cm", {"levels": 1, "seed": 3}, len(PART))
    counts = {name: len(split) for name, split in rows(again).items()}
    assert record["documents"] == summary.documents == counts
    assert (again / "test.jsonl.gz").read_bytes() != (by_levels[1] / "test.jsonl.gz").read_bytes()


def test_texts_that_cite_their_block_are_recorded(summary: Any, built: Path) -> None:
    lines = [json.loads(line) for line in (built / "left-out.jsonl").read_text().splitlines()]
    assert summary.left_out == {"the text contains a code of its block": len(lines)}
    pericarditis = {
        "where": "I01.0",
        "reason": "the text contains a code of its block",
        "detail": "Any condition in I00 with pericarditis",
    }
    assert pericarditis in lines
    for line in lines:
        cited = {code for code in re.findall(r"\b[A-Z]\d\w", line["detail"]) if icd.is_valid_item(code)}
        assert block_of(line["where"]) in map(block_of, cited)


def test_categories(all_labels: Taxonomy) -> None:
    tree = all_labels
    categories = {code for code in icd.get_all_codes() if icd.is_category(code)}
    single = {code for code in categories if icd.is_block(code)}
    below_blocks = {tree.ids[index] for index in tree.levels[2]}
    assert {code for code in below_blocks if icd.is_category(code)} == categories - single
    assert below_blocks - categories == {code for code in below_blocks if icd.get_parent(code) in single}
    assert {tree.ids[index] for index in tree.levels[1]} >= single
    assert tree.names[tree.resolve("J10")] == icd.get_description("J10")


@pytest.mark.parametrize("levels", LEVELS)
@pytest.mark.usefixtures("part_only")
def test_labels_are_the_codes_of_at_most_so_many_characters(by_levels: dict[int, Path], levels: int) -> None:
    labels_are_the_codes(DataFolder(by_levels[levels]).taxonomy, codes_of_texts(), levels)


def test_labels_of_the_whole_book_are_its_codes(all_labels: Taxonomy, codes: list[str]) -> None:
    labels_are_the_codes(all_labels, codes, DEEPEST)


def labels_are_the_codes(tree: Taxonomy, codes: list[str], levels: int) -> None:
    top = tree.levels[0]
    assert [tree.names[index] for index in top[:2]] == ["Certain infectious and parasitic diseases", "Neoplasms"]
    blocks = {block_of(code) for code in codes} if levels > 1 else set()
    short = {code for code in codes if 3 <= len(code.replace(".", "")) <= levels}
    assert set(tree.ids) == {tree.ids[index] for index in top} | blocks | short
    for code in short - blocks:
        index = tree.resolve(code)
        assert tree.names[index] == icd.get_description(code)
        assert tree.ids[tree.parents[index]] == icd.get_parent(code)


def test_subcategories_stand_below_a_block_that_is_a_category(by_levels: dict[int, Path]) -> None:
    assert icd.is_block("C7A")
    assert icd.is_category("C7A")
    tree = DataFolder(by_levels[4]).taxonomy
    index = tree.resolve("C7A.0")
    assert [tree.ids[node] for node in tree.path(index)] == ["C00-D49", "C7A", "C7A.0"]


def test_a_text_has_the_deepest_label_that_holds_it(by_levels: dict[int, Path]) -> None:
    for levels, labels in {
        1: ["A00-B99"],
        2: ["A00-B99", "A00-A09"],
        3: ["A00-B99", "A00-A09", "A00"],
        4: ["A00-B99", "A00-A09", "A00", "A00.0"],
        7: ["A00-B99", "A00-A09", "A00", "A00.0"],
    }.items():
        found = {row["text"]: row["labels"] for split in rows(by_levels[levels]).values() for row in split}
        assert found["Classical cholera"] == labels
        assert found["Cholera"] == labels[:3]


def test_all_levels_by_the_ancestors_of_every_code(
    all_levels: Path, all_labels: Taxonomy, splits: dict[str, list[dict[str, Any]]], codes: list[str]
) -> None:
    tree = all_labels
    assert tree.depth == DEEPEST
    chapters = dict(
        zip(filter(icd.is_chapter, icd.get_all_codes()), (tree.ids[i] for i in tree.levels[0]), strict=True)
    )
    expected: dict[str, set[str]] = {}
    for code in codes:
        labels = {chapters.get(label, label) for label in (code, *icd.get_ancestors(code))}
        for text in (icd.get_description(code), *icd.get_inclusion_term(code)):
            if block_of(code) not in {block_of(c) for c in re.findall(r"\b[A-Z]\d\w\b", text) if icd.is_valid_item(c)}:
                expected.setdefault(" ".join(text.split()).casefold(), set()).update(labels)
    deep = rows(all_levels)
    found = {row["text"].casefold(): set(row["labels"]) for split in deep.values() for row in split}
    assert found == expected
    assert len(found) == sum(map(len, deep.values()))  # no text twice
    assert set().union(*found.values()) == set(tree.ids)  # and no label without one
    texts, same = ({row["text"] for split in each.values() for row in split} for each in (deep, splits))
    assert texts == same
    descriptions = {icd.get_description(code).casefold() for code in codes}
    assert not [row for name in ("dev", "test") for row in deep[name] if row["text"].casefold() in descriptions]


@pytest.mark.usefixtures("part_only")
@pytest.mark.parametrize("levels", [-1, 0, DEEPEST + 1])
def test_levels_that_the_book_does_not_have(tmp_path: Path, levels: int) -> None:
    with pytest.raises(InputError, match=f"{levels} levels.*1 to 7"):
        build_icd10cm(tmp_path / "data", levels=levels)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("part_only")
def test_an_interrupted_build_leaves_the_earlier_one(by_levels: dict[int, Path], tmp_path: Path) -> None:
    def interrupt(done: int, total: int | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_icd10cm(tmp_path / "data", progress=interrupt)
    assert list(tmp_path.iterdir()) == []
    shutil.copytree(by_levels[2], tmp_path / "data")
    before = {path.name: path.read_bytes() for path in (tmp_path / "data").iterdir()}
    with pytest.raises(KeyboardInterrupt):
        build_icd10cm(tmp_path / "data", levels=1, progress=interrupt)
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    assert {path.name: path.read_bytes() for path in (tmp_path / "data").iterdir()} == before


def test_other_peoples_files_are_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(InputError, match=r"thesis\.tex"):
        build_icd10cm(tmp_path)
    with pytest.raises(InputError, match="this is a file"):
        build_icd10cm(tmp_path / "thesis.tex")
    assert (tmp_path / "thesis.tex").read_text() == "precious"
