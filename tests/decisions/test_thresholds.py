"""Thresholds against exhaustive search and against decoding; labels with few or no documents."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.metrics import f1_score

from hgclr.decisions.decoding import RULES, Decoder, Rule
from hgclr.decisions.thresholds import (
    METRICS,
    STEPS,
    BestPathSweep,
    RuleSweep,
    ThresholdTuner,
    f1,
    scopes_of,
)
from hgclr.errors import InputError
from hgclr.taxonomy import Taxonomy
from support.decision_cases import REPEATABLE, forests

Problem = tuple[Taxonomy, np.ndarray, np.ndarray]
BY_LABEL: list[Rule] = ["threshold", "closure", "drop-orphans"]


@st.composite
def problems(draw: st.DrawFn, trees: st.SearchStrategy[Taxonomy] | None = None, documents: int = 12) -> Problem:
    """Gold labels with all ancestors, at least one, and probabilities correlated with them."""
    taxonomy = draw(forests() if trees is None else trees)
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    gold = taxonomy.close(random.random((draw(st.integers(1, documents)), len(taxonomy))) < 0.3)
    gold[0, taxonomy.levels[0][0]] = True
    noise = random.random(gold.shape) * draw(st.sampled_from([0.3, 1.0, 3.0]))
    steps = draw(st.sampled_from([4, 1000]))
    probabilities = np.clip(0.2 + 0.5 * gold + noise - noise.mean(), 0, 1)
    return taxonomy, (np.round(probabilities * steps) / steps).astype(np.float32), gold


def flat(labels: int) -> Taxonomy:
    return Taxonomy([f"label {label}" for label in range(labels)], [-1] * labels)


def all_cuts(column: np.ndarray) -> list[float]:
    """Thresholds for every set of documents that a threshold can select."""
    values = sorted({0.0, *column.ravel().tolist()})
    return [*values, 1.0]


def tuned(tuner: ThresholdTuner, scope: str, probabilities: np.ndarray, gold: np.ndarray) -> np.ndarray:
    return tuner.tune([scope], probabilities, gold)[scope]


@REPEATABLE
@given(problems())
def test_f1_is_that_of_scikit_learn(problem: Problem) -> None:
    _, probabilities, gold = problem
    predicted = probabilities > 0.5
    # One column more than labels, so that scikit-learn never takes a single label for a binary task.
    both = [np.concatenate([matrix, np.zeros((len(gold), 1), dtype=bool)], axis=1) for matrix in (gold, predicted)]
    expected = f1_score(*both, average="micro", zero_division=0)
    assert f1(predicted, gold, "micro") == pytest.approx(expected)
    per_label = f1_score(*both, average=None, zero_division=0)[:-1]
    assert f1(predicted, gold, "macro") == pytest.approx(per_label.mean())
    assert f1(predicted, gold, "both") == pytest.approx((expected + per_label.mean()) / 2)


@pytest.mark.slow
@REPEATABLE
@given(problems(), st.sampled_from(RULES), st.sampled_from(METRICS))
def test_one_threshold_is_as_good_as_any_of_the_grid(problem: Problem, rule: str, metric: str) -> None:
    taxonomy, probabilities, gold = problem
    tuner = ThresholdTuner(taxonomy, rule, metric, shrinkage=0)
    found = tuned(tuner, "global", probabilities, gold)
    assert (found == found[0]).all()
    grid = np.arange(1, STEPS) if rule not in ("best-path", "top-k-paths") else np.arange(4, STEPS, 4)
    scores = [f1(Decoder(taxonomy, rule, value)(probabilities), gold, metric) for value in grid / STEPS]
    assert tuner.score(found, probabilities, gold) == pytest.approx(max(scores))


@pytest.mark.slow
@pytest.mark.parametrize("shrinkage", [0.0, 10.0])
@REPEATABLE
@given(problem=problems(), rule=st.sampled_from(RULES), metric=st.sampled_from(METRICS))
def test_more_thresholds_are_never_worse_on_what_they_are_tuned_on(
    shrinkage: float, problem: Problem, rule: str, metric: str
) -> None:
    """A level's threshold may be shrunk towards 0.5; a label's threshold is still compared with its level's."""
    taxonomy, probabilities, gold = problem
    assume(all(gold[:, level].any() for level in taxonomy.levels))  # a level without documents has 0.5
    tuner = ThresholdTuner(taxonomy, rule, metric, shrinkage)
    found = tuner.tune(scopes_of(rule), probabilities, gold)
    scores = [tuner.score(thresholds, probabilities, gold) for thresholds in found.values()][shrinkage > 0 :]
    assert all(more >= less - 1e-9 for less, more in itertools.pairwise(scores))
    for level in taxonomy.levels:
        assert len(set(found["level"][level].tolist())) == 1
    assert all(((thresholds >= 0) & (thresholds <= 1)).all() for thresholds in found.values())
    for scope, thresholds in found.items():
        np.testing.assert_array_equal(thresholds, tuned(tuner, scope, probabilities, gold))


