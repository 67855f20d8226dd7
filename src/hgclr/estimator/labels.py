"""Texts and labels in scikit-learn's forms, and the label tree, given or built from the labels' paths."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hgclr.data.readers import check_text, is_blank
from hgclr.data.table_import import near_twins
from hgclr.errors import InputError
from hgclr.taxonomy import Taxonomy
from hgclr.taxonomy.entries import Labels, Source
from hgclr.taxonomy.formats import read_json
from hgclr.taxonomy.tree import NamePath, check_name

logger = logging.getLogger(__name__)


@contextmanager
def as_value_errors() -> Iterator[None]:
    """Turn an :class:`~hgclr.errors.InputError` into the ``ValueError`` that scikit-learn's tools expect."""
    try:
        yield
    except InputError as error:
        raise ValueError(str(error)) from error


@contextmanager
def in_row(argument: str, row: int) -> Iterator[None]:
    """Name the row in an :class:`~hgclr.errors.InputError`, such as ``y[3]``."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{argument}[{row}]: {error.what}", remedy=error.remedy) from None


def read_texts(texts: Any, *, empty: bool) -> list[str]:
    """Return the texts of a list, a one-dimensional array or a Series; ``empty`` allows empty texts."""
    checked = []
    for row, text in enumerate(read_column(texts, "X", "texts")):
        with in_row("X", row):
            check_text(text)
            if not empty and is_blank(text):
                raise InputError("empty text", remedy="remove the document")
        checked.append(str(text))
    return checked


def read_column(values: Any, argument: str, content: str) -> list[Any]:
    """Return the members of a list, a one-dimensional array or a Series; raise for a single string or a table."""
    if isinstance(values, str | bytes | Mapping | Set) or not hasattr(values, "__len__"):
        remedy = f"give a list, a one-dimensional array or a pandas Series of {content}"
        raise InputError(f"{argument} is a single {type(values).__name__}", remedy=remedy)
    if (dimensions := getattr(values, "ndim", 1)) != 1:
        remedy = f"give one column of {content}, such as table['column']"
        raise InputError(f"{argument} has {dimensions} dimensions", remedy=remedy)
    return list(values)


Label = str | tuple[str, ...]
"""A path ``"science > physics"``, a label's id, or a path as its names, ``("science", "physics")``."""


@dataclass(frozen=True)
class Form:
    """The form of labels: one ``path`` per document, a list of ``paths`` per document, or an indicator ``matrix``.

    Paths are strings or, with ``names``, tuples; ``dtype`` is that of the matrix.
    """

    kind: Literal["path", "paths", "matrix"]
    names: bool = False
    dtype: str = "int64"


@dataclass(frozen=True, eq=False)
class Targets:
    """The labels of documents before they are looked up in a tree, or the indicator matrix, bool (N, K).

    ``columns`` are the column names of the matrix, if it has any.
    """

    form: Form
    content: list[list[Label]] | NDArray[np.bool_]
    columns: list[str] | None = None

    def __len__(self) -> int:
        return len(self.content)


def read_targets(labels: Any) -> Targets:
    """Read labels in any form; a value with two dimensions is an indicator matrix."""
    if getattr(labels, "ndim", 1) == 2:
        columns = getattr(labels, "columns", None)
        column_names = list(columns) if columns is not None and all(isinstance(name, str) for name in columns) else None
        matrix = labels.toarray() if hasattr(labels, "toarray") else np.asarray(labels)
        if matrix.dtype.kind not in "biuf" or not np.isin(matrix, (0, 1)).all():
            remedy = "give each document a path, a list of paths, or a tuple of the names on its path"
            raise InputError("y has two dimensions and is not an indicator matrix of 0 and 1", remedy=remedy)
        return Targets(Form("matrix", dtype=str(matrix.dtype)), matrix.astype(np.bool_), column_names)
    documents: list[list[Label]] = []
    several, names = False, True
    for row, given in enumerate(read_column(labels, "y", "labels")):
        listed = isinstance(given, list | set | frozenset | np.ndarray)
        with in_row("y", row):
            documents.append([_read_label(label) for label in (given if listed else [given])])
        several |= listed
        names &= all(isinstance(label, tuple) for label in documents[-1])
    return Targets(Form("paths" if several else "path", names and any(documents)), documents)


def write_targets(given: NDArray[np.bool_], form: Form, taxonomy: Taxonomy) -> NDArray[Any]:
    """Return the labels of each document, (N, K), in a form; a path is the id of its deepest label, or its names.

    The path of a document without labels is ``""`` or ``()``.
    """
    if form.kind == "matrix":
        return given.astype(form.dtype)
    written = np.empty(len(given), dtype=object)
    for row, ends in enumerate(taxonomy.path_end_matrix(given)):
        nodes: list[int] = np.flatnonzero(ends).tolist()
        labels = [taxonomy.path_names(node) if form.names else taxonomy.ids[node] for node in nodes]
        nothing = () if form.names else ""
        written[row] = labels if form.kind != "path" else labels[0] if labels else nothing
    return written


def _read_label(label: object) -> Label:
    if isinstance(label, str):
        return str(label)
    if isinstance(label, tuple) and label and all(isinstance(name, str) for name in label):
        return tuple(map(str, label))
    remedy = "give a path such as 'science > physics', or a tuple of its names, or a list of these"
    if isinstance(label, int | np.integer):
        remedy += "; for tools of scikit-learn that number the labels (cross_val_predict), give an indicator matrix"
    raise InputError(f"{label!r:.80} is not a label", remedy=remedy)


TreeLike = Taxonomy | str | Path | Mapping[str, Any]


