"""Labels as documents are given them, and get them back: one path or several each, or an indicator matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hgclr.errors import InputError
from hgclr.estimator.inputs import read_column
from hgclr.taxonomy import Taxonomy

__all__ = ["Form", "Label", "Targets", "read_targets", "write_targets"]

Label = str | tuple[str, ...]
"""A path ``"science > physics"``, a label's id, or a path as its names, ``("science", "physics")``."""


@dataclass(frozen=True)
class Form:
    """How labels are written.

    Args:
        kind: one ``path`` for each document, a list of ``paths`` for each, or an indicator ``matrix`` for all.
        names: paths are tuples of names, not strings.
        dtype: of the matrix.
    """

    kind: Literal["path", "paths", "matrix"]
    names: bool = False
    dtype: str = "int64"


@dataclass(frozen=True, eq=False)
class Targets:
    """The labels of documents before they are looked up in a tree.

    Args:
        form: how they were written.
        content: the labels of each document, or the indicator matrix, bool (N, K).
        columns: the names of the matrix's columns, where it has any.
    """

    form: Form
    content: list[list[Label]] | NDArray[np.bool_]
    columns: list[str] | None = None

    def __len__(self) -> int:
        return len(self.content)


def read_targets(labels: Any) -> Targets:
    """Read labels in any of their forms.

    A document's labels are a string or a tuple of names, either of which is one path, or a list (array, set) of these.
    Whatever has two dimensions is an indicator matrix.

    Raises:
        InputError: if they are nothing of this; documents are counted from 0.
    """
    if getattr(labels, "ndim", 1) == 2:
        return _read_matrix(labels)
    documents: list[list[Label]] = []
    several, names = False, True
    for row, given in enumerate(read_column(labels, "y", "labels")):
        alone = isinstance(given, str | tuple)
        if not alone and not isinstance(given, list | set | frozenset | np.ndarray):
            raise _no_label(row, given)
        documents.append([_read_label(row, label) for label in ([given] if alone else given)])
        several |= not alone
        names &= all(isinstance(label, tuple) for label in documents[-1])
    return Targets(Form("paths" if several else "path", names and any(documents)), documents)


def write_targets(given: NDArray[np.bool_], form: Form, taxonomy: Taxonomy) -> NDArray[Any]:
    """Write labels in a form.

    Args:
        given: the labels of each document, (N, K).
        form: the form; with one ``path`` for each, every document must have exactly one.
        taxonomy: the label tree.

    Returns:
        A label for each document, (N,), or a list of labels, (N,), or the matrix, (N, K). A path is written by its
        deepest label: as that label's id, or as the names down to it.
    """
    if form.kind == "matrix":
        return given.astype(form.dtype)
    written = np.empty(len(given), dtype=object)
    for row, ends in enumerate(_deepest(given, taxonomy)):
        labels = [_write_label(end, form, taxonomy) for end in np.flatnonzero(ends).tolist()]
        written[row] = labels[0] if form.kind == "path" else labels
    return written


def _read_matrix(labels: Any) -> Targets:
    columns = getattr(labels, "columns", None)
    names = None if columns is None or not all(isinstance(name, str) for name in columns) else list(columns)
    matrix = labels.toarray() if hasattr(labels, "toarray") else np.asarray(labels)
    if matrix.dtype.kind not in "biuf" or not np.isin(matrix, (0, 1)).all():
        raise InputError(
            "y has two dimensions and is not an indicator matrix of 0 and 1",
            remedy="give each document a path, a list of paths, or a tuple of the names on its path",
        )
    return Targets(Form("matrix", dtype=str(matrix.dtype)), matrix.astype(np.bool_), names)


def _read_label(row: int, label: object) -> Label:
    if isinstance(label, str):
        return str(label)
    if isinstance(label, tuple) and label and all(isinstance(name, str) for name in label):
        return tuple(map(str, label))
    raise _no_label(row, label)


def _no_label(row: int, label: object) -> InputError:
    remedy = "give a path such as 'science > physics', or a tuple of its names, or a list of these"
    if isinstance(label, int | np.integer):
        remedy += "; tools of scikit-learn that number the labels (cross_val_predict) need an indicator matrix"
    return InputError(f"y[{row}]: {label!r:.80} is no label", remedy=remedy)


def _deepest(given: NDArray[np.bool_], taxonomy: Taxonomy) -> NDArray[np.bool_]:
    """Return the labels of which no child is given, (N, K)."""
    ends = given.copy()
    rows, labels = np.nonzero(given)
    parents = taxonomy.parents[labels]
    ends[rows[parents >= 0], parents[parents >= 0]] = False
    return ends


def _write_label(index: int, form: Form, taxonomy: Taxonomy) -> Label:
    if form.names:
        return tuple(taxonomy.names[node] for node in taxonomy.path(index).tolist())
    return taxonomy.ids[index]
