"""Numbers for how well label vectors show the label tree, each beside what it is by chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hgclr.errors import require_extra

__all__ = ["Measure", "father_ranks", "measure", "parent_silhouette", "shuffled_parents", "unit"]

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

BLOCK = 2**22
"""Similarities computed at a time: 32 megabytes."""


@dataclass(frozen=True)
class Measure:
    """A number, and what it is when every label below the top is given one of the parents at random.

    Args:
        value: for the tree as it is.
        shuffled_mean: mean over the shuffled trees.
        shuffled_sd: their standard deviation.
        as_good: share of the trees, the true one among them, whose value is as good as this: a p-value.
    """

    value: float
    shuffled_mean: float
    shuffled_sd: float
    as_good: float


def measure(value: float, shuffled: Sequence[float] | Floats, *, high_is_good: bool) -> Measure:
    """Hold a value against those of the shuffled trees."""
    others = np.asarray(shuffled, dtype=np.float64)
    as_good = int((others >= value).sum() if high_is_good else (others <= value).sum())
    return Measure(value, float(others.mean()), float(others.std(ddof=1)), (as_good + 1) / (len(others) + 1))


def shuffled_parents(parents: Indices, count: int, seed: int) -> Indices:
    """Return ``count`` times the parents, (count, K), dealt out anew among the labels below the top.

    Top labels stay at the top, and every parent keeps its number of children.
    """
    random = np.random.default_rng(seed)
    shuffled = np.tile(parents, (count, 1))
    below = np.flatnonzero(parents >= 0)
    shuffled[:, below] = random.permuted(shuffled[:, below], axis=1)
    return shuffled


def unit(vectors: Floats) -> Floats:
    """Return the vectors at length 1; a zero vector stays as it is, at cosine 0 to everything."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(lengths == 0, 1.0, lengths)


def parent_silhouette(vectors: Floats, parents: Indices) -> float | None:
    """Return the mean silhouette of the labels below the top, clustered by parent, under cosine distance.

    ``s_i = (b_i - a_i) / max(a_i, b_i)``: a_i the mean distance to the siblings, b_i that to the nearest other family.
    Distances to a family need no K x K table: with unit vectors, ``Σ_j (1 - x_i·x_j) = n - x_i·Σ_j x_j``.

    Args:
        vectors: (K, H).
        parents: each label's parent, -1 for a top label, (K,).

    Returns:
        A number from -1 to 1, or None where no two parents have two children each.
    """
    below = np.flatnonzero(parents >= 0)
    _, family, sizes = np.unique(parents[below], return_inverse=True, return_counts=True)
    below = below[sizes[family] > 1]  # an only child has no siblings to be near to
    _, family, sizes = np.unique(parents[below], return_inverse=True, return_counts=True)
    if len(sizes) < 2:
        return None
    units = unit(vectors[below])
    sums = np.zeros((len(sizes), units.shape[1]))
    np.add.at(sums, family, units)
    total = 0.0
    rows = max(1, BLOCK // len(sizes))
    for start in range(0, len(below), rows):
        some, own = units[start : start + rows], family[start : start + rows]
        similarity = some @ sums.T  # (n, families)
        at = np.arange(len(some)), own
        to_itself = 1 - np.einsum("ij,ij->i", some, some)  # which belongs to no mean
        near = (sizes[own] - similarity[at] - to_itself) / (sizes[own] - 1)
        distance = 1 - similarity / sizes
        distance[at] = np.inf
        apart = distance.min(1)
        larger = np.maximum(near, apart)
        total += float(np.divide(apart - near, larger, out=np.zeros_like(near), where=larger > 0).sum())
    return total / len(below)


def father_ranks(vectors: Floats, parents: Indices) -> Floats:
    """Return the place of each label's father among all other labels by cosine similarity, 1 for the nearest.

    Labels equally near share the mean of their places.

    Args:
        vectors: (K, H).
        parents: each label's parent, -1 for a top label, (K,), or several such rows, (P, K).

    Returns:
        Places from 1 to K - 1, of the shape of ``parents``; nan for a top label and, as can happen in a shuffled tree,
        for a label that is its own father.

    Raises:
        MissingExtraError: if scipy, which comes with scikit-learn, is not installed.
    """
    require_extra("scipy", extra="paper", capability="Ranking labels")
    from scipy.stats import rankdata

    units = unit(vectors)
    ranks = np.full(parents.shape, np.nan)
    rows = max(1, BLOCK // len(units))
    for start in range(0, len(units), rows):
        here = np.arange(start, min(start + rows, len(units)))
        distance = -(units[here] @ units.T)  # (n, K)
        distance[here - start, here] = np.inf  # itself comes last
        places = rankdata(distance, axis=1)
        fathers = parents[..., here]
        found = places[here - start, fathers]  # a top label's -1 reads some other place, which is thrown away
        ranks[..., here] = np.where((fathers < 0) | (fathers == here), np.nan, found)
    return ranks
