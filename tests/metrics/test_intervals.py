"""Bootstrap: weights, samples by repeating documents, intervals, paired differences."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from hgclr.errors import InputError
from hgclr.metrics.intervals import BootstrapScores, Resampled, ScoreDifference, paired_difference, poisson_weights
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
    found = scored(predicted, gold, 5, seed=2, tree=taxonomy).resampled()
    assert found.scores == pytest.approx(point_scores(taxonomy, predicted, gold), abs=1e-12)
    samples = found.samples
    weights = poisson_weights(5, 2, 0, len(gold))
    for number in range(5):
        rows = np.repeat(np.arange(len(gold)), weights[:, number])
        for name, value in point_scores(taxonomy, predicted[rows], gold[rows]).items():
            assert samples[name][number] == pytest.approx(value, abs=1e-12)


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


def resampled(score: float, samples: list[float], **changes: Any) -> Resampled:
    return replace(Resampled(10, 0, "gold", {"micro_f1": score}, {"micro_f1": np.array(samples)}), **changes)


def test_quantiles_are_moved_onto_the_score() -> None:
    # The mean of the samples is 0.3; shifted by 0.2 it is the score, and the ends are 0.4 and 0.6.
    interval = resampled(0.5, [0.2, 0.25, 0.3, 0.35, 0.4]).intervals(0.5)["micro_f1"]
    assert (interval.score, interval.low, interval.high) == pytest.approx((0.5, 0.45, 0.55))


def test_a_rare_label_does_not_move_the_interval_away_from_macro_f1() -> None:
    labels = 60
    taxonomy = Taxonomy([str(label) for label in range(labels)], [-1] * labels)
    gold = np.eye(labels, dtype=bool)
    predicted = gold.copy()
    predicted[::3] = False  # a third of the labels is never found, the others have one document each
    scores = BootstrapScores(taxonomy, 300)
    scores.update(predicted, gold)
    interval = scores.resampled().intervals()["macro_f1"]
    assert scores.resampled().samples["macro_f1"].max() < interval.score == pytest.approx(2 / 3)
    assert interval.low < interval.score < interval.high


def test_difference_and_p_value_by_hand() -> None:
    first = resampled(0.6, [0.5, 0.7, 0.6, 0.6])
    second = resampled(0.5, [0.6, 0.5, 0.4, 0.5])
    # Differences -0.1, 0.2, 0.2, 0.1 have the mean 0.1, which is the difference: one of four is not above 0.
    difference = paired_difference(first, second, confidence=0.5)["micro_f1"]
    assert difference.difference == pytest.approx(0.1)
    assert (difference.low, difference.high) == pytest.approx((0.05, 0.2))
    assert difference.p_value == pytest.approx(2 * (1 + 1) / 5)
    reverse = paired_difference(second, first, confidence=0.5)["micro_f1"]
    assert reverse.p_value == difference.p_value
    assert (reverse.difference, reverse.low, reverse.high) == pytest.approx((-0.1, -0.2, -0.05))


def test_a_model_does_not_differ_from_itself() -> None:
    model = resampled(0.6, [0.5, 0.7, 0.6])
    assert paired_difference(model, model)["micro_f1"] == ScoreDifference(0.0, 0.0, 0.0, 1.0)


def test_p_values_are_spread_evenly_where_models_do_not_differ() -> None:
    random = np.random.default_rng(1)
    taxonomy = Taxonomy(["A", "B"], [-1, -1])
    below = {0.1: 0, 0.5: 0}
    for trial in range(200):
        gold = random.random((200, 2)) < 0.5
        pair = []
        for _ in range(2):
            scores = BootstrapScores(taxonomy, 100, seed=trial)
            scores.update(gold ^ (random.random(gold.shape) < 0.3), gold)
            pair.append(scores.resampled())
        p_value = paired_difference(*pair)["micro_f1"].p_value
        for limit in below:
            below[limit] += p_value <= limit
    assert 6 <= below[0.1] <= 36
    assert 72 <= below[0.5] <= 128


def test_json_keeps_everything() -> None:
    model = resampled(0.6, [0.5, 0.7, 0.6], gold="abc", seed=5, documents=7)
    again = Resampled.from_json(json.loads(json.dumps(model.to_json())))
    assert again.to_json() == model.to_json()
    assert again.intervals() == model.intervals()
    assert paired_difference(again, model)["micro_f1"].p_value == 1.0


@pytest.mark.parametrize(
    "change",
    [
        {"samples": 3},
        {"scores": {"micro_f1": "good"}},
        {"samples": {"micro_f1": [0.5, None]}},
        {"samples": {"micro_f1": [[0.5]]}},
        {"samples": {"micro_f1": []}},
        {"scores": {"micro_f1": 0.5, "b": 0.5}, "samples": {"micro_f1": [0.5], "b": [0.5, 0.5]}},
        {"scores": {}},
        *({name: None} for name in ("documents", "seed", "scores", "samples")),
    ],
)
def test_broken_json_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        Resampled.from_json(resampled(0.6, [0.5, 0.7]).to_json() | change)
    assert caught.value.remedy


@pytest.mark.parametrize(
    "other",
    [
        resampled(0.5, [0.5, 0.5], documents=11),
        resampled(0.5, [0.5, 0.5], gold="other"),
        resampled(0.5, [0.5, 0.5], seed=3),
        resampled(0.5, [0.5] * 3),
        Resampled(10, 0, "gold", {}, {}),
    ],
)
def test_models_that_cannot_be_paired_are_refused(other: Resampled) -> None:
    with pytest.raises(InputError):
        paired_difference(resampled(0.5, [0.5, 0.6]), other)


def test_unfit_numbers_are_refused() -> None:
    model = resampled(0.5, [0.5, 0.6])
    for make in (
        lambda: BootstrapScores(TREE, 0),
        lambda: BootstrapScores(TREE, 5, -1),
        lambda: model.intervals(95.0),
        lambda: paired_difference(model, model, 0.0),
        lambda: scored(np.zeros((2, 5)), np.zeros((2, 5), bool)),
    ):
        with pytest.raises(ValueError, match="got"):
            make()
