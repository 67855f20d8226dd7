from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given

from hgclr.metrics.intervals import BootstrapScores, poisson_weights
from hgclr.metrics.scores import MultiLabelScores
from hgclr.taxonomy import Taxonomy
from support.random_batches import FAST, Matrix, batches

TREE = Taxonomy(["A", "A1", "A2", "B", "B1"], [-1, 0, 0, -1, 3])


def decisions(documents: int, seed: int) -> tuple[Matrix, Matrix]:
    random = np.random.default_rng(seed)
    gold = random.random((documents, len(TREE))) < [0.6, 0.4, 0.2, 0.4, 0.05]
    return gold ^ (random.random(gold.shape) < 0.2), gold


def scored(
    predicted: Matrix, gold: Matrix, resamples: int = 20, seed: int = 0, tree: Taxonomy = TREE
) -> BootstrapScores:
    scores = BootstrapScores(tree, resamples, seed)
    scores.update(predicted, gold)
    return scores


def point_scores(taxonomy: Taxonomy, predicted: Matrix, gold: Matrix) -> dict[str, float]:
    scores = MultiLabelScores(taxonomy)
    scores.update(predicted, gold)
    levels = {}
    for depth in range(1, taxonomy.depth + 1):
        levels[f"micro_f1_level_{depth}"] = scores.micro(depth).f1
        levels[f"macro_f1_level_{depth}"] = scores.macro(depth).f1
    return {
        "micro_f1": scores.micro().f1,
        "macro_f1": scores.macro().f1,
        "hierarchical_f1": scores.hierarchical().f1,
        **levels,
    }


def test_weights_are_poisson() -> None:
    weights = poisson_weights(500, 3, 0, 2000).astype(np.int64)
    for value in range(7):
        probability = math.exp(-1) / math.factorial(value)
        spread = math.sqrt(probability * (1 - probability) / weights.size)
        assert abs((weights == value).mean() - probability) < 4 * spread + 2**-16
    assert weights.mean() == pytest.approx(1, abs=0.004)
    assert weights.var() == pytest.approx(1, abs=0.006)


def test_weights_are_independent_between_resamples_and_between_documents() -> None:
    weights = poisson_weights(40, 0, 0, 4000).astype(np.float64)
    for columns in (weights, weights[:2000, :].reshape(40, -1).T):
        correlations = np.corrcoef(columns, rowvar=False)[np.triu_indices(40, 1)]
        assert np.abs(correlations).max() < 4.5 / math.sqrt(len(columns))


@pytest.mark.parametrize("resamples", [1, 16, 17, 100])
def test_weights_depend_on_the_number_of_the_document_alone(resamples: int) -> None:
    whole = poisson_weights(resamples, 7, 0, 50)
    assert whole.shape == (50, resamples)
    assert np.array_equal(poisson_weights(resamples, 7, 20, 30), whole[20:])
    assert np.array_equal(poisson_weights(resamples, 7, 49, 1), whole[49:])
    assert not np.array_equal(poisson_weights(resamples, 8, 0, 50), whole)


@FAST
@given(batches())
def test_samples_by_repeating_documents(batch: tuple[Taxonomy, Matrix, Matrix]) -> None:
    taxonomy, predicted, gold = batch
    samples = scored(predicted, gold, 5, seed=2, tree=taxonomy).resampled().samples
    weights = poisson_weights(5, 2, 0, len(gold))
    for number in range(5):
        rows = np.repeat(np.arange(len(gold)), weights[:, number])
        for name, value in point_scores(taxonomy, predicted[rows], gold[rows]).items():
            assert samples[name][number] == pytest.approx(value, abs=1e-12)


@FAST
@given(batches())
def test_the_scores_are_those_of_the_documents(batch: tuple[Taxonomy, Matrix, Matrix]) -> None:
    taxonomy, predicted, gold = batch
    resampled = scored(predicted, gold, 3, tree=taxonomy).resampled()
    assert resampled.scores == pytest.approx(point_scores(taxonomy, predicted, gold), abs=1e-12)
    assert resampled.documents == len(gold)


