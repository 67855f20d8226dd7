"""Scores of label sets: scikit-learn, hiclass and loops over sets as oracles; groups of labels by frequency."""

from __future__ import annotations

import json
import warnings
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, f1_score, hamming_loss, precision_recall_fscore_support

from hgclr.metrics.scores import (
    GroupScores,
    MultiLabelScores,
    Score,
    by_frequency,
    frequency_bands,
    frequency_thirds,
)
from hgclr.taxonomy import Taxonomy
from support.decision_cases import parents, paths
from support.random_batches import FAST, Matrix, batches, closed_matrix, sets, with_ancestors

COUNTS = st.lists(st.integers(0, 8), max_size=20)


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


@FAST
@given(batches(), st.data())
def test_scores_equal_scikit_learn(batch: tuple[Taxonomy, Matrix, Matrix], data: st.DataObject) -> None:
    taxonomy, predicted, gold = batch
    scores = scored(taxonomy, predicted, gold)
    assert_equal(scores.micro(), sklearn_score(predicted, gold, "micro"))
    assert_equal(scores.macro(), sklearn_score(predicted, gold, "macro"))
    present = sorted(set().union(*sets(predicted), *sets(gold)))
    assert_equal(scores.macro_present(), sklearn_score(predicted[:, present], gold[:, present], "macro"))
    assert scores.subset_accuracy() == pytest.approx(accuracy_score(gold, predicted) if len(gold) else 0.0)
    assert scores.hamming_loss() == pytest.approx(hamming_loss(gold.ravel(), predicted.ravel()) if len(gold) else 0.0)
    for depth in range(1, int(taxonomy.depths.max()) + 1):
        columns = [label for label in range(len(taxonomy)) if taxonomy.depths[label] == depth]
        assert_equal(scores.micro(depth), sklearn_score(predicted[:, columns], gold[:, columns], "micro"))
    each = scores.per_label()
    for label in range(len(taxonomy)):
        expected = sklearn_score(predicted[:, [label]], gold[:, [label]], "micro")
        assert_equal(Score(each.precision[label], each.recall[label], each.f1[label]), expected)
    labels = data.draw(st.lists(st.integers(0, len(taxonomy) - 1), unique=True))
    group = scores.group(labels)
    assert_equal(group.micro, sklearn_score(predicted[:, labels], gold[:, labels], "micro"))
    assert_equal(group.macro, sklearn_score(predicted[:, labels], gold[:, labels], "macro"))
    assert (group.labels, group.predicted, group.gold) == (
        len(labels),
        predicted[:, labels].sum(),
        gold[:, labels].sum(),
    )


@FAST
@given(batches())
def test_inconsistency_rate_by_loops(batch: tuple[Taxonomy, Matrix, Matrix]) -> None:
    taxonomy, predicted, gold = batch
    orphans = below_top = 0
    for labels in sets(predicted):
        for label in labels:
            above = parents(taxonomy, label)
            below_top += bool(above)
            orphans += not labels.issuperset(above)
    expected = orphans / below_top if below_top else 0.0
    assert scored(taxonomy, predicted, gold).inconsistency_rate() == pytest.approx(expected)


