"""Where a table of one's own has its texts and labels: the columns and separators, told or found."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from hgclr.data.rows import RowProblem
from hgclr.errors import InputError
from hgclr.taxonomy.tree import NamePath

__all__ = ["Layout", "Raw", "find_columns", "find_separators", "split_labels", "split_names"]

SURE_SIGNS = ("->", "=>", ">", "→", "»", "::")
"""Signs that set the names of a path apart and hardly occur within names."""
SIGNS = (*SURE_SIGNS, "/", "\\", "|")
"""All signs that are looked for; the others must be in half of the labels, and each name must be on one level."""
LABEL_NAMES = ("labels", "label")
OTHER_LABEL_NAMES = ("category", "categories", "class", "classes", "path", "paths", "tag", "tags", "topic", "topics")
NUMBERED = re.compile(r"(.*?)[\s_.-]*(\d+)")
LONGER = 1.5
"""How many times as long as that of the next column the values of the text column must be to be known by that."""
SHARE = 0.9
"""Of the names of a level, the share that must have one parent only."""
DIFFERENT = 0.8
"""The share of different values above which a column does not hold the labels of a level, and may hold texts."""
AS_DIFFERENT = 0.95
"""How many different values the text column must have beside any other that reads like texts, to be known."""
WORDS = 1.5
"""Words that texts have on average, and ids and dates have not."""


class Whole(NamedTuple):
    """A label out of a list, which holds no further labels."""

    text: str


Raw = tuple[str | Whole | NamePath, ...]
"""The labels of a row before they are taken apart: cells, members of lists, and paths whose names stood apart."""


@dataclass(frozen=True)
class Layout:
    """How a table is read.

    Args:
        text: the column with the text.
        labels: the columns with labels.
        levels: the columns of labels are the levels of one path, from the top down.
        id: the column with the row's own id.
        label_separator: what stands between several labels of a cell.
        path_separator: what stands between the names of a path, without the spaces around it.
        unread: the other columns.
    """

    text: str = ""
    labels: tuple[str, ...] = ()
    levels: bool = False
    id: str | None = None
    label_separator: str | None = None
    path_separator: str | None = None
    unread: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns that are read."""
        return (self.text, *self.labels, *([] if self.id is None else [self.id]))

    def raw_labels(self, values: Mapping[str, object]) -> Raw:
        """Return the labels of a row, not yet taken apart; a level must not be empty above one that is not."""
        if self.levels:
            names = [_cell(values[column]) for column in self.labels]
            while names and not names[-1]:
                names.pop()
            if not all(names):
                above = self.labels[names.index("")]
                raise RowProblem(f"the level {above!r} is empty, and one below it is not", "fill in all levels above")
            raw: Raw = (tuple(names),) if names else ()
        else:
            raw = tuple(label for column in self.labels for label in _raw(values[column]))
        if not raw:
            raise RowProblem("no labels", "give the row at least one label")
        return raw


def _raw(value: object) -> Iterator[str | Whole | NamePath]:
    """Yield what a cell holds: a string, the strings of a list, or paths as lists of names."""
    if not isinstance(value, list | tuple):
        if text := _cell(value):
            yield text
        return
    for part in value:
        if isinstance(part, list | tuple):
            if names := tuple(filter(None, map(_cell, part))):
                yield names
        elif text := _cell(part):
            yield Whole(text)


def _cell(value: object) -> str:
    """Return a cell as text; codes may be stored as numbers."""
    if value is None:
        return ""
    if isinstance(value, bool | dict | list | tuple):
        raise RowProblem(f"wrong type: the label {value!r:.80} is no text")
    if isinstance(value, float):
        return "" if value != value else str(int(value)) if value.is_integer() else str(value)
    return str(value).strip()


def split_labels(raw: Raw, separator: str | None) -> list[str | NamePath]:
    """Return the labels of a row one by one, each as it is written or as the names on its path."""
    labels: list[str | NamePath] = []
    for part in raw:
        if isinstance(part, Whole):
            labels.append(part.text)
        elif isinstance(part, str) and separator is not None:
            labels += [label for label in map(str.strip, part.split(separator)) if label]
        else:
            labels.append(part)
    return labels


