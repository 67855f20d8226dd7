"""Read the cells of a row: its text, and its labels as indices."""

from __future__ import annotations

from hgclr.errors import InputError
from hgclr.taxonomy import Taxonomy

__all__ = ["LabelReader", "RowProblem", "read_text"]


class RowProblem(Exception):  # noqa: N818 - never leaves this package: it becomes a BadRow or an InputError
    """What is wrong with one row.

    Args:
        reason: what is wrong, naming the offending value.
        remedy: what the user can do about it.
    """

    def __init__(self, reason: str, remedy: str | None = None) -> None:
        super().__init__(reason)
        self.reason, self.remedy = reason, remedy


def read_text(cell: object) -> str:
    """Return the text in a cell.

    Raises:
        RowProblem: if there is none.
    """
    if cell is None:
        raise RowProblem("empty text")
    if not isinstance(cell, str):
        raise RowProblem(f"wrong type: the text is {cell!r}, not a string")
    if not cell.strip():
        raise RowProblem("empty text")
    try:
        cell.encode()
    except UnicodeEncodeError as error:
        # JSON can spell half of a surrogate pair, which no UTF-8 file and no tokenizer can hold.
        raise RowProblem(f"not UTF-8: the text has a lone surrogate at character {error.start + 1}") from None
    return cell


class LabelReader:
    """Read label cells: lists of labels, or one string with labels between separators.

    Each label is a node id, an unambiguous name, or a path of names; a path of two or more names stands for
    its node and all the node's ancestors.

    Args:
        taxonomy: the label tree.
        separator: what stands between the labels of a string.
        path_separator: what stands between the names of a path.
        add_ancestors: add the ancestors of every label, for data that names only the deepest ones.
    """

    def __init__(self, taxonomy: Taxonomy, *, separator: str, path_separator: str, add_ancestors: bool) -> None:
        self._taxonomy = taxonomy
        self._separator, self._path_separator = separator, path_separator
        self._add_ancestors = add_ancestors
        self._parents: list[int] = taxonomy.parents.tolist()
        self._known: dict[str, tuple[int, ...]] = {}

    def read(self, cell: object) -> tuple[int, ...]:
        """Return the sorted indices of the labels in a cell.

        Raises:
            RowProblem: if there is no label, one is not a string, unknown or ambiguous, or one's parent is
                absent.
        """
        found: set[int] = set()
        for label in self._labels(cell):
            indices = self._known.get(label)
            if indices is None:
                indices = self._known[label] = self._resolve(label)
            found.update(indices)
        labels = tuple(sorted(found))
        for index in labels:
            parent = self._parents[index]
            if parent != -1 and parent not in found:
                names = self._taxonomy.names
                raise RowProblem(
                    f"label without its parent: {names[index]!r} is given, {names[parent]!r} is not",
                    "add the parent to the row, or pass --add-ancestors if rows name only the deepest labels",
                )
        return labels

    def _labels(self, cell: object) -> list[str]:
        """Return the labels in a cell as they are written."""
        if isinstance(cell, str):
            cell = [part for part in map(str.strip, cell.split(self._separator)) if part]
        if cell is None or cell == []:
            raise RowProblem("no labels", "give the row at least one label")
        if not isinstance(cell, list):
            raise RowProblem(f"wrong type: the labels are {cell!r}, neither a list nor a string")
        for label in cell:
            if not isinstance(label, str):
                raise RowProblem(f"wrong type: the label {label!r} is not a string", "write ids and names as strings")
        return cell

    def _resolve(self, label: str) -> tuple[int, ...]:
        """Return the indices that one written label stands for."""
        try:
            index = self._taxonomy.resolve(label, self._path_separator)
        except InputError as error:
            raise RowProblem(error.what, error.remedy) from None
        if self._add_ancestors or self._is_path(label, index):
            return tuple(self._taxonomy.closure([index]).tolist())
        return (index,)

    def _is_path(self, label: str, index: int) -> bool:
        """Tell whether ``label`` spells out the path to a node, of at least two names."""
        return self._parents[index] != -1 and label == self._taxonomy.path_name(index, self._path_separator)