def f1(precision: float, recall: float) -> float:
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def divide(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def check(group: GroupScores, right: list[int], chosen: list[int], wanted: list[int]) -> None:
    """Compare with counts by label or path, by way of precision and recall."""
    precisions = [divide(one, other) for one, other in zip(right, chosen, strict=True)]
    recalls = [divide(one, other) for one, other in zip(right, wanted, strict=True)]
    macro = [float(np.mean(values)) for values in (precisions, recalls, list(map(f1, precisions, recalls)))]
    precision, recall = divide(sum(right), sum(chosen)), divide(sum(right), sum(wanted))
    assert (group.labels, group.true_positives, group.predicted, group.gold) == (
        len(right),
        sum(right),
        sum(chosen),
        sum(wanted),
    )
    for score, expected in ((group.micro, (precision, recall, f1(precision, recall))), (group.macro, macro)):
        assert (score.precision, score.recall, score.f1) == pytest.approx(tuple(expected), abs=1e-12)


@FAST
@given(batches())
def test_path_constrained_scores_by_sets(batch: tuple[Taxonomy, Matrix, Matrix]) -> None:
    taxonomy, predicted, gold = batch
    right, chosen, wanted = ([0] * len(taxonomy) for _ in range(3))
    for labels, truth in zip(sets(predicted), sets(gold), strict=True):
        for label in range(len(taxonomy)):
            chosen[label] += label in labels
            wanted[label] += label in truth
            right[label] += with_ancestors(taxonomy, {label}) <= labels & truth
    check(scored(taxonomy, predicted, gold).path_constrained(), right, chosen, wanted)


@FAST
@given(batches())
def test_path_scores_by_sets(batch: tuple[Taxonomy, Matrix, Matrix]) -> None:
    taxonomy, predicted, gold = batch
    inner = {parent for label in range(len(taxonomy)) for parent in parents(taxonomy, label)}
    leaves = [label for label in range(len(taxonomy)) if label not in inner]
    right, chosen, wanted = ([0] * len(leaves) for _ in range(3))
    for labels, truth in zip(sets(predicted), sets(gold), strict=True):
        for number, leaf in enumerate(leaves):
            path = with_ancestors(taxonomy, {leaf})
            chosen[number] += path <= labels
            wanted[number] += path <= truth
            right[number] += path <= labels and path <= truth
    check(scored(taxonomy, predicted, gold).paths(), right, chosen, wanted)


@FAST
@given(batches())
def test_on_full_paths_all_that_know_the_tree_agree(batch: tuple[Taxonomy, Matrix, Matrix]) -> None:
    taxonomy, predicted, gold = batch
    scores = scored(taxonomy, closed_matrix(taxonomy, predicted), closed_matrix(taxonomy, gold))
    assert scores.path_constrained().micro == scores.micro() == scores.hierarchical()
    assert scores.path_constrained().macro == scores.macro()
    assert scores.paths() == scores.group(taxonomy.leaves)


def hiclass_paths(taxonomy: Taxonomy, matrix: Matrix) -> np.ndarray:
    """All paths of the labels of a document from the top, padded with empty strings, as hiclass reads them."""
    known = [(label, each) for label in range(len(taxonomy)) for each in paths(taxonomy, label)]
    longest = max(len(each) for _, each in known)
    padded = [[taxonomy.ids[node] for node in each] + [""] * (longest - len(each)) for _, each in known]
    return np.array(
        [
            [names if label in labels else [""] * longest for (label, _), names in zip(known, padded, strict=True)]
            for labels in sets(matrix)
        ]
    )


@FAST
@given(batches())
def test_hierarchical_scores_equal_hiclass(batch: tuple[Taxonomy, Matrix, Matrix]) -> None:
    from hiclass import metrics

    taxonomy, predicted, gold = batch
    assume((predicted & gold).any())  # else hiclass divides by zero
    truth, answer = hiclass_paths(taxonomy, gold), hiclass_paths(taxonomy, predicted)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = [measure(truth, answer) for measure in (metrics.precision, metrics.recall, metrics.f1)]
    score = scored(taxonomy, predicted, gold).hierarchical()
    assert (score.precision, score.recall, score.f1) == pytest.approx(tuple(expected))


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


def test_unfit_arguments_are_refused() -> None:
    scores = MultiLabelScores(Taxonomy(["A", "A1"], [-1, 0]))
    right = np.zeros((2, 2), bool)
    for predicted, gold in (
        (np.zeros((2, 3), bool), np.zeros((2, 3), bool)),
        (right, right[:1]),
        (right.astype(float), right),
    ):
        with pytest.raises(ValueError, match="expected"):
            scores.update(predicted, gold)
    for labels in ([0, 1, 0], [[0]], [0.5], [True, False], [2], [-1]):
        with pytest.raises(ValueError, match="label"):
            scores.group(labels)
    for depth in (0, 3, -1):
        with pytest.raises(ValueError, match="depth"):
            scores.micro(depth)
    for counts in ([[1, 2]], [0.5, 1.0], [3, -1], [True, False], [7, 0, 1]):
        with pytest.raises(ValueError, match="documents"):
            by_frequency(scores, counts)


@FAST
@given(COUNTS)
def test_groups_by_the_definition(counts: list[int]) -> None:
    seen = [count for count in counts if count]
    expected: dict[str, list[int]] = {"head": [], "middle": [], "tail": [], "unseen": []}
    for label, count in enumerate(counts):
        if not count:
            expected["unseen"].append(label)
            continue
        place = sum(other > count for other in seen) + Fraction(seen.count(count), 2)
        third = Fraction(len(seen), 3)
        expected["head" if place < third else "tail" if place > 2 * third else "middle"].append(label)
    assert {name: labels.tolist() for name, labels in frequency_thirds(counts).items()} == expected


@FAST
@given(st.lists(st.integers(0, 40), max_size=30))
def test_bands_by_the_definition(counts: list[int]) -> None:
    bands = {"unseen": range(1), "1-5": range(1, 6), "6-20": range(6, 21), "more than 20": range(21, 41)}
    assert {name: labels.tolist() for name, labels in frequency_bands(counts).items()} == {
        name: [label for label, count in enumerate(counts) if count in band] for name, band in bands.items()
    }


@pytest.mark.parametrize("seed", range(3))
def test_scores_of_groups_are_those_of_scikit_learn(seed: int) -> None:
    random = np.random.default_rng(seed)
    counts = random.permutation([0] * 9 + [1, 5, 3, 2, 4, 5] + [6, 20, 9, 9] + [21, 300, 50])
    predicted, gold = random.random((2, 60, len(counts))) < 0.15
    gold[:, random.random(len(counts)) < 0.4] = False  # labels without gold documents in this split
    scores = MultiLabelScores(Taxonomy([str(label) for label in range(len(counts))], [-1] * len(counts)))
    scores.update(predicted, gold)
    found = by_frequency(scores, counts)
    assert json.loads(json.dumps(found)) == found
    assert list(found) == ["unseen", "1-5", "6-20", "more than 20"]
    assert [(group["fewest"], group["most"]) for group in found.values()] == [(0, 0), (1, 5), (6, 20), (21, 300)]
    for group, (low, high) in zip(found.values(), [(0, 0), (1, 5), (6, 20), (21, 10**6)], strict=True):
        labels = [label for label, count in enumerate(counts) if low <= count <= high]
        present = [label for label in labels if gold[:, label].any()]
        assert (group["labels"], group["labels_with_gold"]) == (len(labels), len(present))
        assert group["gold"] == gold[:, labels].sum()
        for name, average, chosen in (
            ("micro", "micro", labels),
            ("macro", "macro", labels),
            ("macro_gold", "macro", present),
        ):
            expected = precision_recall_fscore_support(gold, predicted, labels=chosen, average=average, zero_division=0)
            assert list(group[name].values()) == pytest.approx(list(expected[:3]))
    every = sum(group["labels"] * group["macro"]["f1"] for group in found.values()) / len(counts)
    assert every == pytest.approx(f1_score(gold, predicted, average="macro", zero_division=0))
    assert every == pytest.approx(scores.macro().f1)
