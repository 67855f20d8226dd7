"""Finding decisions on dev: held-out scores by hand, what is chosen, what is said in the log, how sure is sure."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hgclr.data.folder import Document
from hgclr.decisions.calibration import Temperatures, fit
from hgclr.decisions.decoding import Decoder
from hgclr.decisions.settings import Decisions
from hgclr.decisions.thresholds import ThresholdTuner, f1
from hgclr.errors import InputError
from hgclr.evaluation.calibration_error import CalibrationScores
from hgclr.inference.calibrating import Outputs, calibrate, read_outputs
from hgclr.level_order import monotone
from hgclr.taxonomy import Taxonomy
from toy import random_tree

TREE = Taxonomy(["a1", "a", "b", "a2", "b1"], [1, -1, -1, 1, 2])


def model(taxonomy: Taxonomy, **decisions) -> SimpleNamespace:
    """All of a classifier that calibrating looks at."""
    return SimpleNamespace(taxonomy=taxonomy, decisions=Decisions(taxonomy, **decisions))


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


def names(found) -> list[tuple[str, str]]:
    return [(candidate.rule, candidate.thresholds) for candidate in found.candidates]


def test_all_is_found_by_itself_and_nothing_leaves_an_orphan() -> None:
    found = calibrate(model(TREE), outputs(TREE))
    assert names(found)[:2] == [("closure", "global"), ("drop-orphans", "global")]
    assert names(found)[2:] == [(found.best.rule, "level"), (found.best.rule, "label")]
    assert found.best.f1 == max(candidate.f1 for candidate in found.candidates)
    assert found.decisions.rule == found.best.rule
    assert isinstance(found.decisions.calibration, Temperatures)
    assert found.decisions.found["thresholds"] == found.best.thresholds
    assert found.decisions.found["documents"] == 200
    assert found.after.ece() < found.before.ece()
    assert found.decisions.sure is None


@pytest.mark.parametrize("method", ["none", "temperature", "isotonic"])
def test_scores_are_of_documents_that_nothing_was_fitted_to(method: str) -> None:
    """Each half is calibrated and decided with what the other half gives; written out here."""
    said = outputs(TREE, 60)
    found = calibrate(model(TREE), said, method=method, rule="drop-orphans", scope="level", seed=3)
    shuffled = np.random.default_rng(3).permutation(60)
    without = [row for row in shuffled if not said.gold[row].any()]
    ordered = without + [row for row in shuffled if said.gold[row].any()]
    halves = [sorted(ordered[0::2]), sorted(ordered[1::2])]
    probabilities = (1 / (1 + np.exp(-said.logits))).astype(np.float32)
    plain = probabilities.copy()
    for half, other in (halves, halves[::-1]):
        if method != "none":
            probabilities[half] = fit(method, said.logits[other], said.gold[other], TREE)(said.logits[half])
    predicted = np.zeros_like(said.gold)
    for half, other in (halves, halves[::-1]):
        thresholds = ThresholdTuner(TREE, "drop-orphans", "macro").tune("level", probabilities[other], said.gold[other])
        predicted[half] = Decoder(TREE, "drop-orphans", thresholds)(probabilities[half])
    assert found.best.f1 == pytest.approx(f1(predicted, said.gold, "macro"))
    for scores, values in ((found.before, plain), (found.after, probabilities)):
        expected = CalibrationScores(TREE)
        expected.update(values, said.gold)
        assert scores.ece() == pytest.approx(expected.ece(), abs=1e-6)
    assert found.f1_today == pytest.approx(f1(plain > 0.5, said.gold, "macro"))


def test_what_wins_is_fitted_to_all_documents() -> None:
    said = outputs(TREE, 80)
    found = calibrate(model(TREE), said, rule="closure", scope="label", metric="micro", shrinkage=2.0)
    fitted = fit("temperature", said.logits, said.gold, TREE)
    assert found.decisions.calibration == fitted
    tuner = ThresholdTuner(TREE, "closure", "micro", 2.0)
    expected = tuner.tune("label", fitted(said.logits), said.gold)
    np.testing.assert_array_equal(found.decisions.decoder.thresholds, expected)
    assert found.decisions.found["metric"] == "micro-F1"


def test_nothing_need_be_tuned() -> None:
    found = calibrate(model(TREE), outputs(TREE), method="none", rule="top-down", scope="none")
    assert names(found) == [("top-down", "none")]
    assert (found.decisions.calibration, found.decisions.thresholds) == (None, 0.5)
    assert found.before.ece() == found.after.ece()


def test_how_the_model_decided_before_is_scored_as_it_did() -> None:
    said = outputs(TREE)
    before = model(TREE, rule="closure", thresholds=0.3, calibration=Temperatures(TREE, (3.0, 2.0)))
    probabilities = before.decisions.calibration(said.logits)
    expected = f1(Decoder(TREE, "closure", 0.3)(probabilities), said.gold, "macro")
    assert calibrate(before, said, scope="none").f1_today == pytest.approx(expected)


@pytest.mark.parametrize("scope", ["auto", "global", "none"])
def test_one_path_is_tried_only_where_documents_have_one(scope: str) -> None:
    several = calibrate(model(TREE), outputs(TREE), scope=scope)
    one = calibrate(model(TREE), single_paths(TREE), scope=scope)
    assert "best-path" not in {rule for rule, _ in names(several)}
    assert "best-path" in {rule for rule, _ in names(one)}
    assert {rule for rule, _ in names(one)} == {"closure", "drop-orphans", "best-path"}


@pytest.mark.parametrize("scope", ["level", "label"])
def test_min_parent_is_tried_where_it_is_a_rule_of_its_own(scope: str) -> None:
    assert "min-parent" in {rule for rule, _ in names(calibrate(model(TREE), outputs(TREE), scope=scope))}


@pytest.mark.parametrize("leaves", [True, False])
def test_paths_end_where_they_do_in_dev(leaves: bool) -> None:
    found = calibrate(model(TREE), single_paths(TREE, leaves=leaves), rule="best-path")
    assert found.decisions.stop_inside is not leaves
    assert names(found) == [("best-path", "global"), ("best-path", "level")]


def test_thresholds_per_label_of_a_path_are_those_per_level_and_the_log_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, logger="hgclr"):
        calibrate(model(TREE), single_paths(TREE), rule="best-path")
        assert caplog.messages == []
        found = calibrate(model(TREE), single_paths(TREE), rule="best-path", scope="label")
    assert caplog.messages == ["best-path has no thresholds per label: those per level are taken"]
    assert names(found) == [("best-path", "level")]


def test_the_number_of_paths_is_kept() -> None:
    said = outputs(TREE)
    kept = calibrate(model(TREE, paths=3), said, rule="top-k-paths", scope="none").decisions
    given_anew = calibrate(model(TREE, paths=3), said, rule="top-k-paths", scope="none", paths=2).decisions
    assert (kept.paths, given_anew.paths) == (3, 2)


def test_labels_without_documents_are_counted_in_the_log_once(caplog: pytest.LogCaptureFixture) -> None:
    said = outputs(TREE)
    said.gold[:, [0, 3]] = False
    with caplog.at_level(logging.WARNING, logger="hgclr"):
        found = calibrate(model(TREE), said, rule="drop-orphans", scope="label")
    assert caplog.messages == ["2 labels have no document: they take their level's threshold"]
    tuner = ThresholdTuner(TREE, "drop-orphans", "macro")
    per_level = tuner.tune("level", found.decisions.calibration(said.logits), said.gold)
    np.testing.assert_array_equal(found.decisions.decoder.thresholds[[0, 3]], per_level[[0, 3]])


def test_a_level_that_tells_nothing_is_named_in_the_log_once(caplog: pytest.LogCaptureFixture) -> None:
    said = outputs(TREE)
    said.gold[:, TREE.levels[1]] = False
    with caplog.at_level(logging.WARNING, logger="hgclr"):
        found = calibrate(model(TREE), said, scope="level")
    assert caplog.messages == ["level 2 is not calibrated: all its labels are always absent, or always present"]
    assert found.decisions.calibration.values[1] == 1


def test_one_class_only() -> None:
    tree = Taxonomy(["only"], [-1])
    gold = np.ones((6, 1), dtype=bool)
    found = calibrate(model(tree), Outputs(np.linspace(-4, 4, 6, dtype=np.float32)[:, None], gold), scope="label")
    assert found.decisions.decide(np.array([[0.02], [0.9]], dtype=np.float32)).given[1].all()
    assert found.best.f1 > found.f1_today


@pytest.mark.parametrize("labelled", [0, 1])
def test_too_few_documents_are_refused(labelled: int) -> None:
    said = outputs(TREE, 5)
    said.gold[:] = False
    said.gold[:labelled, 1] = True
    with pytest.raises(InputError, match=f"too few documents to calibrate on: {labelled} of 5 have a label; give at"):
        calibrate(model(TREE), said)


def test_two_labelled_documents_are_enough_whatever_the_seed() -> None:
    said = outputs(TREE, 9)
    said.gold[:] = False
    said.gold[[2, 7], 1] = True
    for seed in range(8):
        calibrate(model(TREE), said, seed=seed)


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
    found = calibrate(model(taxonomy), said, method="none", rule=rule, scope="none", risk=risk).decisions
    probabilities = (1 / (1 + np.exp(-said.logits))).astype(np.float32)
    decided = found.decide(probabilities)
    assert found.found["risk"] == risk
    given_labels = int(decided.given.sum())
    assert int((decided.given & ~said.gold).sum()) <= risk * given_labels + 1e-9
    # The next label that could be given, with all that are as sure, would be one too many.
    sureness = monotone(decided.probabilities, taxonomy)
    if decided.doubtful.any():
        next_best = sureness[decided.doubtful].max()
        more = (decided.given | decided.doubtful) & (sureness >= next_best)
        assert int((more & ~said.gold).sum()) > risk * int(more.sum())


def test_the_risk_holds_on_other_documents() -> None:
    said, others = outputs(TREE, 4000, 1), outputs(TREE, 4000, 2)
    found = calibrate(model(TREE), said, rule="drop-orphans", scope="none", risk=0.1).decisions
    decided = found.decide(found.calibration(others.logits))
    wrong = (decided.given & ~others.gold).sum() / decided.given.sum()
    everything = decided.given | decided.doubtful
    assert (everything & ~others.gold).sum() / everything.sum() > 0.13  # else there is nothing to hold back
    assert wrong < 0.115


def test_no_label_may_be_sure_enough(caplog: pytest.LogCaptureFixture) -> None:
    said = outputs(TREE, 40)
    wrong = Outputs(np.where(said.gold, -3, 3).astype(np.float32), said.gold)
    with caplog.at_level(logging.WARNING, logger="hgclr"):
        found = calibrate(model(TREE), wrong, method="none", rule="drop-orphans", scope="none", risk=0.01)
    assert found.decisions.sure == 1
    assert caplog.messages == ["no label is sure enough for a risk of 0.01"]


class ThreeAtATime:
    """A classifier whose logits tell which text they are of."""

    taxonomy, window = TREE, 3

    def logits(self, texts: list[str]):
        yield np.array([[int(text)] * 5 for text in texts], dtype=np.float32)


@pytest.mark.parametrize(("entries", "number", "said"), [(100, 7, False), (35, 7, False), (34, 6, True), (1, 1, True)])
def test_more_documents_than_the_limit_are_sampled(
    entries: int, number: int, said: bool, caplog: pytest.LogCaptureFixture
) -> None:
    documents = [Document(str(row), (1, 3) if row % 2 else (2,)) for row in range(7)]
    rows = {"dev": documents}
    folder = SimpleNamespace(documents=rows.__getitem__, scan=rows.__getitem__)
    counted: list[int] = []
    with caplog.at_level(logging.WARNING, logger="hgclr"):
        found = read_outputs(ThreeAtATime(), folder, "dev", entries=entries, progress=counted.append)
    chosen = [int(logit) for logit in found.logits[:, 0]]
    assert len(set(chosen)) == number
    assert chosen == sorted(chosen)
    expected = [[1, 3] if row % 2 else [2] for row in chosen]
    assert [np.flatnonzero(row).tolist() for row in found.gold] == expected
    assert sum(counted) == number
    assert caplog.messages == ([f"{number} of the 7 documents of dev are looked at, a random sample"] if said else [])
