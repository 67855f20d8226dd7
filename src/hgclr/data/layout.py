"""The text and label columns of a user's table and its separators, given or detected."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from hgclr.data.readers import RowProblem
from hgclr.errors import InputError
from hgclr.taxonomy.tree import NamePath

SURE_SIGNS = ("->", "=>", ">", "→", "»", "::")
"""Path separators that hardly occur within names."""
SIGNS = (*SURE_SIGNS, "/", "\\", "|")
"""All path separators; the others must be in half of the labels, and most names must occur on one level only."""
LABEL_NAMES = ("labels", "label")
OTHER_LABEL_NAMES = ("category", "categories", "class", "classes", "path", "paths", "tag", "tags", "topic", "topics")
NUMBERED = re.compile(r"(.*?)[\s_.-]*(\d+)")
LONGER = 1.5
"""Minimum ratio of mean lengths between the text column and the next candidate."""
SHARE = 0.9
"""Minimum share of a level's names that have only one parent."""
NO_LABELS = "no labels"
"""The problem of a row without a label."""
DIFFERENT = 0.8
"""Share of distinct values above which a column may be texts and is not a level of labels."""
AS_DIFFERENT = 0.95
"""Minimum ratio of distinct values between the text column and any other that reads like texts."""
WORDS = 1.5
"""Minimum mean words of a text column; ids and dates have fewer."""


class Whole(NamedTuple):
    """A label that is a member of a list, so it is not split further."""

    text: str


Raw = tuple[str | Whole | NamePath, ...]
"""The labels of a row before splitting: cells, members of lists, and paths given as separate names."""


@dataclass(frozen=True)
class Layout:
    """How a table is read.

    Args:
        text: the column with the text.
        labels: the columns with labels.
        levels: whether the label columns are the levels of one path, from the top down.
        id: the column with the row's id.
        label_separator: the string between several labels of a cell.
        path_separator: the string between the names of a path, without spaces around it.
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
        """Return the labels of a row before splitting; raise if a level is empty above a filled one."""
        if self.levels:
            names = [_cell(values.get(column)) for column in self.labels]
            while names and not names[-1]:
                names.pop()
            if not all(names):
                above = self.labels[names.index("")]
                raise RowProblem(f"the level {above!r} is empty above a filled one", "fill in all upper levels")
            raw: Raw = (tuple(names),) if names else ()
        else:
            raw = tuple(label for column in self.labels for label in _raw(values.get(column)))
        if not raw:
            raise RowProblem(NO_LABELS, "give the row at least one label")
        return raw


def _raw(value: object) -> Iterator[str | Whole | NamePath]:
    """Yield the content of a cell: a string, the strings of a list, or paths as lists of names."""
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
        raise RowProblem(f"wrong type: the label {value!r:.80} is not a string")
    if isinstance(value, float):
        return "" if value != value else str(int(value)) if value.is_integer() else str(value)
    return str(value).strip()


def split_labels(raw: Raw, separator: str | None) -> list[str | NamePath]:
    """Return the separate labels of a row, each as written or as the names on its path."""
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
    """Return the names on a path without spaces around them; leading and trailing signs are dropped.

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
        raise RowProblem(f"an empty name in the path {label!r}", f"write a name between any two {sign!r}")
    return tuple(names)


def find_separators(layout: Layout, cells: Collection[Raw]) -> Layout:
    """Return the layout with missing separators detected from all distinct label cells."""
    between = layout.label_separator
    strings = {part for raw in cells for part in raw if isinstance(part, str)}
    if between is None:
        between = next((sign for sign in (";", "\n") if _occurs_inside(strings, sign)), None)
    labels = {label for raw in cells for label in split_labels(raw, between) if isinstance(label, str)}
    sign = layout.path_separator
    sign = sign.strip() or sign if sign is not None else next((s for s in SIGNS if _is_path_sign(s, labels)), None)
    if between is None and sign is not None:
        # Many names contain a comma; it separates labels only if all of its sides are paths.
        commas = [label.split(",") for label in labels if "," in label]
        if sign != "|" and _occurs_inside(strings, "|"):
            between = "|"
        elif commas and all(sign in part for parts in commas for part in parts):
            between = ","
    elif between is None and _occurs_inside(strings, "|"):
        between = "|"
    return replace(layout, label_separator=between, path_separator=sign)


def _occurs_inside(strings: Iterable[str], sign: str) -> bool:
    """Return whether a sign occurs inside one of the strings, not only at its ends."""
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


class Column:
    """A column of the sampled rows, with statistics of its values."""

    def __init__(self, name: str, rows: Sequence[Mapping[str, object]]) -> None:
        self.name, self.plain = name, name.casefold()
        self.raw = [row.get(name) for row in rows]
        self.values = [str(value) for value in self.raw if value not in (None, "", [])]
        self.different = set(self.values)
        self.mean_length = fmean(len(value) if isinstance(value, str) else 0 for value in self.raw)

    @property
    def reads_like_texts(self) -> bool:
        several_words = bool(self.values) and fmean(len(value.split()) for value in self.values) >= WORDS
        return several_words and len(self.different) > DIFFERENT * len(self.values)

    def recurs(self, share: float) -> bool:
        """Return whether at most this share of the values is distinct, and not all are numbers."""
        numbers = (re.fullmatch(r"[-+\d.,e]+", value) for value in self.different)
        return bool(self.values) and len(self.different) <= share * len(self.values) and not all(numbers)

    @property
    def has_paths(self) -> bool:
        cells = {value for value in self.raw if isinstance(value, str)}
        cells |= {part for value in self.raw if isinstance(value, list) for part in value if isinstance(part, str)}
        return any(_is_path_sign(sign, cells) for sign in SURE_SIGNS)


