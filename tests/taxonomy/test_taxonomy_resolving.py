"""Labels found by id, by name and by path."""

from __future__ import annotations

import pytest

from hgclr.errors import InputError
from hgclr.taxonomy import Taxonomy
from hgclr.taxonomy.structure import SUGGESTED

#  0 n (News)     1 n/s (Sports)    2 n/s/r (Reviews)
#  3 a (Arts)     4 a/m (Music)     5 a/m/r (Reviews)
TREE = Taxonomy(
    ["n", "n/s", "n/s/r", "a", "a/m", "a/m/r"],
    [-1, 0, 1, -1, 3, 4],
    ["News", "Sports", "Reviews", "Arts", "Music", "Reviews"],
)


@pytest.mark.parametrize("index", range(6))
def test_every_id_and_every_path_is_found(index: int) -> None:
    assert TREE.resolve(TREE.ids[index]) == index
    assert TREE.resolve(TREE.path_name(index)) == index
    assert TREE.resolve(TREE.path_name(index, "::"), separator="::") == index


def test_a_name_is_found_where_only_one_label_has_it() -> None:
    assert TREE.resolve("Music") == 4
    with pytest.raises(InputError) as caught:
        TREE.resolve("Reviews")
    assert str(caught.value) == (
        "the label 'Reviews' is ambiguous: 'n/s/r' (News > Sports > Reviews), 'a/m/r' (Arts > Music >"
        " Reviews); give the id or the whole path"
    )


def test_the_name_of_a_top_label_is_ambiguous_if_another_label_has_it() -> None:
    tree = Taxonomy(["1", "2", "3"], [-1, -1, 1], ["Health", "News", "Health"])
    with pytest.raises(InputError, match="'1' \\(Health\\), '3' \\(News > Health\\)"):
        tree.resolve("Health")
    assert tree.resolve("News > Health") == 2


def test_an_id_comes_before_a_name() -> None:
    assert Taxonomy(["x", "y"], [-1, 0], ["y", "z"]).resolve("y") == 1


def test_names_that_hold_the_separator() -> None:
    tree = Taxonomy(["1", "2", "3", "4"], [-1, 0, 1, 0], ["A", "B", "C", "B > D"])
    assert tree.resolve("A > B > D") == 3
    assert tree.resolve("A > B > C") == 2
    assert tree.resolve("B > D") == 3
    twins = Taxonomy(["1", "2", "3", "4"], [-1, 0, 1, 0], ["A", "B", "C", "B > C"])
    with pytest.raises(InputError, match=r"ambiguous: '3' .*, '4' "):
        twins.resolve("A > B > C")


@pytest.mark.parametrize(
    ("label", "remedy"),
    [
        ("Musik", "did you mean 'Music'?"),
        ("music", "did you mean 'Music'?"),
        ("Music ", "did you mean 'Music'?"),
        ("qqqqqqqq", "correct it, or add it to the label tree"),
        ("", "correct it, or add it to the label tree"),
        ("x" * 10_000, "correct it, or add it to the label tree"),
    ],
)
def test_an_unknown_label_comes_with_near_ones(label: str, remedy: str) -> None:
    for _ in range(2):
        with pytest.raises(InputError) as caught:
            TREE.resolve(label)
        assert caught.value.what == f"unknown label {label!r}"
        assert caught.value.remedy == remedy


def test_a_flood_of_unknown_labels_is_refused_without_near_ones() -> None:
    tree = Taxonomy(["Music"], [-1])
    remedies = []
    for number in range(SUGGESTED + 1):
        with pytest.raises(InputError) as caught:
            tree.resolve(f"Musik{number}")
        remedies.append(caught.value.remedy)
    assert remedies[SUGGESTED - 1] == "did you mean 'Music'?"
    assert remedies[SUGGESTED] == "correct it, or add it to the label tree"


def test_part_of_a_path_is_unknown() -> None:
    for label in ("Sports > Reviews", "News > Sports > ", "News > Music", " > News"):
        with pytest.raises(InputError, match="unknown label"):
            TREE.resolve(label)


def test_many_candidates_are_cut() -> None:
    tree = Taxonomy(
        [f"{kind}{number}" for kind in "pc" for number in range(9)],
        [*[-1] * 9, *range(9)],
        [*(f"P{number}" for number in range(9)), *["Same"] * 9],
    )
    with pytest.raises(InputError, match=r"'c4' \(P4 > Same\) and 4 more;"):
        tree.resolve("Same")


def test_an_empty_separator_is_refused() -> None:
    with pytest.raises(InputError, match="separator of paths is empty"):
        TREE.resolve("Music", separator="")
