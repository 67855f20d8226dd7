"""The text to label next; numpy only.

15 % of the answers come from the random slice. The others begin with the text nearest to the centre of each cluster of
the texts' vectors, the largest cluster first, until there are about as many answers as leaves. From then on they
alternate between the text whose best two leaves are closest and a text from finer clusters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hgclr.taxonomy import Taxonomy
from hgclr.taxonomy.order import blocks

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
        margins: of each text, (N,); see :func:`margins`.
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
    """Return the cluster of each text and 1 minus its cosine with the centre, (N,) each, from vectors, (N, H).

    Spherical k-means: texts belong to the centre with the largest cosine; a centre is the direction of the sum of its
    texts' directions. It starts at random texts; a cluster that becomes empty takes the text farthest from its centre.
    """
    generator = np.random.default_rng(seed)
    chosen = np.sort(generator.permutation(len(vectors))[:SAMPLE])
    sample = directions(np.asarray(vectors[chosen]))
    count = min(count, len(sample))
    centres = sample[generator.permutation(len(sample))[:count]]
    for _ in range(ITERATIONS):
        own, distances = nearest(sample, centres)
        sums = np.zeros_like(centres)
        np.add.at(sums, own, sample)
        empty = np.flatnonzero(np.bincount(own, minlength=count) == 0)
        sums[empty] = sample[np.argsort(-distances, kind="stable")[: len(empty)]]
        centres = directions(sums)
    parts = [nearest(directions(np.asarray(vectors[at : at + ROWS])), centres) for at in range(0, len(vectors), ROWS)]
    return np.concatenate([own for own, _ in parts]), np.concatenate([far for _, far in parts])


def nearest(
    vectors: NDArray[np.float32], centres: NDArray[np.float32]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return the nearest centre of each vector and 1 minus the cosine, (n,) each; all have the length 1."""
    own, far = np.empty(len(vectors), dtype=np.int64), np.empty(len(vectors), dtype=np.float32)
    for start in range(0, len(vectors), ROWS):
        rows = slice(start, start + ROWS)
        cosines = vectors[rows] @ centres.T
        own[rows], far[rows] = cosines.argmax(axis=1), 1 - cosines.max(axis=1)
    return own, far


def directions(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return vectors, (n, H), scaled to the length 1."""
    scaled: NDArray[np.float32] = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return scaled


def tree_scores(logits: NDArray[np.float32], taxonomy: Taxonomy) -> NDArray[np.float32]:
    """Return the tree score of each leaf, (N, leaves), from logits, (N, K).

        S(x, l) = Σ over the labels k on the path of l of  z_k - log Σ over k and its siblings j of exp z_j

    ``exp S`` is a distribution over the leaves. Of a label with several parents, the main one counts.
    """
    order = taxonomy.main_order
    families = np.flatnonzero(np.diff(order.parents, prepend=-2))  # where siblings begin, in level order
    sizes = np.diff(np.append(families, len(taxonomy)))
    scores = np.empty((len(logits), len(taxonomy.leaves)), dtype=np.float32)
    for rows in blocks(logits):
        arranged = order.arrange(logits[rows])
        arranged -= np.repeat(np.maximum.reduceat(arranged, families, axis=1), sizes, axis=1)
        arranged -= np.repeat(np.log(np.add.reduceat(np.exp(arranged), families, axis=1)), sizes, axis=1)
        order.carry_down(arranged, np.add)
        scores[rows] = order.restore(arranged)[:, taxonomy.leaves]
    return scores


def margins(scores: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the difference of the best two tree scores of each text, (N,); 0 if the tree has one leaf."""
    if scores.shape[1] < 2:
        return np.zeros(len(scores), dtype=np.float32)
    best = np.partition(scores, -2, axis=1)[:, -2:]
    difference: NDArray[np.float32] = best[:, 1] - best[:, 0]
    return difference
