from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hgclr.errors import InputError
from hgclr.metrics.intervals import BootstrapScores, Resampled, ScoreDifference, paired_difference
from hgclr.taxonomy import Taxonomy


def resampled(score: float, samples: list[float], **changes: Any) -> Resampled:
    return replace(Resampled(10, 0, "gold", {"micro_f1": score}, {"micro_f1": np.array(samples)}), **changes)


def test_quantiles_are_moved_onto_the_score() -> None:
    # The samples lie around 0.3; moved by 0.2 they lie around the score, 0.4 to 0.6 at their ends.
    interval = resampled(0.5, [0.2, 0.25, 0.3, 0.35, 0.4]).intervals(0.5)["micro_f1"]
    assert (interval.score, interval.low, interval.high) == pytest.approx((0.5, 0.45, 0.55))


def test_intervals_end_at_zero_and_one() -> None:
    interval = resampled(0.5, [0.0, 1.0, 0.0, 1.0, 0.2]).intervals(0.999)["micro_f1"]
    assert (interval.low, interval.high) == (pytest.approx(0.06, abs=0.001), 1.0)
    interval = resampled(0.1, [0.3, 0.5]).intervals(0.99)["micro_f1"]
    assert (interval.low, interval.high) == (pytest.approx(0.001), pytest.approx(0.199))
    interval = resampled(0.1, [0.1, 0.5]).intervals(0.99)["micro_f1"]
    assert (interval.low, interval.high) == (0.0, pytest.approx(0.298))


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


def test_differences_are_moved_like_scores() -> None:
    # Differences of 0.1 and 0.3 around 0.2, where the scores differ by -0.2: both lie below 0 when moved there.
    difference = paired_difference(resampled(0.4, [0.5, 0.7]), resampled(0.6, [0.4, 0.4]))["micro_f1"]
    assert (difference.low, difference.high) == pytest.approx((-0.295, -0.105))
    assert difference.p_value == pytest.approx(2 / 3)


def test_a_model_does_not_differ_from_itself() -> None:
    model = resampled(0.6, [0.5, 0.7, 0.6])
    assert paired_difference(model, model)["micro_f1"] == ScoreDifference(0.0, 0.0, 0.0, 1.0)


def test_pairing_finds_a_small_difference_that_intervals_do_not_show() -> None:
    random = np.random.default_rng(0)
    taxonomy = Taxonomy(["A", "B", "C"], [-1, -1, -1])
    gold = random.random((2000, 3)) < 0.4
    good = gold ^ (random.random(gold.shape) < 0.2)
    worse = good ^ (random.random(gold.shape) < 0.008)
    models = []
    for predicted in (good, worse, good):
        scores = BootstrapScores(taxonomy, 500, seed=1)
        for start in range(0, 2000, 300 + 50 * len(models)):  # in batches of a size of its own
            rows = slice(start, start + 300 + 50 * len(models))
            scores.update(predicted[rows], gold[rows])
        models.append(scores.resampled())
    one, other, again = models
    assert one.intervals()["micro_f1"].low < other.intervals()["micro_f1"].score
    difference = paired_difference(one, other)["micro_f1"]
    assert difference.difference == pytest.approx(one.scores["micro_f1"] - other.scores["micro_f1"])
    assert 0 < difference.low < difference.difference < difference.high
    assert difference.p_value == pytest.approx(2 / 501)
    assert paired_difference(one, again)["macro_f1"].p_value == 1.0


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
    ("change", "message"),
    [
        ({"samples": 3}, "these are not resampled scores; evaluate the model anew"),
        ({"scores": {"micro_f1": "good"}}, "these are not resampled scores"),
        ({"samples": {"micro_f1": [0.5, None]}}, "is not one number for each resample; evaluate the model anew"),
        ({"samples": {"micro_f1": [[0.5]]}}, "is not one number for each resample"),
        ({"samples": {"micro_f1": []}}, "is not one number for each resample"),
        ({"scores": {"micro_f1": 0.5, "b": 0.5}, "samples": {"micro_f1": [0.5], "b": [0.5, 0.5]}}, "is not one number"),
        ({"samples": {}}, "is not one number for each resample"),
        ({"scores": {}}, "is not one number for each resample"),
    ],
)
def test_broken_json_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Resampled.from_json(resampled(0.6, [0.5, 0.7]).to_json() | change)


def test_json_without_a_part_is_refused() -> None:
    for name in ("documents", "seed", "gold", "scores", "samples"):
        content = resampled(0.6, [0.5, 0.7]).to_json()
        del content[name]
        with pytest.raises(InputError, match="these are not resampled scores"):
            Resampled.from_json(content)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (resampled(0.5, [0.5, 0.5], documents=11), "not scored on the same documents in the same order; evaluate both"),
        (resampled(0.5, [0.5, 0.5], gold="other"), "same split of the same data, with the same label tree"),
        (resampled(0.5, [0.5, 0.5], seed=3), "different resamples: 2 of seed 0 and 2 of seed 3; evaluate both with"),
        (resampled(0.5, [0.5] * 3), "2 of seed 0 and 3 of seed 0"),
        (Resampled(10, 0, "gold", {}, {}), "no score in common"),
    ],
)
def test_models_that_cannot_be_paired_are_refused(other: Resampled, message: str) -> None:
    with pytest.raises(InputError, match=message):
        paired_difference(resampled(0.5, [0.5, 0.6]), other)


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95.0])
def test_a_confidence_that_is_no_share_is_refused(confidence: float) -> None:
    model = resampled(0.5, [0.5, 0.6])
    with pytest.raises(ValueError, match=f"must be between 0 and 1, got {confidence}"):
        model.intervals(confidence)
    with pytest.raises(ValueError, match=f"must be between 0 and 1, got {confidence}"):
        paired_difference(model, model, confidence)
