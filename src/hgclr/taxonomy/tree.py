"""The label tree: its labels, their order and their parents."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, partial
from itertools import chain, count
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hgclr.errors import InputError
from hgclr.files import atomic_file
from hgclr.files import read_json as read_json_file
from hgclr.taxonomy.concepts import Choices, ImportSummary
from hgclr.taxonomy.entries import Source, check_labels, close_matches
from hgclr.taxonomy.formats import (
    Descriptions,
    FileFormat,
    link_flat,
    read_descriptions,
    read_labels,
    write_json,
    write_literature,
    write_table,
)
from hgclr.taxonomy.order import Children, LevelOrder, LowestCommonAncestor, find_ranks, read_only
from hgclr.taxonomy.vocabularies import write_skos

logger = logging.getLogger(__name__)
NamePath = tuple[str, ...]
"""The names from a top label down to a label."""
MODEL_REMEDY = "give a folder that hgclr train or hgclr export wrote"
MAIN = "or drop the further parents: hgclr taxonomy convert --main-parents"
"""The end of a remedy, where a tree is needed."""
MOST_PATHS = 100
"""Maximum number of paths shown for a label: a graph may have exponentially many."""
SHOWN = 5
"""Maximum number of candidates in an error message."""
SUGGESTED = 200
"""Maximum number of unknown labels with suggestions: the search is slow, and a file may be full of bad rows."""


class Taxonomy:
    """A tree (or forest) of K labels in a fixed order; the position of a label is its index in every model.

    A virtual root is above the top labels. It is not a label; its index is -1 and its depth 0.

    A label may have several parents. The first is its main parent; depth, levels, distances, branches and
    :meth:`path` follow main parents. Children, closure and ``order`` follow all parents.

    Two trees are equal if ids, names and parents are equal and in the same order; other fields are not compared.

    Args:
        ids: K unique ids.
        parents: index of each label's main parent, -1 for a top label; any order, a parent may follow its child.
        names: K names for people and for the name embedding, the ids if left out. Names may repeat in the
            tree, but not among the children of one label.
        descriptions: a sentence or a paragraph on what belongs to each label; None or blank for a label without one.
            Each run of white space becomes one space.
        alternatives: other names of each label; they may repeat in the tree.
        codes: the notation of each label, "" for none; codes may repeat.
        more_parents: indices of each label's parents beside the main one; none for a top label.

    Raises:
        InputError: if an id is empty or repeated, a name is empty or repeated among siblings, a description,
            alternative name or code is not a string, a parent is out of range or given twice, labels form a cycle, or
            there are no labels.

    Example:
        >>> taxonomy = Taxonomy(["science", "physics", "optics", "law"], [-1, 0, 1, -1])
        >>> taxonomy.path_name(2)
        'science > physics > optics'
        >>> int(taxonomy.distance(2, 3))
        4
    """

    def __init__(
        self,
        ids: Sequence[str],
        parents: Sequence[int] | NDArray[np.int64],
        names: Sequence[str] | None = None,
        descriptions: Sequence[str | None] | None = None,
        *,
        alternatives: Sequence[Sequence[str]] | None = None,
        codes: Sequence[str] | None = None,
        more_parents: Sequence[Sequence[int]] | None = None,
    ) -> None:
        self._ids = tuple(ids)
        size = len(self._ids)
        self._names = self._ids if names is None else tuple(names)
        texts = [None] * size if descriptions is None else list(descriptions)
        self._alternatives = ((),) * size if alternatives is None else tuple(map(tuple, alternatives))
        self._codes = ("",) * size if codes is None else tuple(codes)
        self._more_parents = ((),) * size if more_parents is None else tuple(map(tuple, more_parents))
        for kind, given in {
            "names": self._names,
            "descriptions": texts,
            "alternatives": self._alternatives,
            "codes": self._codes,
            "more_parents": self._more_parents,
        }.items():
            if len(given) != size:
                raise InputError(f"{size} ids but {len(given)} {kind}", remedy="give one for each id")
        for identifier, text in zip(self._ids, texts, strict=True):
            if text is not None and not isinstance(text, str):
                raise InputError(f"the description of {identifier!r} is not a string", remedy="give a string, or None")
        self._descriptions = tuple("" if text is None else " ".join(text.split()) for text in texts)
        others = [*chain.from_iterable(alternatives or ()), *(codes or ())]
        if not all(isinstance(text, str) for text in others):
            raise InputError("an alternative name or a code is not a string", remedy="give strings")
        further = chain.from_iterable(self._more_parents)
        if not all(isinstance(each, int | np.integer) and 0 <= each < size for each in further):
            raise InputError("a further parent is out of range", remedy=f"use indices from 0 to {size - 1}")
        array = np.array(parents, dtype=None if size else np.int64)
        if array.shape != (size,) or array.dtype.kind not in "iu":
            raise InputError(f"{size} labels need {size} integers as parents, got {array.dtype} {array.shape}")
        outside = np.flatnonzero((array < -1) | (array >= size))
        if outside.size:
            remedy = f"use -1 for a top label or an index from 0 to {size - 1}"
            what = f"the parent of label {outside[0]}, {array[outside[0]]}, is out of range"
            raise InputError(what, remedy=remedy)
        self._parents = read_only(array.astype(np.int64, copy=False))
        more = self._more_parents if any(self._more_parents) else ()
        self._depths = read_only(check_labels(self._ids, self._names, self._parents, Source(""), None, more))
        for strings in (self._ids, self._names, self._descriptions, others):
            try:
                "".join(strings).encode()
            except UnicodeEncodeError:  # an unpaired surrogate, which JSON can escape
                bad = next(text for text in strings if any("\ud800" <= character <= "\udfff" for character in text))
                raise InputError(f"{bad!a} is not valid Unicode text", remedy="correct its \\u escapes") from None
        by_depth = np.argsort(self._depths, kind="stable").astype(np.int64, copy=False)
        self._levels = tuple(map(read_only, np.split(by_depth, np.cumsum(np.bincount(self._depths)[1:-1]))))
        inner = np.zeros(len(self._ids) + 1, dtype=np.bool_)  # the last entry, at -1, is the virtual root
        inner[self._parents] = inner[self._further[1]] = True
        self._leaves = read_only(np.flatnonzero(~inner[:-1]))
        self._indexes: dict[str, _LabelIndex] = {}

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
    def alternatives(self) -> tuple[tuple[str, ...], ...]:
        """The alternative names of each label, by index."""
        return self._alternatives

    @property
    def codes(self) -> tuple[str, ...]:
        """The label codes, by index; "" for a label without one."""
        return self._codes

    @property
    def parents(self) -> NDArray[np.int64]:
        """The index of each label's main parent, -1 for a top label; shape (K,), read-only."""
        return self._parents

    @property
    def more_parents(self) -> tuple[tuple[int, ...], ...]:
        """The indices of each label's parents beside the main one, by index."""
        return self._more_parents

    @cached_property
    def is_tree(self) -> bool:
        """Whether no label has several parents."""
        return not any(self._more_parents)

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
    def main_order(self) -> LevelOrder:
        """The labels level by level, each below its main parent only."""
        return LevelOrder(self._parents, self._levels)

    @cached_property
    def order(self) -> LevelOrder:
        """The labels level by level, each below all its parents, for operations on whole label matrices."""
        if self.is_tree:
            return self.main_order
        return LevelOrder(self._parents, self.generations, self._further)

    @cached_property
    def generations(self) -> tuple[NDArray[np.int64], ...]:
        """The indices by the length of a label's longest path: all parents come first; in a tree, the levels."""
        if self.is_tree:
            return self._levels
        ranks = find_ranks(self._parents, self._more_parents)
        return tuple(read_only(np.flatnonzero(ranks == rank)) for rank in range(1, int(ranks.max()) + 1))

    @cached_property
    def walk(self) -> NDArray[np.int64]:
        """The indices in a depth-first walk of the main parents: each label before its branch; read-only."""
        return read_only(self.main_order.labels[np.argsort(self.main_order.steps)])

    @cached_property
    def branch_sizes(self) -> NDArray[np.int64]:
        """The labels in the branch of each label by main parents, itself included; shape (K,), read-only."""
        return read_only(self.main_order.sizes[self.main_order.places].astype(np.int64))

    @cached_property
    def edges(self) -> NDArray[np.int64]:
        """Labels and their parents, (2, E), sorted by label, the main parent first, -1 above the top; read-only."""
        main = np.stack([np.arange(len(self)), self._parents])
        both = main if self.is_tree else np.concatenate([main, self._further], axis=1)
        return read_only(both if self.is_tree else both[:, np.argsort(both[0], kind="stable")])

    def __len__(self) -> int:
        return len(self._ids)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Taxonomy):
            return NotImplemented
        mine, its = ((each._ids, each._names, each._more_parents) for each in (self, other))
        return mine == its and np.array_equal(self._parents, other._parents)

    def __hash__(self) -> int:
        return hash((self._ids, self._names))

    def __repr__(self) -> str:
        return f"Taxonomy({len(self)} labels, depth {self.depth})"

    def __reduce__(self) -> tuple[partial[Taxonomy], tuple[()]]:
        # Built again because a copied or pickled numpy array is no longer read-only.
        return partial(Taxonomy, **self.arguments()), ()

    def arguments(self) -> dict[str, Any]:
        """Return the arguments that make an equal tree, for copies with other names, descriptions, ..."""
        kinds = "ids", "parents", "names", "descriptions", "alternatives", "codes", "more_parents"
        return {kind: getattr(self, kind) for kind in kinds}

    def children(self, index: int) -> NDArray[np.int64]:
        """Return the children of a label, by any parent, in index order; -1 gives the top labels."""
        return self._children.of(int(self._checked(index)))

    def require_tree(self, what: str, remedy: str) -> None:
        """Raise InputError if a label has several parents."""
        several = [index for index, others in enumerate(self._more_parents) if others]
        if several:
            counted = f"{len(several):,} labels have" if len(several) > 1 else "a label has"
            raise InputError(
                f"{what} needs a tree, but {counted} several parents: {self._ids[several[0]]!r}", remedy=remedy
            )

    def parents_of(self, index: int) -> tuple[int, ...]:
        """Return all parents of a label, the main one first; none for a top label."""
        parent = self._parent_list[index]
        return () if parent < 0 else (parent, *self._more_parents[index])

    def ancestors(self, index: int) -> NDArray[np.int64]:
        """Return the ancestors of a label along its main path, nearest first, without the label itself."""
        return np.array(self._climb(index)[1:], dtype=np.int64)

    def path(self, index: int) -> NDArray[np.int64]:
        """Return the labels from the top label down to this one, included, along main parents."""
        return np.array(self._climb(index)[::-1], dtype=np.int64)

    def path_names(self, index: int) -> tuple[str, ...]:
        """Return the names from the top label down to this label, included, along main parents."""
        return tuple(self._names[node] for node in reversed(self._climb(index)))

    def path_name(self, index: int, separator: str = " > ") -> str:
        """Return the names on the main path to a label, joined by ``separator``."""
        return separator.join(self.path_names(index))

    def all_path_names(self, index: int) -> tuple[NamePath, ...]:
        """Return the names on every path to a label, main path first; at most :data:`MOST_PATHS`."""
        if self.is_tree:
            return (self.path_names(index),)
        paths: list[NamePath] = []
        pending: list[tuple[int, NamePath]] = [(int(self._checked(index)), ())]
        while pending and len(paths) < MOST_PATHS:
            node, below = pending.pop()
            names = (self._names[node], *below)
            pending += [(parent, names) for parent in reversed(self.parents_of(node))]
            if self._parent_list[node] < 0:
                paths.append(names)
        return tuple(paths)

    def path_ends(self, labels: Iterable[int]) -> list[int]:
        """Return the labels at which a document's paths end, in the given order."""
        labels = list(labels)
        above = {self._parent_list[label] for label in labels}
        if not self.is_tree:
            above.update(parent for label in labels for parent in self._more_parents[label])
        return [label for label in labels if label not in above]

    def ends_inside(self, labels: Iterable[int]) -> bool:
        """Return whether a path of a document ends at a label that has children."""
        return any(end not in self._leaf_set for end in self.path_ends(labels))

    def path_end_matrix(self, matrix: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return a copy of a label matrix, (N, K), that keeps only the labels without a child in the same row."""
        ends = matrix.copy()
        rows, labels = np.nonzero(matrix)
        parents = self._parents[labels]
        ends[rows[parents >= 0], parents[parents >= 0]] = False
        for label, parent in self._further.T.tolist():
            ends[matrix[:, label], parent] = False
        return ends

    def lca(self, first: ArrayLike, second: ArrayLike) -> NDArray[np.int64]:
        """Return the lowest common ancestor of each pair, -1 for the virtual root; the shapes broadcast."""
        return self._lowest(*np.broadcast_arrays(self._checked(first), self._checked(second)))

    def distance(self, first: ArrayLike, second: ArrayLike) -> NDArray[np.int64]:
        """Return the number of edges between labels, through the virtual root if necessary.

        distance(i, j) = depth(i) + depth(j) - 2 depth(lca(i, j))
        """
        one, other = np.broadcast_arrays(self._checked(first), self._checked(second))
        depths = self._lowest.depths
        edges: NDArray[np.int64] = depths[one] + depths[other] - 2 * depths[self._lowest(one, other)]
        return edges

    def closure(self, indices: ArrayLike) -> NDArray[np.int64]:
        """Return the given labels and all their ancestors, sorted."""
        closed: set[int] = set()
        pending, several = self._checked(indices).ravel().tolist(), not self.is_tree
        for node in pending:
            while node != -1 and node not in closed:
                closed.add(node)
                if several:
                    pending += self._more_parents[node]
                node = self._parent_list[node]
        return np.array(sorted(closed), dtype=np.int64)

    def close(self, matrix: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return a copy of a label matrix, (N, K), one row per document, with all ancestors added."""
        if matrix.dtype != np.bool_ or matrix.ndim != 2 or matrix.shape[1] != len(self):
            raise ValueError(f"expected bool (N, {len(self)}), got {matrix.dtype} {matrix.shape}")
        closed: NDArray[np.bool_] = self.order.carried_up(matrix, np.logical_or)
        return closed

    def resolve(self, label: str, separator: str = " > ") -> int:
        """Return the index of a label given by id, code, name, path of names, or alternative name.

        Ids are tried first, then codes, then names and paths, then alternative names. Exactly one label must match.

        Args:
            label: an id, a code, a name, or names from the top down along any path, joined by ``separator``.
            separator: the string between the names of a path.

        Raises:
            InputError: if the label is unknown (suggests similar ones) or ambiguous (lists ids and paths).
        """
        if (index := self._by_id.get(label)) is not None:
            return index
        return self._index(separator).resolve(label)

    def candidates(self, label: str, separator: str = " > ") -> list[int]:
        """Return all labels that ``label`` may mean, as in :meth:`resolve`; none if it is unknown."""
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
                ``A > B > C``), ``outline`` (a label per line, indented below its parent), ``ids`` (lines
                ``id : A > B > C``), ``skos`` (Turtle, N-Triples or RDF/XML; JSON-LD and IPTC's JSON are ``json``),
                ``esco`` (tables), or ``auto``, which detects the format from the content. A gzipped file is unpacked.
            separator: the string between the names of a path.

        Raises:
            InputError: with file, line and remedy, if the file is not a tree.
        """
        taxonomy, summary = cls.import_from([path], format=format, separator=separator)
        if summary is not None and (repairs := summary.repair_lines()):
            logger.warning("%s: %s; see hgclr taxonomy import", path, "; ".join(repairs))
        return taxonomy

    @classmethod
    def import_from(
        cls,
        paths: Sequence[str | Path],
        choices: Choices | None = None,
        *,
        format: FileFormat = "auto",  # noqa: A002
        separator: str = " > ",
    ) -> tuple[Taxonomy, ImportSummary | None]:
        """Read a published vocabulary and return its tree and what was found and repaired.

        Args:
            paths: the file, or all files of a vocabulary in SKOS or ESCO's tables, or a folder with these tables.
            choices: languages and the part to take.
            format, separator: as in :meth:`read`.

        Returns:
            The tree, and the summary; None if the file is a label tree in another format and no choice was made.

        Raises:
            InputError: if a file is damaged, or the concepts form a cycle that is not to be cut.
        """
        labels, summary = read_labels([Path(path) for path in paths], format, separator, choices)
        try:
            return cls(**labels._asdict()), summary
        except InputError as error:  # not checked by the readers, such as an unpaired surrogate
            raise InputError(error.what, path=paths[0], remedy=error.remedy) from None

    def write(self, path: str | Path) -> None:
        """Write the tree atomically: JSON to ``.json``, a table to ``.csv``, SKOS to ``.ttl``, else the tab format.

        JSON and SKOS keep everything. The table keeps ids, names, descriptions and one parent each. The tab format
        keeps only ids and one parent each, and reading it gives the labels in breadth-first order.

        Raises:
            InputError: if the file cannot be written, or the format cannot represent a label.
        """
        suffix = Path(path).suffix.lower()
        if suffix not in (".json", ".ttl"):
            remedy = f"choose an output file that ends in .json or .ttl, {MAIN}"
            self.require_tree(f"the format of {Path(path).name!r}", remedy)
        if suffix == ".json":
            text = write_json(self._flat())
        elif suffix == ".csv":
            text = write_table(self._flat())
        elif suffix == ".ttl":
            text = write_skos(self._flat())
        else:
            text = write_literature(
                self._ids, [(node, self.children(node).tolist()) for node in (-1, *self.order.labels.tolist())]
            )
        try:
            with atomic_file(path) as temporary:
                temporary.write_text(text, encoding="utf-8", newline="\n")
        except OSError as error:
            raise InputError(f"the label tree cannot be written: {error.strerror}", path=path) from error

    def with_descriptions(
        self,
        path: str | Path,
        *,
        label_column: str | None = None,
        description_column: str | None = None,
        separator: str = " > ",
    ) -> tuple[Taxonomy, Descriptions]:
        """Return a copy with the descriptions of a CSV or TSV table, and the counts of the table's rows.

        The first row is a header if it has a cell ``description`` in any case, or if a column is given. Labels are
        given by id, name or path; labels that the table does not describe keep their descriptions.

        Args:
            path: a UTF-8 table with a tab, a comma or a semicolon between the cells.
            label_column: title of the label column; by default the column that matches most labels.
            description_column: title of the description column; by default ``description`` or, in a table of two
                columns without header, the column that is not the label column.
            separator: the string between the names of a path.
        """
        table = read_descriptions(path, lambda cell: self.candidates(cell, separator), label_column, description_column)
        texts = [table.texts.get(index, text) for index, text in enumerate(self._descriptions)]
        return Taxonomy(**self.arguments() | {"descriptions": texts}), table

    @classmethod
    def from_paths(cls, paths: Iterable[NamePath], separator: str = " > ") -> Taxonomy:
        """Return the tree of the paths and all their prefixes, sorted; a label's id is its path.

        Raises:
            InputError: if a name is empty, has space around it, or contains the separator.

        Example:
            >>> Taxonomy.from_paths([("science", "physics"), ("law",)]).ids
            ('law', 'science', 'science > physics')
        """
        ordered = sorted({path[:depth] for path in paths for depth in range(1, len(path) + 1)})
        for path in ordered:
            check_name(path[-1], separator)
        index = {path: place for place, path in enumerate(ordered)}
        return cls(
            [separator.join(path) for path in ordered],
            [index.get(path[:-1], -1) for path in ordered],
            [path[-1] for path in ordered],
        )

    @classmethod
    def from_json(cls, tree: Mapping[str, object]) -> Taxonomy:
        """Build a taxonomy from the output of :meth:`to_json`; raise InputError for any other form."""
        labels = tree.get("labels")
        if not isinstance(labels, list) or not all(isinstance(label, Mapping) for label in labels):
            raise InputError("not a label tree", remedy='give {"labels": [{"id": ..., "name": ..., "parent": ...}]}')
        return cls(**link_flat(labels, Source(""))._asdict())

    def to_json(self) -> dict[str, object]:
        """Return ``{"labels": [{"id", "name", "parent", ...}, ...]}`` in index order.

        The parent of a top label is None. ``parents`` (all, the main one first) is there if a label has several;
        ``description``, ``alt_labels`` and ``code`` if it has them.
        """
        return {"labels": self._flat()}

    def _flat(self) -> list[dict[str, Any]]:
        labels = []
        for index, (identifier, name, parent) in enumerate(zip(self._ids, self._names, self._parent_list, strict=True)):
            above = [self._ids[each] for each in (parent, *self._more_parents[index]) if each >= 0]
            label: dict[str, Any] = {"id": identifier, "name": name, "parent": above[0] if above else None}
            optional = {
                "parents": above[1:] and above,
                "description": self._descriptions[index],
                "alt_labels": list(self._alternatives[index]),
                "code": self._codes[index],
            }
            labels.append(label | {key: value for key, value in optional.items() if value})
        return labels

    @cached_property
    def _parent_list(self) -> list[int]:
        """The parents as Python integers, faster than numpy for a single path."""
        parents: list[int] = self._parents.tolist()
        return parents

    @cached_property
    def _further(self) -> NDArray[np.int64]:
        """Labels and their parents beside the main one, (2, E)."""
        pairs = [(label, parent) for label, others in enumerate(self._more_parents) if others for parent in others]
        return np.array(pairs, dtype=np.int64).reshape(-1, 2).T

    @cached_property
    def _children(self) -> Children:
        return Children(self.edges)

    @cached_property
    def _leaf_set(self) -> frozenset[int]:
        return frozenset(self._leaves.tolist())

    @cached_property
    def _lowest(self) -> LowestCommonAncestor:
        return LowestCommonAncestor(self._parents, self._depths)

    @cached_property
    def _by_id(self) -> dict[str, int]:
        return {identifier: index for index, identifier in enumerate(self._ids)}

    def _index(self, separator: str) -> _LabelIndex:
        if separator not in self._indexes:
            self._indexes[separator] = _LabelIndex(self, separator)
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
        """Return indices as an array; raise if one is neither a label nor the virtual root (-1)."""
        array = np.asarray(indices)
        if array.size == 0:
            return array.astype(np.int64)
        if array.dtype.kind not in "iu":
            raise TypeError(f"label indices must be integers, got {array.dtype}")
        if array.min() < -1 or array.max() >= len(self):
            raise IndexError(f"label index out of range for {len(self)} labels")
        return array.astype(np.int64, copy=False)


def check_name(name: str, separator: str) -> None:
    """Raise InputError if a name cannot be part of a path."""
    if not separator:
        raise InputError("path_separator is empty", remedy="use for example ' > '")
    if name != name.strip() or not name:
        remedy = f"separate names by {separator!r} and remove other spaces around them"
        raise InputError(f"the name {name!r} in a path is empty or has space around it", remedy=remedy)
    if separator in name:
        raise InputError(f"the name {name!r} contains {separator!r}", remedy="choose another path_separator")


class _LabelIndex:
    """An index from codes, names, alternative names and paths to labels, for one separator."""

    def __init__(self, taxonomy: Taxonomy, separator: str) -> None:
        if not separator:
            raise InputError("the path separator is empty", remedy="use for example ' > '")
        self._taxonomy, self._separator = taxonomy, separator
        names, parents = taxonomy.names, taxonomy.parents.tolist()
        self._by_name = inverted(zip(names, count()))
        self._by_code = inverted((code, index) for index, code in enumerate(taxonomy.codes) if code)
        self._by_alternative = inverted(
            (text, index) for index, texts in enumerate(taxonomy.alternatives) for text in dict.fromkeys(texts)
        )
        self._by_parent = {pair: index for index, pair in enumerate(zip(parents, names, strict=True))}
        for index, others in () if taxonomy.is_tree else enumerate(taxonomy.more_parents):
            self._by_parent |= {(parent, names[index]): index for parent in others}
        # A name that contains the separator takes up several segments of a path.
        self._longest = 1 + max(name.count(separator) for name in names)
        self._near: dict[str, list[str]] = {}

    def resolve(self, label: str) -> int:
        """Return the one label with this code, name, path of names or alternative name."""
        candidates = self.candidates(label)
        if len(candidates) == 1:
            return candidates[0]
        if candidates:
            remedy = "give the id or the full path"
            raise InputError(f"the label {label!r} is ambiguous: {self._listed(candidates)}", remedy=remedy)
        if label not in self._near and len(self._near) < SUGGESTED:  # the search is slow
            known = {**dict.fromkeys(self._taxonomy.ids), **self._by_name, **self._by_alternative}
            self._near[label] = close_matches(label, list(known))
        near = [repr(other) for other in self._near.get(label, [])]
        remedy = f"did you mean {' or '.join(near)}?" if near else "correct it, or add it to the label tree"
        raise InputError(f"unknown label {label!r}", remedy=remedy)

    def candidates(self, label: str) -> list[int]:
        """Return all labels with this code; otherwise with this name or path; otherwise with this alternative name."""
        if found := self._by_code.get(label):
            return list(found)
        found = sorted({*self._by_name.get(label, []), *self._by_path(label)})
        return found or list(self._by_alternative.get(label, []))

    def _by_path(self, label: str) -> set[int]:
        """Return the labels with this path; several, if names contain the separator."""
        if self._separator not in label:
            return set()
        segments = label.split(self._separator)
        reached: list[set[int]] = [{-1}, *(set() for _ in segments)]
        for start in range(len(segments)):
            for node in reached[start]:
                for stop in range(start + 1, min(start + self._longest, len(segments)) + 1):
                    child = self._by_parent.get((node, self._separator.join(segments[start:stop])))
                    if child is not None:
                        reached[stop].add(child)
        return reached[-1]

    def _listed(self, candidates: Sequence[int]) -> str:
        """Return the candidates' ids and paths for an error message."""
        shown = []
        for index in candidates[:SHOWN]:
            path, identifier = self._taxonomy.path_name(index, self._separator), self._taxonomy.ids[index]
            shown.append(repr(path) if path == identifier else f"{identifier!r} ({path})")
        left_out = f" and {len(candidates) - SHOWN} more" if len(candidates) > SHOWN else ""
        return ", ".join(shown) + left_out


def inverted(pairs: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    """Return the labels of each string."""
    labels: dict[str, list[int]] = {}
    for text, index in pairs:
        labels.setdefault(text, []).append(index)
    return labels


def read_model_tree(folder: str | Path) -> Taxonomy:
    """Read the label tree from the ``config.json`` of a model folder."""
    path = Path(folder) / "config.json"
    config = read_json_file(path, remedy=MODEL_REMEDY)
    try:
        config |= config.get("hgclr", {})  # a stock folder keeps keys unknown to transformers here
        labels = {int(index): str(identifier) for index, identifier in config["id2label"].items()}
        ids = [labels[index] for index in range(len(labels))]
        return Taxonomy(
            ids,
            config["label_parents"],
            config["label_names"],
            config.get("label_descriptions"),
            alternatives=config.get("label_alternatives"),
            codes=config.get("label_codes"),
            more_parents=config.get("label_more_parents"),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError("the model's configuration has no label tree", path=path, remedy=MODEL_REMEDY) from error
    except InputError as error:
        raise InputError(error.what, path=path, remedy=MODEL_REMEDY) from None
