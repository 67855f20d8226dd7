"""The text to label next.

15 % of the answers come from the random slice. The others begin with the text nearest to the centre of each cluster of
the texts' vectors, the largest cluster first, until there are about as many answers as leaves. From then on they
alternate between the text whose best two leaves are closest and a text from finer clusters.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Strategy = Literal["tree", "margin", "clusters", "random"]
"""``tree`` is the strategy of the module; the others always take the smallest margin, a cluster, or any text."""
ITERATIONS = 10
"""Iterations of :func:`kmeans`."""
SAMPLE = 20_000
"""Texts from which :func:`kmeans` finds the centres."""
MOST_CLUSTERS = 1024
ROWS = 4096
"""Texts compared with all centres at a time."""


@dataclass(frozen=True, eq=False)
class Pool:
    """What the choice depends on, for N texts.

    Args:
        random: the random slice, (N,).
        order: a random number for each text, (N,); texts of the slice are given in this order.
        clusters: the cluster of each text, (N,).
        distances: its distance from the centre, (N,).
        margins: of each text, (N,); see :func:`hgclr.decisions.review.margins`.
        leaves: number of leaves of the tree.
        share: share of the answers that come from the random slice.
    """

    random: NDArray[np.bool_]
    order: NDArray[np.float64]
    clusters: NDArray[np.int64]
    distances: NDArray[np.float32]
    margins: NDArray[np.float32]
    leaves: int
    share: float


def choose(pool: Pool, taken: NDArray[np.bool_], free: NDArray[np.bool_], strategy: Strategy = "tree") -> int | None:
    """Return the index of the text to label next, or None if no text is free.

    The random slice is next whenever its share of the answers would otherwise fall below ``pool.share``, so that both
    parts are interleaved evenly.

    Args:
        pool: the texts.
        taken: answered or being answered, (N,).
        free: may be given to the user, (N,).
        strategy: how texts outside of the random slice are chosen.
    """
    answers, of_slice = int(taken.sum()), int((taken & pool.random).sum())
    slice_free, rest = free & pool.random, free & ~pool.random
    if slice_free.any() and (of_slice + 1 <= pool.share * (answers + 1) or not rest.any()):
        return _least(pool.order, slice_free)
    if not rest.any():
        return None
    taken = taken & ~pool.random
    answers -= of_slice
    if strategy == "random":
        return _least(pool.order, rest)
    alternate = answers >= pool.leaves and answers % 2 == 0
    if strategy == "margin" or (strategy == "tree" and alternate):
        return _least(pool.margins, rest)
    return _least(pool.distances, rest & (pool.clusters == next_cluster(pool.clusters, taken, rest)))


def _least(values: NDArray[np.floating], among: NDArray[np.bool_]) -> int:
    """Return the index of the smallest value among some; the first of equal ones."""
    places = np.flatnonzero(among)
    return int(places[values[places].argmin()])


def next_cluster(clusters: NDArray[np.int64], taken: NDArray[np.bool_], free: NDArray[np.bool_]) -> int:
    """Return the largest of the clusters with the fewest texts taken, among those with a free text."""
    sizes, covered, left = (
        np.bincount(clusters[rows], minlength=int(clusters.max()) + 1) for rows in (slice(None), taken, free)
    )
    rank = np.lexsort((-sizes, covered, left == 0))
    return int(rank[0])


def cluster_count(answers: int, leaves: int, texts: int) -> int:
    """Return the number of clusters: as many as leaves, doubled until there are more than answers.

    It is at most half of the texts, and at most :data:`MOST_CLUSTERS`.
    """
    count = max(leaves, 2)
    while count <= answers:
        count *= 2
    return max(1, min(count, texts // 2, MOST_CLUSTERS))


def kmeans(vectors: NDArray[np.float32], count: int, *, seed: int = 0) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return the cluster of each text and its distance from the centre, (N,) each, from vectors, (N, H).

    k-means on the directions of the vectors. The centres are found from :data:`SAMPLE` texts if there are more.
    """
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.metrics import pairwise_distances_argmin_min
    from sklearn.preprocessing import normalize

    sample = np.sort(np.random.default_rng(seed).permutation(len(vectors))[:SAMPLE])
    model = KMeans(min(count, len(sample)), init="random", n_init=1, max_iter=ITERATIONS, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct vectors than clusters
        centres = model.fit(normalize(vectors[sample])).cluster_centers_
    own, distances = np.empty(len(vectors), dtype=np.int64), np.empty(len(vectors), dtype=np.float32)
    for start in range(0, len(vectors), ROWS):
        rows = slice(start, start + ROWS)
        own[rows], distances[rows] = pairwise_distances_argmin_min(normalize(vectors[rows]), centres)
    return own, distances
