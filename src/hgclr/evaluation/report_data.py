"""The numbers of a report, collected in one pass over the documents with constant memory."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hgclr.decisions.decoding import RULES
from hgclr.decisions.settings import Decisions
from hgclr.metrics.intervals import BootstrapScores
from hgclr.metrics.probabilities import CalibrationScores, RankingScores
from hgclr.metrics.scores import MultiLabelScores, count_bits, pack, ratio, score_group
from hgclr.presentation import excerpt
from hgclr.taxonomy import Taxonomy
from hgclr.taxonomy.order import monotone

RESAMPLES = 500
"""Number of resamples for intervals and tests."""
BINS = 1000
"""Number of bins of probability in the risk-coverage curve."""
RISKS = (0.01, 0.02, 0.05, 0.1, 0.2)
"""Shares of wrong labels for which the report shows the coverage."""
GRID = tuple(step / 20 for step in range(1, 20))
"""Thresholds of the curve."""
PAIRS = 2**20
"""Maximum number of distinct pairs of labels in memory."""
PAIRS_OF_DOCUMENT = 1000
"""Maximum pairs counted for one document; only documents with dozens of wrong labels have more."""
KEPT = 2
"""Example documents per label, both for missed and for false labels."""
EXCERPT = 200
"""Maximum characters of an example."""
PATHS = 8
"""Maximum paths of an example."""


class Collector:
    """Collects all numbers of a report batch by batch; results do not depend on the batch size.

    Memory is O(resamples · labels). For resamples and seed see :class:`~hgclr.metrics.intervals.BootstrapScores`.
    """

    def __init__(self, decisions: Decisions, *, resamples: int = RESAMPLES, seed: int = 0) -> None:
        taxonomy = decisions.taxonomy
        self.decisions, self.taxonomy = decisions, taxonomy
        self.documents = 0
        self.scores = MultiLabelScores(taxonomy)
        self.bootstrap = BootstrapScores(taxonomy, resamples, seed)
        self.ranking = RankingScores(taxonomy)
        self.calibration = CalibrationScores(taxonomy)
        """Of the model's probabilities."""
        self.consistent_calibration = CalibrationScores(taxonomy)
        """Of the probabilities after lowering each label to its parent."""
        self.confusions = SiblingConfusions(taxonomy)
        self.examples = Examples(taxonomy)
        self.risk_coverage = RiskCoverage()
        self.threshold_curve = ThresholdCurve(decisions)
        self.rules = RuleScores(decisions)
        self._digest = hashlib.sha256()

    def update(self, texts: Sequence[str], probabilities: NDArray[np.float32], gold: NDArray[np.bool_]) -> None:
        """Count one batch: texts, the model's probabilities and gold labels, both (N, K)."""
        self.calibration.update(probabilities, gold)
        decided = self.decisions.decide(probabilities)
        self.scores.update(decided.predicted, gold)
        self.bootstrap.update(decided.predicted, gold)
        self.ranking.update(probabilities, gold)
        self.consistent_calibration.update(monotone(probabilities, self.taxonomy), gold)
        self.confusions.update(decided.predicted, gold)
        self.examples.update(texts, decided.predicted, gold)
        # With the abstained labels, so that the curve covers all values of --abstain-below.
        confidence = monotone(decided.probabilities, self.taxonomy)
        self.risk_coverage.update(confidence, decided.predicted | decided.abstained, gold)
        self.threshold_curve.update(probabilities, gold)
        self.rules.update(probabilities, gold)
        for text, chosen in zip(texts, gold, strict=True):
            content = text.encode()
            labels = np.flatnonzero(chosen).astype("<i8").tobytes()
            # The lengths come first, so that different texts and labels never give the same bytes.
            self._digest.update(np.array([len(content), len(labels)], dtype="<i8").tobytes() + content + labels)
        self.documents += len(texts)

    def digest(self) -> str:
        """Return a SHA-256 of the documents with their labels, in order."""
        return self._digest.hexdigest()