@REPEATABLE
@given(problems())
def test_macro_thresholds_per_label_are_the_best_there_are(problem: Problem) -> None:
    taxonomy, probabilities, gold = problem
    tuner = ThresholdTuner(taxonomy, "threshold", "macro", shrinkage=0)
    found = tuned(tuner, "label", probabilities, gold)
    for label in range(len(taxonomy)):
        column, right = probabilities[:, [label]], gold[:, [label]]
        best = max(f1(column > np.float32(value), right, "macro") for value in all_cuts(column))
        assert f1(column > found[label], right, "macro") == pytest.approx(best)


@REPEATABLE
@given(problems(st.integers(1, 3).map(flat), documents=4))
def test_micro_thresholds_per_label_are_the_best_there_are(problem: Problem) -> None:
    taxonomy, probabilities, gold = problem
    tuner = ThresholdTuner(taxonomy, "threshold", "micro", shrinkage=0)
    found = tuned(tuner, "label", probabilities, gold)
    # A label without a document keeps its level's threshold.
    cuts = [all_cuts(probabilities[:, k]) if gold[:, k].any() else [found[k]] for k in range(len(taxonomy))]
    scores = (f1(probabilities > np.float32(values), gold, "micro") for values in itertools.product(*cuts))
    assert tuner.score(found, probabilities, gold) == pytest.approx(max(scores))


@REPEATABLE
@given(problems(st.integers(1, 3).map(flat), documents=4))
def test_no_label_could_do_better_for_both(problem: Problem) -> None:
    """The mean of Micro- and Macro-F1 is not a sum over labels, but changing any one threshold must not raise it."""
    taxonomy, probabilities, gold = problem
    tuner = ThresholdTuner(taxonomy, "threshold", "both", shrinkage=0)
    found = tuned(tuner, "label", probabilities, gold)
    reached = tuner.score(found, probabilities, gold)
    for label in np.flatnonzero(gold.any(axis=0)):
        for value in all_cuts(probabilities[:, label]):
            other = found.copy()
            other[label] = value
            assert f1(probabilities > other, gold, "both") <= reached + 1e-9


@REPEATABLE
@given(problems(st.just(Taxonomy(["b", "a"], [1, -1])), documents=5), st.sampled_from(["closure", "drop-orphans"]))
def test_macro_thresholds_know_what_the_rule_does(problem: Problem, rule: str) -> None:
    """With the first of two labels fixed, the second has the best threshold that the rule allows."""
    taxonomy, probabilities, gold = problem
    tuner = ThresholdTuner(taxonomy, rule, "macro", shrinkage=0)
    found = tuned(tuner, "label", probabilities, gold)
    assume((found != tuned(tuner, "level", probabilities, gold)).any())  # those per level were no better
    last = 1 if rule == "closure" else 0
    reached = tuner.score(found, probabilities, gold)
    for value in all_cuts(probabilities[:, last]):
        other = found.copy()
        other[last] = value
        assert tuner.score(other, probabilities, gold) <= reached + 1e-9


def test_a_threshold_lies_between_neighbouring_numbers() -> None:
    """Where no float32 lies between two probabilities, the lower one is the threshold."""
    low = np.float32(0.7)
    high = np.nextafter(low, np.float32(1))
    probabilities, gold = np.array([[high], [low]]), np.array([[True], [False]])
    found = tuned(ThresholdTuner(flat(1), shrinkage=0), "label", probabilities, gold)
    assert (probabilities > found).tolist() == gold.tolist()


@pytest.mark.parametrize("shrinkage", [0.0, 3.0, 10.0])
def test_few_documents_move_a_threshold_little(shrinkage: float) -> None:
    """Twelve documents have the first label, one has the second; these numbers weight the log odds."""
    present = np.array([[True, label == 0] for label in range(12)] + [[False, False]] * 12)
    present[0, 1], present[1:, 1] = True, False
    probabilities = np.where(present, [0.3, 0.9], [0.1, 0.7]).astype(np.float32)
    tuner = ThresholdTuner(flat(2), "threshold", "macro", shrinkage)
    (of_level,) = set(tuned(tuner, "level", probabilities, present).tolist())
    found = tuned(tuner, "label", probabilities, present)
    for threshold, own, number in zip(found, (0.2, 0.8), (12, 1), strict=True):
        odds = [math.log(value / (1 - value)) for value in (own, of_level)]
        mixed = (number * odds[0] + shrinkage * odds[1]) / (number + shrinkage)
        assert threshold == pytest.approx(1 / (1 + math.exp(-mixed)), rel=1e-5)