def find_columns(layout: Layout, rows: Sequence[Mapping[str, object]], path: Path) -> Layout:
    """Return the layout with missing columns detected from the sampled rows."""
    columns = [Column(name, rows) for name in dict.fromkeys(name for row in rows for name in row)]
    names = [column.name for column in columns]
    if absent := [name for name in layout.columns if name and name not in names]:
        raise InputError(f"no column {absent[0]!r}", path=path, remedy=f"choose one of {', '.join(map(repr, names))}")
    if layout.id is None:
        named = next((column.name for column in columns if column.plain == "id"), None)
        layout = replace(layout, id=named if named not in (layout.text, *layout.labels) else None)
    free = [column for column in columns if column.name not in layout.columns]
    if not layout.text:
        layout = replace(layout, text=find_text_column(free, path, labelled=bool(layout.labels)))
    if not layout.labels:
        labels, levels = _label_columns([column for column in free if column.name != layout.text], path)
        layout = replace(layout, labels=labels, levels=levels)
    return replace(layout, unread=tuple(name for name in names if name not in layout.columns))


def find_text_column(columns: Sequence[Column], path: Path, *, labelled: bool) -> str:
    """Return the column called text or, of those that read like texts, the one with by far the longest values.

    Label names may be longer than short texts but repeat; if the values of all columns repeat, all are compared.
    """
    named = [column for column in columns if column.plain == "text"]
    if len(named) == 1:
        return named[0].name
    if not labelled:
        columns = [column for column in columns if column.plain not in LABEL_NAMES]
    likely = [column for column in columns if column.reads_like_texts]
    longest = sorted(likely or columns, key=lambda column: (-column.mean_length, column.name))
    if not longest or not longest[0].mean_length:
        raise InputError("no text column found", path=path, remedy="name it with --text")
    a_level = bool(likely) and len(longest[0].different) < AS_DIFFERENT * max(len(one.different) for one in longest)
    if len(longest) > 1 and (a_level or longest[0].mean_length < LONGER * longest[1].mean_length):
        shown = ", ".join(f"{one.name!r} ({one.mean_length:.0f} characters on average)" for one in longest[:3])
        raise InputError(f"several columns may be the text: {shown}", path=path, remedy="name it with --text")
    return longest[0].name


def _label_columns(columns: Sequence[Column], path: Path) -> tuple[tuple[str, ...], bool]:
    """Return the columns with labels, and whether they are the levels of one path."""
    for names in (LABEL_NAMES, OTHER_LABEL_NAMES):
        if levels := _levels([column for column in columns if column.plain.endswith(names)]):  # also subcategory
            return levels, True
        named = [column.name for column in columns if column.plain in names]
        if len(named) == 1:
            return (named[0],), False
    if numbered := _numbered(columns):
        return tuple(column.name for column in numbered), _are_levels(numbered)
    repeated = [column for column in columns if column.recurs(0.5)]  # each value twice on average
    with_paths = [column for column in repeated if column.has_paths]
    if len(with_paths) != 1 and (levels := _levels(columns)):
        return levels, True
    for candidates in (with_paths, repeated, columns):
        if len(candidates) == 1:
            return (candidates[0].name,), False
    shown = f": {', '.join(repr(column.name) for column in repeated or columns)}" if columns else ""
    what = f"{'several columns may be' if columns else 'no column is left for'} the labels{shown}"
    remedy = "name the column with --labels, or the levels of the tree with --levels A,B,C"
    raise InputError(what, path=path, remedy=remedy)


def _numbered(columns: Sequence[Column]) -> list[Column]:
    """Return columns such as ``level 1``, ``level 2``, in the order of their numbers."""
    series: defaultdict[str, dict[int, Column]] = defaultdict(dict)
    for column in columns:
        if match := NUMBERED.fullmatch(column.plain.strip()):
            series[match[1]][int(match[2])] = column
    found = [numbers for numbers in series.values() if len(numbers) > 1]
    if len(found) != 1 or max(found[0]) - min(found[0]) != len(found[0]) - 1:
        return []
    return [found[0][number] for number in sorted(found[0])]


def _levels(columns: Sequence[Column]) -> tuple[str, ...]:
    """Return the columns with repeated names, if in their order they are levels, each with more names than the last.

    A column such as the channel of a message is not a level: the same labels occur in several channels.
    """
    found = [column for column in columns if column.recurs(DIFFERENT)]
    grows = all(len(above.different) < len(below.different) for above, below in pairwise(found))
    return tuple(column.name for column in found) if len(found) > 1 and grows and _are_levels(found) else ()


def _are_levels(columns: Sequence[Column]) -> bool:
    """Return whether columns are levels of a tree: nearly every name has one parent."""
    parents: defaultdict[tuple[int, str], set[str]] = defaultdict(set)
    for row in zip(*(column.raw for column in columns), strict=True):
        names = [str(cell or "").strip() for cell in row]
        for level, (above, name) in enumerate(pairwise(names)):
            if name:
                if not above:
                    return False
                parents[level, name].add(above)
    return sum(len(above) == 1 for above in parents.values()) >= SHARE * len(parents)
