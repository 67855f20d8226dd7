"""Calibration: temperatures by scipy, curves by scikit-learn, known errors recovered, descriptions read back."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from sklearn.isotonic import IsotonicRegression

from hgclr.decisions import calibration
from hgclr.decisions.calibration import METHODS, Isotonic, Temperatures, fit, from_json, sigmoid, silent_levels
from hgclr.errors import InputError
from hgclr.metrics.calibration import CalibrationScores
from hgclr.taxonomy import Taxonomy
from support.decision_cases import REPEATABLE, forests

TREE = Taxonomy(["a1", "a", "b", "a2", "b1"], [1, -1, -1, 1, 2])


def outputs(taxonomy: Taxonomy, documents: int, seed: int, scale: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Logits that are ``scale`` times the true ones, and labels drawn with the true probabilities."""
    random = np.random.default_rng(seed)
    true = random.normal(-0.5, 1.5, (documents, len(taxonomy)))
    gold = random.random(true.shape) < 1 / (1 + np.exp(-true))
    return (scale * true).astype(np.float32), gold


def cross_entropy(temperature: float, logits: np.ndarray, gold: np.ndarray) -> float:
    """With targets next to 0 and 1, written from the definition."""
    present, absent = int(gold.sum()), int((~gold).sum())
    target = np.where(gold, (present + 1) / (present + 2), 1 / (absent + 2))
    scaled = logits.astype(np.float64) / temperature
    return float(np.sum(np.logaddexp(0, scaled) - target * scaled))


@pytest.mark.parametrize("seed", range(4))
def test_temperatures_are_those_of_scipy(seed: int) -> None:
    logits, gold = outputs(TREE, 50, seed, scale=[0.5, 1.0, 2.0, 5.0][seed])
    found = fit("temperature", logits, gold, TREE)
    assert isinstance(found, Temperatures)
    for level, value in zip(TREE.levels, found.values, strict=True):
        best = minimize_scalar(
            cross_entropy, bounds=(0.05, 20), args=(logits[:, level], gold[:, level]), options={"xatol": 1e-9}
        )
        assert value == pytest.approx(best.x, rel=1e-4)


def test_logits_three_times_too_large_are_found_out() -> None:
    logits, gold = outputs(TREE, 4000, 1)
    logits[:, TREE.levels[1]] *= 3
    found = fit("temperature", logits, gold, TREE)
    assert found.values == (pytest.approx(1, abs=0.06), pytest.approx(3, abs=0.2))


@pytest.mark.parametrize("method", METHODS)
def test_errors_are_smaller_on_other_documents(method: str) -> None:
    logits, gold = outputs(TREE, 3000, 2, scale=3)
    fitted = fit(method, logits, gold, TREE)
    others, truth = outputs(TREE, 3000, 3, scale=3)
    scores = [CalibrationScores(TREE), CalibrationScores(TREE)]
    for score, probabilities in zip(scores, (sigmoid(others.copy()), fitted(others)), strict=True):
        score.update(probabilities, truth)
    before, after = scores
    assert after.ece() < 0.2 * before.ece()
    assert after.brier() < before.brier()


def test_what_is_all_right_is_not_made_infinitely_sure() -> None:
    """Twenty documents without a mistake do not show that there never is one."""
    tree = Taxonomy(["a"], [-1])
    gold = np.array([[True], [False]] * 10)
    logits = np.where(gold, 1, -1).astype(np.float32)
    (temperature,) = fit("temperature", logits, gold, tree).values
    # Eleven of twelve is what ten right ones stand for: the log odds of that at a logit of 1.
    assert 1 / temperature == pytest.approx(math.log(11), rel=1e-5)


def test_curves_are_those_of_scikit_learn() -> None:
    logits, gold = outputs(TREE, 30, 4)
    found = fit("isotonic", logits, gold, TREE)(logits)
    for level in TREE.levels:
        plain = 1 / (1 + np.exp(-logits[:, level].astype(np.float64)))
        margin = 1 / (plain.size + 2)
        expected = IsotonicRegression(y_min=margin, y_max=1 - margin).fit_transform(
            plain.ravel(), gold[:, level].ravel()
        )
        np.testing.assert_allclose(found[:, level].ravel(), expected, atol=1e-4)


def test_long_curves_are_thinned_and_stay_near(monkeypatch: pytest.MonkeyPatch) -> None:
    logits, gold = outputs(TREE, 5000, 5, scale=3)
    monkeypatch.setattr(calibration, "KNOTS", 10**9)
    whole = fit("isotonic", logits, gold, TREE)
    monkeypatch.setattr(calibration, "KNOTS", 20)
    thin = fit("isotonic", logits, gold, TREE)
    for (many, _), (few, _) in zip(whole.curves, thin.curves, strict=True):
        assert len(few) == 20 < len(many)
        assert (few[0], few[-1]) == (many[0], many[-1])
        assert set(few) <= set(many)
    assert np.abs(whole(logits) - thin(logits)).mean() < 0.02


