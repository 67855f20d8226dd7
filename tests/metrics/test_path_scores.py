"""Scores that know the tree: by loops over label sets, and by hiclass."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import assume, given

from hgclr.metrics.scores import GroupScores, MultiLabelScores, Score
from hgclr.taxonomy import Taxonomy
from support.random_batches import FAST, Matrix, batches, closed_matrix, sets, with_ancestors


def scored(taxonomy: Taxonomy, predicted: Matrix, gold: Matrix) -> MultiLabelScores:
    scores = MultiLabelScores(taxonomy)
    scores.update(predicted, gold)
    return scores


def f1(precision: float, recall: float) -> float:
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def divide(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def check(group: GroupScores, right: list[int], chosen: list[int], wanted: list[int]) -> None:
    """Compare with counts by label or path, through precision and recall rather than through the counts."""
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
    leaves = [label for label in range(len(taxonomy)) if label not in taxonomy.parents.tolist()]
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


@FAST
@given(batches())
def test_a_constraint_never_helps(batch: tuple[Taxonomy, Matrix, Matrix]) -> None:
    scores = scored(*batch)
    assert scores.path_constrained().micro.f1 <= scores.micro().f1
    assert scores.path_constrained().macro.f1 <= scores.macro().f1


def hiclass_paths(taxonomy: Taxonomy, matrix: Matrix) -> np.ndarray:
    """Every label of a document as its path from the top, filled up with empty strings: what hiclass reads."""
    paths = [[["" for _ in range(taxonomy.depth)] for _ in range(len(taxonomy))] for _ in matrix]
    for document, labels in enumerate(sets(matrix)):
        for label in labels:
            for place, node in enumerate(taxonomy.path(label)):
                paths[document][label][place] = taxonomy.ids[node]
    return np.array(paths)


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


def test_a_gold_path_that_stops_inside_is_no_path() -> None:
    taxonomy = Taxonomy(["A", "A1"], [-1, 0])
    scores = scored(taxonomy, np.array([[True, True]]), np.array([[True, False]]))
    assert (scores.paths().gold, scores.paths().predicted) == (0, 1)
    assert scores.paths().micro == Score(0.0, 0.0, 0.0)
