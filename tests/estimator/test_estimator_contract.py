"""What scikit-learn asks of every estimator, on texts: parameters, fitted attributes, inputs, errors, repeatability."""

from __future__ import annotations

import importlib.util
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.metrics import f1_score
from sklearn.utils import estimator_checks, get_tags

from hgclr import Taxonomy, hardware
from hgclr.errors import MissingExtraError
from hgclr.estimator import HGCLRClassifier
from support.toy_corpus import LABELS, Corpus, corpus

pytestmark = pytest.mark.slow

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


def test_it_says_what_it_takes() -> None:
    tags = get_tags(HGCLRClassifier())
    assert is_classifier(HGCLRClassifier())
    assert tags.input_tags.string
    assert tags.input_tags.one_d_array
    assert not tags.input_tags.two_d_array
    assert tags.classifier_tags.multi_label
    assert tags.requires_fit
    assert tags.target_tags.required


def test_a_clone_has_equal_parameters_and_is_not_fitted(on_matrix: HGCLRClassifier, one_path: Corpus) -> None:
    on_matrix = clone(on_matrix).set_params(taxonomy=Taxonomy(["a", "b"], [-1, 0]), settings={"pooling": "mean"})
    copy = clone(on_matrix)
    assert copy.get_params() == on_matrix.get_params()
    assert copy.taxonomy is not on_matrix.taxonomy
    with pytest.raises(NotFittedError):
        copy.predict(one_path.texts)


def test_fit_returns_self_and_changes_no_parameter(quick, one_path: Corpus) -> None:
    estimator = quick(epochs=1, settings={"classifier_dropout": 0.2})
    before = {name: id(value) for name, value in vars(estimator).items()}
    assert estimator.fit(one_path.texts, one_path.strings) is estimator
    assert {name: id(value) for name, value in vars(estimator).items() if name in before} == before
    assert all(name.startswith("_") or name.endswith("_") for name in vars(estimator).keys() - before.keys())
    assert [row["epoch"] for row in estimator.history_] == [1]
    assert estimator.classifier_.backend.model.config.classifier_dropout == 0.2


@pytest.mark.parametrize("method", ["predict", "predict_proba", "save"])
def test_nothing_works_before_fit(method: str, tmp_path: Path) -> None:
    with pytest.raises(NotFittedError, match="HGCLRClassifier"):
        getattr(HGCLRClassifier(), method)(str(tmp_path / "new") if method == "save" else ["a text"])
    with pytest.raises(NotFittedError):
        HGCLRClassifier().score(["a text"], ["science"])


def test_it_learns(on_strings: HGCLRClassifier, on_lists: HGCLRClassifier, on_matrix: HGCLRClassifier) -> None:
    unseen, mixed = corpus(40, seed=9), corpus(40, several=True, seed=9)
    assert on_strings.score(unseen.texts, unseen.strings) > 0.95
    assert on_lists.score(mixed.texts, mixed.paths) > 0.85
    assert on_matrix.score(mixed.texts, mixed.matrix) > 0.85


def test_classes_are_the_labels_in_the_trees_order(on_strings: HGCLRClassifier, on_matrix: HGCLRClassifier) -> None:
    for estimator in (on_strings, on_matrix):
        assert estimator.classes_.tolist() == LABELS == list(estimator.taxonomy_.ids)


def test_probabilities_have_a_column_for_each_class(on_lists: HGCLRClassifier, several_paths: Corpus) -> None:
    probabilities = on_lists.predict_proba(several_paths.texts)
    assert probabilities.shape == (len(several_paths.texts), len(LABELS))
    assert ((probabilities >= 0) & (probabilities <= 1)).all()
    column = LABELS.index("society > law")
    law = ["society > law" in paths for paths in several_paths.paths]
    assert probabilities[law, column].mean() > 0.5 > probabilities[np.invert(law), column].mean()


@pytest.mark.parametrize("make", [list, tuple, np.array, lambda texts: np.array(texts, dtype=object), pd.Series])
def test_texts_come_in_any_container(on_strings: HGCLRClassifier, one_path: Corpus, make) -> None:
    expected = on_strings.predict_proba(one_path.texts[:5])
    np.testing.assert_array_equal(on_strings.predict_proba(make(one_path.texts[:5])), expected)


