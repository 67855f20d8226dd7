"""Columns and separators of tables: detected if they are clear, an error if they are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from hgclr.data.layout import Layout, Whole, find_columns, find_separators
from hgclr.errors import InputError

HERE = Path("table.csv")
TEXTS = [f"this is the long text of letter {number}, and no other" for number in range(6)]


def columns_of(layout: Layout | None = None, **columns: list[object]) -> tuple[str, tuple[str, ...], bool, str | None]:
    rows = [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]
    found = find_columns(layout or Layout(), rows, HERE)
    return found.text, found.labels, found.levels, found.id


def test_columns_are_known_by_name_or_content() -> None:
    topics = ["A > B", "A > C", "A > B"] * 2
    assert columns_of(text=TEXTS, labels=topics) == ("text", ("labels",), False, None)
    assert columns_of(ID=list(range(6)), body=TEXTS, thing=topics) == ("body", ("thing",), False, "ID")
    assert columns_of(body=TEXTS, channel=["web", "mail"] * 3, thing=topics) == ("body", ("thing",), False, None)
    assert columns_of(body=TEXTS, channel=["web", "mail"] * 3, Topic=["x", "y"] * 3)[1] == ("Topic",)


def test_numbered_columns_are_levels_if_a_name_has_one_parent() -> None:
    levels = {"Level 2": ["B", "C", ""] * 2, "Level 1": ["A", "A", "D"] * 2}
    assert columns_of(body=TEXTS, **levels) == ("body", ("Level 1", "Level 2"), True, None)
    tags = {"tag1": ["x", "y", "x", "z", "z", "y"], "tag2": ["y", "x", "z", "x", "y", "z"]}
    assert columns_of(body=TEXTS, **tags) == ("body", ("tag1", "tag2"), False, None)


def table_of(titles: int) -> dict[str, list[object]]:
    """A table whose texts are shorter than the names of its labels, which are levels by their content alone."""
    numbers = range(titles)
    return {
        "title": [f"clerk {number}" for number in numbers],
        "area": [f"administrative occupations {number % 3}" for number in numbers],
        "group": [f"administrative and secretarial group {number % 9}" for number in numbers],
    }


def test_levels_and_short_texts_are_known_by_what_recurs() -> None:
    assert columns_of(**table_of(18)) == ("title", ("area", "group"), True, None)
    channel = {"channel": ["web", "mail"] * 9}
    for columns in (channel | table_of(18), table_of(18) | channel):  # the same labels occur in several channels
        with pytest.raises(InputError):
            columns_of(**columns)


def test_no_level_is_taken_for_the_text_where_rows_are_few() -> None:
    with pytest.raises(InputError):
        columns_of(**table_of(10))


def test_a_category_has_its_subcategory() -> None:
    levels = {"category": ["A", "A", "D"] * 2, "subcategory": ["B", "C", "E"] * 2}
    assert columns_of(body=TEXTS, **levels) == ("body", ("category", "subcategory"), True, None)
    crossed = {"category": ["A", "A", "D"] * 2, "subcategory": ["B", "C", "C", "E", "B", "B"]}
    assert columns_of(body=TEXTS, **crossed)[1] == ("category",)


def test_what_was_told_is_kept() -> None:
    told = Layout(text="a", labels=("b", "c"), levels=True, id="d")
    assert columns_of(told, a=["x"] * 6, b=["1"] * 6, c=["2"] * 6, d=["3"] * 6, text=TEXTS) == (
        "a",
        ("b", "c"),
        True,
        "d",
    )


@pytest.mark.parametrize(
    "columns",
    [
        {"title": TEXTS, "body": TEXTS, "labels": ["A"] * 6},
        {"body": TEXTS, "one": ["A", "B"] * 3, "two": ["C", "D"] * 3},
        {"body": TEXTS},
    ],
)
def test_doubt_is_an_error(columns: dict[str, list[object]]) -> None:
    with pytest.raises(InputError) as caught:
        columns_of(**columns)
    assert caught.value.path == HERE
    assert "--" in str(caught.value.remedy)


def test_a_column_that_is_not_there() -> None:
    with pytest.raises(InputError, match="txt"):
        columns_of(Layout(text="txt"), text=TEXTS, labels=["A"] * 6)


@pytest.mark.parametrize(
    ("cells", "between", "sign"),
    [
        (["A > B", "A>C"], None, ">"),
        (["A > B; C > D", "E"], ";", ">"),
        (["A > B|C > D", "E"], "|", ">"),
        (["A > B, C > D", "E"], ",", ">"),
        (["A > B, big", "C"], None, ">"),  # a comma within a name
        (["A|B", "A|C", "D|E"], None, "|"),  # every name is on one level
        (["Drama|Crime", "Crime|Drama", "Drama"], "|", None),  # and here it is not
        (["Audio/Video", "Books", "Games"], None, None),  # a name with a slash
        (["Goods/Audio", "Goods/Books", "Food/Tea"], None, "/"),
        (["plain", "names"], None, None),
    ],
)
def test_separators(cells: list[str], between: str | None, sign: str | None) -> None:
    found = find_separators(Layout(), [(cell,) for cell in cells])
    assert (found.label_separator, found.path_separator) == (between, sign)


def test_members_of_lists_hold_one_label_each() -> None:
    found = find_separators(Layout(), [(Whole("fever; unspecified"), Whole("cough"))])
    assert (found.label_separator, found.path_separator) == (None, None)


def test_separators_that_were_told() -> None:
    found = find_separators(Layout(label_separator=",", path_separator=" . "), [("A . B, C",)])
    assert (found.label_separator, found.path_separator) == (",", ".")


def test_a_row_of_json_lines_may_omit_its_lower_levels() -> None:
    layout = Layout("text", ("area", "topic"), levels=True)
    assert layout.raw_labels({"text": "an atom", "area": "science"}) == (("science",),)
