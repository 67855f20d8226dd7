"""Thresholds: the probabilities above which labels are given, tuned on dev for a metric and a decoding rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from hgclr.decisions.decoding import Decoder, Rule, monotone
from hgclr.errors import InputError
from hgclr.taxonomy import Taxonomy

__all__ = ["METRICS", "SCOPES", "Metric", "Scope", "ThresholdTuner", "f1", "scopes_of"]

Scope = Literal["global", "level", "label"]
Metric = Literal["micro", "macro"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
METRICS: tuple[Metric, ...] = get_args(Metric)

COARSE = np.linspace(0.05, 0.95, 19)
FINE = np.arange(-4, 5) * 0.01
"""Candidates for one threshold, then around the best of them."""
ROUNDS = 2
"""How often all levels are gone through at most, and how often all labels are for Micro-F1."""
NEED_PARENT: tuple[Rule, ...] = ("drop-orphans", "min-parent", "top-down")
BY_PATH: tuple[Rule, ...] = ("best-path", "top-k-paths")

Probabilities = NDArray[np.float32]
Gold = NDArray[np.bool_]
Thresholds = NDArray[np.float32]


def scopes_of(rule: Rule) -> tuple[Scope, ...]:
    """Return how many thresholds can be tuned for a rule: where whole paths compete, a label has none of its own."""
    return SCOPES[:-1] if rule in BY_PATH else SCOPES


@dataclass(frozen=True)
class ThresholdTuner:
    """Find the thresholds with the best F1 on documents that were not trained on.

    Args:
        taxonomy: the label tree.
        rule: the decoding rule that will be used with them.
        metric: ``micro``- or ``macro``-F1.
        shrinkage: m; the threshold of a label with n documents lies between its own best one and its level's, in log
            odds ``(n t_own + m t_level) / (n + m)``: what a handful of documents say is mostly chance.
        paths, stop_inside: of the decoding rule.
    """

    taxonomy: Taxonomy
    rule: Rule = "threshold"
    metric: Metric = "macro"
    shrinkage: float = 10.0
    paths: int = 1
    stop_inside: bool = True

    def tune(self, scope: Scope, probabilities: Probabilities, gold: Gold) -> Thresholds:
        """Return a threshold for each label, (K,).

        On the documents given, thresholds per level score at least as well as one for all, and those per label at least
        as well as those per level. A label that no document has takes its level's threshold.

        Args:
            scope: one ``global`` threshold, one per ``level``, or one per ``label``; see :func:`scopes_of`.
            probabilities: (N, K).
            gold: (N, K).

        Raises:
            InputError: if the rule has no such thresholds, or no document has a label.
        """
        if scope not in scopes_of(self.rule):
            remedy = f"choose one of {', '.join(scopes_of(self.rule))}"
            raise InputError(f"{self.rule} has no thresholds per {scope!r}", remedy=remedy)
        if not gold.any():
            raise InputError("no document has a label, so that no threshold can be tuned")
        every = np.arange(len(self.taxonomy))
        found = self._searched(np.full(len(every), 0.5, dtype=np.float32), every, probabilities, gold)
        if scope != "global":
            found = self._per_level(found, probabilities, gold)
        return self._per_label(found, probabilities, gold) if scope == "label" else found

    def score(self, thresholds: Thresholds, probabilities: Probabilities, gold: Gold) -> float:
        """Return the F1 that thresholds give."""
        return f1(self.decoder(thresholds)(probabilities), gold, self.metric)

    def decoder(self, thresholds: Thresholds) -> Decoder:
        """Return what decides with thresholds, (K,)."""
        return Decoder(self.taxonomy, self.rule, thresholds, paths=self.paths, stop_inside=self.stop_inside)

    def _searched(
        self, thresholds: Thresholds, labels: NDArray[np.int64], probabilities: Probabilities, gold: Gold
    ) -> Thresholds:
        """Return thresholds in which some labels have the best of one threshold for all of them.

        Of equally good ones it is that next to the threshold that they have.
        """
        start = float(thresholds[labels[0]])
        best, reached = thresholds, self.score(thresholds, probabilities, gold)
        for candidates in (COARSE, FINE):
            middle = 0.0 if candidates is COARSE else float(best[labels[0]])
            for value in sorted((middle + candidates).tolist(), key=lambda value: abs(value - start)):
                if 0 < value < 1:
                    changed = thresholds.copy()
                    changed[labels] = value
                    if (score := self.score(changed, probabilities, gold)) > reached:
                        best, reached = changed, score
        return best

    def _per_level(self, thresholds: Thresholds, probabilities: Probabilities, gold: Gold) -> Thresholds:
        """Change one level's threshold at a time, as long as the score of all labels grows."""
        for _ in range(ROUNDS):
            before = thresholds
            for level in self.taxonomy.levels:
                thresholds = self._searched(thresholds, level, probabilities, gold)
            if thresholds is before:
                break
        return thresholds

    def _per_label(self, of_level: Thresholds, probabilities: Probabilities, gold: Gold) -> Thresholds:
        """Return each label's own threshold, unless its level's are better.

        F1 of one label is all that its threshold decides in Macro-F1. In Micro-F1, ``2 TP / (P + G)``, it is its share
        of ``2 TP - F (P + G)`` with F the Micro-F1 reached so far, which grows in every round until it is the best
        (Dinkelbach, 1967).
        """
        best, reached = of_level, self.score(of_level, probabilities, gold)
        for _ in range(ROUNDS if self.metric == "micro" else 1):
            found = self._own(of_level, probabilities, gold, reached if self.metric == "micro" else None)
            score = self.score(found, probabilities, gold)
            if score < reached:
                break
            best, reached = found, score
        return best

    def _own(self, of_level: Thresholds, probabilities: Probabilities, gold: Gold, reached: float | None) -> Thresholds:
        """Find each label's own best threshold, and draw it towards its level's.

        The rule decides where a label's threshold matters: only below a parent that is given, so that parents come
        first; or, with ``closure``, only where no child is given, so that children do.
        """
        compared = monotone(probabilities, self.taxonomy) if self.rule == "min-parent" else probabilities
        levels = self.taxonomy.levels[::-1] if self.rule == "closure" else self.taxonomy.levels
        found = of_level.copy()
        given = np.zeros(gold.shape, dtype=np.bool_)
        for label in np.concatenate(levels).tolist():
            column, right = compared[:, label], gold[:, label]
            fixed = np.zeros(len(gold), dtype=np.bool_)  # given whatever the threshold
            free = np.ones(len(gold), dtype=np.bool_)
            if self.rule == "closure":
                fixed = np.logical_or.reduce(given[:, self.taxonomy.children(label)], axis=1)
                free = ~fixed
            elif self.rule in NEED_PARENT and (parent := self.taxonomy.parents[label]) >= 0:
                free = given[:, parent]
            if free.any() and (positives := int(right.sum())):
                before = int(right[fixed].sum()), int(fixed.sum())
                own = _best_cut(column[free], right[free], positives, before, reached)
                found[label] = self._shrunk(own, float(of_level[label]), positives)
            given[:, label] = fixed | (free & (column > found[label]))
        return found

    def _shrunk(self, own: float, of_level: float, positives: int) -> float:
        odds = (positives * _logit(own) + self.shrinkage * _logit(of_level)) / (positives + self.shrinkage)
        return float(1 / (1 + np.exp(-odds)))