@pytest.mark.parametrize("bounds", [(0, 0), (1, 2), (700, 1024), (1025, 1499)])
def test_batches_give_exactly_what_one_update_gives(bounds: tuple[int, int]) -> None:
    predicted, gold = decisions(1500, seed=1)
    first, second = bounds
    chunked = BootstrapScores(TREE, 20)
    chunked.update(predicted[:first], gold[:first])
    chunked.update(predicted[first:second], gold[first:second])
    chunked.update(predicted[second:], gold[second:])
    whole = scored(predicted, gold).resampled()
    assert chunked.resampled().to_json() == whole.to_json()


@pytest.mark.slow
def test_sums_stay_exact_where_float32_is_not() -> None:
    labels, documents = 9000, 1024
    taxonomy = Taxonomy([str(label) for label in range(labels)], [-1] * labels)
    predicted = np.ones((documents, labels), dtype=bool)
    gold = predicted.copy()
    gold[0, 0] = False
    samples = scored(predicted, gold, 16, tree=taxonomy).resampled().samples
    weights = poisson_weights(16, 0, 0, documents).astype(np.int64)
    total, missing = weights.sum(axis=0), weights[0]
    assert missing.any()
    assert (
        samples["hierarchical_f1"].tolist()
        == (2 * (labels * total - missing) / (2 * labels * total - missing)).tolist()
    )


def test_the_spread_is_that_of_drawing_with_replacement() -> None:
    predicted, gold = decisions(300, seed=4)
    random = np.random.default_rng(0)
    drawn = [point_scores(TREE, predicted[rows], gold[rows]) for rows in random.integers(300, size=(800, 300))]
    for name, values in scored(predicted, gold, 800).resampled().samples.items():
        expected = np.array([sample[name] for sample in drawn])
        assert values.std() == pytest.approx(expected.std(), rel=0.12)
        assert values.mean() == pytest.approx(expected.mean(), abs=0.2 * expected.std())


def test_intervals_hold_the_middle_of_the_samples() -> None:
    predicted, gold = decisions(300, seed=4)
    resampled = scored(predicted, gold, 400).resampled()
    for name, interval in resampled.intervals(0.8).items():
        values = resampled.samples[name]
        moved = values - values.mean() + interval.score
        assert interval.low < interval.score < interval.high
        assert ((moved > interval.low) & (moved < interval.high)).mean() == pytest.approx(0.8, abs=0.005)


def test_no_documents_score_zero() -> None:
    intervals = BootstrapScores(TREE, 10).resampled().intervals()
    assert all((interval.low, interval.score, interval.high) == (0, 0, 0) for interval in intervals.values())


def test_only_gold_tells_documents_apart() -> None:
    predicted, gold = decisions(40, seed=4)
    digest = scored(predicted, gold).resampled().gold
    assert scored(~predicted, gold).resampled().gold == digest
    other = gold.copy()
    other[17, 2] ^= True
    assert scored(predicted, other).resampled().gold != digest
    assert scored(predicted, gold[::-1]).resampled().gold != digest
    swapped = gold.copy()
    swapped[5] = [True, False, False, False, False]
    again = gold.copy()
    again[5] = [False, True, False, False, False]  # as many labels, but another one
    assert scored(predicted, swapped).resampled().gold != scored(predicted, again).resampled().gold


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BootstrapScores(TREE, 0), "at least one resample and a seed from 0, got 0 and 0"),
        (lambda: BootstrapScores(TREE, 5, -1), "at least one resample and a seed from 0, got 5 and -1"),
    ],
)
def test_unfit_numbers_are_refused(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_unfit_arrays_are_refused() -> None:
    with pytest.raises(ValueError, match="booleans, got float64 and bool"):
        scored(np.zeros((2, 5)), np.zeros((2, 5), bool))
