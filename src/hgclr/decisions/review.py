"""The documents that a person should look at first, with the reason; tree scores and best paths; numpy only."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hgclr.decisions.decoding import Decoder, take_log_odds
from hgclr.decisions.settings import Decisions, sigmoid
from hgclr.taxonomy import Taxonomy
from hgclr.taxonomy.order import blocks

REASONS = ("near the threshold", "parent and child disagree", "far from all training texts")
"""The reasons for a review, one for each signal of :func:`review`."""
NO_REASON = "no doubt"
"""The reason of a document with a score below :data:`DOUBT`."""
DOUBT = 0.1
"""Score below which a document has no reason."""
FARTHEST = 0.05
"""Share of the training texts, those farthest from all others, at whose distance a text begins to count as far."""

ROWS = 512
"""Texts compared with all training texts at a time."""


def best_paths(probabilities: NDArray[np.float32], decoder: Decoder, k: int) -> list[list[tuple[int, float]]]:
    """Return the k best paths of each document, best first: the label at the end of each, and its probability.

    They are the paths of the rule ``top-k-paths`` (:class:`~hgclr.decisions.decoding.Decoder`), fewer than k if the
    tree has no more, none for a blank text.

    Args:
        probabilities: calibrated probabilities, (N, K).
        decoder: the decoder of the model's decisions; its rule does not matter.
        k: number of paths.

    Example:
        >>> from hgclr.taxonomy import Taxonomy
        >>> tree = Taxonomy(["science", "physics", "law"], [-1, 0, -1])
        >>> best_paths(np.array([[0.75, 0.625, 0.25]], dtype=np.float32), Decoder(tree), 3)
        [[(1, 0.625), (2, 0.25)]]
    """
    return [
        [(end, float(row[end])) for end in own if end >= 0]
        for row, own in zip(probabilities, decoder.path_ends(probabilities, k).tolist(), strict=True)
    ]


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


@dataclass(frozen=True, eq=False, slots=True)
class Review:
    """How much a review of each document would help.

    Args:
        score: of each document, (N,), from 0 to 1.
        reason: of each document, one of :data:`REASONS` or :data:`NO_REASON`.
    """

    score: NDArray[np.float32]
    reason: list[str]


def review(
    decisions: Decisions, probabilities: NDArray[np.float32], distances: NDArray[np.floating] | None = None
) -> Review:
    """Return how much a review of each document would help: the largest of three signals between 0 and 1.

    With ``z_k = logit(p_k) - logit(t_k)``, p_k the probability and t_k the threshold of label k,

        score = max(near, disagree, far)
        near = 2 σ(-min_k |z_k|)
        disagree = tanh(max(0, max over labels k and parents j of k of min(z_k, -z_j)) / 2)

    ``near`` is 1 if a label is exactly at its threshold; with the threshold 0.5 it is twice the smaller of p_k and
    1 - p_k for the label nearest to it. ``disagree`` is positive if a label passes its threshold and its parent does
    not. ``far`` is the given distance. The reason is the largest signal, the first if several are equal. A document
    with all probabilities 0, such as a blank text, has the score 0.

    Args:
        decisions: thresholds and label tree.
        probabilities: calibrated probabilities, (N, K), from ``decisions.probabilities``.
        distances: of each document from the training texts, (N,), from a :class:`TrainingDistance`; 0 if not given.
    """
    edges = decisions.taxonomy.edges
    children, parents = edges[:, edges[1] >= 0]
    threshold_odds = np.array(decisions.decoder.thresholds)
    take_log_odds(threshold_odds)
    signals = np.zeros((len(probabilities), len(REASONS)), dtype=np.float32)
    if distances is not None:
        signals[:, 2] = distances
    for rows in blocks(probabilities):
        odds = probabilities[rows].astype(np.float32)  # a copy
        take_log_odds(odds)
        odds -= threshold_odds
        signals[rows, 0] = 2 * sigmoid(-np.abs(odds).min(axis=1))
        broken = np.minimum(odds[:, children], -odds[:, parents]).max(axis=1, initial=0)
        signals[rows, 1] = np.tanh(broken / 2)
    signals[~probabilities.any(axis=1)] = 0
    score, largest = signals.max(axis=1), signals.argmax(axis=1).tolist()
    reasons = [REASONS[one] if value >= DOUBT else NO_REASON for one, value in zip(largest, score, strict=True)]
    return Review(score, reasons)


def scaled_distances(distances: NDArray[np.floating], within: NDArray[np.floating]) -> NDArray[np.float32]:
    """Return distances from the nearest training text, (N,), on a scale from 0 (usual) to 1 (far from all).

        q = (1 + #{i : w_i ≥ d}) / (n + 1)
        far = max(0, 1 - q / 0.05)

    d is the distance of a text, and w_i, (n,), that of a training text from the nearest other one. q is the p-value of
    the text being like the training texts, so at most 5 % of such texts are above 0.
    """
    further = len(within) - np.searchsorted(np.sort(within), distances, side="left")
    return np.maximum(0, 1 - (1 + further) / (len(within) + 1) / FARTHEST).astype(np.float32)


class TrainingDistance:
    """Distance of texts from the nearest training text, 1 minus the cosine, on the scale of :func:`scaled_distances`.

    It is compared with the distance of each training text from the nearest other one.

    Args:
        training: vectors of training texts, (n, H), at least two; with fewer than 20, no text is far.
    """

    def __init__(self, training: NDArray[np.float32]) -> None:
        self._training = _unit(training)
        self._within = self._nearest(self._training, others=True)

    def __call__(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the scaled distances, (N,), of texts with the vectors (N, H)."""
        return scaled_distances(self._nearest(_unit(vectors)), self._within)

    def _nearest(self, vectors: NDArray[np.float32], *, others: bool = False) -> NDArray[np.float32]:
        """Return 1 minus the largest cosine, (N,); with ``others``, the texts are the training texts themselves."""
        distances = np.empty(len(vectors), dtype=np.float32)
        for start in range(0, len(vectors), ROWS):
            cosines = vectors[start : start + ROWS] @ self._training.T
            if others:
                np.fill_diagonal(cosines[:, start:], -1)
            distances[start : start + ROWS] = 1 - cosines.max(axis=1)
        return distances


def _unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    unit: NDArray[np.float32] = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return unit
