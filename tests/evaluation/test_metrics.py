from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.metrics import accuracy_score, precision_recall_fscore_support

from hgclr.evaluation.metrics import MultiLabelScores, Score
from hgclr.taxonomy import Taxonomy

Matrix = NDArray[np.bool_]
FAST = settings(max_examples=60, deadline=None, derandomize=True)


@st.composite
def taxonomies(draw: st.DrawFn) -> Taxonomy:
    """A forest of 1 to 12 labels in shuffled order, so that a parent may come after its child."""
    size = draw(st.integers(1, 12))
    above = [draw(st.integers(-1, label - 1)) for label in range(size)]
    place = draw(st.permutations(range(size)))
    parents = [-1] * size
    for label, parent in enumerate(above):
        parents[place[label]] = -1 if parent < 0 else place[parent]
    return Taxonomy([f"label {label}" for label in range(size)], parents)


@st.composite
def batches(draw: st.DrawFn) -> tuple[Taxonomy, Matrix, Matrix]:
    taxonomy = draw(taxonomies())
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shape = (draw(st.integers(0, 9)), len(taxonomy))
    # A rate per label, often 0, leaves labels without any gold or any prediction.
    rates = random.choice([0.0, 0.2, 0.6, 1.0], size=(2, shape[1]))
    return taxonomy, random.random(shape) < rates[0], random.random(shape) < rates[1]


def scored(taxonomy: Taxonomy, predicted: Matrix, gold: Matrix) -> MultiLabelScores:
    scores = MultiLabelScores(taxonomy)
    scores.update(predicted, gold)
    return scores


def sets(matrix: Matrix) -> list[set[int]]:
    return [{label for label, present in enumerate(row) if present} for row in matrix.tolist()]


def with_ancestors(taxonomy: Taxonomy, labels: set[int]) -> set[int]:
    closed = set()
    for label in labels:
        while label != -1:
            closed.add(label)
            label = int(taxonomy.parents[label])
    return closed


def closed_matrix(taxonomy: Taxonomy, matrix: Matrix) -> Matrix:
    closed = np.zeros_like(matrix)
    for row, labels in enumerate(sets(matrix)):
        closed[row, list(with_ancestors(taxonomy, labels))] = True
    return closed


def sklearn_score(predicted: Matrix, gold: Matrix, average: str) -> Score:
    """Score by scikit-learn; it cannot take empty data or a single label as a matrix, where 0/0 is 0."""
    if not gold.size:
        return Score(0.0, 0.0, 0.0)
    if gold.shape[1] == 1:  # the same counts as binary labels, of which only "true" is scored
        values = precision_recall_fscore_support(
            gold[:, 0], predicted[:, 0], labels=[True], average=average, zero_division=0
        )
    else:
        values = precision_recall_fscore_support(gold, predicted, average=average, zero_division=0)
    return Score(*(float(value) for value in values[:3]))


def assert_equal(score: Score, expected: Score) -> None:
    assert (score.precision, score.recall, score.f1) == pytest.approx(
        (expected.precision, expected.recall, expected.f1), abs=1e-12
    )


@FAST
@given(batches())
def test_micro_and_macro_equal_scikit_learn(batch: tuple[Taxonomy, Matrix, Matrix]) -> None:
    taxonomy, predicted, gold = batch
    scores = scored(taxonomy, predicted, gold)
    assert_equal(scores.micro(), sklearn_score(predicted, gold, "micro"))
    assert_equal(scores.macro(), sklearn_score(predicted, gold, "macro"))


@FAST
@given(batches())
def test_each_level_equals_scikit_learn_on_its_columns(batch: tuple[Taxonomy, Matrix, Matrix]) -> None:
    taxonomy, predicted, gold = batch
    scores = scored(taxonomy, predicted, gold)
    for depth in range(1, int(taxonomy.depths.max()) + 1):
        columns = [label for label in range(len(taxonomy)) if taxonomy.depths[label] == depth]
        assert_equal(scores.micro(depth), sklearn_score(predicted[:, columns], gold[:, columns], "micro"))
        assert_equal(scores.macro(depth), sklearn_score(predicted[:, columns], gold[:, columns], "macro"))


