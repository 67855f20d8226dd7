"""The score of a review against a loop over labels, the best paths against the decoding rule, distances by counting."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import log_softmax

from hgclr.decisions import review as module
from hgclr.decisions.decoding import Decoder
from hgclr.decisions.review import (
    DOUBT,
    NO_REASON,
    REASONS,
    TrainingDistance,
    best_paths,
    margins,
    review,
    scaled_distances,
    tree_scores,
)
from hgclr.decisions.settings import Decisions
from hgclr.taxonomy import Taxonomy
from support.decision_cases import REPEATABLE, Case, allowed_ends, cases, log_odds, path, path_score
from support.toy import random_tree

TREE = Taxonomy(["a", "a1", "a2", "b"], [-1, 0, 0, -1])


def signals(case: Case, row: list[float], distance: float) -> tuple[float, float, float]:
    if not any(row):
        return 0, 0, 0
    odds = [log_odds(p) - log_odds(t) for p, t in zip(row, case.per_label, strict=True)]
    near = 2 / (1 + math.exp(min(map(abs, odds))))
    broken = 0.0
    for label in range(len(case.taxonomy)):
        for parent in case.taxonomy.parents_of(label):
            if odds[label] > 0 > odds[parent]:
                broken = max(broken, min(odds[label], -odds[parent]))
    return near, (1 - math.exp(-broken)) / (1 + math.exp(-broken)), distance


@REPEATABLE
@given(cases(), st.booleans())
def test_the_score_equals_a_loop(case: Case, measured: bool) -> None:
    distances = np.random.default_rng(0).random(len(case.probabilities)).astype(np.float32) * measured
    found = review(
        Decisions(case.taxonomy, thresholds=case.thresholds), case.probabilities, distances if measured else None
    )
    for row, distance, score, reason in zip(
        case.probabilities.tolist(), distances.tolist(), found.score.tolist(), found.reason, strict=True
    ):
        expected = signals(case, row, distance)
        assert score == pytest.approx(max(expected), abs=1e-5)
        if reason == NO_REASON:
            assert score < DOUBT
        else:
            assert expected[REASONS.index(reason)] == pytest.approx(max(expected), abs=1e-5)


def test_each_signal_gives_its_reason() -> None:
    rows = [[0.99, 0.52, 0.01, 0.01], [0.01, 0.99, 0.01, 0.01], [0.99, 0.99, 0.01, 0.01], [0.99, 0.99, 0.01, 0.01]]
    found = review(Decisions(TREE), np.array(rows, dtype=np.float32), np.array([0.0, 0.1, 0.9, 0.0]))
    assert found.reason == [REASONS[0], REASONS[1], REASONS[2], NO_REASON]
    assert np.argsort(-found.score).tolist() == [1, 0, 2, 3]


@REPEATABLE
@given(cases(), st.integers(1, 4), st.booleans())
def test_best_paths_are_those_of_the_rule(case: Case, k: int, allow_inner_nodes: bool) -> None:
    options = {"thresholds": case.thresholds, "allow_inner_nodes": allow_inner_nodes}
    found = best_paths(case.probabilities, Decoder(case.taxonomy, **options), k)
    decoded = Decoder(case.taxonomy, "top-k-paths", paths=k, **options)(case.probabilities)
    assert len(found) == len(case.probabilities)
    for row, paths, labels in zip(case.probabilities.tolist(), found, decoded, strict=True):
        ends = [end for end, _ in paths]
        assert [row[end] for end in ends] == [probability for _, probability in paths]
        assert {label for end in ends for label in path(case.taxonomy, end)} == set(np.flatnonzero(labels).tolist())
        for number, end in enumerate(ends):  # best first
            scores = {
                each: path_score(case.taxonomy, row, case.per_label, each)
                for each in allowed_ends(case.taxonomy, allow_inner_nodes, ends[:number])
            }
            assert scores[end] >= max(scores.values()) - 1e-3


def test_a_blank_text_has_no_path_and_the_score_0() -> None:
    blank = np.zeros((1, 4), dtype=np.float32)
    assert best_paths(blank, Decoder(TREE), 3) == [[]]
    assert review(Decisions(TREE), blank, np.ones(1)).score.tolist() == [0]


def test_distances_are_scaled_by_those_within_train() -> None:
    random = np.random.default_rng(0)
    within, distances = random.random(199).round(2), np.linspace(-0.1, 1.1, 50).round(2)
    for distance, scaled in zip(distances, scaled_distances(distances, within), strict=True):
        q = (1 + sum(other >= distance for other in within)) / 200
        assert scaled == pytest.approx(1 - min(1, q / 0.05), abs=1e-6)


def test_distances_from_training_texts_equal_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    training, texts = random.normal(size=(45, 3)).astype(np.float32), random.normal(size=(30, 3)).astype(np.float32)

    def distance(one: np.ndarray, others: list[np.ndarray]) -> float:
        return min(1 - float(one @ other) / math.hypot(*one) / math.hypot(*other) for other in others)

    within = [distance(training[i], [training[j] for j in range(45) if j != i]) for i in range(45)]
    expected = scaled_distances(np.array([distance(text, list(training)) for text in texts]), np.array(within))
    assert 0 < expected.mean() < 1
    for rows in (7, 512):
        monkeypatch.setattr(module, "ROWS", rows)
        np.testing.assert_allclose(TrainingDistance(training)(texts), expected, atol=1e-5)


@pytest.mark.parametrize("seed", range(4))
def test_tree_scores_are_sums_of_log_softmax_among_siblings(seed: int) -> None:
    tree = random_tree(30, seed)
    logits = np.random.default_rng(seed).normal(size=(7, 30), scale=4).astype(np.float32)
    expected = np.zeros((7, len(tree.leaves)))
    for place, leaf in enumerate(tree.leaves.tolist()):
        for label in tree.path(leaf).tolist():
            siblings = [other for other in range(30) if tree.parents[other] == tree.parents[label]]
            expected[:, place] += log_softmax(logits[:, siblings].astype(np.float64), axis=1)[:, siblings.index(label)]
    scores = tree_scores(logits, tree)
    np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(np.exp(scores).sum(1), 1, rtol=1e-4)
    ordered = np.sort(expected, axis=1)
    np.testing.assert_allclose(margins(scores), ordered[:, -1] - ordered[:, -2], rtol=1e-3, atol=1e-4)


def test_a_tree_with_one_leaf_has_no_margin() -> None:
    scores = tree_scores(np.zeros((3, 2), dtype=np.float32), Taxonomy(["a", "b"], [-1, 0]))
    np.testing.assert_array_equal(margins(scores), 0)