class RiskCoverage:
    """Counts of right and wrong predicted labels by probability, in :data:`BINS` bins.

    If only predicted labels with a probability of at least ``s`` are kept::

        coverage(s) = labels kept / predicted labels      risk(s) = wrong labels kept / labels kept
    """

    def __init__(self) -> None:
        self._given = np.zeros(BINS, dtype=np.int64)
        self._right = np.zeros(BINS, dtype=np.int64)

    def update(self, confidence: NDArray[np.floating], given: NDArray[np.bool_], gold: NDArray[np.bool_]) -> None:
        """Count one batch: probabilities, labels predicted without abstention, and gold labels, all (N, K)."""
        # In float64 the product with the number of bins is exact, so the bin is too.
        bins = np.minimum((confidence[given].astype(np.float64) * BINS).astype(np.int64), BINS - 1)
        self._given += np.bincount(bins, minlength=BINS)
        self._right += np.bincount(bins[gold[given]], minlength=BINS)

    def to_json(self) -> dict[str, Any]:
        """Return the curve, most probable labels first, and the largest coverage for each of :data:`RISKS`."""
        bins = np.flatnonzero(self._given)[::-1]
        given, right = np.cumsum(self._given[bins]), np.cumsum(self._right[bins])
        total = int(given[-1]) if len(given) else 0
        points = [
            {"abstain_below": lowest / BINS, "coverage": ratio(count, total), "risk": 1 - hits / count}
            for lowest, count, hits in zip(bins.tolist(), given.tolist(), right.tolist(), strict=True)
        ]
        chosen = []
        for risk in RISKS:
            within = [point for point in points if point["risk"] <= risk]
            best = within[-1] if within else {"abstain_below": None, "coverage": 0.0, "risk": None}
            chosen.append({"wanted_risk": risk, **best})
        return {"labels_given": total, "points": points, "chosen": chosen}


class ThresholdCurve:
    """Scores with each threshold of :data:`GRID` for all labels, other decisions unchanged; memory O(labels)."""

    def __init__(self, decisions: Decisions) -> None:
        self._decisions = [decisions.changed(threshold=threshold) for threshold in GRID]
        shape = (len(GRID), len(decisions.taxonomy))
        self._true = np.zeros(shape, dtype=np.int64)
        self._predicted = np.zeros(shape, dtype=np.int64)
        self._gold = np.zeros(shape[1], dtype=np.int64)

    def update(self, probabilities: NDArray[np.float32], gold: NDArray[np.bool_]) -> None:
        expected = pack(gold)
        self._gold += count_bits(expected)
        for number, decisions in enumerate(self._decisions):
            if decisions.abstain_below is None:  # the decoder alone is faster
                predicted = pack(decisions.decoder(probabilities))
            else:
                predicted = pack(decisions.decide(probabilities).predicted)
            self._predicted[number] += count_bits(predicted)
            self._true[number] += count_bits(predicted & expected)

    def to_json(self) -> list[dict[str, float]]:
        points = []
        for threshold, true, predicted in zip(GRID, self._true, self._predicted, strict=True):
            scores = score_group(true, predicted, self._gold)
            points.append({"threshold": threshold, "micro_f1": scores.micro.f1, "macro_f1": scores.macro.f1})
        return points


class RuleScores:
    """Scores of every decoding rule, other decisions unchanged."""

    def __init__(self, decisions: Decisions) -> None:
        self._rules = {rule: decisions.changed(rule=rule) for rule in RULES}
        self._scores = {rule: MultiLabelScores(decisions.taxonomy) for rule in RULES}

    def update(self, probabilities: NDArray[np.float32], gold: NDArray[np.bool_]) -> None:
        for rule, decisions in self._rules.items():
            self._scores[rule].update(decisions.decide(probabilities).predicted, gold)

    def to_json(self) -> list[dict[str, Any]]:
        rows = []
        for rule, counted in self._scores.items():
            scores = counted.to_json()
            rows.append(
                {
                    "rule": rule,
                    "micro_f1": scores["micro"]["f1"],
                    "macro_f1": scores["macro"]["f1"],
                    "hierarchical_f1": scores["hierarchical"]["f1"],
                    "subset_accuracy": scores["subset_accuracy"],
                    "inconsistency_rate": scores["inconsistency_rate"],
                    "labels_per_document": ratio(scores["predicted"], scores["documents"]),
                }
            )
        return rows