@pytest.mark.parametrize("method", METHODS)
@REPEATABLE
@given(taxonomy=forests(), seed=st.integers(0, 1000), documents=st.integers(1, 9))
def test_calibration_keeps_order_type_and_range(method: str, taxonomy: Taxonomy, seed: int, documents: int) -> None:
    logits, gold = outputs(taxonomy, documents, seed)
    fitted = fit(method, logits, gold, taxonomy)
    asked = np.sort(np.random.default_rng(seed).normal(0, 20, (50, 1)), axis=0).astype(np.float32)
    before = np.tile(asked, (1, len(taxonomy)))
    probabilities = fitted(before)
    assert probabilities.dtype == np.float32
    assert (np.diff(probabilities, axis=0) >= 0).all()
    assert probabilities.min() >= 0
    assert probabilities.max() <= 1
    np.testing.assert_array_equal(before, np.tile(asked, (1, len(taxonomy))))  # not changed in place
    again = from_json(json.loads(json.dumps(fitted.to_json())), taxonomy)
    np.testing.assert_array_equal(again(before), probabilities)
    assert again == fitted


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("present", [False, True])
def test_a_level_that_tells_nothing_stays_as_it_is(method: str, present: bool) -> None:
    logits, gold = outputs(TREE, 200, 6, scale=4)
    gold[:, TREE.levels[1]] = present
    assert silent_levels(gold, TREE) == [2]
    found, plain = fit(method, logits, gold, TREE)(logits), sigmoid(logits.copy())
    np.testing.assert_allclose(found[:, TREE.levels[1]], plain[:, TREE.levels[1]], atol=1e-6)
    assert np.abs(found - plain)[:, TREE.levels[0]].max() > 0.05


def test_extreme_logits_are_probabilities() -> None:
    logits = np.array([[-1e30], [-1000], [0], [1000], [1e30]], dtype=np.float32)
    fitted = Temperatures(Taxonomy(["a"], [-1]), (0.05,))
    with np.errstate(all="raise", under="ignore"):
        np.testing.assert_allclose(fitted(logits)[:, 0], [0, 0, 0.5, 1, 1], atol=1e-30)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ([], "the calibration cannot be read"),
        ({}, "the calibration cannot be read: KeyError"),
        ({"method": "magic", "levels": [1.0, 1.0]}, "unknown calibration 'magic'"),
        ({"method": "temperature", "levels": [1.0]}, "a calibration of 1 levels for a tree of 2"),
        ({"method": "temperature", "levels": 3}, "the calibration cannot be read"),
        ({"method": "temperature", "levels": [1.0, 0.0]}, "0.0 is no temperature"),
        ({"method": "temperature", "levels": [1.0, math.nan]}, "nan is no temperature"),
        ({"method": "temperature", "levels": [1.0, math.inf]}, "inf is no temperature"),
        ({"method": "temperature", "levels": [1.0, "warm"]}, "could not convert string to float: 'warm'"),
        ({"method": "isotonic", "levels": [1.0, 2.0]}, "the calibration cannot be read"),
        ({"method": "isotonic", "levels": [{"from": [0, 1], "to": [0]}] * 2}, "a curve from 2 points to 1"),
        ({"method": "isotonic", "levels": [{"from": [], "to": []}] * 2}, "does not rise between 0 and 1"),
        ({"method": "isotonic", "levels": [{"from": [0, 1], "to": [1, 0]}] * 2}, "does not rise between 0 and 1"),
        ({"method": "isotonic", "levels": [{"from": [0, 2], "to": [0, 1]}] * 2}, "does not rise between 0 and 1"),
        ({"method": "isotonic", "levels": [{"from": [0, math.nan], "to": [0, 1]}] * 2}, "does not rise"),
        ({"method": "isotonic", "levels": [{"from": [0, 1]}] * 2}, "KeyError"),
    ],
)
def test_a_broken_description_is_refused(fields: object, message: str) -> None:
    with pytest.raises(InputError) as caught:
        from_json(fields, TREE)
    assert message in str(caught.value)


def test_what_cannot_be_fitted_is_refused() -> None:
    logits, gold = outputs(TREE, 3, 0)
    with pytest.raises(InputError, match="unknown calibration 'magic'; choose one of temperature, isotonic"):
        fit("magic", logits, gold, TREE)
    for method in METHODS:
        with pytest.raises(InputError, match="there is no document to calibrate on"):
            fit(method, logits[:0], gold[:0], TREE)


def test_both_kinds_are_told_apart() -> None:
    logits, gold = outputs(TREE, 50, 7)
    assert isinstance(fit("isotonic", logits, gold, TREE), Isotonic)
