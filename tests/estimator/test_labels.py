"""Labels in every form: reading in fit, writing in predict, errors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from sklearn.metrics import accuracy_score, f1_score

from hgclr import Taxonomy
from hgclr.estimator import HGCLRClassifier, label_matrix, label_tree
from support.toy_corpus import LABELS, TREE, Corpus

NAMES = st.text(alphabet="abc", min_size=1, max_size=2)
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(tuple)


@pytest.mark.slow
def test_tuples_are_paths_and_come_back_as_such(quick, on_strings: HGCLRClassifier, one_path: Corpus) -> None:
    estimator = quick().fit(one_path.texts, one_path.tuples)
    assert estimator.classes_.tolist() == LABELS
    expected = [tuple(path.split(" > ")) for path in on_strings.predict(one_path.texts)]
    assert estimator.predict(one_path.texts).tolist() == expected
    assert estimator.score(one_path.texts, one_path.strings) == on_strings.score(one_path.texts, one_path.tuples)


@pytest.mark.slow
def test_a_matrix_comes_back_as_a_matrix_of_its_type(on_matrix: HGCLRClassifier, several_paths: Corpus) -> None:
    predicted = on_matrix.predict(several_paths.texts)
    assert predicted.dtype == np.int8
    assert f1_score(several_paths.matrix, predicted, average="macro") > 0.8
    for column, label in enumerate(LABELS):  # ancestors are set too
        for parent in [LABELS.index(label.rpartition(" > ")[0])] if " > " in label else []:
            assert (predicted[:, column] <= predicted[:, parent]).all()


def _nested_tree() -> tuple[list[str], list[int], list[str]]:
    """The labels' ids, parents and names."""
    parents = [LABELS.index(label.rpartition(" > ")[0]) if " > " in label else -1 for label in LABELS]
    return LABELS, parents, [label.rpartition(" > ")[2] for label in LABELS]


@pytest.mark.slow
def test_a_tree_with_ids_of_its_own_answers_by_these(quick, one_path: Corpus, tmp_path: Path) -> None:
    ids, parents, names = _nested_tree()
    tree = Taxonomy([f"L{number}" for number in range(len(ids))], parents, names)
    tree.write(tmp_path / "tree.json")
    estimator = quick(taxonomy=tmp_path / "tree.json").fit(one_path.texts, one_path.strings)
    assert estimator.taxonomy_ == tree
    assert estimator.classes_.tolist() == list(tree.ids)
    right = [f"L{LABELS.index(path)}" for path in one_path.strings]
    assert accuracy_score(right, estimator.predict(one_path.texts)) > 0.8
    assert estimator.score(one_path.texts, right) == estimator.score(one_path.texts, one_path.strings)


def _forms(corpus: Corpus) -> list[object]:
    """The labels of a corpus, in every form but the one it has."""
    leaves = np.array([[label in paths for label in LABELS] for paths in corpus.paths])
    return [
        [set(paths) for paths in corpus.paths],
        [paths[0] if len(paths) == 1 else paths for paths in corpus.paths],
        pd.Series([np.array(paths) for paths in corpus.paths]),
        [[tuple(path.split(" > ")) for path in paths] for paths in corpus.paths],
        [[path.rpartition(" > ")[2] for path in paths] for paths in corpus.paths],  # names that only one label has
        corpus.matrix,
        leaves.astype(float),
        csr_matrix(leaves),
        pd.DataFrame(leaves, columns=LABELS),
    ]


def test_all_forms_mean_the_same_labels(several_paths: Corpus) -> None:
    tree = Taxonomy(*_nested_tree())
    for labels in [several_paths.paths, *_forms(several_paths)]:
        np.testing.assert_array_equal(label_matrix(labels, tree), several_paths.matrix, err_msg=repr(labels)[:80])


@settings(deadline=None, derandomize=True, max_examples=60)
@given(st.lists(st.lists(PATHS, min_size=1, max_size=3), min_size=1, max_size=6))
def test_the_tree_is_every_beginning_of_every_path(documents: list[list[tuple[str, ...]]]) -> None:
    tree = label_tree(documents)
    beginnings = sorted({path[:depth] for paths in documents for path in paths for depth in range(1, len(path) + 1)})
    assert tree.ids == tuple(" > ".join(path) for path in beginnings)
    assert tree == label_tree([[" > ".join(path) for path in paths] for paths in documents])
    matrix = label_matrix(documents, tree)
    for row, paths in enumerate(documents):
        for column, beginning in enumerate(beginnings):
            assert matrix[row, column] == any(path[: len(beginning)] == beginning for path in paths)


@pytest.mark.parametrize(
    ("taxonomy", "labels"),
    [
        (None, "science"),
        (None, None),
        (None, [1, 2]),
        (None, ["law", [3]]),
        (None, ["law", ()]),
        (None, ["law", []]),
        (None, [[], []]),
        (None, ["law", ""]),
        (None, ["law", "science >  > x"]),
        (None, ["law", "a >  b"]),
        (None, ["law", ("a > b", "c")]),
        (None, np.zeros((2, 8))),
        (TREE, np.zeros((2, 3))),
        (TREE, np.full((2, 8), 2)),
        (TREE, np.full((2, 8), np.nan)),
        (TREE, np.array([["science", "law"]] * 2)),
        (TREE, np.zeros((2, 8))),
        (TREE, pd.DataFrame(np.ones((2, 8)), columns=LABELS[::-1])),
        (TREE, ["society > law", "society > lau"]),
        (TREE, ["society > law", ("law",)]),
        (TREE, ["law", ("society", "x")]),
    ],
)
def test_what_are_no_labels_is_refused(quick, taxonomy: object, labels: object) -> None:
    with pytest.raises(ValueError, match="y"):
        quick(taxonomy=taxonomy).fit(["a text", "another"], labels)
