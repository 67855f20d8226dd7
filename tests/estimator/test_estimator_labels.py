"""Labels in every form: what fit makes of them, what predict gives back, and what is refused."""

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

pytestmark = pytest.mark.slow

NAMES = st.text(alphabet="abc", min_size=1, max_size=2)
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(tuple)


def test_one_path_for_each_document(on_strings: HGCLRClassifier, one_path: Corpus) -> None:
    predicted = on_strings.predict(one_path.texts)
    assert predicted.shape == (len(one_path.texts),)
    assert set(predicted) <= set(LABELS)
    assert accuracy_score(one_path.strings, predicted) > 0.95
    assert on_strings.classifier_.decisions.rule == "best-path"


def test_tuples_are_paths_and_come_back_as_such(quick, on_strings: HGCLRClassifier, one_path: Corpus) -> None:
    estimator = quick().fit(one_path.texts, one_path.tuples)
    assert estimator.classes_.tolist() == LABELS
    expected = [tuple(path.split(" > ")) for path in on_strings.predict(one_path.texts)]
    assert estimator.predict(one_path.texts).tolist() == expected
    assert estimator.score(one_path.texts, one_path.strings) == on_strings.score(one_path.texts, one_path.tuples)


def test_lists_of_paths_come_back_as_lists_of_the_deepest(on_lists: HGCLRClassifier, several_paths: Corpus) -> None:
    predicted = on_lists.predict(several_paths.texts)
    assert predicted.shape == (len(several_paths.texts),)
    right = sum(list(given) == paths for given, paths in zip(predicted, several_paths.paths, strict=True))
    assert right / len(predicted) > 0.6
    for labels in predicted:
        assert isinstance(labels, list)
        assert not any(other.startswith(f"{label} > ") for label in labels for other in labels)


def test_a_matrix_comes_back_as_a_matrix_of_its_type(on_matrix: HGCLRClassifier, several_paths: Corpus) -> None:
    predicted = on_matrix.predict(several_paths.texts)
    assert predicted.dtype == np.int8
    assert f1_score(several_paths.matrix, predicted, average="macro") > 0.8
    for column, label in enumerate(LABELS):  # ancestors are set too
        for parent in [LABELS.index(label.rpartition(" > ")[0])] if " > " in label else []:
            assert (predicted[:, column] <= predicted[:, parent]).all()


def _forms(corpus: Corpus) -> list[object]:
    """The labels of a corpus, in every form but the one it has."""
    leaves = np.array([[label in paths for label in LABELS] for paths in corpus.paths])
    return [
        [set(paths) for paths in corpus.paths],
        [paths[0] if len(paths) == 1 else paths for paths in corpus.paths],
        pd.Series([np.array(paths) for paths in corpus.paths]),
        [[tuple(path.split(" > ")) for path in paths] for paths in corpus.paths],
        [[path.rpartition(" > ")[2] for path in paths] for paths in corpus.paths],  # names that one label alone has
        corpus.matrix,
        leaves.astype(float),
        csr_matrix(leaves),
        pd.DataFrame(leaves, columns=LABELS),
    ]


def test_all_forms_mean_the_same_labels(several_paths: Corpus) -> None:
    tree = Taxonomy(*_nested_tree())
    for labels in [several_paths.paths, *_forms(several_paths)]:
        np.testing.assert_array_equal(label_matrix(labels, tree), several_paths.matrix, err_msg=repr(labels)[:80])


def test_with_a_tree_or_without_the_same_labels_train_the_same_model(quick, several_paths: Corpus) -> None:
    few = several_paths.first(16)
    drawn = quick(epochs=1).fit(few.texts, few.paths)
    given = quick(epochs=1, taxonomy=TREE).fit(few.texts, few.matrix)
    np.testing.assert_array_equal(given.predict_proba(few.texts), drawn.predict_proba(few.texts))


def _nested_tree() -> tuple[list[str], list[int], list[str]]:
    """The labels' ids, parents and names."""
    parents = [LABELS.index(label.rpartition(" > ")[0]) if " > " in label else -1 for label in LABELS]
    return LABELS, parents, [label.rpartition(" > ")[2] for label in LABELS]


def test_a_tree_with_ids_of_its_own_answers_by_these(quick, one_path: Corpus, tmp_path: Path) -> None:
    ids, parents, names = _nested_tree()
    tree = Taxonomy([f"L{number}" for number in range(len(ids))], parents, names)
    tree.write(tmp_path / "tree.json")
    estimator = quick(taxonomy=tmp_path / "tree.json").fit(one_path.texts, one_path.strings)
    assert estimator.taxonomy_ == tree
    assert estimator.classes_.tolist() == list(tree.ids)
    right = [f"L{LABELS.index(path)}" for path in one_path.strings]
    assert accuracy_score(right, estimator.predict(one_path.texts)) > 0.95
    assert estimator.score(one_path.texts, right) == estimator.score(one_path.texts, one_path.strings) > 0.95