def split_names(label: str, sign: str | None) -> NamePath:
    """Return the names on a path, without the spaces around them; a sign before the first or after the last is dropped.

    Example:
        >>> split_names("science>physics", ">") == split_names("science > physics", ">") == ("science", "physics")
        True
    """
    if sign is None:
        return (label,)
    names = [name.strip() for name in label.split(sign)]
    while names and not names[-1]:
        names.pop()
    while names and not names[0]:
        names.pop(0)
    if not names or not all(names):
        raise RowProblem(f"an empty name in the path {label!r}", f"names are set apart by {sign!r}")
    return tuple(names)


def find_separators(layout: Layout, cells: Collection[Raw]) -> Layout:
    """Return the layout with what stands between labels and between names, as far as it was not told.

    The cells are all different labels of rows.
    """
    between = layout.label_separator
    strings = {part for raw in cells for part in raw if isinstance(part, str)}
    if between is None:
        between = next((sign for sign in (";", "\n") if _holds(strings, sign)), None)
    labels = {label for raw in cells for label in split_labels(raw, between) if isinstance(label, str)}
    sign = layout.path_separator
    sign = sign.strip() or sign if sign is not None else next((s for s in SIGNS if _is_path_sign(s, labels)), None)
    if between is None and sign is not None:
        # A comma is part of many names; between paths it is one if there is a path on both sides of it.
        commas = [label.split(",") for label in labels if "," in label]
        if sign != "|" and _holds(strings, "|"):
            between = "|"
        elif commas and all(sign in part for parts in commas for part in parts):
            between = ","
    elif between is None and _holds(strings, "|"):
        between = "|"
    return replace(layout, label_separator=between, path_separator=sign)


def _holds(strings: Iterable[str], sign: str) -> bool:
    """Tell whether a sign stands between others in one of the strings."""
    return any(sign in string.strip().strip(sign) for string in strings)


def _is_path_sign(sign: str, labels: Collection[str]) -> bool:
    paths = []
    for label in labels:
        if sign in label:
            try:
                names = split_names(label, sign)
            except RowProblem:
                continue
            if len(names) > 1:
                paths.append(names)
    if sign in SURE_SIGNS or not paths:
        return bool(paths)
    levels: defaultdict[str, set[int]] = defaultdict(set)
    for names in paths:
        for level, name in enumerate(names):
            levels[name].add(level)
    once = sum(len(places) == 1 for places in levels.values())
    return 2 * len(paths) >= len(labels) and once >= SHARE * len(levels)


