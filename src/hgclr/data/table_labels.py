"""The labels of a table of one's own: the tree drawn from their paths, or their places in a tree that is given."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import NamedTuple

from hgclr.data.layout import Layout, Raw, split_labels, split_names
from hgclr.data.rows import RowProblem
from hgclr.errors import InputError
from hgclr.taxonomy import Taxonomy
from hgclr.taxonomy.paths import NamePath, Twins, check_names, draw_tree, label_key, merge_twins, near_twins

__all__ = ["TableLabels", "draw_labels", "find_labels"]

SEPARATORS = (" > ", " / ", " | ", " :: ")
"""What may stand between the names in a label's id: the first that no name holds."""
Indices = tuple[int, ...]


class TableLabels(NamedTuple):
    """A table's labels in a tree.

    Args:
        taxonomy: the tree.
        separator: stands between the names in its ids.
        of_cell: for each cell the sorted indices of its labels and of those above them, or what is wrong with it.
        twins: labels that differ only in case or spaces.
    """

    taxonomy: Taxonomy
    separator: str
    of_cell: list[Indices | RowProblem]
    twins: list[Twins]


def draw_labels(cells: Collection[Raw], uses: Mapping[int, int], layout: Layout, *, merge: bool) -> TableLabels:
    """Draw the tree from the paths.

    Args:
        cells: all different labels of rows.
        uses: how many rows have the labels of each cell, by its number.
        layout: the separators.
        merge: make one label of those that differ only in case or spaces.

    Raises:
        InputError: if there is no usable path.
    """
    paths_of_cell: list[list[NamePath] | RowProblem] = []
    for raw in cells:
        try:
            labels = split_labels(raw, layout.label_separator)
            paths_of_cell.append([_names(label, layout) for label in labels])
        except RowProblem as problem:
            paths_of_cell.append(problem)
    counts: Counter[NamePath] = Counter()
    for cell, paths in enumerate(paths_of_cell):
        if not isinstance(paths, RowProblem):
            counts.update(dict.fromkeys(paths, uses.get(cell, 0)))
    if not counts:
        first = next((each for each in paths_of_cell if isinstance(each, RowProblem)), None)
        what = "no row has labels that can be used"
        raise InputError(what if first is None else f"{what}; the first: {first.reason}")
    spelled = merge_twins(counts) if merge else {path: path for path in counts}
    names = {name for path in counts for name in path}
    separator = next((each for each in SEPARATORS if not any(each in name for name in names)), SEPARATORS[0])
    for path in spelled.values():
        check_names(path, separator)
    tree = draw_tree(spelled.values(), separator)
    index = {label: place for place, label in enumerate(tree.ids)}
    closed = {path: tree.path(index[separator.join(name)]).tolist() for path, name in spelled.items()}
    of_cell: list[Indices | RowProblem] = [
        paths if isinstance(paths, RowProblem) else tuple(sorted({label for path in paths for label in closed[path]}))
        for paths in paths_of_cell
    ]
    return TableLabels(tree, separator, of_cell, near_twins(counts))


def find_labels(
    cells: Collection[Raw], uses: Mapping[int, int], layout: Layout, tree: Taxonomy, *, merge: bool
) -> TableLabels:
    """Find the labels in a tree, by id, name or path; with ``merge``, whatever their case and spaces.

    The other arguments are those of `draw_labels`.
    """
    similar: dict[str, list[int]] = {}
    for place, name in enumerate(tree.names):
        for key in {label_key(*tree.path_names(place)), label_key(name)}:
            similar.setdefault(key, []).append(place)
    twins: dict[int, Counter[NamePath]] = {}
    of_cell: list[Indices | RowProblem] = []
    for cell, raw in enumerate(cells):
        found: set[int] = set()
        try:
            for label in split_labels(raw, layout.label_separator):
                names = _names(label, layout)
                try:
                    index = _resolve(tree, label, names)
                except InputError as error:
                    near = similar.get(label_key(*names), [])
                    if len(near) == 1:
                        twins.setdefault(near[0], Counter())[names] += uses.get(cell, 0)
                    if len(near) != 1 or not merge:
                        raise RowProblem(error.what, error.remedy) from None
                    index = near[0]
                found.update(tree.path(index).tolist())
        except RowProblem as problem:
            of_cell.append(problem)
        else:
            of_cell.append(tuple(sorted(found)))
    pairs = [Twins(((tree.path_names(label), None), *known.most_common())) for label, known in twins.items()]
    return TableLabels(tree, SEPARATORS[0], of_cell, pairs)


def _names(label: str | NamePath, layout: Layout) -> NamePath:
    return split_names(label, layout.path_separator) if isinstance(label, str) else label


def _resolve(tree: Taxonomy, label: str | NamePath, names: NamePath) -> int:
    """Return the label that is meant by what is written, or by the names in it as a path."""
    path = SEPARATORS[0].join(names)
    for spelling in (label, path) if isinstance(label, str) else (path,):
        if len(found := tree.candidates(spelling)) == 1:
            return found[0]
    return tree.resolve(label if isinstance(label, str) else path)