def test_a_series_is_read_by_place_not_by_index(on_strings: HGCLRClassifier, one_path: Corpus) -> None:
    backwards = range(len(one_path.texts), 0, -1)
    texts, labels = (pd.Series(values, index=backwards) for values in (one_path.texts, one_path.strings))
    expected = on_strings.score(one_path.texts, one_path.strings)
    assert on_strings.score(texts, pd.Series(one_path.strings)) == on_strings.score(one_path.texts, labels) == expected


def test_a_prediction_does_not_depend_on_its_neighbours(on_strings: HGCLRClassifier, one_path: Corpus) -> None:
    whole = on_strings.predict_proba(one_path.texts)
    np.testing.assert_allclose(on_strings.predict_proba(one_path.texts[::-1]), whole[::-1], atol=1e-5)
    alone = np.concatenate([on_strings.predict_proba([text]) for text in one_path.texts])
    np.testing.assert_allclose(alone, whole, atol=1e-5)


def test_neither_no_text_nor_an_empty_one_gives_a_label(
    on_strings: HGCLRClassifier, on_matrix: HGCLRClassifier
) -> None:
    assert on_strings.predict([]).shape == (0,)
    assert on_matrix.predict([]).shape == on_matrix.predict_proba([]).shape == (0, len(LABELS))
    assert on_strings.predict([""])[0] == ""


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
    # 2 right of 2 given and 4 gold: science, science > physics, and two labels below that nobody has seen.
    assert on_strings.score([text], ["science > physics > waves > sound"]) == pytest.approx(2 * 2 / (2 + 4))
    # the same labels by two paths count once, and a name that stands elsewhere in the tree is not that label
    assert on_strings.score([text], [["science > x > y", "science > x"]]) == pytest.approx(2 * 1 / (2 + 3))
    assert on_strings.score([text], ["physics"]) == 0


def test_a_seed_gives_the_same_weights(quick, one_path: Corpus, on_strings: HGCLRClassifier) -> None:
    again = quick().fit(one_path.texts, one_path.strings).predict_proba(one_path.texts)
    np.testing.assert_array_equal(again, on_strings.predict_proba(one_path.texts))