def test_decisions_follow_the_parameters(quick, several_paths: Corpus) -> None:
    few = several_paths.first(16)
    estimator = quick(epochs=1, rule="top-k-paths", paths=2).fit(few.texts, few.paths)
    assert [len(labels) for labels in estimator.predict(few.texts)] == [2] * 16
    estimator = quick(epochs=1, rule="threshold", threshold=0.3, taxonomy=TREE).fit(few.texts, few.matrix)
    np.testing.assert_array_equal(estimator.predict(few.texts), estimator.predict_proba(few.texts) > 0.3)


def test_calibration_is_found_on_the_documents_held_out(quick, several_paths: Corpus) -> None:
    estimator = quick(epochs=1, calibrate=True, validation_fraction=0.25).fit(several_paths.texts, several_paths.paths)
    decisions = estimator.classifier_.decisions
    assert decisions.calibration is not None
    assert decisions.provenance["documents"] == 15
    plain = quick(epochs=1, validation_fraction=0.25).fit(several_paths.texts, several_paths.paths)
    logits = np.concatenate(list(plain.classifier_.logits(several_paths.texts)))
    np.testing.assert_allclose(estimator.predict_proba(several_paths.texts), decisions.calibration(logits), rtol=1e-5)
    given = quick(epochs=1, calibrate=True, threshold=0.35).fit(several_paths.texts, several_paths.paths)
    assert given.classifier_.decisions.thresholds == 0.35


def test_paths_end_at_leaves_where_all_documents_do(quick, one_path: Corpus) -> None:
    few = one_path.first(12)
    for last, inside in (("science > physics", True), ("science > physics > optics", False)):
        labels = ["society > law", "science > physics > optics", "science > chemistry", last]
        estimator = quick(epochs=1).fit(few.texts[: len(labels)], labels)
        assert estimator.classifier_.decisions.allow_inner_nodes is inside


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
    ("taxonomy", "labels", "message"),
    [
        (None, "science", "y is a single str; give a list"),
        (None, None, "y is a single NoneType"),
        (None, [1, 2], r"y\[0\]: 1 is no label; give a path .* need an indicator matrix"),
        (None, ["law", 2.5], r"y\[1\]: 2.5 is no label"),
        (None, ["law", [3]], r"y\[1\]: 3 is no label"),
        (None, ["law", ()], r"y\[1\]: \(\) is no label"),
        (None, ["law", []], r"y\[1\]: no labels; give it one"),
        (None, [[], []], "y has no label"),
        (None, ["law", ""], r"y\[1\]: the path '' has an empty name"),
        (None, ["law", "science >  > x"], r"y\[1\]: the path 'science >  > x' has an empty name"),
        (None, ["law", "a >  b"], "a name with space around it, ' b'; the names are set apart by ' > '"),
        (None, ["law", ("a > b", "c")], r"y\[1\]: the name 'a > b' holds ' > '; give another path_separator"),
        (None, np.zeros((2, 8)), "which does not tell the tree; give taxonomy"),
        (TREE, np.zeros((2, 3)), "y has 3 columns, the tree 8 labels"),
        (TREE, np.full((2, 8), 2), "not an indicator matrix of 0 and 1"),
        (TREE, np.full((2, 8), np.nan), "not an indicator matrix"),
        (TREE, np.array([["science", "law"]] * 2), "not an indicator matrix of 0 and 1; give each document a path"),
        (TREE, np.zeros((2, 8)), r"y\[0\]: no labels"),
        (TREE, pd.DataFrame(np.ones((2, 8)), columns=LABELS[::-1]), r"in the tree's order: y\[list\(taxonomy.ids\)\]"),
        (TREE, ["society > law", "society > lau"], r"y\[1\]: unknown label 'society > lau'; did you mean"),
        (TREE, ["society > law", ("law",)], r"y\[1\]: the path \('law',\) is not in the tree; there is no 'law' at"),
        (TREE, ["law", ("society", "x")], "there is no 'x' under 'society'"),
    ],
)
def test_what_are_no_labels_is_refused(quick, taxonomy: object, labels: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        quick(taxonomy=taxonomy).fit(["a text", "another"], labels)


def test_the_helpers_refuse_in_the_same_way() -> None:
    with pytest.raises(ValueError, match=r"y\[0\]: the path 'a > ' has an empty name"):
        label_tree(["a > "])
    with pytest.raises(ValueError, match=r"y\[1\]: unknown label 'b'"):
        label_matrix(["a", "b"], Taxonomy(["a"], [-1]))
