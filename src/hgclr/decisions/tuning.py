"""Tuning of decisions on dev: calibration, decoding rule, thresholds.

Scores on the documents that decisions were fitted to are optimistic. So every pair of a rule and a kind of thresholds
is cross-validated on dev: fitted to all folds but one, scored on that one. The best is then fitted to all of dev.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hgclr.decisions.decoding import Rule
from hgclr.decisions.settings import (
    Calibration,
    Decisions,
    Method,
    Temperatures,
    calibrated,
    constant_levels,
    fit_calibration,
)
from hgclr.decisions.thresholds import BY_PATH, Metric, Scope, ThresholdTuner, scopes_of, weighed
from hgclr.errors import InputError
from hgclr.metrics.probabilities import CalibrationScores
from hgclr.metrics.scores import MultiLabelScores
from hgclr.taxonomy import Taxonomy
from hgclr.taxonomy.order import monotone

logger = logging.getLogger(__name__)

Thresholds = Literal["none", Scope]
SIMPLEST_FIRST: tuple[Thresholds, ...] = ("none", "global", "level", "label")

ENTRIES = 2**23
"""Maximum documents times labels to tune on; more would take minutes and change little."""
FOLDS = 5
MANY = 2**21
"""Documents times labels above which two folds are enough."""
Option = tuple[Rule, Thresholds]
NOISE = 0.001
"""Differences of F1 below this count as chance, and the simpler candidate is chosen."""
EXACT = 0.05
"""Another candidate is reported if its share of exactly right documents is larger by this."""
HARDLY = 0.1
"""hgclr warns about a level with fewer predicted labels than this share of its gold labels."""


@dataclass(frozen=True, eq=False)
class Outputs:
    """Logits and gold labels, ancestors included, of documents not used in training, both (N, K)."""

    logits: NDArray[np.float32]
    gold: NDArray[np.bool_]

    @classmethod
    def joined(cls, parts: Sequence[Outputs]) -> Outputs:
        """Return several outputs as one, such as those of the models of a cross-validation."""
        return cls(np.concatenate([part.logits for part in parts]), np.concatenate([part.gold for part in parts]))


@dataclass(frozen=True)
class Quality:
    """F1 over all labels, Micro-precision and -recall, and the share of documents that are exactly right."""

    micro_f1: float
    macro_f1: float
    precision: float
    recall: float
    exact: float

    @classmethod
    def of(cls, scores: MultiLabelScores) -> Quality:
        micro = scores.micro()
        return cls(micro.f1, scores.macro().f1, micro.precision, micro.recall, scores.subset_accuracy())

    def by(self, metric: Metric) -> float:
        return weighed(metric, self.micro_f1, self.macro_f1)


@dataclass(frozen=True)
class Candidate:
    """A rule with a kind of thresholds, and its scores on held-out documents."""

    rule: Rule
    thresholds: Thresholds
    held_out: Quality


@dataclass(frozen=True, eq=False)
class Calibrated:
    """Tuned decisions and the comparison behind them.

    ``before`` and ``after`` are held-out scores of the previous and of the tuned decisions, ``calibration_before`` and
    ``calibration_after`` those without and with calibration. ``best`` is the chosen one of all ``candidates``, None if
    the decisions did not change. ``rejected`` are the scores of a calibration that was not kept, because it would raise
    the calibration error or the Brier score.
    """

    decisions: Decisions
    before: Quality
    after: Quality
    candidates: list[Candidate]
    best: Candidate | None
    calibration_before: CalibrationScores
    calibration_after: CalibrationScores
    rejected: CalibrationScores | None = None

    @property
    def most_exact(self) -> Candidate | None:
        """The candidate with by far the most documents exactly right, unless it was chosen."""
        most = max(self.candidates, key=lambda candidate: candidate.held_out.exact)
        return most if most.held_out.exact >= self.after.exact + EXACT else None


def calibrate(
    outputs: Outputs,
    today: Decisions,
    *,
    method: Method | Literal["none"] = "temperature",
    rule: Rule | Literal["auto"] = "auto",
    scope: Thresholds | Literal["auto"] = "auto",
    metric: Metric = "both",
    paths: int | None = None,
    risk: float | None = None,
    shrinkage: float = 10.0,
    max_loss: float = 0.01,
    seed: int = 0,
    log: logging.Logger = logger,
) -> Calibrated:
    """Return the best decisions on documents that the model was not trained on.

    Every rule is tried with every kind of thresholds. Of the candidates within `NOISE` of the best, the one with the
    fewest thresholds wins. The decisions do not change if no candidate is better by ``metric``, or if ``metric`` is
    ``both`` and every better one loses more than ``max_loss`` of Micro- or Macro-F1; a given rule is always used.

    Args:
        outputs: logits of any model whose sigmoids are probabilities, and gold labels.
        today: the current decisions; ``Decisions(taxonomy)`` for a new model.
        method: calibration of probabilities; not kept if it raises the calibration error or the Brier score of
            held-out documents.
        rule: decoding rule; ``auto`` compares those that never predict a child without its parent, ``best-path`` only
            if every document has one path.
        scope: kind of thresholds, see :class:`~hgclr.decisions.thresholds.ThresholdTuner`; ``auto`` compares all that
            the rule supports, ``none`` keeps 0.5. Path rules use thresholds per level instead of per label.
        metric: the mean of Micro- and Macro-F1 (``both``), or one of them.
        paths: k of ``top-k-paths``.
        risk: choose ``abstain_below`` so that at most this share of the predicted labels is wrong.
        shrinkage: see :class:`~hgclr.decisions.thresholds.ThresholdTuner`.
        max_loss: maximum loss of Micro-F1 for a gain of Macro-F1, and vice versa.
        seed: seed of the folds.
        log: gets the warnings.

    Raises:
        InputError: if fewer than two documents have a label, or the shapes do not fit the label tree.
    """
    taxonomy, gold = today.taxonomy, outputs.gold
    if outputs.logits.shape != gold.shape or gold.shape[1:] != (len(taxonomy),):
        raise InputError(f"logits {outputs.logits.shape} and gold {gold.shape} do not fit {len(taxonomy)} labels")

    def calibration_scores(probabilities: NDArray[np.float32]) -> CalibrationScores:
        scores = CalibrationScores(taxonomy)
        scores.update(probabilities, gold)
        return scores

    ends = taxonomy.path_end_matrix(gold)
    ends_inside = bool(np.delete(ends, taxonomy.leaves, axis=1).any())
    search = _Search(outputs, method, metric, shrinkage, paths or today.paths, ends_inside, taxonomy)
    if rule == "auto":
        rules: list[Rule] = ["closure", "drop-orphans"] if taxonomy.depth > 1 else ["closure"]
        if (np.count_nonzero(ends, axis=1) <= 1).all():
            rules.append("best-path")
    else:
        rules = [rule]
    options: list[Option] = []
    for each in rules:
        scopes: tuple[Thresholds, ...] = ("none", *scopes_of(each)) if scope == "auto" else (scope,)
        options += [(each, kind if kind == "none" or kind in scopes_of(each) else "level") for kind in scopes]
    folds = _folds(gold, seed)
    calibrations, probabilities = search.calibrated_folds(folds)
    plain, rejected = calibration_scores(calibrated(outputs.logits, None)), None
    now = calibration_scores(probabilities)
    if now.ece() > plain.ece() or now.brier() > plain.brier():
        search, rejected = replace(search, method="none"), now
        calibrations, probabilities = search.calibrated_folds(folds)
    scored = search.held_out(options, folds, calibrations, probabilities)
    candidates = [Candidate(*option, Quality.of(scores)) for option, scores in scored.items()]
    past = MultiLabelScores(taxonomy)
    past.update(today.decide(today.probabilities(outputs.logits)).predicted, gold)
    before = Quality.of(past)

    best = _choose(candidates, before, metric, max_loss, asked=rule != "auto", log=log)
    if best is None:
        decisions = _with_calibration(today, search.calibration())
    else:
        if scope == "label" and best.thresholds != "label":
            log.warning("%s has no thresholds per label; using thresholds per level", best.rule)
        decisions = search.fitted(best, log)
    if decisions.calibration is today.calibration:
        probabilities = decisions.probabilities(outputs.logits)
    elif decisions.calibration is not None:
        for depth in constant_levels(gold, taxonomy):
            log.warning("level %d is not calibrated: its labels are on none or on all of the documents", depth)
    counts = (past if best is None else scored[best.rule, best.thresholds]).per_label()
    for depth, level in enumerate(taxonomy.levels, 1):
        predicted, present = int(counts.predicted[level].sum()), int(counts.gold[level].sum())
        if predicted < HARDLY * present:
            log.warning("level %d is rarely predicted: %d labels for %d gold labels", depth, predicted, present)
    if risk is not None:
        decisions = replace(decisions, abstain_below=_abstention_limit(decisions, probabilities, gold, risk))

    calibration = {"before": plain, "after": calibration_scores(probabilities)}
    after = before if best is None else best.held_out
    provenance = {
        "documents": len(gold),
        "metric": {"both": "mean of Micro- and Macro-F1", "micro": "Micro-F1", "macro": "Macro-F1"}[metric],
        "calibration": "none" if decisions.calibration is None else decisions.calibration.to_json()["method"],
        "thresholds": "as before" if best is None else best.thresholds,
        **{
            f"held_out_{name}": {"before": round(value, 4), "after": round(asdict(after)[name], 4)}
            for name, value in asdict(before).items()
        },
        "held_out_ece": {when: round(scores.ece(), 4) for when, scores in calibration.items()},
        "held_out_brier": {when: round(scores.brier(), 5) for when, scores in calibration.items()},
        **({} if risk is None else {"risk": risk}),
    }
    decisions = replace(decisions, provenance=provenance)
    return Calibrated(decisions, before, after, candidates, best, calibration["before"], calibration["after"], rejected)


@dataclass(frozen=True, eq=False)
class _Search:
    """Fits candidates, to some documents or to all."""

    outputs: Outputs
    method: Method | Literal["none"]
    metric: Metric
    shrinkage: float
    paths: int
    allow_inner_nodes: bool
    taxonomy: Taxonomy

    def calibrated_folds(
        self, folds: Sequence[NDArray[np.int64]]
    ) -> tuple[list[Calibration | None], NDArray[np.float32]]:
        """Return the calibration fitted to all folds but each one, and the out-of-fold probabilities, (N, K)."""
        probabilities, calibrations = np.empty_like(self.outputs.logits), list[Calibration | None]()
        for fold in folds:
            calibrations.append(self.calibration(self._others(fold)))
            probabilities[fold] = calibrated(self.outputs.logits[fold], calibrations[-1])
        return calibrations, probabilities

    def held_out(
        self,
        options: Sequence[Option],
        folds: Sequence[NDArray[np.int64]],
        calibrations: Sequence[Calibration | None],
        probabilities: NDArray[np.float32],
    ) -> dict[Option, MultiLabelScores]:
        """Return the out-of-fold scores of each candidate from :meth:`calibrated_folds`."""
        scored = {option: MultiLabelScores(self.taxonomy) for option in options}
        for fold, calibration in zip(folds, calibrations, strict=True):
            others = self._others(fold)
            known = calibrated(self.outputs.logits[others], calibration)
            for rule in dict.fromkeys(rule for rule, _ in options):
                scopes = [thresholds for other, thresholds in options if other == rule]
                for scope, decisions in self._tuned(rule, scopes, known, self.outputs.gold[others]).items():
                    predicted = decisions.decide(probabilities[fold]).predicted
                    scored[rule, scope].update(predicted, self.outputs.gold[fold])
        return scored

    def _others(self, fold: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.setdiff1d(np.arange(len(self.outputs.gold)), fold, assume_unique=True)

    def fitted(self, best: Candidate, log: logging.Logger) -> Decisions:
        calibration = self.calibration()
        known = calibrated(self.outputs.logits, calibration)
        decisions = self._tuned(best.rule, [best.thresholds], known, self.outputs.gold)[best.thresholds]
        if best.thresholds == "label" and (absent := int((~self.outputs.gold.any(axis=0)).sum())):
            log.warning("%d labels have no document; they get the threshold of their level", absent)
        return replace(decisions, calibration=calibration)

    def calibration(self, documents: NDArray[np.int64] | slice = slice(None)) -> Calibration | None:
        if self.method == "none":
            return None
        return fit_calibration(self.method, self.outputs.logits[documents], self.outputs.gold[documents], self.taxonomy)

    def _tuned(
        self, rule: Rule, scopes: Sequence[Thresholds], probabilities: NDArray[np.float32], gold: NDArray[np.bool_]
    ) -> dict[Thresholds, Decisions]:
        """Return decisions with each kind of thresholds, from calibrated probabilities."""
        tuner = ThresholdTuner(self.taxonomy, rule, self.metric, self.shrinkage, self.paths, self.allow_inner_nodes)
        tuned = tuner.tune([scope for scope in scopes if scope != "none"], probabilities, gold)
        plain = Decisions(self.taxonomy, rule, paths=self.paths, allow_inner_nodes=self.allow_inner_nodes)
        return {
            scope: plain if scope == "none" else replace(plain, thresholds=_one_if_equal(tuned[scope]))
            for scope in scopes
        }


def _choose(
    candidates: Sequence[Candidate],
    before: Quality,
    metric: Metric,
    max_loss: float,
    *,
    asked: bool,
    log: logging.Logger,
) -> Candidate | None:
    """Return the simplest of the best candidates within ``max_loss``, else the best one if ``asked``, else None."""

    def harmless(quality: Quality) -> bool:
        loss = max(before.micro_f1 - quality.micro_f1, before.macro_f1 - quality.macro_f1)
        return metric != "both" or loss <= max_loss

    better = [candidate for candidate in candidates if candidate.held_out.by(metric) >= before.by(metric)]
    accepted = [candidate for candidate in better if harmless(candidate.held_out)]
    if accepted:
        reached = max(candidate.held_out.by(metric) for candidate in accepted)
        close = [candidate for candidate in accepted if candidate.held_out.by(metric) > reached - NOISE]
        return min(close, key=lambda one: (SIMPLEST_FIRST.index(one.thresholds), -one.held_out.by(metric)))
    best = max(better or candidates, key=lambda candidate: candidate.held_out.by(metric))
    change = (
        f"Micro-F1 from {100 * before.micro_f1:.2f} to {100 * best.held_out.micro_f1:.2f},"
        f" Macro-F1 from {100 * before.macro_f1:.2f} to {100 * best.held_out.macro_f1:.2f}"
    )
    if asked:
        log.warning("%s is used as requested, although it loses on dev: %s", best.rule, change)
        return best
    why = f"loses more than {100 * max_loss:g} points of one F1" if better else "is worse"
    log.warning("decisions did not change, because the best alternative %s: %s", why, change)
    return None


def _with_calibration(today: Decisions, calibration: Calibration | None) -> Decisions:
    """Return decisions that predict the same labels from calibrated probabilities; ``today`` if there are none."""
    if not isinstance(calibration, Temperatures) or not isinstance(today.calibration, Temperatures | None):
        return today
    if today.rule in BY_PATH or today.abstain_below:  # other rules compare a label with its threshold
        return today
    thresholds = calibration(-today.logit_shift()[None])[0]
    return replace(today, thresholds=_one_if_equal(thresholds), calibration=calibration)


def _one_if_equal(thresholds: NDArray[np.float32]) -> float | NDArray[np.float32]:
    return float(thresholds[0]) if bool((thresholds == thresholds[0]).all()) else thresholds


def _folds(gold: NDArray[np.bool_], seed: int) -> list[NDArray[np.int64]]:
    """Return the documents in random folds, with documents without a label spread evenly."""
    labelled: NDArray[np.bool_] = np.logical_or.reduce(gold, axis=1)
    if (number := int(labelled.sum())) < 2:
        raise InputError(
            f"too few documents to calibrate on: {number} of {len(gold)} have a label",
            remedy="give at least two labelled documents, better hundreds",
        )
    folds = min(FOLDS, number) if gold.size < MANY else 2
    shuffled = np.random.default_rng(seed).permutation(len(gold))
    shuffled = shuffled[np.argsort(labelled[shuffled], kind="stable")]
    return [np.sort(shuffled[fold::folds]) for fold in range(folds)]


def _abstention_limit(
    decisions: Decisions, probabilities: NDArray[np.float32], gold: NDArray[np.bool_], risk: float
) -> float:
    """Return the lowest probability from which on at most the share ``risk`` of the predicted labels is wrong."""
    decided = decisions.decide(probabilities)
    confidence = monotone(decided.probabilities, decisions.taxonomy)[decided.predicted]
    order = np.argsort(-confidence)
    falling = confidence[order]
    share = np.cumsum(~gold[decided.predicted][order]) / np.arange(1, len(order) + 1)
    last = np.append(falling[1:] != falling[:-1], True)[: len(order)]  # ties are predicted together
    good = np.flatnonzero(last & (share <= risk))
    if not good.size:
        logger.warning("no probability is high enough for a risk of %g; all labels below 1 are withheld", risk)
        return 1.0
    return float(falling[good[-1]])