def label_tree(y: Any, *, path_separator: str = " > ") -> Taxonomy:
    """Build the tree of all labels on the paths of documents, sorted by name.

    ``y`` has a path, or a list of paths, for each document; a path is a string or a tuple of names.

    Example:
        >>> label_tree(["science > physics", ["law", "science"]]).ids
        ('law', 'science', 'science > physics')
    """
    with as_value_errors():
        return tree_of(read_targets(y), path_separator)


def label_matrix(y: Any, taxonomy: TreeLike, *, path_separator: str = " > ") -> NDArray[np.int64]:
    """Return labels as an indicator matrix, (N, K), for scikit-learn's tools and metrics.

    Ancestors are included. The columns are in the order of the tree, ``taxonomy.ids``. For the forms of ``y`` and of
    the tree see :class:`HGCLRClassifier`.

    Example:
        >>> label_matrix(["science > physics", ["law"]], label_tree(["law", "science > physics"]))
        array([[0, 1, 1],
               [1, 0, 0]])
    """
    with as_value_errors():
        tree = read_tree(taxonomy, path_separator)
        targets = read_targets(y)
        matrix = np.zeros((len(targets), len(tree)), dtype=np.int64)
        for row, (labels, _) in enumerate(find_labels(targets, tree, path_separator, drawn=False)):
            matrix[row, labels] = 1
    return matrix


def read_tree(taxonomy: TreeLike, separator: str) -> Taxonomy:
    """Return a tree from a `Taxonomy`, a file in any format, or nested dictionaries."""
    if isinstance(taxonomy, Taxonomy):
        return taxonomy
    if isinstance(taxonomy, str | Path):
        return Taxonomy.read(taxonomy, separator=separator)
    if not isinstance(taxonomy, Mapping):
        remedy = "give a Taxonomy, the path of a file, or nested dictionaries"
        raise InputError(f"the taxonomy is a {type(taxonomy).__name__}", remedy=remedy)
    try:
        text = json.dumps(taxonomy)
    except (TypeError, ValueError) as error:
        raise InputError(f"the taxonomy is not a tree of dictionaries: {error}") from None
    found = read_json(Source(text), separator)
    if not isinstance(found, Labels):
        raise InputError("the taxonomy is a vocabulary", remedy="write it to a file, and give its path")
    return Taxonomy(**found._asdict())


def tree_of(targets: Targets, separator: str) -> Taxonomy:
    """Return the tree of the paths and all their prefixes; warn about labels that differ only in case or spaces."""
    if not isinstance(targets.content, list):
        remedy = "give the parameter taxonomy, with labels in the order of the columns"
        raise InputError("the label tree cannot be built from an indicator matrix y", remedy=remedy)
    paths: Counter[NamePath] = Counter()
    names: dict[Label, NamePath] = {}
    for row, labels in enumerate(targets.content):
        with in_row("y", row):
            names |= {label: _names(label, separator) for label in labels if label not in names}
        paths.update(names[label] for label in labels)
    if not paths:
        raise InputError("y has no labels", remedy="give each document at least one")
    for twins in near_twins(paths):
        logger.warning("labels that differ only in case or spaces: %s", twins.summary(separator))
    return Taxonomy.from_paths(paths, separator)


def find_labels(
    targets: Targets, taxonomy: Taxonomy, separator: str, *, drawn: bool
) -> Iterator[tuple[list[int], int]]:
    """Yield for each document the indices of its labels with all ancestors, and the number of unknown labels.

    In a tree ``drawn`` (built) from documents every label is a path, and other documents may have unknown labels. In a
    given tree an unknown label is an error.
    """
    if not isinstance(targets.content, list):
        if (columns := targets.content.shape[1]) != len(taxonomy):
            raise InputError(
                f"the indicator matrix y has {columns} columns, the tree {len(taxonomy)} labels",
                remedy="give a column for each label, in the tree's order, as label_matrix does",
            )
        if targets.columns not in (None, list(taxonomy.ids)):
            remedy = "sort the columns: y[list(taxonomy.ids)]"
            raise InputError("the columns of y are not the labels of the tree in its order", remedy=remedy)
        yield from ((np.flatnonzero(row).tolist(), 0) for row in taxonomy.close(targets.content))
        return
    by_path = {path: label for label in range(len(taxonomy)) for path in taxonomy.all_path_names(label)}

    def find(label: Label) -> tuple[list[int], list[NamePath]]:
        """Return the indices of a label and its ancestors, and the paths of those that are not in the tree."""
        if drawn:
            names = _names(label, separator)
            paths = [names[:depth] for depth in range(1, len(names) + 1)]
            indices = [by_path[path] for path in paths if path in by_path]
            return indices, paths[len(indices) :]
        if isinstance(label, tuple) and label not in by_path:
            raise InputError(f"the path {label!r} is not in the tree", remedy="correct the path, or the tree")
        index = by_path[label] if isinstance(label, tuple) else taxonomy.resolve(label, separator)
        return taxonomy.closure([index]).tolist(), []

    known: dict[Label, tuple[list[int], list[NamePath]]] = {}
    for row, labels in enumerate(targets.content):
        with in_row("y", row):
            known |= {label: find(label) for label in labels if label not in known}
        found = {index for label in labels for index in known[label][0]}
        missing = {path for label in labels for path in known[label][1]}
        yield sorted(found), len(missing)


def _names(label: Label, separator: str) -> NamePath:
    names = label if isinstance(label, tuple) else tuple(label.split(separator)) if separator else (label,)
    for name in names:
        check_name(name, separator)
    return names
