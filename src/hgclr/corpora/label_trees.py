"""Turn the labels of a document, as a corpus spells them, into ids of a tree: a given one, or one drawn from paths."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from hgclr.data.rows import LabelReader, RowProblem
from hgclr.errors import InputError
from hgclr.taxonomy import Taxonomy

__all__ = ["LabelTree", "label_tree"]

logger = logging.getLogger(__name__)


class LabelTree(Protocol):
    """Knows the labels of a corpus, or learns them document by document."""

    def read(self, labels: Sequence[str]) -> list[str]:
        """Return the ids of a document's labels, every one with its ancestors.

        Raises:
            RowProblem: if a label cannot be used.
        """
        ...

    def taxonomy(self) -> Taxonomy:
        """Return the tree, when all documents have been read."""
        ...


def label_tree(taxonomy: Path | None, *, separator: str | None, add_ancestors: bool) -> LabelTree:
    """Return the tree that a file holds or, without a file, one to be drawn from the labels themselves.

    Args:
        taxonomy: the file of the label tree.
        separator: what stands between the names of a path; None if labels are plain names.
        add_ancestors: add the ancestors of every label; only for a tree from a file, as a path has its own.

    Raises:
        InputError: if the file is no tree, or ancestors are to be added without one.
    """
    if taxonomy is not None:
        return GivenTree(Taxonomy.read(taxonomy), separator=separator, add_ancestors=add_ancestors)
    if add_ancestors:
        raise InputError("--add-ancestors needs a label tree", remedy="name its file with --taxonomy")
    return DrawnTree(separator)


class GivenTree:
    """A tree that is known beforehand; labels are ids, names, or paths of names.

    Args:
        taxonomy: the tree.
        separator: what stands between the names of a path; None if labels are never paths.
        add_ancestors: add the ancestors of every label.
    """

    def __init__(self, taxonomy: Taxonomy, *, separator: str | None, add_ancestors: bool) -> None:
        self._taxonomy = taxonomy
        # Without a separator of its own, a label would have to hold a line end to be taken for a path.
        self._labels = LabelReader(
            taxonomy, separator="\n", path_separator=separator or "\n", add_ancestors=add_ancestors
        )

    def read(self, labels: Sequence[str]) -> list[str]:
        """Return the ids of a document's labels in the order of the tree; see `LabelTree.read`."""
        return [self._taxonomy.ids[index] for index in self._labels.read(list(labels))]

    def taxonomy(self) -> Taxonomy:
        """Return the tree."""
        return self._taxonomy


class DrawnTree:
    """A tree that grows with the paths seen: every beginning of a path is a label.

    A label's id is its path as written, its name the last part; labels stand in the order in which they are seen.

    Args:
        separator: what stands between the names of a path; None if labels are plain names.
    """

    def __init__(self, separator: str | None) -> None:
        self._separator = separator
        self._index: dict[str, int] = {}
        self._names: list[str] = []
        self._parents: list[int] = []

    def read(self, labels: Sequence[str]) -> list[str]:
        """Return the ids of a document's labels, each after those above it; see `LabelTree.read`."""
        return list(dict.fromkeys(identifier for label in labels for identifier in self._path(label)))

    def _path(self, label: str) -> list[str]:
        """Return the ids of a label and of all above it, top first, and add those that are new."""
        names = [label] if self._separator is None else label.split(self._separator)
        if not all(map(str.strip, names)):
            raise RowProblem(f"the label {label!r} has an empty part", "give every label on the path a name")
        try:
            label.encode()
        except UnicodeEncodeError:
            raise RowProblem(f"the label {label!r} is not Unicode: half of a surrogate pair") from None
        ids = [(self._separator or "").join(names[: depth + 1]) for depth in range(len(names))]
        parent = -1
        for identifier, name in zip(ids, names, strict=True):
            if identifier not in self._index:
                self._index[identifier] = len(self._names)
                self._names.append(name)
                self._parents.append(parent)
            parent = self._index[identifier]
        return ids

    def taxonomy(self) -> Taxonomy:
        """Return the tree of the paths seen; say so if it has one level only."""
        taxonomy = Taxonomy(list(self._index), self._parents, self._names)
        if taxonomy.depth == 1:
            between = (
                "no path separator was given" if self._separator is None else f"no label holds {self._separator!r}"
            )
            logger.warning(
                "the %d labels form no tree: there is no taxonomy file, and %s; --taxonomy names one",
                len(taxonomy),
                between,
            )
        return taxonomy
