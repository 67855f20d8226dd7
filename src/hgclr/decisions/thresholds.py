"""Thresholds: the probabilities above which labels are given, tuned on dev for a metric and a decoding rule."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from hgclr.decisions.decoding import Decoder, Rule
from hgclr.decisions.sweeps import STEPS, BestPathSweep, DecodedSweep, RuleSweep, Sweep, count, f1_by_label
from hgclr.errors import InputError
from hgclr.taxonomy import Taxonomy
from hgclr.taxonomy.level_order import monotone

__all__ = ["METRICS", "SCOPES", "Metric", "Scope", "ThresholdTuner", "f1", "scopes_of", "weighed"]

Scope = Literal["global", "level", "label"]
Metric = Literal["both", "micro", "macro"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
METRICS: tuple[Metric, ...] = get_args(Metric)

ROUNDS = 2
"""How often all levels are gone through at most, and how often all labels are where Micro-F1 counts."""
NEED_PARENT: tuple[Rule, ...] = ("drop-orphans", "min-parent", "top-down")
BY_PATH: tuple[Rule, ...] = ("best-path", "top-k-paths")

Probabilities = NDArray[np.float32]
Gold = NDArray[np.bool_]
Thresholds = NDArray[np.float32]
Amount = TypeVar("Amount", float, NDArray[np.float64])


def scopes_of(rule: Rule) -> tuple[Scope, ...]:
    """Return how many thresholds can be tuned for a rule: where whole paths compete, a label has none of its own."""
    return SCOPES[:-1] if rule in BY_PATH else SCOPES


@dataclass(frozen=True)
class ThresholdTuner:
    """Find the thresholds with the best F1 on documents that were not trained on.

    What a handful of documents say is mostly chance, so each threshold is drawn towards another: with n documents, in
    log odds, it is ``(n t_own + m t_other) / (n + m)``. For a label, the other is that of its level, and n counts the
    documents that have the label; for a level, and for all labels, it is one half, and n counts the documents that
    have a label there.

    Args:
        taxonomy: the label tree.
        rule: the decoding rule that will be used with them.
        metric: ``micro``- or ``macro``-F1, or the mean of ``both``.
        shrinkage: m.
        paths, allow_inner_nodes: of the decoding rule.
    """

    taxonomy: Taxonomy
    rule: Rule = "threshold"
    metric: Metric = "both"
    shrinkage: float = 10.0
    paths: int = 1
    allow_inner_nodes: bool = True

    def tune(self, scope: Scope, probabilities: Probabilities, gold: Gold) -> Thresholds:
        """Return a threshold for each label, (K,).

        Without shrinkage, thresholds per level score at least as well on the documents given as one for all, and those
        per label at least as well as those per level. A label that no document has takes its level's threshold.

        Args:
            scope: one ``global`` threshold, one per ``level``, or one per ``label``; see :func:`scopes_of`.
            probabilities: (N, K).
            gold: (N, K), every label with its parent.

        Raises:
            InputError: if the rule has no such thresholds, or no document has a label.
        """
        return self.tune_all((scope,), probabilities, gold)[scope]

    def tune_all(self, scopes: Collection[Scope], probabilities: Probabilities, gold: Gold) -> dict[Scope, Thresholds]:
        """Return the thresholds of several scopes, in less time than one after the other; see :meth:`tune`."""
        for scope in scopes:
            if scope not in scopes_of(self.rule):
                remedy = f"choose one of {', '.join(scopes_of(self.rule))}"
                raise InputError(f"{self.rule} has no thresholds per {scope!r}", remedy=remedy)
        if not gold.any():
            raise InputError("no document has a label, so that no threshold can be tuned")
        if not scopes:
            return {}
        positives = np.count_nonzero(gold, axis=0)
        sweep, every = self._sweep(probabilities, gold), np.arange(len(self.taxonomy))
        total = int(positives.sum())
        best = self._searched(sweep, np.full(len(every), 0.5, dtype=np.float32), every, total)
        found: dict[Scope, Thresholds] = {"global": self._towards_half(best, [every], gold)}
        if not {"level", "label"}.isdisjoint(scopes):
            best = self._per_level(sweep, best, total)
            found["level"] = self._towards_half(best, self.taxonomy.levels, gold)
        if "label" in scopes:
            found["label"] = self._per_label(found["level"], probabilities, gold)
        return {scope: found[scope] for scope in scopes}

    def score(self, thresholds: Thresholds, probabilities: Probabilities, gold: Gold) -> float:
        """Return the F1 that thresholds give."""
        return f1(self.decoder(thresholds)(probabilities), gold, self.metric)

    def decoder(self, thresholds: Thresholds) -> Decoder:
        """Return what decides with thresholds, (K,)."""
        return Decoder(self.taxonomy, self.rule, thresholds, paths=self.paths, allow_inner_nodes=self.allow_inner_nodes)

    def _sweep(self, probabilities: Probabilities, gold: Gold) -> Sweep:
        if self.rule == "best-path":
            return BestPathSweep(self.taxonomy, probabilities, gold, self.allow_inner_nodes)
        if self.rule == "top-k-paths":
            return DecodedSweep(self.decoder, probabilities, gold)
        return RuleSweep(self.taxonomy, self.rule, probabilities, gold)

    def _searched(self, sweep: Sweep, thresholds: Thresholds, labels: NDArray[np.int64], positives: int) -> Thresholds:
        """Return thresholds in which some labels have the best of one threshold for all of them.

        Of equally good ones it is that next to the threshold that they have.
        """
        true, given, scores = sweep(thresholds, labels)
        values = weighed(self.metric, 2 * true / (given + positives), scores / len(self.taxonomy))
        grid = sweep.steps / STEPS
        near = np.argsort(np.abs(grid - thresholds[labels[0]]), kind="stable")
        changed = thresholds.copy()
        changed[labels] = grid[near[values[near].argmax()]]
        return changed

    def _per_level(self, sweep: Sweep, thresholds: Thresholds, positives: int) -> Thresholds:
        """Change one level's threshold at a time, as long as the score of all labels grows."""
        if self.taxonomy.depth == 1:
            return thresholds
        for _ in range(ROUNDS):
            before = thresholds
            for level in self.taxonomy.levels:
                thresholds = self._searched(sweep, thresholds, level, positives)
            if np.array_equal(thresholds, before):
                break
        return thresholds

    def _towards_half(self, best: Thresholds, groups: Collection[NDArray[np.int64]], gold: Gold) -> Thresholds:
        """Draw the one threshold of each group of labels towards one half."""
        drawn = best.copy()
        for labels in groups:
            documents = int(np.count_nonzero(np.logical_or.reduce(gold[:, labels], axis=1)))
            drawn[labels] = self._shrunk(float(best[labels[0]]), 0.5, documents)
        return drawn

    def _per_label(self, of_level: Thresholds, probabilities: Probabilities, gold: Gold) -> Thresholds:
        """Return each label's own threshold, unless its level's are better.

        For Macro-F1 one label after the other is enough. Micro-F1 depends on what all others give, so that a second
        round knows better.
        """
        search = _OwnThresholds(self, probabilities, gold)
        best, reached = of_level, self.score(of_level, probabilities, gold)
        for _ in range(1 if self.metric == "macro" else ROUNDS):
            found = search(of_level, best)
            score = self.score(found, probabilities, gold)
            if score < reached:
                break
            best, reached = found, score
        return best

    def _shrunk(self, own: float, other: float, documents: int) -> float:
        if not documents:
            return other
        odds = (documents * log_odds(own) + self.shrinkage * log_odds(other)) / (documents + self.shrinkage)
        return float(1 / (1 + np.exp(-odds)))


