"""Find the branches of a label tree that no document uses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hgclr.taxonomy import Taxonomy

__all__ = ["Branch", "subtree_sums", "unused_branches"]


@dataclass(frozen=True, slots=True)
class Branch:
    """A label and all labels below it.

    Args:
        top: id of the label.
        path: names from the top of the tree down to it.
        labels: how many labels there are, the label itself included.
    """

    top: str
    path: str
    labels: int


def unused_branches(taxonomy: Taxonomy, counts: NDArray[np.int64]) -> list[Branch]:
    """Return the largest branches without a document, in the order of a walk through the tree.

    Args:
        taxonomy: the label tree.
        counts: (K,) documents by label, ancestors counted, so that below an unused label none is used.
    """
    sizes = subtree_sums(taxonomy, np.ones(len(taxonomy), dtype=np.int64))
    unused = np.append(counts == 0, False)  # the last entry, at -1, is the virtual root
    tops = unused[:-1] & ~unused[taxonomy.parents]
    return [
        Branch(taxonomy.ids[top], taxonomy.path_name(top), int(sizes[top]))
        for top in taxonomy.walk[tops[taxonomy.walk]].tolist()
    ]


def subtree_sums(taxonomy: Taxonomy, values: NDArray[np.generic]) -> NDArray[np.int64]:
    """Return for each label the sum of the values of its branch, shape (K,)."""
    sums = np.append(values, 0).astype(np.int64)  # the last entry, at -1, is the virtual root
    for level in reversed(taxonomy.levels):
        np.add.at(sums, taxonomy.parents[level], sums[level])
    return sums[:-1]