@FAST
@given(batches())
def test_macro_over_present_labels_leaves_out_the_absent(batch: tuple[Taxonomy, Matrix, Matrix]) -> None:
    taxonomy, predicted, gold = batch
    present = sorted(set().union(*sets(predicted), *sets(gold)))
    expected = sklearn_score(predicted[:, present], gold[:, present], "macro")
    assert_equal(scored(taxonomy, predicted, gold).macro_present(), expected)


@FAST
@given(batches())
def test_inconsistency_rate_by_loops(batch: tuple[Taxonomy, Matrix, Matrix]) -> None:
    taxonomy, predicted, gold = batch
    orphans = below_top = 0
    for labels in sets(predicted):
        for label in labels:
            parent = int(taxonomy.parents[label])
            below_top += parent != -1
            orphans += parent != -1 and parent not in labels
    expected = orphans / below_top if below_top else 0.0
    assert scored(taxonomy, predicted, gold).inconsistency_rate() == pytest.approx(expected)


@FAST
@given(batches())
def test_hierarchical_scores_by_sets(batch: tuple[Taxonomy, Matrix, Matrix]) -> None:
    taxonomy, predicted, gold = batch
    right = chosen = wanted = 0
    for labels, truth in zip(sets(predicted), sets(gold), strict=True):
        labels, truth = with_ancestors(taxonomy, labels), with_ancestors(taxonomy, truth)
        right, chosen, wanted = right + len(labels & truth), chosen + len(labels), wanted + len(truth)
    precision = right / chosen if chosen else 0.0
    recall = right / wanted if wanted else 0.0
    f1 = 2 * precision * recall / (precision + recall) if right else 0.0
    assert_equal(scored(taxonomy, predicted, gold).hierarchical(), Score(precision, recall, f1))


@FAST
@given(batches())
def test_hierarchical_equals_micro_on_full_paths(batch: tuple[Taxonomy, Matrix, Matrix]) -> None:
    taxonomy, predicted, gold = batch
    scores = scored(taxonomy, closed_matrix(taxonomy, predicted), closed_matrix(taxonomy, gold))
    assert_equal(scores.hierarchical(), scores.micro())
    assert scores.inconsistency_rate() == 0.0


@FAST
@given(batches())
def test_subset_accuracy_equals_scikit_learn(batch: tuple[Taxonomy, Matrix, Matrix]) -> None:
    taxonomy, predicted, gold = batch
    expected = accuracy_score(gold, predicted) if len(gold) else 0.0
    assert scored(taxonomy, predicted, gold).subset_accuracy() == pytest.approx(expected)


@FAST
@given(batches(), st.integers(0, 9), st.integers(0, 9))
def test_batches_and_merging_give_what_one_update_gives(
    batch: tuple[Taxonomy, Matrix, Matrix], first: int, second: int
) -> None:
    taxonomy, predicted, gold = batch
    first, second = sorted((first, second))
    chunked = MultiLabelScores(taxonomy)
    chunked.update(predicted[:first], gold[:first])
    chunked.update(predicted[first:second], gold[first:second])
    chunked.merge(scored(taxonomy, predicted[second:], gold[second:]))
    assert chunked.to_json() == scored(taxonomy, predicted, gold).to_json()