class Confusion(NamedTuple):
    """Two siblings, by index, and the number of documents with the first as gold and the second as predicted label."""

    gold: int
    predicted: int
    documents: int


class SiblingConfusions:
    """Counts, for siblings A and B, the documents with A gold and not predicted, and B predicted and not gold.

    Top labels count as siblings. Above :data:`PAIRS` distinct pairs, the rarer half is dropped; a dropped pair that
    occurs again is counted from 0.
    """

    def __init__(self, taxonomy: Taxonomy) -> None:
        self._parents: list[int] = taxonomy.parents.tolist()
        self._counts = Counter[tuple[int, int]]()

    def update(self, predicted: NDArray[np.bool_], gold: NDArray[np.bool_]) -> None:
        missed, false = gold & ~predicted, predicted & ~gold
        for document in np.flatnonzero(missed.any(axis=1) & false.any(axis=1)).tolist():
            families = defaultdict[int, list[int]](list)
            for label in np.flatnonzero(false[document]).tolist():
                families[self._parents[label]].append(label)
            labels = np.flatnonzero(missed[document]).tolist()
            pairs = ((label, other) for label in labels for other in families.get(self._parents[label], ()))
            self._counts.update(islice(pairs, PAIRS_OF_DOCUMENT))
            if len(self._counts) > PAIRS:
                self._counts = Counter(dict(self._counts.most_common(PAIRS // 2)))

    def most(self, number: int) -> list[Confusion]:
        """Return the ``number`` most frequent confusions, ties in the order of the taxonomy."""
        ranked = sorted(self._counts.items(), key=lambda item: (-item[1], item[0]))
        return [Confusion(*pair, documents) for pair, documents in ranked[:number]]

    def documents(self, gold: int, predicted: int) -> int:
        """Return the number of documents with this gold label for which this sibling was predicted instead."""
        return self._counts[gold, predicted]


class Example(NamedTuple):
    """The start of a text, and the ends of its gold and its predicted paths, at most :data:`PATHS` of each."""

    text: str
    gold: tuple[int, ...]
    predicted: tuple[int, ...]


class Examples:
    """The first :data:`KEPT` documents of each label where it is missed, and the first where it is predicted wrongly.

    Memory is O(labels): a document that is an example of several labels is stored once.
    """

    def __init__(self, taxonomy: Taxonomy) -> None:
        self.taxonomy = taxonomy
        self.missed: dict[int, list[Example]] = defaultdict(list)
        self.false: dict[int, list[Example]] = defaultdict(list)
        self._room = np.full((2, len(taxonomy)), KEPT)

    def update(self, texts: Sequence[str], predicted: NDArray[np.bool_], gold: NDArray[np.bool_]) -> None:
        made: dict[int, Example] = {}
        for kept, room, wrong in (
            (self.missed, self._room[0], gold & ~predicted),
            (self.false, self._room[1], predicted & ~gold),
        ):
            labels, rows = np.nonzero((wrong & (room > 0)).T)  # in the order of the labels
            rank = np.arange(len(labels)) - np.searchsorted(labels, labels, side="left")
            first = rank < room[labels]
            for label, row in zip(labels[first].tolist(), rows[first].tolist(), strict=True):
                if row not in made:
                    made[row] = Example(excerpt(texts[row], EXCERPT), self._ends(gold[row]), self._ends(predicted[row]))
                kept[label].append(made[row])
                room[label] -= 1

    def _ends(self, chosen: NDArray[np.bool_]) -> tuple[int, ...]:
        return tuple(self.taxonomy.path_ends(np.flatnonzero(chosen).tolist())[:PATHS])
