"""The label tree: which labels there are, in which order, and how they hang together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hgclr.errors import InputError
from hgclr.files import atomic_file
from hgclr.files import read_json as read_json_file
from hgclr.taxonomy.entries import Source
from hgclr.taxonomy.formats import FileFormat, link_flat, read_labels, write_json, write_literature, write_table
from hgclr.taxonomy.structure import (
    Children,
    LabelIndex,
    LowestCommonAncestor,
    check_labels,
    checked_descriptions,
    checked_parents,
    find_cycle,
    levels_from_top,
    read_only,
)

__all__ = ["Taxonomy", "read_model_tree"]


class Taxonomy:
    """A tree (or forest) of K labels in a fixed order; the position of a label is its index in every model.

    A virtual root stands above the top labels. It is no label; where an index is needed it is -1, at depth 0.

    Two trees are equal if ids, names and parents are, in the same order, **whatever the descriptions**: these are text
    about the labels, which a model's own tree does not carry.

    Args:
        ids: K unique ids.
        parents: index of each label's parent, -1 for a top label; any order, a parent may follow its child.
        names: K names for people and for the name embedding, the ids if left out. Names may repeat in the
            tree, but not among the children of one label.
        descriptions: what belongs to each label, in a sentence or a paragraph; None or blank for a label without one.
            White space is made single.

    Raises:
        InputError: if an id or name is empty or repeated where it must not be, a description is no text, a parent
            is out of range, labels form a cycle, or there are no labels.

    Example:
        >>> tree = Taxonomy(["science", "physics", "optics", "law"], [-1, 0, 1, -1])
        >>> tree.path_name(2)
        'science > physics > optics'
        >>> int(tree.distance(2, 3))
        4
    """

    def __init__(
        self,
        ids: Sequence[str],
        parents: Sequence[int] | NDArray[np.int64],
        names: Sequence[str] | None = None,
        descriptions: Sequence[str | None] | None = None,
    ) -> None:
        self._ids = tuple(ids)
        self._names = self._ids if names is None else tuple(names)
        self._parents = checked_parents(parents, len(self._ids))
        check_labels(self._ids, self._names, self._parents)
        self._descriptions = checked_descriptions(descriptions, self._ids)
        self._indexes: dict[str, LabelIndex] = {}
        self._children = Children(self._parents)
        self._levels = tuple(levels_from_top(self._children))
        depths = np.zeros(len(self._ids), dtype=np.int64)
        for depth, level in enumerate(self._levels, start=1):
            depths[level] = depth
        self._depths = read_only(depths)
        self._leaves = read_only(np.flatnonzero(self._children.counts() == 0))
        if cycle := find_cycle(self._parents, self._levels):
            raise InputError(
                f"labels form a cycle: {' < '.join(repr(self._ids[node]) for node in [*cycle, cycle[0]])}",
                remedy="give one of them a parent outside the cycle",
            )

    @property
    def ids(self) -> tuple[str, ...]:
        """The label ids, by index."""
        return self._ids

    @property
    def names(self) -> tuple[str, ...]:
        """The label names, by index."""
        return self._names

    @property
    def descriptions(self) -> tuple[str, ...]:
        """The label descriptions, by index; "" for a label without one."""
        return self._descriptions

    @property
    def parents(self) -> NDArray[np.int64]:
        """The index of each label's parent, -1 for a top label; shape (K,), read-only."""
        return self._parents

    @property
    def depths(self) -> NDArray[np.int64]:
        """The depth of each label, 1 for a top label; shape (K,), read-only."""
        return self._depths

    @property
    def depth(self) -> int:
        """The depth of the deepest label."""
        return len(self._levels)

    @property
    def levels(self) -> tuple[NDArray[np.int64], ...]:
        """The indices at each depth, in index order; ``levels[0]`` are the top labels."""
        return self._levels

    @property
    def leaves(self) -> NDArray[np.int64]:
        """The indices of the labels without children, read-only."""
        return self._leaves

    @cached_property
    def walk(self) -> NDArray[np.int64]:
        """The indices in the order of a depth-first walk: each label followed by all labels below it; read-only."""
        place = np.empty(len(self) + 1, dtype=np.int64)
        place[-1] = -1
        for level in self._levels:
            family = level[np.argsort(self._parents[level], kind="stable")]
            parents, sizes = self._parents[family], self.branch_sizes[family]
            before = np.cumsum(sizes) - sizes  # in the branches of all labels further left in the level
            first = np.searchsorted(parents, parents)  # where each label's siblings begin
            place[family] = place[parents] + 1 + before - before[first]
        walk = np.empty(len(self), dtype=np.int64)
        walk[place[:-1]] = np.arange(len(self))
        return read_only(walk)

    @cached_property
    def branch_sizes(self) -> NDArray[np.int64]:
        """The number of labels in the branch of each label, itself included; shape (K,), read-only."""
        return read_only(self.branch_sums(np.ones(len(self), dtype=np.int64)))

    def __len__(self) -> int:
        return len(self._ids)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Taxonomy):
            return NotImplemented
        return self._ids == other._ids and self._names == other._names and np.array_equal(self._parents, other._parents)

    def __hash__(self) -> int:
        return hash((self._ids, self._names))

    def __repr__(self) -> str:
        return f"Taxonomy({len(self)} labels, depth {self.depth})"

    def __reduce__(
        self,
    ) -> tuple[type[Taxonomy], tuple[Sequence[str], NDArray[np.int64], Sequence[str], Sequence[str]]]:
        # Built anew, because numpy forgets on copying and pickling that an array is read-only.
        return Taxonomy, (self._ids, self._parents, self._names, self._descriptions)

    def children(self, index: int) -> NDArray[np.int64]:
        """Return the children of a label in index order; -1 gives the top labels."""
        return self._children.of(int(self._checked(index)))

    def ancestors(self, index: int) -> NDArray[np.int64]:
        """Return the ancestors of a label, nearest first, without the label itself."""
        return np.array(self._climb(index)[1:], dtype=np.int64)

    def path(self, index: int) -> NDArray[np.int64]:
        """Return the labels from the top down to and including this one."""
        return np.array(self._climb(index)[::-1], dtype=np.int64)

    def path_names(self, index: int) -> tuple[str, ...]:
        """Return the names from the top down to and including this label's."""
        return tuple(self._names[node] for node in reversed(self._climb(index)))

    def path_name(self, index: int, separator: str = " > ") -> str:
        """Return the names on the path to a label, joined by ``separator``."""
        return separator.join(self.path_names(index))

    def branch_sums(self, values: NDArray[np.generic]) -> NDArray[np.int64]:
        """Return for each label the sum of the values, (K,), of itself and all labels below it, (K,)."""
        sums = np.append(values, 0).astype(np.int64)  # the last entry, at -1, is the virtual root
        for level in reversed(self._levels):
            np.add.at(sums, self._parents[level], sums[level])
        return sums[:-1]

    def path_ends(self, labels: Iterable[int]) -> list[int]:
        """Return the labels at which a document's paths end, in their order."""
        labels = list(labels)
        above = {self._parent_list[label] for label in labels}
        return [label for label in labels if label not in above]

    def ends_inside(self, labels: Iterable[int]) -> bool:
        """Tell whether a path of a document ends at a label that has children."""
        return any(end not in self._leaf_set for end in self.path_ends(labels))

    def path_end_matrix(self, matrix: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return a copy of a label matrix, (N, K), that keeps only the labels without a child in the same row."""
        ends = matrix.copy()
        rows, labels = np.nonzero(matrix)
        parents = self._parents[labels]
        ends[rows[parents >= 0], parents[parents >= 0]] = False
        return ends

    def lca(self, first: ArrayLike, second: ArrayLike) -> NDArray[np.int64]:
        """Return the lowest common ancestors, -1 where only the virtual root is shared.

        Args:
            first: indices of any shape; -1 is the virtual root.
            second: indices of a shape that broadcasts with ``first``.
        """
        return self._lowest(*np.broadcast_arrays(self._checked(first), self._checked(second)))

    def distance(self, first: ArrayLike, second: ArrayLike) -> NDArray[np.int64]:
        """Return the number of edges between labels, through the virtual root if need be.

            distance(i, j) = depth(i) + depth(j) - 2 depth(lca(i, j))

        Args:
            first: indices of any shape; -1 is the virtual root.
            second: indices of a shape that broadcasts with ``first``.
        """
        one, other = np.broadcast_arrays(self._checked(first), self._checked(second))
        depth = self._lowest.depth
        return depth(one) + depth(other) - 2 * depth(self._lowest(one, other))

    def closure(self, indices: ArrayLike) -> NDArray[np.int64]:
        """Return the given labels and all their ancestors, sorted."""
        closed: set[int] = set()
        for node in self._checked(indices).ravel().tolist():
            while node != -1 and node not in closed:
                closed.add(node)
                node = self._parent_list[node]
        return np.array(sorted(closed), dtype=np.int64)

    def close(self, matrix: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return a copy of a label matrix, (N, K), one row per document, in which every label brings its ancestors."""
        if matrix.dtype != np.bool_ or matrix.ndim != 2 or matrix.shape[1] != len(self):
            raise ValueError(f"expected bool (N, {len(self)}), got {matrix.dtype} {matrix.shape}")
        closed = matrix.copy()
        for level in self._levels[:0:-1]:
            by_parent = level[np.argsort(self._parents[level], kind="stable")]
            parents, starts = np.unique(self._parents[by_parent], return_index=True)
            closed[:, parents] |= np.logical_or.reduceat(closed[:, by_parent], starts, axis=1)
        return closed

    def resolve(self, label: str, separator: str = " > ") -> int:
        """Return the index of a label given by id, by name, or by its path of names.

        An id comes first. Otherwise exactly one label must have this name or this path.

        Args:
            label: an id, a name that one label alone has, or names from the top down joined by ``separator``.
            separator: what stands between the names of a path.

        Raises:
            InputError: if there is no such label (with the nearest ones) or several (with ids and paths).
        """
        if (index := self._by_id.get(label)) is not None:
            return index
        return self._index(separator).resolve(label)

    def candidates(self, label: str, separator: str = " > ") -> list[int]:
        """Return the labels among which :meth:`resolve` would have to choose: one if it can, none if it is unknown."""
        if (index := self._by_id.get(label)) is not None:
            return [index]
        return self._index(separator).candidates(label)

    @classmethod
    def read(cls, path: str | Path, *, format: FileFormat = "auto", separator: str = " > ") -> Taxonomy:  # noqa: A002
        """Read a label tree from a UTF-8 file.

        Args:
            path: the file; its name does not matter.
            format: ``literature`` (lines ``parent<TAB>child...``), ``table`` (CSV or TSV with the columns
                ``child`` and ``parent``, perhaps ``name`` and ``description``), ``json``, ``paths`` (lines
                ``A > B > C``), or ``auto``, which looks at the content.
            separator: stands between the names of a path.

        Raises:
            InputError: with file, line and remedy, if the file is no tree.
        """
        labels = read_labels(path, format, separator)
        try:
            return cls(*labels)
        except InputError as error:  # what no reader looks for, such as half a surrogate pair
            raise InputError(error.what, path=path, remedy=error.remedy) from None

    def write(self, path: str | Path) -> None:
        """Write the tree, whole or not at all: JSON to ``.json``, a table to ``.csv``, else the tab format.

        JSON and the table keep everything. The literature's tab format keeps ids and structure; descriptions and
        names of their own are not part of it, and read back the labels are in breadth-first order.

        Raises:
            InputError: if the file cannot be written, or a label cannot stand in this format.
        """
        suffix = Path(path).suffix.lower()
        if suffix == ".json":
            text = write_json(self._flat())
        elif suffix == ".csv":
            text = write_table(self._flat())
        else:
            text = write_literature(self._ids, self._families())
        try:
            with atomic_file(path) as temporary:
                temporary.write_text(text, encoding="utf-8", newline="\n")
        except OSError as error:
            raise InputError(f"the label tree cannot be written: {error.strerror}", path=path) from error

    @classmethod
    def from_json(cls, tree: Mapping[str, object]) -> Taxonomy:
        """Build a taxonomy from what :meth:`to_json` returned.

        Raises:
            InputError: if it is not of that form.
        """
        labels = tree.get("labels")
        if not isinstance(labels, list) or not all(isinstance(label, Mapping) for label in labels):
            raise InputError("not a label tree", remedy='give {"labels": [{"id": ..., "name": ..., "parent": ...}]}')
        return cls(*link_flat(labels, Source("")))

    def to_json(self) -> dict[str, object]:
        """Return ``{"labels": [{"id", "name", "parent"}, ...]}`` in index order; no parent is None.

        A label with a description has a fourth member, ``description``.
        """
        return {"labels": self._flat()}

    def _families(self) -> list[tuple[int, list[int]]]:
        """Return every node that has children, with them: the virtual root, then breadth first."""
        families = []
        order = [-1]
        for node in order:  # which grows
            if below := self._children.of(node).tolist():
                families.append((node, below))
                order += below
        return families

    def _flat(self) -> list[dict[str, str | None]]:
        parents = [None if parent < 0 else self._ids[parent] for parent in self._parent_list]
        return [
            {"id": identifier, "name": name, "parent": parent} | ({"description": text} if text else {})
            for identifier, name, parent, text in zip(self._ids, self._names, parents, self._descriptions, strict=True)
        ]

    @cached_property
    def _parent_list(self) -> list[int]:
        """The parents as Python numbers: climbing one label's path is faster on these."""
        parents: list[int] = self._parents.tolist()
        return parents

    @cached_property
    def _leaf_set(self) -> frozenset[int]:
        return frozenset(self._leaves.tolist())

    @cached_property
    def _lowest(self) -> LowestCommonAncestor:
        return LowestCommonAncestor(self._parents, self._depths)

    @cached_property
    def _by_id(self) -> dict[str, int]:
        return {identifier: index for index, identifier in enumerate(self._ids)}

    def _index(self, separator: str) -> LabelIndex:
        if separator not in self._indexes:
            self._indexes[separator] = LabelIndex(self._ids, self._names, self._parent_list, separator, self.path_name)
        return self._indexes[separator]

    def _climb(self, index: int) -> list[int]:
        """Return a label and its ancestors, nearest first."""
        node = int(self._checked(index))
        nodes = []
        while node != -1:
            nodes.append(node)
            node = self._parent_list[node]
        return nodes

    def _checked(self, indices: ArrayLike) -> NDArray[np.int64]:
        """Return indices as an array; refuse what is neither a label nor the virtual root."""
        array = np.asarray(indices)
        if array.size == 0:
            return array.astype(np.int64)
        if array.dtype.kind not in "iu":
            raise TypeError(f"label indices must be integers, got {array.dtype}")
        if array.min() < -1 or array.max() >= len(self):
            raise IndexError(f"label index out of range for {len(self)} labels")
        return array.astype(np.int64, copy=False)


REMEDY = "give a folder that hgclr train or hgclr export wrote"


def read_model_tree(folder: str | Path) -> Taxonomy:
    """Read the label tree in the ``config.json`` of a model's folder."""
    path = Path(folder) / "config.json"
    config = read_json_file(path, remedy=REMEDY)
    try:
        config |= config.get("hgclr", {})  # where a stock folder keeps what transformers does not know
        labels = {int(index): str(identifier) for index, identifier in config["id2label"].items()}
        ids = [labels[index] for index in range(len(labels))]
        return Taxonomy(ids, config["label_parents"], config["label_names"], config.get("label_descriptions"))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError("the model's configuration holds no label tree", path=path, remedy=REMEDY) from error
    except InputError as error:
        raise InputError(error.what, path=path, remedy=REMEDY) from None