def test_a_label_without_documents_takes_its_levels_threshold() -> None:
    taxonomy = Taxonomy(["a", "a1", "a2", "b"], [-1, 0, 0, -1])
    random = np.random.default_rng(0)
    gold = taxonomy.close(random.random((40, 4)) < [0.3, 0.3, 0.0, 0.3])
    probabilities = np.clip(0.4 * gold + 0.5 * random.random(gold.shape), 0, 1).astype(np.float32)
    for rule in ("threshold", "closure", "drop-orphans"):
        tuner = ThresholdTuner(taxonomy, rule, shrinkage=0)
        per_level, per_label = (tuned(tuner, scope, probabilities, gold) for scope in ("level", "label"))
        assert per_label[2] == per_level[2]
        assert per_label[1] != per_level[1]


def test_what_cannot_be_tuned_is_refused() -> None:
    gold, probabilities = np.zeros((3, 2), dtype=bool), np.full((3, 2), 0.5, dtype=np.float32)
    with pytest.raises(InputError):
        tuned(ThresholdTuner(flat(2)), "global", probabilities, gold)
    gold[0] = True
    for rule, scope in (("threshold", "word"), ("best-path", "label"), ("top-k-paths", "label")):
        with pytest.raises(InputError) as caught:
            tuned(ThresholdTuner(flat(2), rule), scope, probabilities, gold)
        assert caught.value.remedy


def sweep_problem(taxonomy: Taxonomy, seed: int, fineness: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Probabilities, many of them on the grid itself, closed gold labels, and thresholds one for each level."""
    random = np.random.default_rng(seed)
    gold = taxonomy.close(random.random((7, len(taxonomy))) < 0.3)
    probabilities = (random.integers(0, fineness + 1, gold.shape) / fineness).astype(np.float32)
    of_level = random.integers(1, STEPS, taxonomy.depth) / STEPS
    return probabilities, gold, of_level[taxonomy.depths - 1].astype(np.float32)


def by_decoding(sweep, taxonomy, rule, probabilities, gold, thresholds, labels, **choices) -> list[list[float]]:
    """The counts of every fifth step."""
    rows = []
    for step in sweep.steps[::5]:
        changed = thresholds.copy()
        changed[labels] = step / STEPS
        predicted = Decoder(taxonomy, rule, changed, **choices)(probabilities)
        scores = [
            2 * (predicted[:, k] & gold[:, k]).sum() / max(1, predicted[:, k].sum() + gold[:, k].sum())
            for k in range(len(taxonomy))
        ]
        rows.append([(predicted & gold).sum(), predicted.sum(), sum(scores)])
    return rows


@pytest.mark.slow
@REPEATABLE
@given(forests(), st.integers(0, 2**32 - 1), st.sampled_from([4, 128, 1000]), st.sampled_from(BY_LABEL))
def test_a_sweep_counts_what_rules_decode(taxonomy: Taxonomy, seed: int, fineness: int, rule: Rule) -> None:
    probabilities, gold, thresholds = sweep_problem(taxonomy, seed, fineness)
    sweep = RuleSweep(taxonomy, rule, probabilities, gold)
    for labels in (np.arange(len(taxonomy)), *taxonomy.levels, np.array([seed % len(taxonomy)])):
        expected = by_decoding(sweep, taxonomy, rule, probabilities, gold, thresholds, labels)
        np.testing.assert_allclose(np.transpose(sweep(thresholds, labels))[::5], expected)


@pytest.mark.slow
@REPEATABLE
@given(forests(), st.integers(0, 2**32 - 1), st.booleans())
def test_a_sweep_counts_the_best_paths(taxonomy: Taxonomy, seed: int, allow_inner_nodes: bool) -> None:
    """Random numbers, so that two paths are equally good only by rounding."""
    assume(taxonomy.is_tree)
    _, gold, thresholds = sweep_problem(taxonomy, seed, 1)
    probabilities = np.random.default_rng(seed).random(gold.shape, dtype=np.float32)
    sweep = BestPathSweep(taxonomy, probabilities, gold, allow_inner_nodes)
    for labels in (np.arange(len(taxonomy)), *taxonomy.levels):
        expected = by_decoding(
            sweep, taxonomy, "best-path", probabilities, gold, thresholds, labels, allow_inner_nodes=allow_inner_nodes
        )
        np.testing.assert_allclose(np.transpose(sweep(thresholds, labels))[::5], expected)
