from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, hamming_loss, precision_recall_fscore_support

from hgclr.metrics.scores import MultiLabelScores, Score
from hgclr.taxonomy import Taxonomy
from support.random_batches import FAST, Matrix, batches, closed_matrix, sets, with_ancestors


def scored(taxonomy: Taxonomy, predicted: Matrix, gold: Matrix) -> MultiLabelScores:
    scores = MultiLabelScores(taxonomy)
    scores.update(predicted, gold)
    return scores


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


@pytest.mark.slow
@FAST
@given(batches())
def test_micro_and_macro_equal_scikit_learn(batch: tuple[Taxonomy, Matrix, Matrix]) -> None:
    taxonomy, predicted, gold = batch
    scores = scored(taxonomy, predicted, gold)
    assert_equal(scores.micro(), sklearn_score(predicted, gold, "micro"))
    assert_equal(scores.macro(), sklearn_score(predicted, gold, "macro"))


@pytest.mark.slow
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
@given(batches())
def test_hamming_loss_equals_scikit_learn(batch: tuple[Taxonomy, Matrix, Matrix]) -> None:
    taxonomy, predicted, gold = batch
    expected = hamming_loss(gold.ravel(), predicted.ravel()) if len(gold) else 0.0
    assert scored(taxonomy, predicted, gold).hamming_loss() == pytest.approx(expected)


@FAST
@given(batches(), st.data())
def test_a_group_equals_scikit_learn_on_its_columns(
    batch: tuple[Taxonomy, Matrix, Matrix], data: st.DataObject
) -> None:
    taxonomy, predicted, gold = batch
    labels = data.draw(st.lists(st.integers(0, len(taxonomy) - 1), unique=True))
    group = scored(taxonomy, predicted, gold).group(labels)
    assert_equal(group.micro, sklearn_score(predicted[:, labels], gold[:, labels], "micro"))
    assert_equal(group.macro, sklearn_score(predicted[:, labels], gold[:, labels], "macro"))
    assert (group.labels, group.predicted, group.gold) == (
        len(labels),
        predicted[:, labels].sum(),
        gold[:, labels].sum(),
    )
    assert group.true_positives == sum(
        len(a & b & set(labels)) for a, b in zip(sets(predicted), sets(gold), strict=True)
    )


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 2, 0], r"indices of labels, each once, got \[0, 2, 0\]"),
        ([[0]], "each once, got"),
        ([0.5], "each once, got"),
        ([True, False, True], "each once, got"),
        ([3], "a label index is not between 0 and 2"),
        ([-1], "a label index is not between 0 and 2"),
    ],
)
def test_what_is_no_group_of_labels_is_refused(labels: object, message: str) -> None:
    scores = MultiLabelScores(Taxonomy(["A", "B", "C"], [-1, 0, 1]))
    with pytest.raises(ValueError, match=message):
        scores.group(labels)


@FAST
@given(batches())
def test_each_label_equals_scikit_learn(batch: tuple[Taxonomy, Matrix, Matrix]) -> None:
    taxonomy, predicted, gold = batch
    each = scored(taxonomy, predicted, gold).per_label()
    for label in range(len(taxonomy)):
        expected = sklearn_score(predicted[:, [label]], gold[:, [label]], "micro")
        assert_equal(Score(each.precision[label], each.recall[label], each.f1[label]), expected)
    assert each.gold.tolist() == gold.sum(axis=0).tolist()
    assert each.predicted.tolist() == predicted.sum(axis=0).tolist()
    assert each.true_positives.tolist() == [
        sum(bool(one) and bool(other) for one, other in zip(*columns, strict=True))
        for columns in zip(predicted.T, gold.T, strict=True)
    ]


def test_a_batch_larger_than_a_block_is_scored_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    taxonomy = Taxonomy(["A", "A1", "A2", "B", "B1"], [-1, 0, 0, -1, 3])
    random = np.random.default_rng(3)
    predicted, gold = random.random((2, 150, 5)) < 0.5
    whole = scored(taxonomy, predicted, gold)
    monkeypatch.setattr("hgclr.metrics.scores.BLOCK", 1)
    assert scored(taxonomy, predicted, gold).to_json() == whole.to_json()
    assert_equal(whole.micro(), sklearn_score(predicted, gold, "micro"))


@FAST
@given(batches(), st.integers(0, 9), st.integers(0, 9))
def test_batches_give_what_one_update_gives(batch: tuple[Taxonomy, Matrix, Matrix], first: int, second: int) -> None:
    taxonomy, predicted, gold = batch
    first, second = sorted((first, second))
    chunked = MultiLabelScores(taxonomy)
    chunked.update(predicted[:first], gold[:first])
    chunked.update(predicted[first:second], gold[first:second])
    chunked.update(predicted[second:], gold[second:])
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
        # A1 of document 1 is right but for its parent.
        "path_constrained": {
            "labels": 4,
            "gold": 4,
            "predicted": 3,
            "true_positives": 2,
            "micro": {"precision": pytest.approx(2 / 3), "recall": 0.5, "f1": pytest.approx(4 / 7)},
            "macro": {"precision": 0.5, "recall": 0.375, "f1": pytest.approx((2 / 3 + 0 + 1 + 0) / 4)},
        },
        # The paths of the leaves A1, A2 and B.
        "paths": {
            "labels": 3,
            "gold": 2,
            "predicted": 1,
            "true_positives": 1,
            "micro": {"precision": 1.0, "recall": 0.5, "f1": pytest.approx(2 / 3)},
            "macro": {"precision": pytest.approx(1 / 3), "recall": pytest.approx(1 / 3), "f1": pytest.approx(1 / 3)},
        },
        "hierarchical": {"precision": 1.0, "recall": 1.0, "f1": 1.0},
        "inconsistency_rate": 0.5,
        "subset_accuracy": 0.5,
        "hamming_loss": 0.125,
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
    assert [scores.group([]).micro, scores.path_constrained().macro, scores.paths().micro] == [zero] * 3
    assert scores.inconsistency_rate() == scores.subset_accuracy() == scores.hamming_loss() == 0.0


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


@pytest.mark.parametrize("depth", [0, 3, -1])
def test_a_depth_that_is_not_there_is_refused(depth: int) -> None:
    scores = MultiLabelScores(Taxonomy(["A", "B"], [-1, 0]))
    with pytest.raises(ValueError, match=f"no label has depth {depth}; depths go from 1 to 2"):
        scores.micro(depth)
