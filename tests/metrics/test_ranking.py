"""Scores of rankings: all orders of tied labels, all thresholds, and scikit-learn as oracles."""

from __future__ import annotations

import json
import re
from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score, ndcg_score

from hgclr.metrics.probabilities import RankingScores
from hgclr.taxonomy import Taxonomy
from support.random_batches import FAST, Matrix, closed_matrix, lowered, probability_batches, sets, with_ancestors

Batch = tuple[Taxonomy, NDArray[np.float32], Matrix]


def scored(taxonomy: Taxonomy, probabilities: NDArray[np.float32], gold: Matrix, ks: tuple[int, ...]) -> RankingScores:
    scores = RankingScores(taxonomy, ks)
    scores.update(probabilities, gold)
    return scores


def mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def orders(probabilities: list[float]) -> list[tuple[int, ...]]:
    """All orders of the labels by falling probability: one, but for ties."""
    return [
        order
        for order in permutations(range(len(probabilities)))
        if all(probabilities[one] >= probabilities[other] for one, other in pairwise(order))
    ]


@pytest.mark.parametrize("steps", [1, 2, 5, 1000])
def test_precision_is_the_mean_over_all_orders_of_tied_labels(steps: int) -> None:
    random = np.random.default_rng(steps)
    taxonomy = Taxonomy(["A", "B", "C", "D", "E"], [-1, 0, 0, 2, -1])
    probabilities = (random.integers(0, steps + 1, (12, 5)) / steps).astype(np.float32)
    gold = random.random((12, 5)) < 0.4
    gold[3] = False
    scores = scored(taxonomy, probabilities, gold, (1, 2, 4))
    r_precision, precision = [], {1: [], 2: [], 4: []}
    for row, labels in zip(probabilities.tolist(), sets(gold), strict=True):
        if labels:
            found = orders(row)
            r_precision.append(mean([len(labels & set(order[: len(labels)])) / len(labels) for order in found]))
            for k in precision:
                precision[k].append(mean([len(labels & set(order[:k])) / k for order in found]))
    assert len(r_precision) > 5
    assert scores.r_precision() == pytest.approx(mean(r_precision))
    for k, values in precision.items():
        assert scores.precision_at(k) == pytest.approx(mean(values))


@FAST
@given(probability_batches())
def test_ndcg_equals_scikit_learn(batch: Batch) -> None:
    taxonomy, probabilities, gold = batch
    scores = scored(taxonomy, probabilities, gold, (1, 3, 20))
    chosen = gold.any(axis=1)
    for k in (1, 3, 20):
        if len(taxonomy) == 1:  # scikit-learn refuses to rank one label, which is always first
            expected = float(chosen.any())
        else:
            expected = ndcg_score(gold[chosen], probabilities[chosen], k=k) if chosen.any() else 0.0
        assert scores.ndcg_at(k) == pytest.approx(expected)


@FAST
@given(probability_batches())
def test_area_by_all_thresholds(batch: Batch) -> None:
    taxonomy, probabilities, gold = batch
    areas = []
    for row, labels in zip(lowered(taxonomy, probabilities).tolist(), sets(gold), strict=True):
        truth = with_ancestors(taxonomy, labels)
        if not truth:
            continue
        area = last_recall = 0.0
        for threshold in sorted(set(row), reverse=True):
            predicted = with_ancestors(taxonomy, {label for label, p in enumerate(row) if p >= threshold})
            right = len(predicted & truth)
            area += (right / len(truth) - last_recall) * right / len(predicted)
            last_recall = right / len(truth)
        assert last_recall == 1.0
        areas.append(area)
    assert scored(taxonomy, probabilities, gold, ()).hierarchical_auc() == pytest.approx(mean(areas))


@FAST
@given(probability_batches())
def test_area_equals_the_average_precision_of_scikit_learn(batch: Batch) -> None:
    taxonomy, probabilities, gold = batch
    truth = closed_matrix(taxonomy, gold)
    chosen = truth.any(axis=1)
    rows = zip(truth[chosen], lowered(taxonomy, probabilities)[chosen], strict=True)
    expected = mean([average_precision_score(labels, row) for labels, row in rows])
    assert scored(taxonomy, probabilities, gold, ()).hierarchical_auc() == pytest.approx(expected)


def test_a_batch_larger_than_a_block_is_scored_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    taxonomy = Taxonomy(["A", "B", "C"], [-1, 0, 0])
    random = np.random.default_rng(5)
    probabilities, gold = random.random((20, 3)), random.random((20, 3)) < 0.5
    whole = scored(taxonomy, probabilities, gold, (1, 2)).to_json()
    monkeypatch.setattr("hgclr.metrics.probabilities.BLOCK", 7)
    for name, value in scored(taxonomy, probabilities, gold, (1, 2)).to_json().items():
        assert value == pytest.approx(whole[name])


def test_json_by_hand() -> None:
    taxonomy = Taxonomy(["A", "A1", "B"], [-1, 0, -1])
    probabilities = np.array([[0.5, 0.9, 0.7], [0.1, 0.2, 0.3]], dtype=np.float32)
    gold = np.array([[False, True, False], [False, False, False]])
    report = scored(taxonomy, probabilities, gold, (1, 5)).to_json()
    assert json.loads(json.dumps(report)) == report
    assert report == {
        "documents": 2,
        "documents_with_gold": 1,
        "r_precision": 1.0,
        "precision_at": {"1": 1.0, "5": 0.2},
        "ndcg_at": {"1": 1.0, "5": 1.0},
        # A1 sinks to 0.5. At 0.7 B alone is predicted, at 0.5 all three: precision 2 / 3 at recall 1.
        "hierarchical_auc": pytest.approx(2 / 3),
    }


def test_unfit_numbers_of_places_are_refused() -> None:
    taxonomy = Taxonomy(["A"], [-1])
    for ks in ((0,), (1, -2), (3, 3)):
        with pytest.raises(ValueError, match=re.escape(str(ks))):
            RankingScores(taxonomy, ks)
    scores = RankingScores(taxonomy, (1, 3))
    assert scores.r_precision() == scores.ndcg_at(1) == 0.0  # without documents
    with pytest.raises(ValueError, match="k = 2"):
        scores.ndcg_at(2)
