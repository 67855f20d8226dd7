"""Thresholds: the probabilities above which labels are predicted, tuned on dev for a metric and a decoding rule."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Literal, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from hgclr.decisions.decoding import Decoder, Rule, end_penalties, take_log_odds
from hgclr.errors import InputError
from hgclr.metrics.scores import f1_of, score_group
from hgclr.taxonomy import Taxonomy
from hgclr.taxonomy.order import blocks

Scope = Literal["global", "level", "label"]
Metric = Literal["both", "micro", "macro"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
METRICS: tuple[Metric, ...] = get_args(Metric)

ROUNDS = 2
"""Maximum number of passes over all levels and, if Micro-F1 counts, over all labels."""
BY_PATH: tuple[Rule, ...] = ("best-path", "top-k-paths")
STEPS = 128
"""Grid thresholds are multiples of 1/128, which are exact in float32."""
ALWAYS, NEVER = np.float32(2), np.float32(-1)
"""Replace a probability that is not compared with the swept threshold."""
BLOCK = 2**18
"""Documents times labels counted at once."""

Probabilities = NDArray[np.float32]
Gold = NDArray[np.bool_]
Counts = NDArray[np.int64]
Thresholds = NDArray[np.float32]
Pair = tuple[int, int]
Amount = TypeVar("Amount", float, NDArray[np.float64])


class DecodedSweep:
    """Counts predicted labels at each threshold ``steps / STEPS``, by decoding all documents for each step.

    A call takes the thresholds of all labels, (K,), and the labels whose threshold is swept. It returns for every step
    true positives, predicted labels, and the sum of F1 over labels.
    """

    steps = np.arange(4, STEPS, 4)

    def __init__(self, decoder: Callable[[Thresholds], Decoder], probabilities: Probabilities, gold: Gold) -> None:
        self._decoder, self._probabilities, self._gold = decoder, probabilities, gold

    def __call__(self, thresholds: Thresholds, labels: NDArray[np.int64]) -> NDArray[np.float64]:
        rows = []
        for step in self.steps.tolist():
            changed = thresholds.copy()
            changed[labels] = step / STEPS
            true, predicted, gold = self._count(changed)
            rows.append((true.sum(), predicted.sum(), f1_of(true, predicted + gold).sum()))
        return np.array(rows, dtype=np.float64).T

    def _count(self, thresholds: Thresholds) -> tuple[Counts, Counts, Counts]:
        return count(self._decoder(thresholds)(self._probabilities), self._gold)


class BestPathSweep(DecodedSweep):
    """Sweep of ``best-path`` in a tree, with one threshold for each level.

    The best path that ends at a level does not depend on thresholds; they only choose the level. Gold labels include
    their ancestors.
    """

    def __init__(self, taxonomy: Taxonomy, probabilities: Probabilities, gold: Gold, allow_inner_nodes: bool) -> None:
        self._tree = taxonomy.order
        self._first = np.array([level[0] for level in taxonomy.levels])
        self._gold_counts = np.count_nonzero(gold, axis=0)[self._tree.labels]
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
            self._tree.carry_down(deepest, np.maximum)  # the deepest gold label on each path: places grow with depth
            for depth, span in enumerate(self._tree.spans):
                ends = span.start + sums[:, span].argmax(axis=1)[:, None]
                self._ends[rows, depth] = ends[:, 0]
                self._sums[rows, depth] = np.take_along_axis(sums, ends, axis=1)[:, 0]
                self._right[rows, depth] = np.take_along_axis(deepest, ends, axis=1)[:, 0]

    def _count(self, thresholds: Thresholds) -> tuple[Counts, Counts, Counts]:
        odds = thresholds[self._first]
        take_log_odds(odds)
        length = (self._sums - np.cumsum(odds)).argmax(axis=1)  # ties go to the first, as in the rule
        every = np.arange(len(self._ends))
        ends, right = self._ends[every, length], self._right[every, length]
        counts = np.stack([np.bincount(part, minlength=len(self._gold_counts)) for part in (right[right >= 0], ends)])
        self._tree.carry_up(counts, np.add)  # paths through each place
        return counts[0], counts[1], self._gold_counts


class RuleSweep:
    """Sweep of all steps at once, for rules where a lower threshold never removes a label: all but the path rules.

    Each decision has one critical value, and the label is predicted if the threshold is below it: its probability;
    with ``closure``, the maximum over the label and its descendants; with ``drop-orphans``, the minimum over the label
    and its ancestors.
    """

    steps = np.arange(1, STEPS)

    def __init__(self, taxonomy: Taxonomy, rule: Rule, probabilities: Probabilities, gold: Gold) -> None:
        self._tree, self._rule = taxonomy.order, rule
        self._probabilities = self._tree.arrange(probabilities)
        self._gold = np.ascontiguousarray(self._tree.arrange(gold).T)

    def __call__(self, thresholds: Thresholds, labels: NDArray[np.int64]) -> NDArray[np.float64]:
        swept = np.zeros(len(thresholds), dtype=np.bool_)
        swept[labels] = True
        highest = self._highest_steps(thresholds[self._tree.labels], swept[self._tree.labels])
        sums = np.zeros((3, len(self.steps)))
        size = max(1, BLOCK // max(1, highest.shape[1]))
        for start in range(0, len(highest), size):
            part = slice(start, start + size)
            gold = self._gold[part]
            predicted, true = _counts_at(highest[part], None), _counts_at(highest[part], gold)
            f1_scores = f1_of(true, predicted + np.count_nonzero(gold, axis=1)[:, None])
            sums += [true.sum(axis=0), predicted.sum(axis=0), f1_scores.sum(axis=0)]
        return sums

    def _highest_steps(self, thresholds: Thresholds, swept: NDArray[np.bool_]) -> NDArray[np.uint8]:
        """Return for each label and document, (K, N), the number of steps, from 0, at which it is predicted."""
        highest = np.empty(self._gold.shape, dtype=np.uint8)
        for rows in blocks(self._probabilities):
            block = self._probabilities[rows].copy()
            if not swept.all():
                block = np.where(swept, block, np.where(block > thresholds, ALWAYS, NEVER))
            if self._rule == "closure":
                self._tree.carry_up(block, np.maximum)
            elif self._rule != "threshold":
                self._tree.carry_down(block, np.minimum)
            # p > j / STEPS if and only if ⌈p STEPS⌉ > j: multiplying by a power of two is exact.
            highest[:, rows] = np.clip(np.ceil(block * np.float32(STEPS)), 0, STEPS + 1).astype(np.uint8).T
        return highest


def _counts_at(highest: NDArray[np.uint8], among: NDArray[np.bool_] | None) -> Counts:
    """Return for each label and step, (K, steps), in how many documents, all or of a mask, (K, N), it is predicted."""
    bins = STEPS + 2
    index = highest + (bins * np.arange(len(highest)))[:, None]
    counts = np.bincount((index if among is None else index[among]).ravel(), minlength=bins * len(highest))
    at_least = np.cumsum(counts.reshape(len(highest), bins)[:, ::-1], axis=1)[:, ::-1]
    above: Counts = at_least[:, RuleSweep.steps + 1]
    return above


def count(predicted: NDArray[np.bool_], gold: Gold) -> tuple[Counts, Counts, Counts]:
    """Return for each label, (K,), the number of true positives, predictions and gold documents."""
    true, given, positives = (np.count_nonzero(matrix, axis=0) for matrix in (predicted & gold, predicted, gold))
    return true, given, positives


def scopes_of(rule: Rule) -> tuple[Scope, ...]:
    """Return the scopes of thresholds that a rule supports: path rules have no threshold per label."""
    return SCOPES[:-1] if rule in BY_PATH else SCOPES


@dataclass(frozen=True)
class ThresholdTuner:
    """Finds the thresholds with the best F1 on documents that were not used in training.

    With few documents a threshold is unreliable, so it is shrunk towards another: in log odds it becomes
    ``(n t_own + m t_other) / (n + m)``. A label's threshold is shrunk towards that of its level, and n counts the
    documents with the label. A level's threshold, or the global one, is shrunk towards 0.5, and n counts the documents
    with one of its labels.

    Args:
        taxonomy: the label tree.
        rule: the decoding rule that will be used with the thresholds.
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

    def tune(self, scopes: Collection[Scope], probabilities: Probabilities, gold: Gold) -> dict[Scope, Thresholds]:
        """Return thresholds of all labels, (K,), by scope: one ``global``, one per ``level``, or one per ``label``.

        Without shrinkage, thresholds per level score at least as well on these documents as a global one, and those per
        label at least as well as those per level. A label without a document gets its level's threshold, a level
        without a document gets 0.5.

        ``scopes`` are among :func:`scopes_of`; gold labels, (N, K), include their ancestors.
        """
        if unfit := [scope for scope in scopes if scope not in scopes_of(self.rule)]:
            remedy = f"choose one of {', '.join(scopes_of(self.rule))}"
            raise InputError(f"{self.rule} has no thresholds per {unfit[0]!r}", remedy=remedy)
        if not gold.any():
            raise InputError("no document has a label, so no threshold can be tuned")
        if not scopes:
            return {}
        sweep: DecodedSweep | RuleSweep
        if self.rule == "best-path" and self.taxonomy.is_tree:
            sweep = BestPathSweep(self.taxonomy, probabilities, gold, self.allow_inner_nodes)
        elif self.rule in BY_PATH:
            sweep = DecodedSweep(self.decoder, probabilities, gold)
        else:
            sweep = RuleSweep(self.taxonomy, self.rule, probabilities, gold)
        every = np.arange(len(self.taxonomy))
        total = int(np.count_nonzero(gold))
        best = self._searched(sweep, np.full(len(every), 0.5, dtype=np.float32), every, total)

        def towards_half(groups: Collection[NDArray[np.int64]]) -> Thresholds:
            """Return thresholds with that of each group of labels shrunk towards 0.5."""
            shrunk = best.copy()
            for labels in groups:
                documents = int(np.count_nonzero(np.logical_or.reduce(gold[:, labels], axis=1)))
                shrunk[labels] = self._shrunk(float(best[labels[0]]), 0.5, documents)
            return shrunk

        tuned: dict[Scope, Thresholds] = {"global": towards_half([every])}
        if not {"level", "label"}.isdisjoint(scopes):
            for _ in range(ROUNDS if self.taxonomy.depth > 1 else 0):
                before = best
                for level in self.taxonomy.levels:
                    best = self._searched(sweep, best, level, total)
                if np.array_equal(best, before):
                    break
            tuned["level"] = towards_half(self.taxonomy.levels)
        if "label" in scopes:
            tuned["label"] = self._per_label(tuned["level"], probabilities, gold)
        return {scope: tuned[scope] for scope in scopes}

    def score(self, thresholds: Thresholds, probabilities: Probabilities, gold: Gold) -> float:
        return f1(self.decoder(thresholds)(probabilities), gold, self.metric)

    def decoder(self, thresholds: Thresholds) -> Decoder:
        return Decoder(self.taxonomy, self.rule, thresholds, paths=self.paths, allow_inner_nodes=self.allow_inner_nodes)

    def _searched(
        self, sweep: DecodedSweep | RuleSweep, thresholds: Thresholds, labels: NDArray[np.int64], total: int
    ) -> Thresholds:
        """Return thresholds with the best common one for ``labels``; ties go to the nearest to their current one."""
        true, predicted, scores = sweep(thresholds, labels)
        values = weighed(self.metric, 2 * true / (predicted + total), scores / len(self.taxonomy))
        grid = sweep.steps / STEPS
        near = np.argsort(np.abs(grid - thresholds[labels[0]]), kind="stable")
        changed = thresholds.copy()
        changed[labels] = grid[near[values[near].argmax()]]
        return changed

    def _shrunk(self, own: float, other: float, documents: int) -> float:
        if not documents:
            return other
        inside = np.clip([own, other], 1e-9, 1 - 1e-9)
        odds = np.average(np.log(inside / (1 - inside)), weights=[documents, self.shrinkage])
        return float(1 / (1 + np.exp(-odds)))

    def _per_label(self, of_level: Thresholds, probabilities: Probabilities, gold: Gold) -> Thresholds:
        """Return a threshold for each label, or those of the levels if they score better.

        For Macro-F1 one pass is enough. Micro-F1 depends on all labels, so a second pass can improve it.
        """
        best, reached = of_level, self.score(of_level, probabilities, gold)
        for _ in range(1 if self.metric == "macro" else ROUNDS):
            own = self._own_thresholds(of_level, best, probabilities, gold)
            score = self.score(own, probabilities, gold)
            if score < reached:
                break
            best, reached = own, score
        return best

    def _own_thresholds(
        self, of_level: Thresholds, start: Thresholds, probabilities: Probabilities, gold: Gold
    ) -> Thresholds:
        """Return each label's best threshold, shrunk towards its level's; counts start from those of ``start``.

        With ``drop-orphans`` a threshold matters only below predicted parents, so parents come first; with
        ``closure`` only where no child is predicted, so children come first.
        """
        taxonomy = self.taxonomy
        columns, right = np.ascontiguousarray(probabilities.T), np.ascontiguousarray(gold.T)
        counts = count(self.decoder(start)(probabilities), gold)
        true, predicted, support = counts
        all_true, all_predicted, total = (int(each.sum()) for each in counts)
        tuned, chosen = of_level.copy(), np.zeros(right.shape, dtype=np.bool_)
        generations = taxonomy.generations[::-1] if self.rule == "closure" else taxonomy.generations
        for label in np.concatenate(generations).tolist():
            fixed = np.zeros(len(gold), dtype=np.bool_)  # documents with the label at any threshold
            free = ~fixed  # documents where the threshold decides
            if self.rule == "closure":
                fixed = np.logical_or.reduce(chosen[taxonomy.children(label)], axis=0)
                free = ~fixed
            elif self.rule == "drop-orphans":
                free = np.logical_and.reduce(chosen[list(taxonomy.parents_of(label))], axis=0)
            others = all_true - int(true[label]), all_predicted - int(predicted[label])
            if support[label] and free.any():
                own = self._best_cut(
                    columns[label][free],
                    right[label][free],
                    certain=(int(np.count_nonzero(right[label] & fixed)), int(np.count_nonzero(fixed))),
                    others=others,
                    support=(int(support[label]), total),
                )
                tuned[label] = self._shrunk(own, float(of_level[label]), int(support[label]))
            chosen[label] = fixed | (free & (columns[label] > tuned[label]))
            true[label] = np.count_nonzero(chosen[label] & right[label])
            predicted[label] = np.count_nonzero(chosen[label])
            all_true, all_predicted = others[0] + int(true[label]), others[1] + int(predicted[label])
        return tuned

    def _best_cut(
        self, probabilities: Probabilities, gold: Gold, *, certain: Pair, others: Pair, support: Pair
    ) -> float:
        """Return the best threshold of one label, halfway between the last document that gets the label and the next.

        Probabilities and gold, (n,), are of the documents where the threshold decides. The pairs are: ``certain``, true
        positives and predictions of the label in other documents; ``others``, the same for all other labels;
        ``support``, gold documents of the label and of all labels.
        """
        order = np.argsort(-probabilities)
        falling = np.append(probabilities[order], np.float32(0))
        # True positives and predictions if the first 0, 1, … documents get the label.
        true = certain[0] + np.append(0, np.cumsum(gold[order]))
        predicted = certain[1] + np.arange(len(order) + 1)
        worth = weighed(
            self.metric,
            2 * (others[0] + true) / (others[1] + predicted + support[1]),
            f1_of(true, predicted + support[0]) / len(self.taxonomy),
        )
        # A cut can only be made between two different probabilities.
        possible = np.append(True, falling[:-1] != falling[1:])
        cut = int(np.where(possible, worth, -np.inf).argmax())
        above, below = np.float32(1) if cut == 0 else falling[cut - 1], falling[cut]
        middle = np.float32((np.float64(above) + below) / 2)
        # Adjacent float32 numbers have none in between.
        return float(middle if cut == 0 or middle < above else below)


def f1(predicted: NDArray[np.bool_], gold: Gold, metric: Metric) -> float:
    """Return Micro- or Macro-F1 over all labels, or their mean; an undefined F1 is 0."""
    scores = score_group(*count(predicted, gold))
    return weighed(metric, scores.micro.f1, scores.macro.f1)


def weighed(metric: Metric, micro: Amount, macro: Amount) -> Amount:
    """Return the score to maximise, from Micro- and Macro-F1."""
    return (micro + macro) / 2 if metric == "both" else micro if metric == "micro" else macro
