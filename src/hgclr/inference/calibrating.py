"""Find out on dev how a model should decide: calibration, decoding rule, thresholds.

What is fitted to documents looks better on them than on others. So every choice is compared on the halves of dev that
it was not fitted to; what wins is then fitted to the whole.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hgclr.decisions.calibration import Method, fit, sigmoid, silent_levels
from hgclr.decisions.decoding import Rule
from hgclr.decisions.settings import Decisions
from hgclr.decisions.thresholds import Metric, Scope, ThresholdTuner, f1, scopes_of
from hgclr.errors import InputError
from hgclr.evaluation.calibration_error import CalibrationScores
from hgclr.inference.classifier import HierarchicalClassifier
from hgclr.inference.outputs import Outputs, read_outputs
from hgclr.level_order import monotone
from hgclr.taxonomy import Taxonomy

__all__ = ["Calibrated", "Candidate", "Outputs", "calibrate", "read_outputs"]

logger = logging.getLogger(__name__)


Thresholds = Scope | Literal["none"]
Halves = list[NDArray[np.int64]]


@dataclass(frozen=True)
class Candidate:
    """One way to decide, and its F1 on documents that it was not fitted to."""

    rule: Rule
    thresholds: Thresholds
    f1: float


@dataclass(frozen=True, eq=False)
class Calibrated:
    """What was found.

    Args:
        decisions: the best way to decide; how it was found is in ``decisions.found``.
        f1_today: F1 of how the model decided until now.
        candidates: all that were compared.
        best: the one of them that ``decisions`` are.
        before, after: how far probabilities are from frequencies, without calibration and with it, on documents that it
            was not fitted to.
    """

    decisions: Decisions
    f1_today: float
    candidates: list[Candidate]
    best: Candidate
    before: CalibrationScores
    after: CalibrationScores


def calibrate(
    classifier: HierarchicalClassifier,
    outputs: Outputs,
    *,
    method: Method | Literal["none"] = "temperature",
    rule: Rule | Literal["auto"] = "auto",
    scope: Thresholds | Literal["auto"] = "auto",
    metric: Metric = "macro",
    paths: int | None = None,
    risk: float | None = None,
    shrinkage: float = 10.0,
    seed: int = 0,
) -> Calibrated:
    """Find the best decisions on documents that the model was not trained on.

    What the documents cannot tell is said in the log: levels that cannot be calibrated, labels without a threshold of
    their own.

    Args:
        classifier: the model.
        outputs: what it says of them.
        method: calibration of probabilities, see :mod:`hgclr.decisions.calibration`.
        rule: decoding rule; ``auto`` compares those that never give a child without its parent.
        scope: thresholds, see :class:`~hgclr.decisions.thresholds.ThresholdTuner`; ``auto`` compares all that the best
            rule has, ``none`` leaves them at one half. Where a rule has none per label, those per level are taken.
        metric: what to compare by.
        paths: k of ``top-k-paths``.
        risk: choose how sure a label must be so that at most this share of the given labels is wrong.
        shrinkage: see :class:`~hgclr.decisions.thresholds.ThresholdTuner`.
        seed: decides which documents are in which half.

    Raises:
        InputError: if fewer than two documents have a label.
    """
    taxonomy, gold, today = classifier.taxonomy, outputs.gold, classifier.decisions
    halves = _halves(gold, seed)
    stop_inside, paths = _ends_inside(gold, taxonomy), paths or today.paths
    plain = sigmoid(outputs.logits.copy())
    calibrated = plain if method == "none" else _held_out_probabilities(outputs, halves, method, taxonomy)

    def tuner(of: Rule) -> ThresholdTuner:
        return ThresholdTuner(taxonomy, of, metric, shrinkage, paths, stop_inside)

    def candidate(of: Rule, thresholds: Thresholds) -> Candidate:
        return Candidate(of, thresholds, _held_out(tuner(of), thresholds, calibrated, gold, halves))

    rules = _rules_worth_comparing(gold, taxonomy, scope) if rule == "auto" else (rule,)
    candidates = [candidate(each, _scopes(each, scope)[0]) for each in rules]
    best = _best(candidates)
    candidates += [candidate(best.rule, each) for each in _scopes(best.rule, scope)[1:]]
    best = _best(candidates)
    if scope == "label" and best.thresholds != "label":
        logger.warning("%s has no thresholds per label: those per level are taken", best.rule)

    calibration = None
    if method != "none":
        calibration = fit(method, outputs.logits, gold, taxonomy)
        for depth in silent_levels(gold, taxonomy):
            logger.warning("level %d is not calibrated: all its labels are always absent, or always present", depth)
    probabilities = plain if calibration is None else calibration(outputs.logits)
    thresholds = _tuned(tuner(best.rule), best.thresholds, probabilities, gold)
    if best.thresholds == "label" and (absent := int((~gold.any(axis=0)).sum())):
        logger.warning("%d labels have no document: they take their level's threshold", absent)
    one_for_all = bool((thresholds == thresholds[0]).all())
    decisions = Decisions(
        taxonomy, best.rule, float(thresholds[0]) if one_for_all else thresholds, calibration, paths, stop_inside
    )
    if risk is not None:
        decisions = replace(decisions, sure=_sure_enough(decisions, calibrated, gold, risk))

    before, after = CalibrationScores(taxonomy), CalibrationScores(taxonomy)
    before.update(plain, gold)
    after.update(calibrated, gold)
    f1_today = _f1_today(today, outputs, plain, metric)
    found = {
        "documents": len(gold),
        "metric": f"{metric}-F1",
        "calibration": method,
        "thresholds": best.thresholds,
        "held_out_f1": {"before": round(f1_today, 4), "after": round(best.f1, 4)},
        "held_out_ece": {"before": round(before.ece(), 4), "after": round(after.ece(), 4)},
        "held_out_brier": {"before": round(before.brier(), 5), "after": round(after.brier(), 5)},
        **({} if risk is None else {"risk": risk}),
    }
    return Calibrated(replace(decisions, found=found), f1_today, candidates, best, before, after)


def _best(candidates: list[Candidate]) -> Candidate:
    return max(candidates, key=lambda candidate: candidate.f1)


def _f1_today(decisions: Decisions, outputs: Outputs, plain: NDArray[np.float32], metric: Metric) -> float:
    """Return the F1 of how the model decides now."""
    probabilities = plain if decisions.calibration is None else decisions.calibration(outputs.logits)
    return f1(decisions.decide(probabilities).given, outputs.gold, metric)


def _halves(gold: NDArray[np.bool_], seed: int) -> Halves:
    """Return the documents in two random halves, those without a label shared out evenly."""
    labelled: NDArray[np.bool_] = np.logical_or.reduce(gold, axis=1)
    if (number := int(labelled.sum())) < 2:
        raise InputError(
            f"too few documents to calibrate on: {number} of {len(gold)} have a label",
            remedy="give at least two, better hundreds",
        )
    shuffled = np.random.default_rng(seed).permutation(len(gold))
    shuffled = shuffled[np.argsort(labelled[shuffled], kind="stable")]
    return [np.sort(shuffled[::2]), np.sort(shuffled[1::2])]


def _held_out_probabilities(
    outputs: Outputs, halves: Halves, method: Method, taxonomy: Taxonomy
) -> NDArray[np.float32]:
    """Return the probabilities of each half, calibrated on the other, (N, K)."""
    probabilities = np.empty_like(outputs.logits)
    for half, other in zip(halves, reversed(halves), strict=True):
        fitted = fit(method, outputs.logits[other], outputs.gold[other], taxonomy)
        probabilities[half] = fitted(outputs.logits[half])
    return probabilities


def _held_out(
    tuner: ThresholdTuner,
    scope: Thresholds,
    probabilities: NDArray[np.float32],
    gold: NDArray[np.bool_],
    halves: Halves,
) -> float:
    """Return the F1 over both halves, each decided with the thresholds tuned on the other."""
    predicted = np.empty_like(gold)
    for half, other in zip(halves, reversed(halves), strict=True):
        thresholds = _tuned(tuner, scope, probabilities[other], gold[other])
        predicted[half] = tuner.decoder(thresholds)(probabilities[half])
    return f1(predicted, gold, tuner.metric)


def _tuned(
    tuner: ThresholdTuner, scope: Thresholds, probabilities: NDArray[np.float32], gold: NDArray[np.bool_]
) -> NDArray[np.float32]:
    if scope == "none":
        return np.full(gold.shape[1], 0.5, dtype=np.float32)
    return tuner.tune(scope, probabilities, gold)


def _scopes(rule: Rule, scope: Thresholds | Literal["auto"]) -> tuple[Thresholds, ...]:
    """Return the thresholds to try with a rule; where it has none per label, those per level."""
    if scope == "auto":
        return scopes_of(rule)
    return (scope,) if scope == "none" or scope in scopes_of(rule) else ("level",)


def _rules_worth_comparing(
    gold: NDArray[np.bool_], taxonomy: Taxonomy, scope: Thresholds | Literal["auto"]
) -> tuple[Rule, ...]:
    """Return the rules that keep parents: one path at a time only where documents have one path each.

    With one threshold for all labels, by which rules are compared first, ``min-parent`` is ``drop-orphans``.
    """
    rules: list[Rule] = ["closure", "drop-orphans"]
    if scope in ("level", "label"):
        rules.append("min-parent")
    if all((np.count_nonzero(gold[:, level], axis=1) <= 1).all() for level in taxonomy.levels):
        rules.append("best-path")
    return tuple(rules)


def _ends_inside(gold: NDArray[np.bool_], taxonomy: Taxonomy) -> bool:
    """Tell whether some document has a label with children and none of them."""
    rows, labels = np.nonzero(gold)
    parents = taxonomy.parents[labels]
    ends: NDArray[np.bool_] = gold.copy()
    ends[rows[parents >= 0], parents[parents >= 0]] = False
    ends[:, taxonomy.leaves] = False
    return bool(ends.any())


def _sure_enough(
    decisions: Decisions, probabilities: NDArray[np.float32], gold: NDArray[np.bool_], risk: float
) -> float:
    """Return the least probability from which on at most the share ``risk`` of the given labels is wrong."""
    decided = decisions.decide(probabilities)
    sureness = monotone(decided.probabilities, decisions.taxonomy)[decided.given]
    order = np.argsort(-sureness)
    falling = sureness[order]
    share = np.cumsum(~gold[decided.given][order]) / np.arange(1, len(order) + 1)
    last = np.append(falling[1:] != falling[:-1], True)[: len(order)]  # of equally sure ones, all are given or none
    good = np.flatnonzero(last & (share <= risk))
    if not good.size:
        logger.warning("no label is sure enough for a risk of %g", risk)
        return 1.0
    return float(falling[good[-1]])
