"""Saving a fitted estimator: pickles, copies, and the model folder."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
from pathlib import Path

import joblib
import numpy as np
import pytest
from sklearn.base import clone

from hgclr import HierarchicalClassifier
from hgclr.estimator import HGCLRClassifier
from support.toy_corpus import TREE, Corpus

pytestmark = pytest.mark.slow

READER = """
import pickle, sys, numpy
estimator = pickle.load(open(sys.argv[1], "rb"))
numpy.save(sys.argv[2], estimator.predict_proba(sys.argv[3:]))
print(estimator.predict(sys.argv[3:]).tolist())
"""


def test_a_pickle_is_read_in_another_process(on_lists: HGCLRClassifier, several_paths: Corpus, tmp_path: Path) -> None:
    texts = several_paths.texts[:4]
    (tmp_path / "model.pickle").write_bytes(pickle.dumps(on_lists))
    command = [sys.executable, "-c", READER, str(tmp_path / "model.pickle"), str(tmp_path / "out.npy"), *texts]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(on_lists.predict(texts).tolist())
    assert done.stderr == ""
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), on_lists.predict_proba(texts))


@pytest.mark.parametrize("way", ["pickle", "joblib", "deepcopy"])
def test_copies_predict_alike_and_can_be_copied_again(
    way: str, on_matrix: HGCLRClassifier, several_paths: Corpus, tmp_path: Path
) -> None:
    def through(estimator: HGCLRClassifier) -> HGCLRClassifier:
        if way == "joblib":
            joblib.dump(estimator, tmp_path / "model.joblib")
            return joblib.load(tmp_path / "model.joblib")
        return copy.deepcopy(estimator) if way == "deepcopy" else pickle.loads(pickle.dumps(estimator))

    again = through(through(on_matrix))
    assert again.get_params() == on_matrix.get_params()
    assert again.history_ == on_matrix.history_
    assert again.classes_.tolist() == on_matrix.classes_.tolist()
    np.testing.assert_array_equal(again.predict(several_paths.texts), on_matrix.predict(several_paths.texts))
    np.testing.assert_array_equal(
        again.predict_proba(several_paths.texts), on_matrix.predict_proba(several_paths.texts)
    )
    assert vars(on_matrix).keys() == vars(again).keys()
    assert "_files" not in vars(again)  # the weights are in memory once


def test_a_pickle_holds_decisions_changed_by_hand(on_matrix: HGCLRClassifier) -> None:
    changed = copy.deepcopy(on_matrix)
    changed.classifier_.decisions = changed.classifier_.decisions.changed(threshold=0.25)
    assert pickle.loads(pickle.dumps(changed)).classifier_.decisions.thresholds == 0.25
    assert on_matrix.classifier_.decisions.thresholds == 0.5


@pytest.mark.parametrize("name", ["on_strings", "on_lists", "on_matrix"])
def test_a_saved_folder_predicts_alike(
    name: str, request: pytest.FixtureRequest, several_paths: Corpus, tmp_path: Path
) -> None:
    estimator, texts = request.getfixturevalue(name), several_paths.texts[:6]
    estimator.save(tmp_path / "model")
    loaded = HGCLRClassifier.load(str(tmp_path / "model"))
    assert loaded.get_params() == estimator.get_params()
    assert loaded.history_ == estimator.history_
    np.testing.assert_array_equal(loaded.predict_proba(texts), estimator.predict_proba(texts))
    np.testing.assert_array_equal(loaded.predict(texts), estimator.predict(texts))
    assert loaded.score(texts, several_paths.paths[:6]) == estimator.score(texts, several_paths.paths[:6])
    assert pickle.loads(pickle.dumps(loaded)).predict(texts).tolist() == estimator.predict(texts).tolist()
    # The rest of the package reads the same folder, with the same decisions.
    classifier = HierarchicalClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(classifier.predict_proba(texts), estimator.predict_proba(texts))
    assert classifier.decisions.to_json() == estimator.classifier_.decisions.to_json()


def test_the_folder_holds_safe_files_and_is_replaced_whole(on_strings: HGCLRClassifier, tmp_path: Path) -> None:
    on_strings.save(tmp_path / "model")
    names = {path.name for path in (tmp_path / "model").iterdir()}
    assert {"model.safetensors", "config.json", "tokenizer.json", "decisions.json", "estimator.json"} <= names
    assert {path.rpartition(".")[2] for path in names} <= {"safetensors", "json", "txt"}
    (tmp_path / "model" / "left-over.json").touch()
    on_strings.save(tmp_path / "model")
    assert {path.name for path in (tmp_path / "model").iterdir()} == names
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").touch()
    with pytest.raises(ValueError, match="notes"):
        on_strings.save(tmp_path / "notes")
    assert (tmp_path / "notes" / "mine.txt").exists()


def test_parameters_survive_the_folder(on_matrix: HGCLRClassifier, tmp_path: Path) -> None:
    estimator = copy.deepcopy(on_matrix)
    tree = on_matrix.taxonomy_
    estimator.set_params(
        taxonomy=tree, random_state=np.random.RandomState(0), epochs=np.int64(4), output_dir=tmp_path / "run"
    )
    estimator.save(tmp_path / "model")
    loaded = clone(HGCLRClassifier.load(tmp_path / "model"))
    assert loaded.taxonomy == tree.to_json()
    assert (loaded.random_state, loaded.epochs, loaded.output_dir) == (None, 4, str(tmp_path / "run"))
    assert on_matrix.taxonomy == TREE
    with pytest.raises(ValueError, match="JSON"):
        estimator.set_params(settings={"pooling": object()}).save(tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_what_is_no_saved_estimator_is_refused(on_strings: HGCLRClassifier, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("nowhere", "empty"):
        with pytest.raises(ValueError, match=name):
            HGCLRClassifier.load(tmp_path / name)
    on_strings.save(tmp_path / "model")
    file = tmp_path / "model" / "estimator.json"
    fields = json.loads(file.read_text())
    for broken in ("{", "[]", json.dumps(fields | {"parameters": {"epoch": 1}}), json.dumps({})):
        file.write_text(broken)
        with pytest.raises(ValueError, match=r"estimator\.json"):
            HGCLRClassifier.load(tmp_path / "model")
