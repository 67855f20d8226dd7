"""Finding decisions on dev: held-out scores by hand, what is chosen and what is not, what the log says, how sure."""

from __future__ import annotations

import itertools
import logging
from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from sklearn.metrics import accuracy_score, f1_score, precision_score, recall_score

from hgclr.cli.tables import print_calibrated
from hgclr.decisions import tuning
from hgclr.decisions.calibration import Isotonic, Temperatures, fit
from hgclr.decisions.decoding import Decoder
from hgclr.decisions.settings import Decisions
from hgclr.decisions.thresholds import ThresholdTuner, f1
from hgclr.decisions.tuning import Calibrated, Candidate, Outputs, Quality, calibrate
from hgclr.errors import InputError
from hgclr.metrics.calibration import CalibrationScores
from hgclr.taxonomy import Taxonomy
from hgclr.taxonomy.order import monotone
from support.toy import random_tree

TREE = Taxonomy(["a1", "a", "b", "a2", "b1"], [1, -1, -1, 1, 2])


def outputs(taxonomy: Taxonomy, documents: int = 200, seed: int = 0, scale: float = 3.0) -> Outputs:
    """Labels of several paths, and logits that are right more often than not and too sure."""
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
    """One label that is easily told, and rare ones that the model hardly tells and never calls probable."""
    random = np.random.default_rng(seed)
    tree = Taxonomy([f"label {label}" for label in range(rare + 1)], [-1] * (rare + 1))
    gold = random.random((documents, rare + 1)) < [0.8, *[0.06] * rare]
    logits = random.normal(0, 1, gold.shape) + np.where(gold, 1.2, 0) - 3
    logits[:, 0] = np.where(gold[:, 0], 4, -4)
    return tree, Outputs(logits.astype(np.float32), gold)


def sigmoid(logits: np.ndarray) -> np.ndarray:
    return (1 / (1 + np.exp(-logits))).astype(np.float32)


def names(found: Calibrated) -> list[tuple[str, str]]:
    return [(candidate.rule, candidate.thresholds) for candidate in found.candidates]


def given_by(decisions: Decisions, logits: np.ndarray) -> np.ndarray:
    return decisions.decide(decisions.probabilities(logits)).predicted


def test_every_rule_is_compared_with_every_kind_of_thresholds_and_nothing_leaves_an_orphan() -> None:
    found = calibrate(outputs(TREE), Decisions(TREE))
    kinds = ("none", "global", "level", "label")
    expected = [
        *itertools.product(("closure", "drop-orphans"), kinds),
        ("min-parent", "level"),
        ("min-parent", "label"),
    ]
    assert names(found) == expected
    assert found.best in found.candidates
    assert found.decisions.rule == found.best.rule
    assert found.after == found.best.held_out
    assert isinstance(found.decisions.calibration, Temperatures)
    assert found.decisions.provenance["thresholds"] == found.best.thresholds
    assert found.decisions.provenance["documents"] == 200
    assert found.calibration_after.ece() < found.calibration_before.ece()
    assert found.decisions.abstain_below is None


