"""Decoding rules: which labels are predicted, from the probability of each.

All rules but ``threshold`` predict a label only with its parent. They work level by level on blocks of documents that
fit into a CPU cache.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hgclr.errors import InputError
from hgclr.taxonomy import Taxonomy
from hgclr.taxonomy.order import blocks, consistent

Rule = Literal["threshold", "closure", "drop-orphans", "best-path", "top-k-paths"]
RULES: tuple[Rule, ...] = get_args(Rule)

SMALLEST = np.float32(1e-7)
"""Minimum distance of probabilities and thresholds from 0 and 1 before taking log odds."""


class Decoder:
    """Predicts labels by one rule. With p_k the probability and t_k the threshold of label k, the rules predict

    - ``threshold``: every label with p_k > t_k, with or without its parent;
    - ``closure``: these labels and all their ancestors;
    - ``drop-orphans``: these labels if all their ancestors are among them (top-down in the literature);
    - ``best-path``: the path from the top with the largest sum of log odds, ∑ logit(p_k) - logit(t_k). If labels were
      independent, this would be the most probable label set among single paths. Ties go to the shortest path. If
      labels have several parents, this is the best of all paths, and the other ancestors of its end are predicted, too;
    - ``top-k-paths``: this path, then k - 1 times the best path that ends neither above nor below a chosen end. Every
      text gets k paths, if the tree has that many.

    No rule predicts a label for a text with all probabilities 0, such as a blank one.

    Args:
        taxonomy: the label tree; column k of every array is its label k.
        rule: one of the above.
        thresholds: one number, or one for each label, (K,).
        paths: k of ``top-k-paths``.
        allow_inner_nodes: ``best-path`` and ``top-k-paths`` may end at a label that has children; False for data in
            which every path goes down to a leaf.
        exclusive: the probabilities are of paths that exclude each other, and an inner label has the sum over the
            leaves below it; the path rules then compare only the probabilities of the labels at which paths end.

    Raises:
        InputError: if there is no such rule, or a number is out of range.

    Example:
        >>> tree = Taxonomy(["science", "physics", "law"], [-1, 0, -1])
        >>> Decoder(tree, "closure")(np.array([[0.4, 0.9, 0.2]], dtype=np.float32))
        array([[ True,  True, False]])
    """

    def __init__(
        self,
        taxonomy: Taxonomy,
        rule: Rule = "threshold",
        thresholds: ArrayLike = 0.5,
        *,
        paths: int = 1,
        allow_inner_nodes: bool = True,
        exclusive: bool = False,
    ) -> None:
        if rule not in RULES:
            raise InputError(f"unknown decoding rule {rule!r}", remedy=f"choose one of {', '.join(RULES)}")
        if paths < 1:
            raise InputError(f"{paths} paths are too few", remedy="choose 1 or more")
        values = np.asarray(thresholds, dtype=np.float32)
        if values.shape not in ((), (len(taxonomy),)):
            raise InputError(f"thresholds have the shape {values.shape}", remedy=f"give one, or {len(taxonomy)}")
        if not bool(((values >= 0) & (values <= 1)).all()):
            raise InputError("a threshold is not between 0 and 1")
        self.taxonomy, self.rule, self.paths, self.allow_inner_nodes = taxonomy, rule, paths, allow_inner_nodes
        self.exclusive = exclusive
        self.thresholds = np.broadcast_to(values, len(taxonomy))
        self._tree = taxonomy.order
        self._threshold_odds = self.thresholds[self._tree.labels]
        take_log_odds(self._threshold_odds)
        self._end_penalties = end_penalties(taxonomy, allow_inner_nodes)

    def __call__(self, probabilities: NDArray[np.float32]) -> NDArray[np.bool_]:
        """Return the predicted labels, bool (N, K), from probabilities, (N, K)."""
        if probabilities.ndim != 2 or probabilities.shape[1] != len(self.taxonomy):
            raise ValueError(f"expected probabilities (N, {len(self.taxonomy)}), got {probabilities.shape}")
        chosen = np.empty(probabilities.shape, dtype=np.bool_)
        for rows in blocks(probabilities):
            chosen[rows] = self._decide(probabilities[rows].astype(np.float32, copy=False))
        return chosen

    def shown(self, probabilities: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the probabilities to show, (N, K): ``closure`` predicts parents for their children, so it evens out
        those that contradict each other, see :func:`~hgclr.taxonomy.order.consistent`.
        """
        return consistent(probabilities, self.taxonomy) if self.rule == "closure" else probabilities

    def path_ends(self, probabilities: NDArray[np.float32], paths: int) -> NDArray[np.int64]:
        """Return the labels at which the ``paths`` best paths of ``top-k-paths`` end, (N, k), best first.

        -1 if a document has no path left.
        """
        ends = np.empty((len(probabilities), paths), dtype=np.int64)
        for rows in blocks(probabilities):
            places = self._best_ends(self._tree.arrange(probabilities[rows].astype(np.float32, copy=False)), paths)
            ends[rows] = np.where(places < 0, -1, self._tree.labels[places])
        return ends

    def _decide(self, block: NDArray[np.float32]) -> NDArray[np.bool_]:
        if self.rule in ("best-path", "top-k-paths"):
            arranged = np.zeros(block.shape, dtype=np.bool_)
            ends = self._best_ends(self._tree.arrange(block), self.paths if self.rule == "top-k-paths" else 1)
            rows, numbers = np.nonzero(ends >= 0)
            arranged[rows, ends[rows, numbers]] = True
            self._tree.carry_up(arranged, np.logical_or)
            return self._tree.restore(arranged)
        passed = block > self.thresholds
        if self.rule == "threshold":
            return passed
        arranged = self._tree.arrange(passed)
        if self.rule == "closure":
            self._tree.carry_up(arranged, np.logical_or)
        else:
            self._tree.carry_down(arranged, np.logical_and)
        return self._tree.restore(arranged)

    def _best_ends(self, scores: NDArray[np.float32], paths: int) -> NDArray[np.int64]:
        """Return the places where the best paths end, from arranged probabilities, overwritten by path scores."""
        nothing = ~scores.any(axis=1)
        take_log_odds(scores)
        scores -= self._threshold_odds
        if not self.exclusive:
            self._tree.carry_down(scores, np.add, among=np.maximum)
        scores += self._end_penalties
        scores[nothing] = -np.inf
        ends = np.full((len(scores), paths), -1, dtype=np.int64)
        every = np.arange(len(scores))
        for number in range(paths):
            best = scores.argmax(axis=1)  # ties go to the first, which is the shortest path
            left = scores[every, best] > -np.inf
            ends[left, number] = best[left]
            if number + 1 < paths:  # no further path may end on this one, or continue it
                path = np.zeros(scores.shape, dtype=np.bool_)
                path[every[left], best[left]] = True
                below = path.copy()
                self._tree.carry_up(path, np.logical_or)
                self._tree.carry_down(below, np.logical_or)
                scores[path | below] = -np.inf
        return ends


def end_penalties(taxonomy: Taxonomy, allow_inner_nodes: bool) -> NDArray[np.float32]:
    """Return the penalty of a path that ends at each label, in level order, (K,): -inf if none may end there."""
    penalties = np.full(len(taxonomy), 0 if allow_inner_nodes else -np.inf, dtype=np.float32)
    penalties[taxonomy.leaves] = 0
    return penalties[taxonomy.order.labels]


def take_log_odds(probabilities: NDArray[np.float32]) -> None:
    """Replace probabilities by their log odds, in place to save the time of an allocation."""
    np.clip(probabilities, SMALLEST, 1 - SMALLEST, out=probabilities)
    probabilities /= 1 - probabilities
    np.log(probabilities, out=probabilities)