def test_generators_and_no_seed_at_all(quick, one_path: Corpus) -> None:
    few = one_path.first(8)

    def probabilities(random_state: object) -> np.ndarray:
        return (
            quick(epochs=1, batch_size=2, random_state=random_state)
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
    estimator = quick(epochs=1).fit(one_path.texts, one_path.strings)
    assert state() == before
    assert estimator.predict(one_path.texts[:1]).shape == (1,)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert capfd.readouterr() == ("", "")


def test_the_machine_is_tried_out_once(
    quick, one_path: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []
    monkeypatch.setenv("HGCLR_CACHE", str(tmp_path))
    monkeypatch.setattr(hardware, "_cpu_features", lambda: {"avx512_bf16"})
    monkeypatch.setattr(hardware, "_run_probe", lambda: tried.append(1) or hardware.Probe("slow", "no gain"))
    for _ in range(2):
        quick(epochs=1, precision="auto").fit(one_path.texts[:8], one_path.strings[:8])
    assert len(tried) == 1


def test_verbose_tells_of_each_epoch(quick, one_path: Corpus, capfd: pytest.CaptureFixture[str], monkeypatch) -> None:
    import logging

    monkeypatch.setattr(logging.getLogger("hgclr"), "propagate", False)  # pytest's own handlers are at the root
    quick(epochs=2, verbose=1).fit(one_path.texts, one_path.strings)
    captured = capfd.readouterr()
    assert captured.out == ""
    assert "epoch 1 of 2: validation Micro-F1" in captured.err
    assert "epoch 2 of 2" in captured.err
    assert logging.getLogger("hgclr").handlers == []


def test_the_run_is_kept_where_one_asks_for_it(quick, one_path: Corpus, tmp_path: Path) -> None:
    estimator = quick(epochs=1, architecture="hgclr", output_dir=tmp_path / "run").fit(one_path.texts, one_path.strings)
    assert (tmp_path / "run" / "training-model" / "model.safetensors").is_file()
    kept = HGCLRClassifier.load(tmp_path / "run" / "model")
    np.testing.assert_array_equal(kept.predict_proba(one_path.texts), estimator.predict_proba(one_path.texts))
    assert kept.predict(one_path.texts).tolist() == [[label] for label in estimator.predict(one_path.texts)]
    assert kept.taxonomy == estimator.taxonomy_
    with pytest.raises(ValueError, match="holds a finished run"):
        estimator.fit(one_path.texts, one_path.strings)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("one text", "X is a single str; give a list"),
        (None, "X is a single NoneType"),
        ([["a"], ["b"]], r"X\[0\]: expected a text, got list"),
        (np.array([["a"], ["b"]]), "X has 2 dimensions; give one column of texts"),
        (pd.DataFrame({"text": ["a", "b"]}), "X has 2 dimensions"),
        (["a", float("nan")], r"X\[1\]: expected a text, got float nan"),
        (["a", "\ud800"], r"X\[1\]: not UTF-8"),
    ],
)
def test_what_is_no_text_is_refused(on_strings: HGCLRClassifier, quick, texts: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        on_strings.predict(texts)
    with pytest.raises(ValueError, match=message):
        quick().fit(texts, ["science", "law"])


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"epochs": 0}, r"training.epochs: .*\(got 0\)"),
        ({"learning_rate": -1.0}, "training.learning_rate"),
        ({"architecture": "bert"}, "model.architecture"),
        ({"preset": "best"}, "model.preset"),
        ({"settings": {"contrastive_wait": 1}}, "contrastive_wait.*did you mean 'contrastive_weight'"),
        ({"settings": {"encoder": "x"}}, "settings has 'encoder', which is a parameter; set encoder="),
        ({"settings": {"max_length": 9}}, "settings has 'max_length'"),
        ({"encoder": "./nowhere"}, "there is no folder './nowhere'"),
        ({"rule": "greedy"}, "unknown decoding rule 'greedy'; choose auto, threshold"),
        ({"rule": "closure"}, "rule='closure' may give a text none or several; give a list of paths"),
        ({"threshold": 1.5}, "a threshold is not between 0 and 1"),
        ({"paths": 0}, "0 paths cannot be given"),
        ({"validation_fraction": 0}, "validation_fraction is 0; give a share between 0 and 1"),
        ({"validation_fraction": 0.99}, "4 documents are too few: 4 are held out"),
        ({"random_state": -1}, "training.seed"),
        ({"taxonomy": "nowhere.tsv"}, "nowhere.tsv: there is no such file"),
        ({"taxonomy": 3}, "the taxonomy is a int"),
        ({"taxonomy": {"science": {1, 2}}}, "the taxonomy is no tree of dictionaries"),
        ({"path_separator": ""}, "path_separator is empty"),
    ],
)
def test_bad_parameters_are_refused_by_fit(quick, parameters: dict[str, object], message: str) -> None:
    estimator = quick().set_params(**parameters)
    with pytest.raises(ValueError, match=message):
        estimator.fit(["a", "b", "c", "d"], ["science", "law", "science > physics", "law"])


def test_texts_and_labels_must_match(quick, on_strings: HGCLRClassifier) -> None:
    for method in (quick().fit, on_strings.score):
        with pytest.raises(ValueError, match="X has 2 texts and y the labels of 1"):
            method(["a", "b"], ["science"])
        with pytest.raises(ValueError, match="X has no text"):
            method([], [])
    with pytest.raises(ValueError, match=r"X\[1\]: empty text; leave the document out"):
        quick().fit(["a", " "], ["science", "law"])


def test_weights_of_documents_are_not_taken(quick, one_path: Corpus) -> None:
    with pytest.raises(TypeError, match="sample_weight"):
        quick().fit(one_path.texts, one_path.strings, sample_weight=np.ones(len(one_path.texts)))


def test_numbers_of_numpy_are_numbers(quick, one_path: Corpus) -> None:
    parameters = {
        "epochs": np.int64(1),
        "batch_size": np.int32(4),
        "random_state": np.int64(1),
        "max_length": np.int64(9),
    }
    estimator = quick(**parameters).fit(one_path.texts[:8], one_path.strings[:8])
    assert estimator.classifier_.backend.model.config.max_length == 9


def test_without_scikit_learn_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "hgclr.estimator")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(
        MissingExtraError, match=r"HGCLRClassifier needs an optional part: pip install 'hgclr\[sklearn\]'"
    ):
        importlib.import_module("hgclr.estimator")


def test_importing_it_does_not_import_torch() -> None:
    program = "import hgclr.estimator, sys; print('torch' in sys.modules, 'transformers' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