def test_json_by_hand() -> None:
    taxonomy = Taxonomy(["A", "A1", "A2", "B"], [-1, 0, 0, -1])
    # Document 1: A1 without its parent, gold A and A1. Document 2: all right. Label B is never seen.
    predicted = np.array([[0, 1, 0, 0], [1, 0, 1, 0]], dtype=bool)
    gold = np.array([[1, 1, 0, 0], [1, 0, 1, 0]], dtype=bool)
    report = scored(taxonomy, predicted, gold).to_json()
    assert json.loads(json.dumps(report)) == report
    assert report == {
        "documents": 2,
        "labels": 4,
        "gold": 4,
        "predicted": 3,
        "true_positives": 3,
        "micro": {"precision": 1.0, "recall": 0.75, "f1": pytest.approx(6 / 7)},
        "macro": {"precision": 0.75, "recall": 0.625, "f1": pytest.approx((2 / 3 + 1 + 1 + 0) / 4)},
        "macro_present": {
            "labels": 3,
            "precision": 1.0,
            "recall": pytest.approx(2.5 / 3),
            "f1": pytest.approx((2 / 3 + 1 + 1) / 3),
        },
        "hierarchical": {"precision": 1.0, "recall": 1.0, "f1": 1.0},
        "inconsistency_rate": 0.5,
        "subset_accuracy": 0.5,
        "levels": [
            {
                "depth": 1,
                "labels": 2,
                "gold": 2,
                "predicted": 1,
                "true_positives": 1,
                "micro": {"precision": 1.0, "recall": 0.5, "f1": pytest.approx(2 / 3)},
                "macro": {"precision": 0.5, "recall": 0.25, "f1": pytest.approx(1 / 3)},
            },
            {
                "depth": 2,
                "labels": 2,
                "gold": 2,
                "predicted": 2,
                "true_positives": 2,
                "micro": {"precision": 1.0, "recall": 1.0, "f1": 1.0},
                "macro": {"precision": 1.0, "recall": 1.0, "f1": 1.0},
            },
        ],
    }


def test_no_documents_score_zero() -> None:
    scores = MultiLabelScores(Taxonomy(["A", "A1"], [-1, 0]))
    zero = Score(0.0, 0.0, 0.0)
    assert [scores.micro(), scores.macro(), scores.macro_present(), scores.hierarchical()] == [zero] * 4
    assert scores.inconsistency_rate() == scores.subset_accuracy() == 0.0


def test_update_leaves_the_arrays_alone() -> None:
    taxonomy = Taxonomy(["A", "A1"], [-1, 0])
    predicted, gold = np.array([[False, True]]), np.array([[False, True]])
    scored(taxonomy, predicted, gold)
    assert predicted.tolist() == gold.tolist() == [[False, True]]


@pytest.mark.parametrize(
    ("predicted", "gold", "message"),
    [
        (np.zeros((2, 3), bool), np.zeros((2, 3), bool), r"\(N, 2\), got \(2, 3\) and \(2, 3\)"),
        (np.zeros((2, 2), bool), np.zeros((1, 2), bool), r"got \(2, 2\) and \(1, 2\)"),
        (np.zeros(2, bool), np.zeros(2, bool), r"got \(2,\) and \(2,\)"),
        (np.zeros((2, 2)), np.zeros((2, 2), bool), "booleans, got float64 and bool: apply a threshold"),
        (np.zeros((2, 2), bool), np.zeros((2, 2), int), "booleans, got bool and int64"),
    ],
)
def test_unfit_arrays_are_refused(predicted: Matrix, gold: Matrix, message: str) -> None:
    scores = MultiLabelScores(Taxonomy(["A", "A1"], [-1, 0]))
    with pytest.raises(ValueError, match=message):
        scores.update(predicted, gold)


def test_scores_of_different_trees_do_not_merge() -> None:
    scores = MultiLabelScores(Taxonomy(["A", "B"], [-1, 0]))
    with pytest.raises(ValueError, match="two different label trees"):
        scores.merge(MultiLabelScores(Taxonomy(["A", "B"], [-1, -1])))


@pytest.mark.parametrize("depth", [0, 3, -1])
def test_a_depth_that_is_not_there_is_refused(depth: int) -> None:
    scores = MultiLabelScores(Taxonomy(["A", "B"], [-1, 0]))
    with pytest.raises(ValueError, match=f"no label has depth {depth}; depths go from 1 to 2"):
        scores.micro(depth)