def find_columns(layout: Layout, rows: Sequence[Mapping[str, object]], path: Path) -> Layout:
    """Return the layout with the columns that were not told, found by some rows."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    if absent := [column for column in layout.columns if column and column not in columns]:
        known = ", ".join(map(repr, columns))
        raise InputError(f"no column {absent[0]!r}", path=path, remedy=f"the columns are {known}")
    if layout.id is None:
        named = next((column for column in columns if column.casefold() == "id"), None)
        layout = replace(layout, id=named if named not in (layout.text, *layout.labels) else None)
    free = [column for column in columns if column not in layout.columns]
    if not layout.text:
        layout = replace(layout, text=_text_column(free, rows, path, labelled=bool(layout.labels)))
    if not layout.labels:
        others = [column for column in free if column != layout.text]
        labels, levels = _label_columns(others, rows, path)
        layout = replace(layout, labels=labels, levels=levels)
    return replace(layout, unread=tuple(column for column in columns if column not in layout.columns))


def _text_column(columns: Sequence[str], rows: Sequence[Mapping[str, object]], path: Path, *, labelled: bool) -> str:
    """Return the column called text, or the one with by far the longest values, of those that read like texts.

    Names of labels may be longer than short texts, but they recur; if all columns do, all are compared.
    """
    named = [column for column in columns if column.casefold() == "text"]
    if len(named) == 1:
        return named[0]
    if not labelled:
        columns = [column for column in columns if column.casefold() not in LABEL_NAMES]
    likely = [column for column in columns if _reads_like_texts(column, rows)]
    lengths = sorted(((_mean_length(column, rows), column) for column in likely or columns), reverse=True)
    if not lengths or not lengths[0][0]:
        raise InputError("no column with texts", path=path, remedy="name it with --text")
    different = [len(set(_values(column, rows))) for _, column in lengths]
    a_level = bool(likely) and different[0] < AS_DIFFERENT * max(different)
    if len(lengths) > 1 and (a_level or lengths[0][0] < LONGER * lengths[1][0]):
        shown = ", ".join(f"{column!r} ({length:.0f} characters on average)" for length, column in lengths[:3])
        raise InputError(f"several columns may hold the text: {shown}", path=path, remedy="name it with --text")
    return lengths[0][1]


def _mean_length(column: str, rows: Sequence[Mapping[str, object]]) -> float:
    return fmean(len(value) if isinstance(value := row.get(column), str) else 0 for row in rows)


def _reads_like_texts(column: str, rows: Sequence[Mapping[str, object]]) -> bool:
    values = _values(column, rows)
    several_words = bool(values) and fmean(len(value.split()) for value in values) >= WORDS
    return several_words and len(set(values)) > DIFFERENT * len(values)


def _values(column: str, rows: Sequence[Mapping[str, object]]) -> list[str]:
    return [str(value) for row in rows if (value := row.get(column)) not in (None, "", [])]


def _label_columns(
    columns: Sequence[str], rows: Sequence[Mapping[str, object]], path: Path
) -> tuple[tuple[str, ...], bool]:
    """Return the columns with labels, and whether they are the levels of one path."""
    for names in (LABEL_NAMES, OTHER_LABEL_NAMES):
        alike = [column for column in columns if column.casefold().endswith(names)]  # category and subcategory
        if levels := _levels(alike, rows):
            return levels, True
        named = [column for column in columns if column.casefold() in names]
        if len(named) == 1:
            return (named[0],), False
    if numbered := _numbered(columns):
        return numbered, _are_levels(numbered, rows)
    repeated = [column for column in columns if _recurs(column, rows, 0.5)]  # twice on average
    with_paths = [column for column in repeated if _has_paths(column, rows)]
    if len(with_paths) != 1 and (levels := _levels(columns, rows)):
        return levels, True
    for candidates in (with_paths, repeated, columns):
        if len(candidates) == 1:
            return (candidates[0],), False
    shown = f": {', '.join(map(repr, repeated or columns))}" if columns else ""
    raise InputError(
        f"{'several columns may hold' if columns else 'no column is left for'} the labels{shown}",
        path=path,
        remedy="name the column with --labels, or the levels of the tree with --levels A,B,C",
    )


def _numbered(columns: Sequence[str]) -> tuple[str, ...]:
    """Return columns such as ``level 1``, ``level 2``, in the order of their numbers."""
    series: defaultdict[str, dict[int, str]] = defaultdict(dict)
    for column in columns:
        if match := NUMBERED.fullmatch(column.strip()):
            series[match[1].casefold()][int(match[2])] = column
    found = [numbers for numbers in series.values() if len(numbers) > 1]
    if len(found) != 1 or sorted(found[0]) != list(range(min(found[0]), max(found[0]) + 1)):
        return ()
    return tuple(found[0][number] for number in sorted(found[0]))


def _levels(columns: Sequence[str], rows: Sequence[Mapping[str, object]]) -> tuple[str, ...]:
    """Return the columns with names that recur, if in their order they are levels, each with more names than the last.

    A column such as the channel a message came by is none: what is below it is below others as well.
    """
    found = tuple(column for column in columns if _recurs(column, rows, DIFFERENT))
    sizes = [len(set(_values(column, rows))) for column in found]
    grows = all(above < below for above, below in pairwise(sizes))
    return found if len(found) > 1 and grows and _are_levels(found, rows) else ()


def _are_levels(columns: Sequence[str], rows: Sequence[Mapping[str, object]]) -> bool:
    """Tell levels of a tree, where a name has one parent, from several labels side by side."""
    parents: defaultdict[tuple[int, object], set[object]] = defaultdict(set)
    for row in rows:
        names = [str(row.get(column) or "").strip() for column in columns]
        for level in range(1, len(names)):
            if names[level]:
                if not names[level - 1]:
                    return False
                parents[level, names[level]].add(names[level - 1])
    return sum(len(above) == 1 for above in parents.values()) >= SHARE * len(parents)


def _recurs(column: str, rows: Sequence[Mapping[str, object]], share: float) -> bool:
    """Tell whether at most this share of a column's values are different, and not all of them numbers."""
    values = _values(column, rows)
    different = set(values)
    return bool(values) and len(different) <= share * len(values) and not all(_is_number(value) for value in different)


def _is_number(value: str) -> bool:
    try:
        float(value.replace(",", "."))
    except ValueError:
        return False
    return True


def _has_paths(column: str, rows: Sequence[Mapping[str, object]]) -> bool:
    values = [row.get(column) for row in rows]
    cells = {value for value in values if isinstance(value, str)}
    cells |= {part for value in values if isinstance(value, list) for part in value if isinstance(part, str)}
    return any(_is_path_sign(sign, cells) for sign in SURE_SIGNS)