class _OwnThresholds:
    """Find each label's own best threshold, and draw it towards its level's.

    The rule decides where a label's threshold matters: only below a parent that is given, so that parents come first;
    or, with ``closure``, only where no child is given, so that children do.
    """

    def __init__(self, tuner: ThresholdTuner, probabilities: Probabilities, gold: Gold) -> None:
        self._tuner, self._probabilities, self._gold = tuner, probabilities, gold
        compared = monotone(probabilities, tuner.taxonomy) if tuner.rule == "min-parent" else probabilities
        self._columns, self._right = np.ascontiguousarray(compared.T), np.ascontiguousarray(gold.T)
        self._positives = np.count_nonzero(gold, axis=0)

    def __call__(self, of_level: Thresholds, before: Thresholds) -> Thresholds:
        """Return thresholds from those of the levels, and those whose counts are the start; all (K,)."""
        tuner, taxonomy = self._tuner, self._tuner.taxonomy
        true, number, _ = count(tuner.decoder(before)(self._probabilities), self._gold)
        all_true, all_given = int(true.sum()), int(number.sum())
        found = of_level.copy()
        given = np.zeros(self._right.shape, dtype=np.bool_)
        levels = taxonomy.levels[::-1] if tuner.rule == "closure" else taxonomy.levels
        for label in np.concatenate(levels).tolist():
            column, right = self._columns[label], self._right[label]
            fixed, free = self._decided(label, given)
            others = all_true - int(true[label]), all_given - int(number[label])
            if self._positives[label] and free.any():
                surely = int(np.count_nonzero(right & fixed)), int(np.count_nonzero(fixed))
                own = self._best_cut(column[free], right[free], int(self._positives[label]), surely, others)
                found[label] = tuner._shrunk(own, float(of_level[label]), int(self._positives[label]))
            given[label] = fixed | (free & (column > found[label]))
            true[label], number[label] = np.count_nonzero(given[label] & right), np.count_nonzero(given[label])
            all_true, all_given = others[0] + int(true[label]), others[1] + int(number[label])
        return found

    def _decided(self, label: int, given: Gold) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return which documents are given a label whatever its threshold, and about which the threshold decides."""
        rule, taxonomy = self._tuner.rule, self._tuner.taxonomy
        if rule == "closure":
            fixed: NDArray[np.bool_] = np.logical_or.reduce(given[taxonomy.children(label)], axis=0)
            return fixed, ~fixed
        none = np.zeros(given.shape[1], dtype=np.bool_)
        parent = int(taxonomy.parents[label])
        return none, given[parent] if rule in NEED_PARENT and parent >= 0 else ~none

    def _best_cut(
        self, probabilities: Probabilities, gold: Gold, positives: int, surely: tuple[int, int], others: tuple[int, int]
    ) -> float:
        """Return the threshold of one label, half-way between the last document that is given it and the next.

        Args:
            probabilities: of the documents that the threshold decides about, (n,), at least one.
            gold: whether they have it, (n,).
            positives: how many documents have it, also among those that the threshold does not decide about.
            surely: how many of the others are rightly given it, and how many at all.
            others: how many labels are rightly given by all other thresholds, and how many at all.
        """
        order = np.argsort(-probabilities)
        falling = np.append(probabilities[order], np.float32(0))
        # What is right and what is given, if the first 0, 1, … documents are given the label.
        true = surely[0] + np.append(0, np.cumsum(gold[order]))
        given = surely[1] + np.arange(len(order) + 1)
        worth = weighed(
            self._tuner.metric,
            2 * (others[0] + true) / (others[1] + given + self._positives.sum()),
            f1_by_label(true, given, np.array(positives)) / len(self._positives),
        )
        # A cut can only be made between two different probabilities.
        possible = np.append(True, falling[:-1] != falling[1:])
        cut = int(np.where(possible, worth, -np.inf).argmax())
        above, below = np.float32(1) if cut == 0 else falling[cut - 1], falling[cut]
        middle = np.float32((np.float64(above) + below) / 2)
        # Of neighbouring numbers there is none between.
        return float(middle if cut == 0 or middle < above else below)


def f1(predicted: NDArray[np.bool_], gold: Gold, metric: Metric) -> float:
    """Return Micro- or Macro-F1 over all labels, or their mean; an undefined F1 is 0."""
    true, given, positives = count(predicted, gold)
    micro = 2 * int(true.sum()) / max(int(given.sum() + positives.sum()), 1)
    return weighed(metric, micro, float(f1_by_label(true, given, positives).mean()))


def weighed(metric: Metric, micro: Amount, macro: Amount) -> Amount:
    """Return what counts, from Micro- and Macro-F1."""
    return (micro + macro) / 2 if metric == "both" else micro if metric == "micro" else macro


def log_odds(probability: float) -> float:
    """Return ``log p / (1 - p)``, of 0 and 1 that of a number close to them."""
    inside = min(max(probability, 1e-9), 1 - 1e-9)
    return float(np.log(inside / (1 - inside)))
