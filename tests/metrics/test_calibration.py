"""Calibration error and Brier score: exact fractions and scikit-learn as oracles."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss

from hgclr.metrics.probabilities import CalibrationScores, RankingScores
from hgclr.taxonomy import Taxonomy
from support.random_batches import FAST, Matrix, probability_batches

Batch = tuple[Taxonomy, NDArray[np.float32], Matrix]


def scored(taxonomy: Taxonomy, probabilities: NDArray[np.float32], gold: Matrix, bins: int = 15) -> CalibrationScores:
    scores = CalibrationScores(taxonomy, bins)
    scores.update(probabilities, gold)
    return scores


def by_bin(probabilities: NDArray[np.float32], gold: Matrix, bins: int) -> list[list[tuple[float, bool]]]:
    """Sort pairs into bins with exact fractions."""
    found: list[list[tuple[float, bool]]] = [[] for _ in range(bins)]
    for probability, truth in zip(probabilities.ravel().tolist(), gold.ravel().tolist(), strict=True):
        number = next(number for number in range(bins, -1, -1) if Fraction(number, bins) <= Fraction(probability))
        found[min(number, bins - 1)].append((probability, truth))
    return found


@FAST
@given(probability_batches(), st.integers(1, 16))
def test_error_and_bins_by_loops(batch: Batch, bins: int) -> None:
    taxonomy, probabilities, gold = batch
    scores = scored(taxonomy, probabilities, gold, bins)
    levels = [(None, list(range(len(taxonomy))))]
    levels += [(depth, level.tolist()) for depth, level in enumerate(taxonomy.levels, start=1)]
    for depth, labels in levels:
        expected = by_bin(probabilities[:, labels], gold[:, labels], bins)
        error = 0.0
        for found, pairs in zip(scores.reliability(depth), expected, strict=True):
            assert found.count == len(pairs)
            if not pairs:
                assert (found.mean_probability, found.frequency) == (None, None)
                continue
            confidence, frequency = np.mean([pair[0] for pair in pairs]), np.mean([pair[1] for pair in pairs])
            assert (found.mean_probability, found.frequency) == pytest.approx((confidence, frequency))
            error += len(pairs) / (len(gold) * len(labels)) * abs(confidence - frequency)
        assert scores.ece(depth) == pytest.approx(error, abs=1e-12)


@FAST
@given(probability_batches())
def test_brier_score_equals_scikit_learn(batch: Batch) -> None:
    taxonomy, probabilities, gold = batch
    scores = scored(taxonomy, probabilities, gold)
    columns = [(None, np.arange(len(taxonomy))), *enumerate(taxonomy.levels, start=1)]
    for depth, labels in columns:
        truth, said = gold[:, labels].ravel(), probabilities[:, labels].ravel()
        expected = brier_score_loss(truth, said.astype(np.float64), pos_label=True) if len(truth) else 0.0
        assert scores.brier(depth) == pytest.approx(expected)


def test_the_reliability_diagram_equals_that_of_scikit_learn() -> None:
    taxonomy = Taxonomy(["A", "B", "C"], [-1, 0, -1])
    random = np.random.default_rng(0)
    probabilities = random.random((400, 3)) ** 2
    gold = random.random((400, 3)) < probabilities**1.5
    frequencies, means = calibration_curve(gold.ravel(), probabilities.ravel(), n_bins=15)
    bins = scored(taxonomy, probabilities, gold).reliability()
    assert [part.frequency for part in bins] == pytest.approx(frequencies.tolist())
    assert [part.mean_probability for part in bins] == pytest.approx(means.tolist())


@pytest.mark.parametrize("bins", [1, 3, 10, 15])
def test_bins_end_where_they_say(bins: int) -> None:
    edges = np.arange(bins + 1, dtype=np.float32) / np.float32(bins)
    near = np.concatenate([edges, np.nextafter(edges, np.float32(0)), np.nextafter(edges, np.float32(1))])
    near = near[(near >= 0) & (near <= 1)][:, None]
    gold = np.zeros(near.shape, dtype=bool)
    found = scored(Taxonomy(["A"], [-1]), near, gold, bins).reliability()
    assert [part.count for part in found] == [len(pairs) for pairs in by_bin(near, gold, bins)]
    assert [(part.lower, part.upper) for part in found] == [(n / bins, (n + 1) / bins) for n in range(bins)]


def test_a_batch_larger_than_a_block_is_scored_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    taxonomy = Taxonomy(["A", "B"], [-1, 0])
    random = np.random.default_rng(5)
    probabilities, gold = random.random((20, 2)), random.random((20, 2)) < 0.5
    whole = scored(taxonomy, probabilities, gold)
    monkeypatch.setattr("hgclr.metrics.probabilities.BLOCK", 7)
    parts = scored(taxonomy, probabilities, gold)
    assert (parts.ece(2), parts.brier(1)) == pytest.approx((whole.ece(2), whole.brier(1)))
    assert sum(part.count for part in parts.reliability()) == 40


def test_json_by_hand() -> None:
    taxonomy = Taxonomy(["A", "A1"], [-1, 0])
    report = scored(
        taxonomy, np.array([[1.0, 0.25], [0.5, 0.25]]), np.array([[True, True], [False, False]]), 2
    ).to_json()
    assert json.loads(json.dumps(report)) == report
    low = {"lower": 0.0, "upper": 0.5, "count": 2, "mean_probability": 0.25, "frequency": 0.5}
    high = {"lower": 0.5, "upper": 1.0, "count": 2, "mean_probability": 0.75, "frequency": 0.5}
    empty = {"count": 0, "mean_probability": None, "frequency": None}
    assert report == {
        "pairs": 4,
        "ece": 0.25,
        "brier": (0.0 + 0.5625 + 0.25 + 0.0625) / 4,
        "bins": [low, high],
        "levels": [
            {"depth": 1, "pairs": 2, "ece": 0.25, "brier": 0.125, "bins": [low | empty, high]},
            {"depth": 2, "pairs": 2, "ece": 0.25, "brier": 0.3125, "bins": [low, high | empty]},
        ],
    }


@pytest.mark.parametrize(
    ("probabilities", "gold"),
    [
        (np.zeros((2, 3)), np.zeros((2, 3), bool)),
        (np.zeros((2, 2), bool), np.zeros((2, 2), bool)),
        (np.zeros((2, 2)), np.zeros((2, 2))),
        (np.full((2, 2), 1.5), np.zeros((2, 2), bool)),
        (np.array([[0.5, np.nan]]), np.zeros((1, 2), bool)),
    ],
)
def test_unfit_arguments_are_refused(probabilities: NDArray[np.float64], gold: Matrix) -> None:
    taxonomy = Taxonomy(["A", "A1"], [-1, 0])
    for scores in (CalibrationScores(taxonomy), RankingScores(taxonomy)):
        with pytest.raises(ValueError, match=r"probabilit|expected"):
            scores.update(probabilities, gold)
    with pytest.raises(ValueError, match="bin"):
        CalibrationScores(taxonomy, 0)
    with pytest.raises(ValueError, match="depth"):
        CalibrationScores(taxonomy).ece(3)
