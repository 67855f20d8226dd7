"""What every threshold of a grid would give, counted at once: a search by trial would decode all documents for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hgclr.decisions.decoding import Decoder, Rule, end_penalties, take_log_odds
from hgclr.taxonomy import Taxonomy
from hgclr.taxonomy.level_order import blocks, level_order, monotone

__all__ = ["BestPathSweep", "DecodedSweep", "RuleSweep", "Sweep", "count", "f1_by_label"]

STEPS = 128
"""A grid is made of multiples of 1/128, which float32 has exactly: what is counted is what the rule decides."""
ALWAYS, NEVER = np.float32(2), np.float32(-1)
"""In the place of a probability, for a decision that the threshold has no say in."""
BLOCK = 2**18
"""Documents times labels that are counted at once."""

Probabilities = NDArray[np.float32]
Gold = NDArray[np.bool_]
Counts = NDArray[np.int64]


class Swept(NamedTuple):
    """For every threshold of the grid: true positives, predicted labels, and the sum of F1 over labels."""

    true: Counts
    predicted: Counts
    f1: NDArray[np.float64]


class Sweep:
    """Count what the thresholds ``steps / STEPS`` of some labels give, those of all others as they are."""

    steps = np.arange(4, STEPS, 4)

    def __call__(self, thresholds: NDArray[np.float32], labels: NDArray[np.int64]) -> Swept:
        """Return the counts of each step, from the thresholds of all labels, (K,), and the labels that are swept."""
        rows = []
        for step in self.steps.tolist():
            changed = thresholds.copy()
            changed[labels] = step / STEPS
            true, predicted, gold = self._count(changed)
            rows.append((true.sum(), predicted.sum(), f1_by_label(true, predicted, gold).sum()))
        return Swept(*map(np.array, zip(*rows, strict=True)))

    def _count(self, thresholds: NDArray[np.float32]) -> tuple[Counts, Counts, Counts]:
        """Return what `count` does for the decisions that thresholds, (K,), give."""
        raise NotImplementedError


class DecodedSweep(Sweep):
    """Sweep for any rule, by decoding all documents for each step.

    Args:
        decoder: makes the rule from thresholds, (K,).
        probabilities: (N, K).
        gold: (N, K).
    """

    def __init__(
        self, decoder: Callable[[NDArray[np.float32]], Decoder], probabilities: Probabilities, gold: Gold
    ) -> None:
        self._decoder, self._probabilities, self._gold = decoder, probabilities, gold

    def _count(self, thresholds: NDArray[np.float32]) -> tuple[Counts, Counts, Counts]:
        return count(self._decoder(thresholds)(self._probabilities), self._gold)


class BestPathSweep(Sweep):
    """Sweep for ``best-path`` with thresholds that are the same for all labels of a level.

    Which of the paths that end at a level is the best one does not depend on them: they only choose among the best of
    each level. Gold labels are taken to come with their parents.
    """

    def __init__(self, taxonomy: Taxonomy, probabilities: Probabilities, gold: Gold, allow_inner_nodes: bool) -> None:
        self._tree = level_order(taxonomy)
        self._first = np.array([level[0] for level in taxonomy.levels])
        self._gold = np.count_nonzero(gold, axis=0)[self._tree.labels]
        shape = (len(gold), taxonomy.depth)
        self._ends, self._right = np.empty(shape, dtype=np.int64), np.empty(shape, dtype=np.int64)
        self._sums = np.empty(shape, dtype=np.float32)
        penalties = end_penalties(taxonomy, allow_inner_nodes)
        for rows in blocks(probabilities):
            sums = self._tree.arrange(probabilities[rows])
            take_log_odds(sums)
            self._tree.carry_down(sums, np.add)
            sums += penalties
            deepest = np.where(self._tree.arrange(gold[rows]), np.arange(len(taxonomy)), -1)
            self._tree.carry_down(deepest, np.maximum)  # the deepest gold label of the path to each: places grow
            for depth, span in enumerate(self._tree.spans):
                ends = span.start + sums[:, span].argmax(axis=1)[:, None]
                self._ends[rows, depth] = ends[:, 0]
                self._sums[rows, depth] = np.take_along_axis(sums, ends, axis=1)[:, 0]
                self._right[rows, depth] = np.take_along_axis(deepest, ends, axis=1)[:, 0]

    def _count(self, thresholds: NDArray[np.float32]) -> tuple[Counts, Counts, Counts]:
        odds = thresholds[self._first]
        take_log_odds(odds)
        length = (self._sums - np.cumsum(odds)).argmax(axis=1)  # the first of equally good ones, as the rule does
        every = np.arange(len(self._ends))
        right = self._right[every, length]
        return self._on_paths(right[right >= 0]), self._on_paths(self._ends[every, length]), self._gold

    def _on_paths(self, ends: NDArray[np.int64]) -> Counts:
        """Return how many of the paths to some places go through each place."""
        counts = np.bincount(ends, minlength=len(self._gold))[None]
        self._tree.carry_up(counts, np.add)
        passing: Counts = counts[0]
        return passing


class RuleSweep(Sweep):
    """Sweep for rules under which a lower threshold never takes a label away: all but those of paths.

    Each decision then has one critical value, below which the threshold must lie. For a label on its own it is its
    probability; ``closure`` gives a label for the sake of any below it, so that it is the largest of these; where the
    parent is needed it is the least of all above.
    """

    steps = np.arange(1, STEPS)

    def __init__(self, taxonomy: Taxonomy, rule: Rule, probabilities: Probabilities, gold: Gold) -> None:
        self._tree, self._rule = level_order(taxonomy), rule
        compared = monotone(probabilities, taxonomy) if rule == "min-parent" else probabilities
        self._probabilities = self._tree.arrange(compared)
        self._gold = np.ascontiguousarray(self._tree.arrange(gold).T)

    def __call__(self, thresholds: NDArray[np.float32], labels: NDArray[np.int64]) -> Swept:
        """Return the counts of each step, from the thresholds of all labels, (K,), and the labels that are swept."""
        swept = np.zeros(len(thresholds), dtype=np.bool_)
        swept[labels] = True
        highest = self._highest_steps(thresholds[self._tree.labels], swept[self._tree.labels])
        number = len(self.steps)
        sums = Swept(np.zeros(number, np.int64), np.zeros(number, np.int64), np.zeros(number))
        size = max(1, BLOCK // max(1, highest.shape[1]))
        for start in range(0, len(highest), size):
            part = slice(start, start + size)
            gold = self._gold[part]
            predicted, true = _counts_at(highest[part], None), _counts_at(highest[part], gold)
            sums.true[:] += true.sum(axis=0)
            sums.predicted[:] += predicted.sum(axis=0)
            sums.f1[:] += f1_by_label(true, predicted, np.count_nonzero(gold, axis=1)[:, None]).sum(axis=0)
        return sums

    def _highest_steps(self, thresholds: NDArray[np.float32], swept: NDArray[np.bool_]) -> NDArray[np.uint8]:
        """Return for each label and document, (K, N), the number of steps, from 0 on, at which it is given."""
        highest = np.empty(self._gold.shape, dtype=np.uint8)
        for rows in blocks(self._probabilities):
            block = self._probabilities[rows].copy()
            if not swept.all():
                block = np.where(swept, block, np.where(block > thresholds, ALWAYS, NEVER))
            if self._rule == "closure":
                self._tree.carry_up(block, np.maximum)
            elif self._rule != "threshold":
                self._tree.carry_down(block, np.minimum)
            # p > j / STEPS just where ⌈p STEPS⌉ > j: multiplying by a power of two rounds nothing.
            highest[:, rows] = np.clip(np.ceil(block * np.float32(STEPS)), 0, STEPS + 1).astype(np.uint8).T
        return highest


def _counts_at(highest: NDArray[np.uint8], among: NDArray[np.bool_] | None) -> Counts:
    """Return for each label and step, (K, steps), the documents that are given it, all or those of a mask, (K, N)."""
    bins = STEPS + 2
    index = highest + (bins * np.arange(len(highest)))[:, None]
    counts = np.bincount((index if among is None else index[among]).ravel(), minlength=bins * len(highest))
    at_least = np.cumsum(counts.reshape(len(highest), bins)[:, ::-1], axis=1)[:, ::-1]
    above: Counts = at_least[:, RuleSweep.steps + 1]
    return above


def count(predicted: NDArray[np.bool_], gold: Gold) -> tuple[Counts, Counts, Counts]:
    """Return for each label, (K,), its true positives, how often it is predicted, and how many documents have it."""
    true, given, positives = (np.count_nonzero(matrix, axis=0) for matrix in (predicted & gold, predicted, gold))
    return true, given, positives


def f1_by_label(true: Counts, predicted: Counts, gold: Counts) -> NDArray[np.float64]:
    """Return F1 from counts; 0 where it is undefined."""
    scores: NDArray[np.float64] = 2 * true / np.maximum(predicted + gold, 1)
    return scores
