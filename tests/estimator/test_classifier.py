"""The estimator: scikit-learn's own checks and tools, inputs, errors, repeatability, decisions."""

from __future__ import annotations

import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import f1_score
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_val_score, cross_validate
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import estimator_checks

from hgclr.estimator import HGCLRClassifier, label_matrix
from support.toy_corpus import LABELS, TREE, Corpus, corpus

ROOT = Path(__file__).parents[2]
CHECKS = [
    estimator_checks.check_estimator_cloneable,
    estimator_checks.check_estimator_repr,
    estimator_checks.check_estimator_tags_renamed,
    estimator_checks.check_do_not_raise_errors_in_init_or_set_params,
    estimator_checks.check_get_params_invariance,
    estimator_checks.check_mixin_order,
    estimator_checks.check_no_attributes_set_in_init,
    estimator_checks.check_parameters_default_constructible,
    estimator_checks.check_set_params,
    estimator_checks.check_valid_tag_types,
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_scikit_learns_own_checks(check) -> None:
    check("HGCLRClassifier", HGCLRClassifier())


@pytest.mark.slow
def test_it_learns(on_strings: HGCLRClassifier, on_lists: HGCLRClassifier, on_matrix: HGCLRClassifier) -> None:
    unseen, mixed = corpus(40, seed=9), corpus(40, several=True, seed=9)
    assert on_strings.score(unseen.texts, unseen.strings) > 0.85
    assert on_lists.score(mixed.texts, mixed.paths) > 0.85
    assert on_matrix.score(mixed.texts, mixed.matrix) > 0.85


def test_probabilities_have_a_column_for_each_class(on_lists: HGCLRClassifier, several_paths: Corpus) -> None:
    for labels in on_lists.predict(several_paths.texts):  # lists of the deepest labels
        assert isinstance(labels, list)
        assert not any(other.startswith(f"{label} > ") for label in labels for other in labels)
    probabilities = on_lists.predict_proba(several_paths.texts)
    assert probabilities.shape == (len(several_paths.texts), len(LABELS))
    assert ((probabilities >= 0) & (probabilities <= 1)).all()
    column = LABELS.index("society > law")
    law = ["society > law" in paths for paths in several_paths.paths]
    assert probabilities[law, column].mean() > 0.5 > probabilities[np.invert(law), column].mean()


@pytest.mark.slow
def test_neither_no_text_nor_an_empty_one_gives_a_label(
    on_strings: HGCLRClassifier, on_matrix: HGCLRClassifier
) -> None:
    assert on_strings.predict([]).shape == (0,)
    assert on_matrix.predict([]).shape == on_matrix.predict_proba([]).shape == (0, len(LABELS))
    assert on_strings.predict([""])[0] == ""


@pytest.mark.slow
def test_the_score_is_micro_f1_with_ancestors(
    on_matrix: HGCLRClassifier, on_strings: HGCLRClassifier, several_paths: Corpus
) -> None:
    texts = [text.split()[0] for text in several_paths.texts]  # too short to be all right
    expected = f1_score(several_paths.matrix, on_matrix.predict(texts), average="micro")
    assert 0.3 < expected < 0.99
    assert on_matrix.score(texts, several_paths.matrix) == pytest.approx(expected)
    assert on_matrix.score(texts, several_paths.paths) == pytest.approx(expected)
    assert on_strings.score(["atom"], [[]]) == 0


def test_labels_that_training_never_saw_count_as_missed(on_strings: HGCLRClassifier, one_path: Corpus) -> None:
    index = one_path.strings.index("science > physics")
    text = one_path.texts[index]
    assert on_strings.predict([text]).tolist() == ["science > physics"]
    # 2 right of 2 predicted and 4 gold: science, science > physics, and two unknown labels below.
    assert on_strings.score([text], ["science > physics > waves > sound"]) == pytest.approx(2 * 2 / (2 + 4))
    # the same labels by two paths count once, and a name elsewhere in the tree is not that label
    assert on_strings.score([text], [["science > x > y", "science > x"]]) == pytest.approx(2 * 1 / (2 + 3))
    assert on_strings.score([text], ["physics"]) == 0


@pytest.mark.slow
def test_generators_and_no_seed_at_all(quick, one_path: Corpus) -> None:
    few = one_path.first(8)

    def probabilities(random_state: object) -> np.ndarray:
        return (
            quick(effort="full", epochs=1, batch_size=2, random_state=random_state)
            .fit(few.texts, few.strings)
            .predict_proba(few.texts)
        )

    generator = np.random.RandomState(5)
    first, second = probabilities(generator), probabilities(generator)
    np.testing.assert_array_equal(first, probabilities(np.random.RandomState(5)))
    assert (first != second).any()
    assert (probabilities(None) != probabilities(None)).any()


def test_fit_leaves_the_process_as_it_was(
    quick, one_path: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    import datasets
    import torch
    from transformers.utils import logging as transformers_logging

    monkeypatch.setenv("HGCLR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.chdir(tmp_path)

    def state() -> tuple[object, ...]:
        return (
            random.getstate(),
            str(np.random.get_state()),  # noqa: NPY002 (it is this one that training seeds)
            torch.get_rng_state().tolist(),
            transformers_logging.get_verbosity(),
            transformers_logging.is_progress_bar_enabled(),
            datasets.are_progress_bars_disabled(),
        )

    transformers_logging.enable_progress_bar()
    before = state()
    estimator = quick(effort="full", epochs=1).fit(one_path.texts, one_path.strings)
    assert state() == before
    assert estimator.predict(one_path.texts[:1]).shape == (1,)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_the_run_is_kept_where_one_asks_for_it(quick, one_path: Corpus, tmp_path: Path) -> None:
    estimator = quick(effort="full", epochs=1, architecture="hgclr", output_dir=tmp_path / "run").fit(
        one_path.texts, one_path.strings
    )
    assert (tmp_path / "run" / "training-model" / "model.safetensors").is_file()
    kept = HGCLRClassifier.load(tmp_path / "run" / "model")
    np.testing.assert_array_equal(kept.predict_proba(one_path.texts), estimator.predict_proba(one_path.texts))
    assert kept.predict(one_path.texts).tolist() == [[label] for label in estimator.predict(one_path.texts)]
    assert kept.taxonomy == estimator.taxonomy_
    with pytest.raises(ValueError, match="holds a finished run"):
        estimator.fit(one_path.texts, one_path.strings)


@pytest.mark.slow
def test_decisions_follow_the_parameters(quick, several_paths: Corpus) -> None:
    few = several_paths.first(16)
    estimator = quick(epochs=1, rule="top-k-paths", paths=2).fit(few.texts, few.paths)
    assert [len(labels) for labels in estimator.predict(few.texts)] == [2] * 16
    estimator = quick(epochs=1, rule="threshold", threshold=0.3, taxonomy=TREE).fit(few.texts, few.matrix)
    np.testing.assert_array_equal(estimator.predict(few.texts), estimator.predict_proba(few.texts) > 0.3)


@pytest.mark.slow
def test_calibration_is_found_on_the_documents_held_out(quick, several_paths: Corpus) -> None:
    estimator = quick(epochs=1, validation_fraction=0.25).fit(several_paths.texts, several_paths.paths)
    decisions = estimator.classifier_.decisions
    assert decisions.provenance["documents"] == 15
    plain = quick(epochs=1, calibrate=False, validation_fraction=0.25).fit(several_paths.texts, several_paths.paths)
    logits = np.concatenate(list(plain.classifier_.logits(several_paths.texts)))
    np.testing.assert_allclose(estimator.predict_proba(several_paths.texts), decisions.probabilities(logits), rtol=1e-5)
    assert not plain.classifier_.decisions.provenance
    given = quick(epochs=1, threshold=0.35, validation_fraction=0.25).fit(several_paths.texts, several_paths.paths)
    assert given.classifier_.decisions.thresholds == 0.35
    few = quick(epochs=1).fit(several_paths.texts, several_paths.paths)  # 6 documents are held out
    assert not few.classifier_.decisions.provenance


@pytest.mark.slow
def test_paths_end_at_leaves_where_all_documents_do(quick, one_path: Corpus) -> None:
    few = one_path.first(12)
    for last, inside in (("science > physics", True), ("science > physics > optics", False)):
        labels = ["society > law", "science > physics > optics", "science > chemistry", last]
        estimator = quick(epochs=1).fit(few.texts[: len(labels)], labels)
        assert estimator.classifier_.decisions.allow_inner_nodes is inside


@pytest.mark.parametrize(
    "texts",
    ["one text", None, [["a"], ["b"]], np.array([["a"], ["b"]]), ["a", float("nan")], ["a", "\ud800"], ["a", "\0"]],
)
def test_what_is_no_text_is_refused(on_strings: HGCLRClassifier, quick, texts: object) -> None:
    for call in (on_strings.predict, lambda texts: quick().fit(texts, ["science", "law"])):
        with pytest.raises(ValueError, match="X"):
            call(texts)


@pytest.mark.parametrize(
    "parameters",
    [
        {"epochs": 0},
        {"architecture": "bert"},
        {"settings": {"contrastive_wait": 1}},
        {"settings": {"encoder": "x"}},
        {"encoder": "./nowhere"},
        {"rule": "greedy"},
        {"rule": "closure"},  # for one path per document
        {"threshold": 1.5},
        {"paths": 0},
        {"validation_fraction": 0},
        {"validation_fraction": 0.99},
        {"random_state": -1},
        {"taxonomy": "nowhere.tsv"},
        {"taxonomy": 3},
        {"taxonomy": {"science": {1, 2}}},
        {"path_separator": ""},
    ],
)
def test_bad_parameters_are_refused_by_fit(quick, parameters: dict[str, object]) -> None:
    estimator = quick().set_params(**parameters)
    with pytest.raises(ValueError):  # noqa: PT011 (which parameter, is in the message)
        estimator.fit(["a", "b", "c", "d"], ["science", "law", "science > physics", "law"])


def test_texts_and_labels_must_match(quick, on_strings: HGCLRClassifier) -> None:
    for method in (quick().fit, on_strings.score):
        with pytest.raises(ValueError, match="X has 2 texts"):
            method(["a", "b"], ["science"])
        with pytest.raises(ValueError, match="X"):
            method([], [])
    with pytest.raises(ValueError, match="empty text"):
        quick().fit(["a", " "], ["science", "law"])


@pytest.mark.slow
def test_importing_it_does_not_import_torch() -> None:
    program = "import hgclr.estimator, sys; print('torch' in sys.modules, 'transformers' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def shout(texts: list[str]) -> list[str]:
    return [text.upper() for text in texts]


@pytest.mark.slow
def test_a_grid_search_over_a_pipeline(quick, several_paths: Corpus) -> None:
    pipeline = Pipeline([("clean", FunctionTransformer(shout)), ("classify", quick())])
    search = GridSearchCV(pipeline, {"classify__max_length": [3, 32]}, cv=KFold(2), error_score="raise")
    search.fit(several_paths.texts, several_paths.paths)
    assert search.best_params_ == {"classify__max_length": 32}
    assert len(search.predict(several_paths.texts[:3])) == 3


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


def test_numbered_labels_are_refused_with_advice(quick, one_path: Corpus) -> None:
    with pytest.raises(ValueError, match="indicator matrix"):
        cross_val_predict(quick(), one_path.texts, one_path.strings, cv=2, method="predict_proba")


@pytest.mark.slow
@pytest.mark.usefixtures("default_encoder")
def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "guides" / "scikit-learn.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    examples = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(examples) == 3
    names: dict[str, object] = {}
    for example in examples:
        exec(compile(example, "scikit-learn.md", "exec"), names)
    printed = capsys.readouterr().out
    assert "'science > physics > optics'" in printed
    assert "hgclrclassifier__learning_rate" in printed
    assert names["labels"].shape == names["probabilities"].shape == (24, 6)
    assert (tmp_path / "my-model" / "model.safetensors").is_file()
