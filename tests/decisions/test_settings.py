"""Decisions: calibration against scipy and scikit-learn, ``decisions.json``, abstention, use in models and exports."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from sklearn.isotonic import IsotonicRegression

from hgclr.decisions import settings
from hgclr.decisions.decoding import RULES
from hgclr.decisions.settings import (
    FILE,
    METHODS,
    Decisions,
    Isotonic,
    LeafSoftmax,
    Temperatures,
    calibration_from_json,
    constant_levels,
    fit_calibration,
    sigmoid,
)
from hgclr.errors import InputError
from hgclr.export.onnx import export_onnx
from hgclr.inference import HierarchicalClassifier
from hgclr.metrics.probabilities import CalibrationScores
from hgclr.taxonomy import Taxonomy
from support.decision_cases import REPEATABLE, Case, cases, forests, path, paths

DEEP = Taxonomy(["a1", "a", "b", "a2", "b1"], [1, -1, -1, 1, 2])
TREE = Taxonomy(["a", "a1", "b"], [-1, 0, -1])
TEXTS = ["atom", "the lens of a prism in a lake is a mirror", "judge", "a boat", "goal", "acid salt of the court"]


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
    logits, gold = outputs(DEEP, 50, seed, scale=[0.5, 1.0, 2.0, 5.0][seed])
    found = fit_calibration("temperature", logits, gold, DEEP)
    assert isinstance(found, Temperatures)
    for level, value in zip(DEEP.levels, found.values, strict=True):
        best = minimize_scalar(
            cross_entropy, bounds=(0.05, 20), args=(logits[:, level], gold[:, level]), options={"xatol": 1e-9}
        )
        assert value == pytest.approx(best.x, rel=1e-4)


@pytest.mark.parametrize("method", METHODS)
def test_errors_are_smaller_on_other_documents(method: str) -> None:
    logits, gold = outputs(DEEP, 3000, 2, scale=3)
    fitted = fit_calibration(method, logits, gold, DEEP)
    others, truth = outputs(DEEP, 3000, 3, scale=3)
    scores = [CalibrationScores(DEEP), CalibrationScores(DEEP)]
    for score, probabilities in zip(scores, (sigmoid(others.copy()), fitted(others)), strict=True):
        score.update(probabilities, truth)
    before, after = scores
    assert after.ece() < 0.2 * before.ece()
    assert after.brier() < before.brier()


def test_what_is_all_right_is_not_made_infinitely_sure() -> None:
    """Twenty documents without an error must not give probabilities of 0 and 1."""
    tree = Taxonomy(["a"], [-1])
    gold = np.array([[True], [False]] * 10)
    logits = np.where(gold, 1, -1).astype(np.float32)
    (temperature,) = fit_calibration("temperature", logits, gold, tree).values
    # Ten right ones give the target 11/12; its log odds belong to a logit of 1.
    assert 1 / temperature == pytest.approx(math.log(11), rel=1e-5)


def test_curves_are_those_of_scikit_learn() -> None:
    logits, gold = outputs(DEEP, 30, 4)
    found = fit_calibration("isotonic", logits, gold, DEEP)(logits)
    for level in DEEP.levels:
        plain = 1 / (1 + np.exp(-logits[:, level].astype(np.float64)))
        margin = 1 / (plain.size + 2)
        expected = IsotonicRegression(y_min=margin, y_max=1 - margin).fit_transform(
            plain.ravel(), gold[:, level].ravel()
        )
        np.testing.assert_allclose(found[:, level].ravel(), expected, atol=1e-4)


def test_long_curves_are_thinned_and_stay_near(monkeypatch: pytest.MonkeyPatch) -> None:
    logits, gold = outputs(DEEP, 5000, 5, scale=3)
    monkeypatch.setattr(settings, "KNOTS", 10**9)
    whole = fit_calibration("isotonic", logits, gold, DEEP)
    monkeypatch.setattr(settings, "KNOTS", 20)
    thin = fit_calibration("isotonic", logits, gold, DEEP)
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
    fitted = fit_calibration(method, logits, gold, taxonomy)
    asked = np.sort(np.random.default_rng(seed).normal(0, 20, (50, 1)), axis=0).astype(np.float32)
    before = np.tile(asked, (1, len(taxonomy)))
    probabilities = fitted(before)
    assert probabilities.dtype == np.float32
    assert (np.diff(probabilities, axis=0) >= 0).all()
    assert probabilities.min() >= 0
    assert probabilities.max() <= 1
    np.testing.assert_array_equal(before, np.tile(asked, (1, len(taxonomy))))  # not changed in place
    again = calibration_from_json(json.loads(json.dumps(fitted.to_json())), taxonomy)
    np.testing.assert_array_equal(again(before), probabilities)
    assert again == fitted


@REPEATABLE
@given(taxonomy=forests(), seed=st.integers(0, 1000), temperature=st.sampled_from([0.1, 0.25, 2.0]))
def test_a_softmax_over_leaves_is_a_distribution_over_paths(taxonomy: Taxonomy, seed: int, temperature: float) -> None:
    logits = np.random.default_rng(seed).normal(0, 2, (5, len(taxonomy))).astype(np.float32)
    decisions = Decisions(taxonomy, "best-path", calibration=LeafSoftmax(taxonomy, temperature))
    found = decisions.probabilities(logits)
    expected = np.zeros(found.shape)
    best = []
    for row, own in enumerate(logits.astype(np.float64)):
        weights = {
            leaf: math.exp(max(own[labels].sum() for labels in paths(taxonomy, leaf)) / temperature)
            for leaf in taxonomy.leaves.tolist()
        }
        for leaf, weight in weights.items():
            expected[row, taxonomy.closure([leaf])] += weight / sum(weights.values())
        best.append(max(weights, key=weights.__getitem__))
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert found.max() <= 1
    # A path to a leaf is chosen by the leaf's probability, as by the sum of the path's logits.
    chosen = replace(decisions, allow_inner_nodes=False).decide(found).predicted
    assert [np.flatnonzero(row).tolist() for row in chosen] == [taxonomy.closure([leaf]).tolist() for leaf in best]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("present", [False, True])
def test_a_level_that_tells_nothing_stays_as_it_is(method: str, present: bool) -> None:
    logits, gold = outputs(DEEP, 200, 6, scale=4)
    gold[:, DEEP.levels[1]] = present
    assert constant_levels(gold, DEEP) == [2]
    found, plain = fit_calibration(method, logits, gold, DEEP)(logits), sigmoid(logits.copy())
    np.testing.assert_allclose(found[:, DEEP.levels[1]], plain[:, DEEP.levels[1]], atol=1e-6)
    assert np.abs(found - plain)[:, DEEP.levels[0]].max() > 0.05


def test_what_cannot_be_fitted_is_refused() -> None:
    logits, gold = outputs(DEEP, 3, 0)
    with pytest.raises(InputError):
        fit_calibration("magic", logits, gold, DEEP)
    for method in METHODS:
        with pytest.raises(InputError):
            fit_calibration(method, logits[:0], gold[:0], DEEP)


@pytest.mark.slow
@REPEATABLE
@given(case=cases(), rule=st.sampled_from(RULES), paths=st.integers(1, 9), abstain_below=st.none() | st.floats(0, 1))
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, case: Case, rule: str, paths: int, abstain_below: float | None
) -> None:
    curve = ((0.0, 0.3, 0.9), (0.01, 0.5, 0.99))
    kinds = [None, Temperatures(case.taxonomy, (1.7,) * case.taxonomy.depth)]
    kinds += [Isotonic(case.taxonomy, (curve,) * case.taxonomy.depth), LeafSoftmax(case.taxonomy, 0.25)]
    for calibration in kinds:
        written = Decisions(
            case.taxonomy,
            rule,
            case.thresholds,
            calibration,
            paths=paths,
            allow_inner_nodes=paths % 2 == 0,
            abstain_below=abstain_below,
            provenance={"metric": "macro-F1", "documents": 3},
        )
        folder = tmp_path_factory.mktemp("model")
        written.write(folder)
        read = Decisions.read(folder / FILE, case.taxonomy)
        for name in ("rule", "calibration", "paths", "allow_inner_nodes", "abstain_below", "provenance"):
            assert getattr(read, name) == getattr(written, name)
        np.testing.assert_array_equal(read.decoder.thresholds, written.decoder.thresholds)
        assert np.ndim(read.thresholds) == np.ndim(written.thresholds)
        before, after = (decisions.decide(case.probabilities) for decisions in (written, read))
        np.testing.assert_array_equal(before.predicted, after.predicted)
        np.testing.assert_array_equal(before.abstained, after.abstained)


@pytest.mark.parametrize(
    "change",
    [
        *({field: ...} for field in Decisions(TREE).to_json()),  # missing
        {"rule": "magic"},
        {"thresholds": {"a": 0.5}},
        {"thresholds": {"a": 0.5, "a1": 0.5, "b": 0.5, "z": 0.5}},
        {"thresholds": {"a": 0.5, "a1": "0.5", "b": 0.5}},
        {"thresholds": {"a": 0.5, "a1": 7, "b": 0.5}},
        {"thresholds": True},
        {"paths": 0},
        {"paths": 2.5},
        {"allow_inner_nodes": "no"},
        {"abstain_below": 1.5},
        {"abstain_below": "very"},
        {"provenance": None},
        {"calibration": {}},
        {"calibration": {"method": "magic", "levels": [1.0, 1.0]}},
        {"calibration": {"method": "temperature", "levels": [1.0]}},
        {"calibration": {"method": "temperature", "levels": [1.0, 0.0]}},
        {"calibration": {"method": "temperature", "levels": [1.0, math.nan]}},
        {"calibration": {"method": "leaf-softmax", "temperature": 0.0}},
        {"calibration": {"method": "isotonic", "levels": [1.0, 2.0]}},
        {"calibration": {"method": "isotonic", "levels": [{"from": [0, 0.5, 1], "to": [0, 1]}] * 2}},
        {"calibration": {"method": "isotonic", "levels": [{"from": [], "to": []}] * 2}},
        {"calibration": {"method": "isotonic", "levels": [{"from": [0, 1], "to": [1, 0]}] * 2}},
        {"calibration": {"method": "isotonic", "levels": [{"from": [0, 1]}] * 2}},
    ],
)
def test_a_broken_field_is_refused_with_file_and_remedy(tmp_path: Path, change: dict) -> None:
    file = tmp_path / FILE
    fields = Decisions(TREE).to_json() | change
    file.write_text(json.dumps({name: value for name, value in fields.items() if value is not ...}), encoding="utf-8")
    with pytest.raises(InputError) as caught:
        Decisions.read(file, TREE)
    assert caught.value.path == file
    assert caught.value.remedy


@pytest.mark.parametrize("content", [None, b"", b"{", b"[]", b"\xff"])
def test_a_broken_file_is_refused(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / FILE
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(InputError) as caught:
        Decisions.read(file, TREE)
    assert caught.value.path == file


@REPEATABLE
@given(cases(), st.sampled_from(RULES), st.sampled_from([0.0, 0.25, 0.5, 1.0]))
def test_doubt_stops_at_the_parent(case: Case, rule: str, sure: float) -> None:
    plain = Decisions(case.taxonomy, rule, case.thresholds)
    decided, all_of_it = (
        plain.changed(abstain_below=sure).decide(case.probabilities),
        plain.decide(case.probabilities),
    )
    np.testing.assert_array_equal(decided.predicted | decided.abstained, all_of_it.predicted)
    assert not all_of_it.abstained.any()
    for row, given_labels, both in zip(decided.probabilities, decided.predicted, all_of_it.predicted, strict=True):
        for label in np.flatnonzero(both):
            assert given_labels[label] == all(row[above] >= sure for above in path(case.taxonomy, label))


def test_only_what_is_given_is_changed() -> None:
    decisions = Decisions(TREE, "closure", np.array([0.3, 0.4, 0.5], dtype=np.float32), abstain_below=0.7, paths=2)
    assert decisions.changed() is decisions
    changed = decisions.changed(rule="top-k-paths", threshold=0.0, paths=3, abstain_below=0.0)
    assert (changed.rule, changed.thresholds, changed.paths, changed.abstain_below) == ("top-k-paths", 0.0, 3, 0.0)
    assert decisions.changed(rule="best-path").decoder.thresholds.tolist() == decisions.decoder.thresholds.tolist()
    for change in ({"abstain_below": 2}, {"rule": "magic"}):
        with pytest.raises(InputError):
            decisions.changed(**change)


@pytest.mark.parametrize("temperatures", [None, (0.3, 4.0)])
def test_a_shifted_logit_is_above_zero_where_the_label_passes_its_threshold(temperatures) -> None:
    """On all logits from -30 to 30 but those that rounding may put on either side."""
    calibration = None if temperatures is None else Temperatures(TREE, temperatures)
    scale = np.ones(3) if temperatures is None else np.array([0.3, 4.0, 0.3])
    logits = np.repeat(np.linspace(-30, 30, 6001), 3).reshape(-1, 3)
    for thresholds in ([0.5, 0.5, 0.5], [0.01, 0.3, 0.999], [0.7, 0.04, 0.2]):
        decisions = Decisions(TREE, "threshold", np.array(thresholds, dtype=np.float32), calibration)
        shift = decisions.logit_shift()
        assert shift.shape == (3,)
        exact = 1 / (1 + np.exp(-logits / scale))
        clear = np.abs(exact - thresholds) > 1e-6
        assert clear.mean() > 0.5
        np.testing.assert_array_equal((logits + shift > 0)[clear], (exact > thresholds)[clear])
    assert (Decisions(TREE, calibration=calibration).logit_shift() == 0).all()
    with pytest.raises(InputError):
        Decisions(TREE, calibration=Isotonic(TREE, (((0.0, 1.0), (0.0, 1.0)),) * 2)).logit_shift()


def test_a_shift_for_thresholds_of_nought_and_one_is_finite_and_decides_as_they_do() -> None:
    decisions = Decisions(TREE, "threshold", np.array([0.0, 1.0, 0.5], dtype=np.float32))
    logits = np.array([[-50.0] * 3, [50.0] * 3], dtype=np.float32)
    shift = decisions.logit_shift()
    assert np.isfinite(shift).all()
    assert (logits + shift > 0).tolist() == [[True, False, False], [True, False, True]]
    probabilities = (1 / (1 + np.exp(-logits.astype(np.float64)))).astype(np.float32)
    assert (logits + shift > 0).tolist() == decisions.decide(probabilities).predicted.tolist()


@pytest.fixture(scope="module")
def plain(untrained: Callable[..., Path]) -> Path:
    return untrained(threshold=0.4)


@pytest.fixture(scope="module")
def decisions(taxonomy: Taxonomy) -> Decisions:
    thresholds = np.linspace(0.35, 0.65, len(taxonomy)).astype(np.float32)
    return Decisions(
        taxonomy,
        "drop-orphans",
        thresholds,
        Temperatures(taxonomy, (2.0, 3.0, 0.5)),
        abstain_below=0.8,
        provenance={"documents": 24},
    )


@pytest.fixture(scope="module")
def calibrated(plain: Path, decisions: Decisions, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = shutil.copytree(plain, tmp_path_factory.mktemp("calibrated") / "model")
    decisions.write(folder)
    return folder


@pytest.fixture(scope="module")
def classifier(calibrated: Path) -> HierarchicalClassifier:
    return HierarchicalClassifier.load(calibrated)


def probabilities_by_hand(plain: Path, taxonomy: Taxonomy) -> np.ndarray:
    """From the logits of the model without decisions."""
    classifier = HierarchicalClassifier.load(plain)
    logits = np.concatenate(list(classifier.logits(TEXTS))).astype(np.float64)
    temperatures = np.array([2.0, 3.0, 0.5])[taxonomy.depths - 1]
    return 1 / (1 + np.exp(-logits / temperatures))


def test_the_file_is_obeyed(plain: Path, classifier: HierarchicalClassifier, taxonomy: Taxonomy) -> None:
    expected = probabilities_by_hand(plain, taxonomy)
    np.testing.assert_allclose(classifier.predict_proba(TEXTS), expected, atol=1e-5)
    thresholds = np.linspace(0.35, 0.65, len(taxonomy))
    doubted = 0
    for row, prediction in zip(expected, classifier.predict(TEXTS), strict=True):
        paths = {label: taxonomy.path(label) for label in range(len(taxonomy))}
        both = {label for label, above in paths.items() if (row[above] > thresholds[above]).all()}
        sure = {label for label in both if min(row[paths[label]]) >= 0.8}
        assert {taxonomy.resolve(label.id) for label in prediction.labels} == sure
        assert {taxonomy.resolve(label.id) for label in prediction.abstained} == both - sure
        for label in (*prediction.labels, *prediction.abstained):
            assert label.probability == pytest.approx(row[taxonomy.resolve(label.id)], abs=1e-5)
        doubted += len(prediction.abstained)
    assert doubted  # else this test checks nothing


@pytest.mark.slow
def test_an_export_decides_as_the_model_does(
    calibrated: Path, classifier: HierarchicalClassifier, tmp_path: Path
) -> None:
    exported = HierarchicalClassifier.load(export_onnx(calibrated, tmp_path / "onnx").folder)
    assert json.loads((tmp_path / "onnx" / FILE).read_text()) == json.loads((calibrated / FILE).read_text())
    for ours, theirs in zip(classifier.predict(TEXTS), exported.predict(TEXTS), strict=True):
        for part in ("labels", "abstained"):
            assert [label.id for label in getattr(ours, part)] == [label.id for label in getattr(theirs, part)]