def f1(predicted: NDArray[np.bool_], gold: Gold, metric: Metric) -> float:
    """Return Micro- or Macro-F1 over all labels; an undefined F1 is 0."""
    true = np.count_nonzero(predicted & gold, axis=0)
    both = np.count_nonzero(predicted, axis=0) + np.count_nonzero(gold, axis=0)
    if metric == "micro":
        return float(2 * true.sum() / max(int(both.sum()), 1))
    return float((2 * true / np.maximum(both, 1)).mean())


def _best_cut(
    probabilities: Probabilities, gold: Gold, positives: int, before: tuple[int, int], reached: float | None
) -> float:
    """Return the threshold of one label, half-way between the last document that is given it and the first that is not.

    Args:
        probabilities: of the documents that the threshold decides about, (n,), at least one.
        gold: whether they have it, (n,).
        positives: how many documents have it, also among those that the threshold does not decide about.
        before: how many of the others are rightly given it, and how many at all.
        reached: Micro-F1 so far; None for the label's own F1.
    """
    order = np.argsort(-probabilities, kind="stable")
    falling = np.append(probabilities[order], np.float32(0))
    # What is right and what is given, if the first 0, 1, … documents are given the label.
    right = before[0] + np.append(0, np.cumsum(gold[order]))
    number = before[1] + np.arange(len(order) + 1)
    worth = 2 * right / (number + positives) if reached is None else 2 * right - reached * number
    # A cut can only be made between two different probabilities.
    possible = np.append(True, falling[:-1] != falling[1:])
    cut = int(np.where(possible, worth, -np.inf).argmax())
    above, below = np.float32(1) if cut == 0 else falling[cut - 1], falling[cut]
    middle = np.float32((np.float64(above) + below) / 2)
    # Of neighbouring numbers there is none between.
    return float(middle if cut == 0 or middle < above else below)


def _logit(probability: float) -> float:
    inside = min(max(probability, 1e-9), 1 - 1e-9)
    return float(np.log(inside / (1 - inside)))
