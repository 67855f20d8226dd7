"""Drift: exact tests against scipy, Holm's correction, false alarms, and what is counted."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from hgclr.errors import InputError
from hgclr.evaluation.drift import Observed, compare_predictions, drift_plot, fisher, holm, welch
from hgclr.inference.classifier import BLANK, PredictedLabel, Prediction
from hgclr.taxonomy import Taxonomy

TREE = Taxonomy(["A", "a1", "a2", "B"], [-1, 0, 0, -1])


def predicted(*labels: str, probability: float = 0.9, abstained: bool = False, truncated: bool = False) -> Prediction:
    made = tuple(PredictedLabel(label, (label,), probability) for label in labels)
    return Prediction(made, made[:1] if abstained else (), truncated)


def test_fisher_is_that_of_scipy() -> None:
    random = np.random.default_rng(0)
    for first, second in ((30, 40), (7, 900), (1, 1)):
        pairs = [(int(random.integers(first + 1)), int(random.integers(second + 1))) for _ in range(30)]
        pairs += [(0, 0), (first, second), (first, 0)]
        expected = [stats.fisher_exact([[a, first - a], [b, second - b]]).pvalue for a, b in pairs]
        assert fisher(pairs, first, second) == pytest.approx(expected, rel=1e-6)


def test_welch_is_nearly_that_of_scipy() -> None:
    random = np.random.default_rng(0)
    first, second = random.beta(8, 2, 900).tolist(), random.beta(8, 2.2, 700).tolist()
    assert welch(first, second) == pytest.approx(stats.ttest_ind(first, second, equal_var=False).pvalue, rel=0.1)
    assert welch([0.5], first) == welch([0.5, 0.5], [0.5, 0.5]) == 1
    assert welch([0.5, 0.5], [0.6, 0.6]) == 0


def test_holm_rejects_in_order() -> None:
    """Step down by hand: the i-th smallest is compared with 5 % / (n - i), until one is not smaller."""
    values = [0.04, 0.001, 0.02, 0.012, 0.9]
    rejected, left = set(), sorted(values)
    while left and left[0] <= 0.05 / len(left):
        rejected.add(left.pop(0))
    assert {value for value, corrected in zip(values, holm(values), strict=True) if corrected <= 0.05} == rejected
    assert holm(values)[1] == pytest.approx(0.005)


def test_texts_are_counted() -> None:
    found = Observed.of([predicted("A", "a1"), predicted("B", probability=0.5, truncated=True), BLANK])
    assert found.texts == 3
    assert found.labels == {"A": 1, "a1": 1, "B": 1}
    assert found.rates == {"unlabelled": 1, "truncated": 1}
    assert found.confidences == pytest.approx([0.9, 0.5])
    assert Observed.of([predicted("A", abstained=True)]).rates == {"abstained": 1}


def test_labels_that_grew_and_shrank_are_found() -> None:
    before = Observed.of([predicted("A", "a1")] * 80 + [predicted("A", "a2")] * 10 + [predicted("B")] * 10)
    now = Observed.of([predicted("A", "a1", probability=0.6)] * 30 + [predicted("A", "a2")] * 10 + [BLANK] * 60)
    drift = compare_predictions(TREE, before, now)
    assert [change.name for change in drift.changed] == ["A", "a1", "B"]
    assert drift.changed[1].difference == pytest.approx(-0.5)
    assert {change.name: change.significant for change in drift.rates} == {
        "unlabelled": True,
        "abstained": False,
        "truncated": False,
    }
    assert drift.confidence.significant
    assert drift.confidence.now == pytest.approx((30 * 0.6 + 10 * 0.9) / 40)
    content = drift.to_json()
    assert content["texts"] == {"before": 100, "now": 100}
    assert len(content["labels"]) == 4
    assert b"<svg" in drift_plot(drift)


def test_false_alarms_are_rare() -> None:
    """Twice the same source: in at most 5 % of the comparisons is anything significant."""
    random = np.random.default_rng(0)
    tree = Taxonomy([f"l{n}" for n in range(30)], [-1] * 30)
    weights = random.dirichlet(np.ones(30))

    def draw(count: int) -> Observed:
        chosen = random.choice(30, count, p=weights)
        return Observed.of(predicted(f"l{n}", probability=float(random.beta(8, 2))) for n in chosen)

    alarms = 0
    for _ in range(100):
        drift = compare_predictions(tree, draw(300), draw(200))
        alarms += bool(drift.changed) or drift.confidence.significant
    assert alarms <= 5 + 3 * math.sqrt(100 * 0.05 * 0.95)


def test_nothing_to_compare_is_refused() -> None:
    with pytest.raises(InputError):
        compare_predictions(TREE, Observed.of([predicted("A")]), Observed())
