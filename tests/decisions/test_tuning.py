"""Tuning on dev: held-out scores computed by hand, the choice of rule and thresholds, new documents, risk."""

from __future__ import annotations

import itertools
import logging
from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, f1_score, precision_score, recall_score

from hgclr.decisions import tuning
from hgclr.decisions.decoding import Decoder
from hgclr.decisions.settings import Decisions, Isotonic, Temperatures, fit_calibration
from hgclr.decisions.thresholds import ThresholdTuner
from hgclr.decisions.tuning import Calibrated, Candidate, Outputs, Quality, calibrate
from hgclr.errors import InputError
from hgclr.metrics.probabilities import CalibrationScores
from hgclr.taxonomy import Taxonomy
from hgclr.taxonomy.order import monotone
from support.toy import random_tree

TREE = Taxonomy(["a1", "a", "b", "a2", "b1"], [1, -1, -1, 1, 2])


def outputs(taxonomy: Taxonomy, documents: int = 200, seed: int = 0, scale: float = 3.0) -> Outputs:
    """Labels of several paths, and logits that are mostly right and overconfident."""
    random = np.random.default_rng(seed)
    gold = taxonomy.close(random.random((documents, len(taxonomy))) < 0.25)
    logits = scale * (2.0 * gold - 1.2 + random.normal(0, 1, gold.shape))
    return Outputs(logits.astype(np.float32), gold)


def single_paths(taxonomy: Taxonomy, documents: int = 200, seed: int = 0, *, leaves: bool = True) -> Outputs:
    random = np.random.default_rng(seed)
    gold = np.zeros((documents, len(taxonomy)), dtype=bool)
    ends = random.choice(taxonomy.leaves if leaves else len(taxonomy), documents)
    for row, end in zip(gold, ends, strict=True):
        row[taxonomy.path(int(end))] = True
    return Outputs((3.0 * gold - 2 + random.normal(0, 1, gold.shape)).astype(np.float32), gold)


def rare_and_frequent(documents: int = 400, rare: int = 9, seed: int = 0) -> tuple[Taxonomy, Outputs]:
    """One easy label, and rare ones that the model hardly recognises and never finds probable."""
    random = np.random.default_rng(seed)
    tree = Taxonomy([f"label {label}" for label in range(rare + 1)], [-1] * (rare + 1))
    gold = random.random((documents, rare + 1)) < [0.8, *[0.06] * rare]
    logits = random.normal(0, 1, gold.shape) + np.where(gold, 1.2, 0) - 3
    logits[:, 0] = np.where(gold[:, 0], 4, -4)
    return tree, Outputs(logits.astype(np.float32), gold)


def sigmoid(logits: np.ndarray) -> np.ndarray:
    return (1 / (1 + np.exp(-logits))).astype(np.float32)


def tuned(tuner: ThresholdTuner, scope: str, probabilities: np.ndarray, gold: np.ndarray) -> np.ndarray:
    return tuner.tune([scope], probabilities, gold)[scope]


def names(found: Calibrated) -> list[tuple[str, str]]:
    return [(candidate.rule, candidate.thresholds) for candidate in found.candidates]


def given_by(decisions: Decisions, logits: np.ndarray) -> np.ndarray:
    return decisions.decide(decisions.probabilities(logits)).predicted


def test_every_rule_is_compared_with_every_kind_of_thresholds_and_nothing_leaves_an_orphan() -> None:
    found = calibrate(outputs(TREE), Decisions(TREE))
    kinds = ("none", "global", "level", "label")
    assert names(found) == list(itertools.product(("closure", "drop-orphans"), kinds))
    assert found.best in found.candidates
    assert found.decisions.rule == found.best.rule
    assert found.after == found.best.held_out
    assert isinstance(found.decisions.calibration, Temperatures)
    assert found.decisions.provenance["thresholds"] == found.best.thresholds
    assert found.decisions.provenance["documents"] == 200
    assert found.calibration_after.ece() < found.calibration_before.ece()
    assert found.decisions.abstain_below is None