@pytest.mark.parametrize("metric", ["both", "micro", "macro"])
@pytest.mark.parametrize("method", ["none", "temperature", "isotonic"])
@pytest.mark.parametrize("folds", [5, 2])
def test_scores_are_of_documents_that_nothing_was_fitted_to(
    folds: int, method: str, metric: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each fold is calibrated and decided with what the others give; written out here. Many documents have two."""
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
        calibration = sigmoid if method == "none" else fit(method, logits, gold, TREE)
        thresholds = ThresholdTuner(TREE, "drop-orphans", metric).tune("level", calibration(logits), gold)
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


def test_what_wins_is_fitted_to_all_documents() -> None:
    said = outputs(TREE, 80)
    found = calibrate(said, Decisions(TREE), rule="closure", scope="label", metric="micro", shrinkage=2.0)
    fitted = fit("temperature", said.logits, said.gold, TREE)
    assert found.decisions.calibration == fitted
    tuner = ThresholdTuner(TREE, "closure", "micro", 2.0)
    expected = tuner.tune("label", fitted(said.logits), said.gold)
    np.testing.assert_array_equal(found.decisions.decoder.thresholds, expected)
    assert found.decisions.provenance["metric"] == "Micro-F1"


def test_nothing_need_be_tuned() -> None:
    found = calibrate(outputs(TREE), Decisions(TREE), method="none", rule="drop-orphans", scope="none")
    assert names(found) == [("drop-orphans", "none")]
    assert (found.decisions.calibration, found.decisions.thresholds) == (None, 0.5)
    assert found.calibration_before.ece() == found.calibration_after.ece()


def test_how_the_model_decided_before_is_scored_as_it_did() -> None:
    said = outputs(TREE)
    before = Decisions(TREE, rule="closure", thresholds=0.3, calibration=Temperatures(TREE, (3.0, 2.0)))
    labels = Decoder(TREE, "closure", 0.3)(before.calibration(said.logits))
    found = calibrate(said, before, scope="none").before
    assert found.macro_f1 == pytest.approx(f1(labels, said.gold, "macro"))
    assert found.by("both") == pytest.approx(f1(labels, said.gold, "both"))


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
    message = "decisions stay as they were, because the best way that was found loses more than 1 points of one F1: "
    assert message + f"Micro-F1 from {100 * kept.before.micro_f1:.2f} to " in caplog.text
    assert kept.decisions.provenance["thresholds"] == "as before"
    for choice in ({"max_loss": 1.0}, {"metric": "macro"}):
        found = calibrate(said, Decisions(tree), scope="label", **choice)
        assert found.after.macro_f1 > found.before.macro_f1 + 0.05
        assert found.after.micro_f1 < found.before.micro_f1 - 0.01


def test_what_is_worse_is_taken_only_if_its_rule_was_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    """With thresholds of 0.3 all labels are right, with one half none is given."""
    said = outputs(TREE)
    said.logits[:] = np.where(said.gold, -0.4, -1.4)
    today, choices = Decisions(TREE, "closure", 0.3), {"scope": "none", "method": "none"}
    change = "Micro-F1 from 100.00 to 0.00, Macro-F1 from 100.00 to 0.00"
    with caplog.at_level(logging.WARNING, logger="hgclr.decisions.tuning"):
        found = calibrate(said, today, **choices)
        assert caplog.messages == [
            f"decisions stay as they were, because the best way that was found is worse: {change}"
        ]
        assert (found.decisions.rule, found.decisions.thresholds) == ("closure", 0.3)
        caplog.clear()
        found = calibrate(said, today, rule="drop-orphans", **choices)
    assert caplog.messages[0] == f"drop-orphans is taken because it was asked for, though it loses on dev: {change}"
    assert (found.decisions.rule, found.decisions.thresholds) == ("drop-orphans", 0.5)
    assert found.after.micro_f1 == 0


def test_a_rule_by_its_former_name_is_taken_by_the_present_one(caplog: pytest.LogCaptureFixture) -> None:
    found = calibrate(outputs(TREE), Decisions(TREE), method="none", rule="top-down", scope="none")
    assert names(found) == [("drop-orphans", "none")]
    assert found.decisions.rule == "drop-orphans"
    assert any("top-down is now called drop-orphans" in message for message in caplog.messages)


@pytest.mark.parametrize("rule", ["threshold", "closure", "drop-orphans"])
@pytest.mark.parametrize("temperatures", [None, (3.0, 0.5)])
def test_labels_stay_the_same_where_only_probabilities_are_calibrated(rule: str, temperatures) -> None:
    said, others = outputs(TREE), outputs(TREE, seed=1)
    calibration = None if temperatures is None else Temperatures(TREE, temperatures)
    thresholds = np.array([0.2, 0.7, 0.5, 0.35, 0.9], dtype=np.float32)
    today = Decisions(TREE, rule, thresholds, calibration)
    found = calibrate(said, today, max_loss=-1.0)  # whatever gains less than everything is refused
    assert found.best is None
    assert found.decisions.calibration == fit("temperature", said.logits, said.gold, TREE)
    assert found.calibration_after.ece() < found.calibration_before.ece()
    np.testing.assert_array_equal(given_by(found.decisions, others.logits), given_by(today, others.logits))


@pytest.mark.parametrize(
    ("method", "choices"),
    [
        ("temperature", {"rule": "min-parent"}),
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


@pytest.mark.parametrize("scope", ["auto", "global", "none"])
def test_one_path_is_tried_only_where_documents_have_one(scope: str) -> None:
    several = calibrate(outputs(TREE), Decisions(TREE), scope=scope)
    one = calibrate(single_paths(TREE), Decisions(TREE), scope=scope)
    assert "best-path" not in {rule for rule, _ in names(several)}
    assert "best-path" in {rule for rule, _ in names(one)}
    assert {rule for rule, _ in names(one)} - {"min-parent"} == {"closure", "drop-orphans", "best-path"}


def test_rules_that_differ_on_no_text_are_tried_once() -> None:
    flat = Taxonomy(["a", "b", "c"], [-1, -1, -1])
    assert {rule for rule, _ in names(calibrate(outputs(flat), Decisions(flat)))} == {"closure"}
    for scope in ("none", "global"):
        found = calibrate(outputs(TREE), Decisions(TREE), scope=scope)
        assert "min-parent" not in {rule for rule, _ in names(found)}


@pytest.mark.parametrize("scope", ["level", "label"])
def test_min_parent_is_tried_where_it_is_a_rule_of_its_own(scope: str) -> None:
    assert "min-parent" in {rule for rule, _ in names(calibrate(outputs(TREE), Decisions(TREE), scope=scope))}


@pytest.mark.parametrize("leaves", [True, False])
def test_paths_end_where_they_do_in_dev(leaves: bool) -> None:
    found = calibrate(single_paths(TREE, leaves=leaves), Decisions(TREE), rule="best-path")
    assert found.decisions.allow_inner_nodes is not leaves
    assert names(found) == [("best-path", "none"), ("best-path", "global"), ("best-path", "level")]


def test_thresholds_per_label_of_a_path_are_those_per_level_and_the_log_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, logger="hgclr"):
        calibrate(single_paths(TREE), Decisions(TREE), rule="best-path")
        assert caplog.messages == []
        found = calibrate(single_paths(TREE), Decisions(TREE), rule="best-path", scope="label")
    assert caplog.messages == ["best-path has no thresholds per label: those per level are taken"]
    assert names(found) == [("best-path", "level")]


def test_the_number_of_paths_is_kept() -> None:
    said = outputs(TREE)
    kept = calibrate(said, Decisions(TREE, paths=3), rule="top-k-paths", scope="none").decisions
    given_anew = calibrate(said, Decisions(TREE, paths=3), rule="top-k-paths", scope="none", paths=2).decisions
    assert (kept.paths, given_anew.paths) == (3, 2)


def test_labels_without_documents_are_counted_in_the_log_once(caplog: pytest.LogCaptureFixture) -> None:
    said = outputs(TREE)
    said.gold[:, [0, 3]] = False
    with caplog.at_level(logging.WARNING, logger="hgclr"):
        found = calibrate(said, Decisions(TREE), rule="drop-orphans", scope="label")
    assert caplog.messages == ["2 labels have no document: they take their level's threshold"]
    tuner = ThresholdTuner(TREE, "drop-orphans")
    per_level = tuner.tune("level", found.decisions.calibration(said.logits), said.gold)
    np.testing.assert_array_equal(found.decisions.decoder.thresholds[[0, 3]], per_level[[0, 3]])


def test_a_level_that_tells_nothing_is_named_in_the_log_once(caplog: pytest.LogCaptureFixture) -> None:
    said = outputs(TREE)
    said.gold[:, TREE.levels[1]] = False
    with caplog.at_level(logging.WARNING, logger="hgclr"):
        found = calibrate(said, Decisions(TREE), scope="level")
    assert caplog.messages == ["level 2 is not calibrated: all its labels are always absent, or always present"]
    assert found.decisions.calibration.values[1] == 1


def test_a_level_that_is_hardly_ever_predicted_is_named(caplog: pytest.LogCaptureFixture) -> None:
    """The model calls none of the lower labels probable, and tells them no better than chance."""
    said = outputs(TREE, 100)
    said.logits[:, TREE.levels[1]] = -9 + np.random.default_rng(0).random((100, 3))
    with caplog.at_level(logging.WARNING, logger="hgclr"):
        calibrate(said, Decisions(TREE), scope="none", method="none")
    number = int(said.gold[:, TREE.levels[1]].sum())
    assert caplog.messages == [f"level 2 is hardly ever predicted: 0 labels where the documents have {number}"]


def test_outputs_of_several_models_are_joined() -> None:
    first, second = outputs(TREE, 10), outputs(TREE, 7, seed=1)
    joined = Outputs.joined([first, second])
    np.testing.assert_array_equal(joined.logits, np.vstack([first.logits, second.logits]))
    np.testing.assert_array_equal(joined.gold, np.vstack([first.gold, second.gold]))


def test_arrays_that_do_not_fit_are_refused() -> None:
    said = outputs(TREE, 10)
    for logits, gold in ((said.logits[:9], said.gold), (said.logits[:, :4], said.gold[:, :4])):
        with pytest.raises(InputError, match=r"logits .* and gold labels .* for 5 labels"):
            calibrate(Outputs(logits, gold), Decisions(TREE))


def test_one_class_only() -> None:
    tree = Taxonomy(["only"], [-1])
    gold = np.ones((6, 1), dtype=bool)
    said = Outputs(np.linspace(-4, 4, 6, dtype=np.float32)[:, None], gold)
    found = calibrate(said, Decisions(tree), scope="label")
    assert found.decisions.decide(np.array([[0.02], [0.9]], dtype=np.float32)).predicted[1].all()
    assert found.after.by("both") > found.before.by("both")


@pytest.mark.parametrize("labelled", [0, 1])
def test_too_few_documents_are_refused(labelled: int) -> None:
    said = outputs(TREE, 5)
    said.gold[:] = False
    said.gold[:labelled, 1] = True
    with pytest.raises(InputError, match=f"too few documents to calibrate on: {labelled} of 5 have a label; give at"):
        calibrate(said, Decisions(TREE))


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
    rule=st.sampled_from(["closure", "drop-orphans", "min-parent", "best-path", "threshold"]),
    steps=st.sampled_from([2, 10]),
)
def test_no_more_labels_are_wrong_than_the_risk_allows(
    seed: int, labels: int, risk: float, rule: str, steps: int
) -> None:
    """On the probabilities that it was found with; many of them are equal, and equal ones are given together."""
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
    # The next label that could be given, with all that are as sure, would be one too many.
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
    assert (everything & ~others.gold).sum() / everything.sum() > 0.13  # else there is nothing to hold back
    assert wrong < 0.115


def test_no_label_may_be_sure_enough(caplog: pytest.LogCaptureFixture) -> None:
    said = outputs(TREE, 40)
    wrong = Outputs(np.where(said.gold, -3, 3).astype(np.float32), said.gold)
    with caplog.at_level(logging.WARNING, logger="hgclr"):
        found = calibrate(wrong, Decisions(TREE), method="none", rule="drop-orphans", scope="none", risk=0.01)
    assert found.decisions.abstain_below == 1
    assert caplog.messages == ["no label is sure enough for a risk of 0.01"]


@pytest.mark.parametrize(("exact", "named"), [(0.51, False), (0.54, False), (0.56, True)])
def test_a_way_with_far_more_exact_documents_than_the_chosen_one_is_named(exact: float, named: bool) -> None:
    found = calibrate(single_paths(TREE), Decisions(TREE))
    chosen = Candidate("closure", "none", Quality(0.8, 0.7, 0.8, 0.8, 0.5))
    other = Candidate("best-path", "none", Quality(0.75, 0.7, 0.75, 0.75, exact))
    found = replace(found, candidates=[chosen, other], best=chosen, after=chosen.held_out)
    assert found.most_exact == (other if named else None)
    console = Console(record=True, width=200)
    print_calibrated(found, console)
    hint = "best-path gives 56.00 % of the documents exactly their labels, at 75.00 Micro- and 70.00 Macro-F1"
    assert (hint in console.export_text()) is named
