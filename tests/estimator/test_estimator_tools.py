"""The estimator inside scikit-learn's tools: pipelines, searches, cross-validation, scorers."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import f1_score
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_val_score, cross_validate
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer

from hgclr.estimator import HGCLRClassifier, label_matrix
from support.toy_corpus import LABELS, TREE, Corpus


def shout(texts: list[str]) -> list[str]:
    return [text.upper() for text in texts]


@pytest.mark.slow
def test_a_pipeline(quick, one_path: Corpus, on_strings: HGCLRClassifier) -> None:
    pipeline = Pipeline([("clean", FunctionTransformer(shout)), ("classify", quick())])
    pipeline.fit(one_path.texts, one_path.strings)  # the tokenizer takes capitals for small letters
    np.testing.assert_array_equal(pipeline.predict(one_path.texts), on_strings.predict(one_path.texts))
    np.testing.assert_array_equal(pipeline.predict_proba(one_path.texts), on_strings.predict_proba(one_path.texts))
    assert pipeline.score(one_path.texts, one_path.strings) > 0.95
    assert pipeline.classes_.tolist() == LABELS
    assert pipeline.set_params(classify__epochs=3).named_steps["classify"].epochs == 3


@pytest.mark.slow
def test_a_grid_search_over_a_pipeline(quick, several_paths: Corpus) -> None:
    pipeline = Pipeline([("clean", FunctionTransformer(shout)), ("classify", quick())])
    search = GridSearchCV(pipeline, {"classify__learning_rate": [1e-6, 5e-3]}, cv=KFold(2), error_score="raise")
    search.fit(several_paths.texts, several_paths.paths)
    assert search.best_params_ == {"classify__learning_rate": 5e-3}
    scores = search.cv_results_["mean_test_score"]
    assert scores[1] > scores[0] + 0.2
    assert len(search.predict(several_paths.texts[:3])) == 3


@pytest.mark.slow
def test_a_grid_search_with_scikit_learns_scorers(quick, several_paths: Corpus) -> None:
    search = GridSearchCV(
        quick(taxonomy=TREE),
        {"epochs": [3]},
        scoring=["f1_micro", "f1_macro", "average_precision", "roc_auc"],
        refit="f1_macro",
        cv=2,
        error_score="raise",
    )
    search.fit(np.array(several_paths.texts), several_paths.matrix)
    for metric in ("f1_micro", "f1_macro", "average_precision", "roc_auc"):
        assert search.cv_results_[f"mean_test_{metric}"][0] > 0.6, metric
    assert search.classes_.tolist() == LABELS
    assert search.predict_proba(several_paths.texts[:2]).shape == (2, len(LABELS))


@pytest.mark.slow
def test_cross_validated_predictions_are_those_of_each_fold(quick, several_paths: Corpus) -> None:
    texts, gold = several_paths.texts[:24], several_paths.matrix[:24].astype(int)
    estimator, folds = quick(taxonomy=TREE, epochs=1), KFold(2, shuffle=True, random_state=0)
    predicted = cross_val_predict(estimator, texts, gold, cv=folds)
    probabilities = cross_val_predict(estimator, texts, gold, cv=folds, method="predict_proba")
    result = cross_validate(estimator, texts, gold, cv=folds, return_estimator=True)
    for number, (_, test) in enumerate(folds.split(texts)):
        fitted, held_out = result["estimator"][number], [texts[row] for row in test]
        np.testing.assert_array_equal(predicted[test], fitted.predict(held_out))
        np.testing.assert_array_equal(probabilities[test], fitted.predict_proba(held_out))
        micro = f1_score(gold[test], predicted[test], average="micro")
        assert result["test_score"][number] == pytest.approx(micro)


@pytest.mark.slow
def test_cross_validation_with_a_tree_for_each_fold(quick, several_paths: Corpus, one_path: Corpus) -> None:
    predicted = cross_val_predict(quick(), pd.Series(several_paths.texts), several_paths.paths, cv=KFold(2))
    assert predicted.shape == (len(several_paths.texts),)
    assert f1_score(several_paths.matrix, label_matrix(predicted, TREE), average="micro") > 0.7
    # The last document's label is in no other document, so that one fold has to predict without it.
    labels = [*one_path.strings[:-1], "art > music"]
    scores = cross_val_score(quick(), one_path.texts, labels, cv=KFold(2), error_score="raise")
    assert (scores > 0.6).all()


@pytest.mark.slow
def test_strings_are_stratified_by_path(quick, one_path: Corpus) -> None:
    predicted = cross_val_predict(quick(epochs=5), one_path.texts, np.array(one_path.strings), cv=2)
    assert np.mean(predicted == np.array(one_path.strings)) > 0.6


def test_numbered_labels_are_refused_with_advice(quick, one_path: Corpus) -> None:
    with pytest.raises(ValueError, match="need an indicator matrix"):
        cross_val_predict(quick(), one_path.texts, one_path.strings, cv=2, method="predict_proba")


@pytest.mark.slow
def test_a_failing_candidate_does_not_stop_a_search(quick, one_path: Corpus) -> None:
    search = GridSearchCV(quick(epochs=1), {"rule": ["closure", "auto"]}, cv=2, error_score=0.0, refit=False)
    with pytest.warns(match="2 fits failed out of a total of 4"):
        search.fit(one_path.texts[:20], ["science > physics", "society > law"] * 10)
    assert search.cv_results_["mean_test_score"][0] == 0 < search.cv_results_["mean_test_score"][1]