@pytest.mark.parametrize(
    ("folds", "method", "metric"),
    [(5, "temperature", "both"), (2, "temperature", "micro"), (5, "isotonic", "macro"), (2, "none", "both")],
)
def test_scores_are_of_documents_that_nothing_was_fitted_to(
    folds: int, method: str, metric: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each fold is calibrated and decided with values fitted to the others; two folds for many documents."""
    monkeypatch.setattr(tuning, "MANY", 60 * 5 + (folds == 5))
    said = outputs(TREE, 60)
    found = calibrate(said, Decisions(TREE), method=method, rule="drop-orphans", scope="level", metric=metric, seed=3)
    shuffled = np.random.default_rng(3).permutation(60)
    without = [row for row in shuffled if not said.gold[row].any()]
    ordered = without + [row for row in shuffled if said.gold[row].any()]
    predicted, probabilities = np.zeros_like(said.gold), np.zeros_like(said.logits)
    for number in range(folds):
        fold = sorted(ordered[number::folds])
        others = sorted(set(range(60)) - set(fold))
        logits, gold = said.logits[others], said.gold[others]
        calibration = sigmoid if method == "none" else fit_calibration(method, logits, gold, TREE)
        thresholds = tuned(ThresholdTuner(TREE, "drop-orphans", metric), "level", calibration(logits), gold)
        probabilities[fold] = calibration(said.logits[fold])
        predicted[fold] = Decoder(TREE, "drop-orphans", thresholds)(probabilities[fold])
    (candidate,) = found.candidates
    for quality, labels in ((candidate.held_out, predicted), (found.before, said.logits > 0)):
        assert quality.micro_f1 == pytest.approx(f1_score(said.gold, labels, average="micro", zero_division=0))
        assert quality.macro_f1 == pytest.approx(f1_score(said.gold, labels, average="macro", zero_division=0))
        assert quality.precision == pytest.approx(precision_score(said.gold, labels, average="micro"))
        assert quality.recall == pytest.approx(recall_score(said.gold, labels, average="micro"))
        assert quality.exact == pytest.approx(accuracy_score(said.gold, labels))
    for scores, values in ((found.calibration_before, sigmoid(said.logits)), (found.calibration_after, probabilities)):
        expected = CalibrationScores(TREE)
        expected.update(values, said.gold)
        assert scores.ece() == pytest.approx(expected.ece(), abs=1e-6)
    for name, value in asdict(found.after).items():
        before = asdict(found.before)[name]
        assert found.decisions.provenance[f"held_out_{name}"] == {"before": round(before, 4), "after": round(value, 4)}


def test_new_documents_are_decided_better_than_at_0_5() -> None:
    dev, test = outputs(TREE, 300, seed=1), outputs(TREE, 2000, seed=2)
    found = calibrate(dev, Decisions(TREE)).decisions
    for average in ("micro", "macro"):
        before, after = (
            f1_score(test.gold, one, average=average) for one in (test.logits > 0, given_by(found, test.logits))
        )
        assert after > before


def test_what_wins_is_fitted_to_all_documents() -> None:
    said = outputs(TREE, 80)
    found = calibrate(said, Decisions(TREE), rule="closure", scope="label", metric="micro", shrinkage=2.0)
    fitted = fit_calibration("temperature", said.logits, said.gold, TREE)
    assert found.decisions.calibration == fitted
    tuner = ThresholdTuner(TREE, "closure", "micro", 2.0)
    expected = tuned(tuner, "label", fitted(said.logits), said.gold)
    np.testing.assert_array_equal(found.decisions.decoder.thresholds, expected)
    assert found.decisions.provenance["metric"] == "Micro-F1"


@pytest.mark.slow
@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 1000),
    labels=st.integers(2, 8),
    scale=st.sampled_from([0.5, 3.0]),
    metric=st.sampled_from(["both", "micro", "macro"]),
    max_loss=st.sampled_from([0.0, 0.01, 1.0]),
)
def test_no_harm_is_done_and_of_equals_the_simplest_is_taken(
    seed: int, labels: int, scale: float, metric: str, max_loss: float
) -> None:
    taxonomy = random_tree(labels, seed)
    said = outputs(taxonomy, 40, seed, scale)
    found = calibrate(said, Decisions(taxonomy), metric=metric, max_loss=max_loss)
    assert found.after.by(metric) >= found.before.by(metric)
    if metric == "both":
        assert found.after.micro_f1 >= found.before.micro_f1 - max_loss
        assert found.after.macro_f1 >= found.before.macro_f1 - max_loss
    else:
        max_loss = 1.0
    allowed = [
        one
        for one in found.candidates
        if one.held_out.micro_f1 - found.before.micro_f1 >= -max_loss
        and one.held_out.macro_f1 - found.before.macro_f1 >= -max_loss
        and one.held_out.by(metric) >= found.before.by(metric)
    ]
    if found.best is None:
        assert allowed == []
        return
    assert found.best in allowed
    order = ["none", "global", "level", "label"].index
    best = max(one.held_out.by(metric) for one in allowed)
    close = [one for one in allowed if one.held_out.by(metric) > best - 0.001]
    assert order(found.best.thresholds) == min(order(one.thresholds) for one in close)
    alike = [one.held_out.by(metric) for one in close if one.thresholds == found.best.thresholds]
    assert found.best.held_out.by(metric) == max(alike)


def test_macro_f1_is_not_bought_with_micro_f1_unless_that_is_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    tree, said = rare_and_frequent()
    assert calibrate(said, Decisions(tree)).best.thresholds == "none"
    with caplog.at_level(logging.WARNING, logger="hgclr"):
        kept = calibrate(said, Decisions(tree), scope="label")
    assert kept.best is None
    assert kept.after == kept.before
    assert (kept.decisions.rule, kept.decisions.thresholds) == ("threshold", 0.5)
    assert len(caplog.messages) == 1
    assert kept.decisions.provenance["thresholds"] == "as before"
    for choice in ({"max_loss": 1.0}, {"metric": "macro"}):
        found = calibrate(said, Decisions(tree), scope="label", **choice)
        assert found.after.macro_f1 > found.before.macro_f1 + 0.05
        assert found.after.micro_f1 < found.before.micro_f1 - 0.01


def test_what_is_worse_is_taken_only_if_its_rule_was_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    """With thresholds of 0.3 all labels are right, with 0.5 none is predicted."""
    said = outputs(TREE)
    said.logits[:] = np.where(said.gold, -0.4, -1.4)
    today, choices = Decisions(TREE, "closure", 0.3), {"scope": "none", "method": "none"}
    with caplog.at_level(logging.WARNING, logger="hgclr.decisions.tuning"):
        found = calibrate(said, today, **choices)
        assert len(caplog.messages) == 1
        assert (found.decisions.rule, found.decisions.thresholds) == ("closure", 0.3)
        caplog.clear()
        found = calibrate(said, today, rule="drop-orphans", **choices)
    assert "drop-orphans" in caplog.messages[0]
    assert (found.decisions.rule, found.decisions.thresholds) == ("drop-orphans", 0.5)
    assert found.after.micro_f1 == 0


@pytest.mark.parametrize("rule", ["threshold", "closure", "drop-orphans"])
@pytest.mark.parametrize("temperatures", [None, (3.0, 0.5)])
def test_labels_stay_the_same_where_only_probabilities_are_calibrated(rule: str, temperatures) -> None:
    said, others = outputs(TREE), outputs(TREE, seed=1)
    calibration = None if temperatures is None else Temperatures(TREE, temperatures)
    thresholds = np.array([0.2, 0.7, 0.5, 0.35, 0.9], dtype=np.float32)
    today = Decisions(TREE, rule, thresholds, calibration)
    found = calibrate(said, today, max_loss=-1.0)  # rejects every candidate
    assert found.best is None
    assert found.decisions.calibration == fit_calibration("temperature", said.logits, said.gold, TREE)
    assert found.calibration_after.ece() < found.calibration_before.ece()
    np.testing.assert_array_equal(given_by(found.decisions, others.logits), given_by(today, others.logits))


@pytest.mark.parametrize(
    ("method", "choices"),
    [
        ("temperature", {"rule": "best-path"}),
        ("temperature", {"abstain_below": 0.6}),
        ("temperature", {"calibration": Isotonic(TREE, (((0.0, 1.0), (0.0, 1.0)),) * 2)}),
        ("isotonic", {}),
        ("none", {}),
    ],
)
def test_where_labels_would_change_probabilities_stay_as_they_were(method: str, choices) -> None:
    today = Decisions(TREE, **choices)
    found = calibrate(outputs(TREE), today, method=method, max_loss=-1.0)
    assert found.best is None
    assert found.decisions.calibration is today.calibration
    assert replace(found.decisions, provenance={}).to_json() == today.to_json()


@pytest.mark.parametrize("leaves", [True, False])
def test_paths_end_where_they_do_in_dev(leaves: bool) -> None:
    compared = calibrate(single_paths(TREE, leaves=leaves), Decisions(TREE), scope="none")
    assert names(compared) == [("closure", "none"), ("drop-orphans", "none"), ("best-path", "none")]
    found = calibrate(single_paths(TREE, leaves=leaves), Decisions(TREE), rule="best-path")
    assert found.decisions.allow_inner_nodes is not leaves
    assert names(found) == [("best-path", "none"), ("best-path", "global"), ("best-path", "level")]


def test_two_labelled_documents_are_enough_whatever_the_seed() -> None:
    said = outputs(TREE, 9)
    said.gold[:] = False
    said.gold[[2, 7], 1] = True
    for seed in range(8):
        calibrate(said, Decisions(TREE), seed=seed)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 1000),
    labels=st.integers(1, 8),
    risk=st.sampled_from([0.0, 0.05, 0.2, 0.5, 1.0]),
    rule=st.sampled_from(["closure", "drop-orphans", "best-path", "threshold"]),
    steps=st.sampled_from([2, 10]),
)
def test_no_more_labels_are_wrong_than_the_risk_allows(
    seed: int, labels: int, risk: float, rule: str, steps: int
) -> None:
    """On the probabilities that it was tuned on; many of them are tied, and ties are predicted together."""
    taxonomy = random_tree(labels, seed)
    said = outputs(taxonomy, 30, seed, scale=1.0)
    said.gold[:2, taxonomy.levels[0]] = True
    said = Outputs(np.round(said.logits * steps) / steps, said.gold)
    found = calibrate(said, Decisions(taxonomy), method="none", rule=rule, scope="none", risk=risk).decisions
    probabilities = (1 / (1 + np.exp(-said.logits))).astype(np.float32)
    decided = found.decide(probabilities)
    assert found.provenance["risk"] == risk
    given_labels = int(decided.predicted.sum())
    assert int((decided.predicted & ~said.gold).sum()) <= risk * given_labels + 1e-9
    # The next most probable label, with its ties, would exceed the risk.
    sureness = monotone(decided.probabilities, taxonomy)
    if decided.abstained.any():
        next_best = sureness[decided.abstained].max()
        more = (decided.predicted | decided.abstained) & (sureness >= next_best)
        assert int((more & ~said.gold).sum()) > risk * int(more.sum())


def test_the_risk_holds_on_other_documents() -> None:
    said, others = outputs(TREE, 4000, 1), outputs(TREE, 4000, 2)
    found = calibrate(said, Decisions(TREE), rule="drop-orphans", scope="none", risk=0.1).decisions
    decided = found.decide(found.calibration(others.logits))
    wrong = (decided.predicted & ~others.gold).sum() / decided.predicted.sum()
    everything = decided.predicted | decided.abstained
    assert (everything & ~others.gold).sum() / everything.sum() > 0.13  # else there is nothing to withhold
    assert wrong < 0.115


def test_arrays_that_do_not_fit_and_too_few_documents_are_refused() -> None:
    said = outputs(TREE, 10)
    few = said.gold & (np.arange(10) == np.flatnonzero(said.gold.any(axis=1))[0])[:, None]
    for logits, gold in ((said.logits[:9], said.gold), (said.logits[:, :4], said.gold[:, :4]), (said.logits, few)):
        with pytest.raises(InputError):
            calibrate(Outputs(logits, gold), Decisions(TREE))


@pytest.mark.parametrize(("exact", "named"), [(0.51, False), (0.54, False), (0.56, True)])
def test_a_way_with_far_more_exact_documents_than_the_chosen_one_is_named(exact: float, named: bool) -> None:
    chosen = Candidate("closure", "none", Quality(0.8, 0.7, 0.8, 0.8, 0.5))
    other = Candidate("best-path", "none", Quality(0.75, 0.7, 0.75, 0.75, exact))
    found = replace(
        calibrate(single_paths(TREE), Decisions(TREE), scope="none"),
        candidates=[chosen, other],
        best=chosen,
        after=chosen.held_out,
    )
    assert found.most_exact == (other if named else None)


def test_one_path_end_per_document_makes_best_path_a_candidate_in_a_graph() -> None:
    """The closure of a label with two parents has two labels of one level."""
    graph = Taxonomy(["a", "b", "c", "d"], [-1, -1, 0, 0], more_parents=[(), (), (1,), ()])
    random = np.random.default_rng(0)
    ends = np.eye(4, dtype=bool)[random.integers(2, 4, 60)]
    gold = graph.close(ends)
    logits = (3.0 * gold - 1.5 + random.normal(0, 1, gold.shape)).astype(np.float32)
    found = calibrate(Outputs(logits, gold), Decisions(graph))
    assert {candidate.rule for candidate in found.candidates} == {"closure", "drop-orphans", "best-path"}
    several = graph.close(random.random(gold.shape) < 0.5)
    found = calibrate(Outputs(logits, several), Decisions(graph))
    assert {candidate.rule for candidate in found.candidates} == {"closure", "drop-orphans"}
