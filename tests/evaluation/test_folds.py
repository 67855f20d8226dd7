"""Out-of-fold audit: folds are a partition, models audit only unseen texts, finished folds are not trained again."""

from __future__ import annotations

import gzip
import json
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from hgclr.data.folder import DataFolder, DocumentSet
from hgclr.errors import InputError
from hgclr.evaluation import folds as module
from hgclr.evaluation.folds import audit_folds, deal, fold_data, fold_run, head_folds
from hgclr.inference import HierarchicalClassifier
from hgclr.models import FlatForSequenceClassification
from hgclr.models.base import load_tokenizer
from hgclr.taxonomy import Taxonomy
from hgclr.training import RunConfig, TrainingSettings, fit
from support.audit_cases import write_folder

TREE = Taxonomy(["A", "a1", "a2", "B"], [-1, 0, 0, -1])


def make_run(encoder: str, data: Path, output: Path, **settings) -> RunConfig:
    training = {"epochs": 1, "learning_rate": 3e-3, "precision": "fp32"} | settings
    model = {"encoder": encoder, "architecture": "flat"}
    return RunConfig.model_validate({"data": {"path": data}, "model": model, "training": training, "output": output})


@pytest.fixture
def many(tmp_path: Path) -> DataFolder:
    """100 documents, of which some have the same text; the label a2 has four."""
    random = np.random.default_rng(0)
    choices = [{0, 1}, {3}, {0}]
    documents = [(f"text {n}", choices[int(random.integers(3))]) for n in range(90)]
    documents += [(f"rare {n}", {0, 2}) for n in range(4)] + [(f"  TEXT {n}", {3}) for n in range(6)]
    return write_folder(tmp_path / "many", TREE, documents, split="train")


def test_folds_are_even_and_keep_texts_together(many: DataFolder) -> None:
    dealt = deal(many, "train", 4, seed=1)
    documents = list(many.documents("train"))
    assert len(dealt.folds) == len(documents) == 100
    assert set(dealt.folds.tolist()) == {0, 1, 2, 3}
    for n in range(6):
        assert dealt.folds[n] == dealt.folds[94 + n]  # the same but for case and white space
    assert sorted(dealt.folds[90:94].tolist()) == [0, 1, 2, 3]  # every model has seen the rare label
    assert dealt.one_fold_labels == []
    different = Counter(dealt.folds[:94].tolist())
    assert max(different.values()) - min(different.values()) <= 1
    again, other = deal(many, "train", 4, seed=1), deal(many, "train", 4, seed=2)
    assert np.array_equal(dealt.folds, again.folds)
    assert not np.array_equal(dealt.folds, other.folds)
    assert dealt.digest == other.digest


def test_labels_in_one_fold_are_named(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "data", TREE, [("x", {0, 1}), ("y", {0}), ("z", {3}), ("Z", {3})], split="train")
    assert deal(folder, "train", 2, seed=0).one_fold_labels == [1, 3]
    with pytest.raises(InputError, match="3 different texts"):
        deal(folder, "train", 4, seed=0)


def test_the_data_of_a_fold_is_all_but_the_fold(many: DataFolder, tmp_path: Path) -> None:
    write_folder(many.path, TREE, [("dev", {3})], split="dev")
    many = DataFolder(many.path)
    dealt = deal(many, "train", 3, seed=0)
    documents = list(many.documents("train"))
    for fold in range(3):
        data = fold_data(many, dealt, fold)
        assert data.taxonomy == many.taxonomy
        assert data.splits["train"] == [
            document for document, place in zip(documents, dealt.folds, strict=True) if place != fold
        ]
        assert [document.text for document in data.splits["dev"]] == ["dev"]


@pytest.mark.slow
def test_every_document_is_audited_once_by_a_model_that_has_not_seen_it(
    make_encoder, toy_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(make_encoder("bert"), toy_data, tmp_path / "out")
    trained: dict[Path, set[str]] = {}
    asked: dict[Path, list[str]] = {}
    train, load = module.train, HierarchicalClassifier.load

    def watched_train(own: RunConfig, data: DocumentSet, **choices):
        trained[own.output] = {document.text for document in data.splits["train"]}
        return train(own, data, **choices)

    def watched_load(model: Path) -> HierarchicalClassifier:
        classifier = load(model)
        compute = classifier._compute
        asked[model.parent] = []

        def watched_compute(window: list[str]):
            asked[model.parent] += window
            return compute(window)

        classifier._compute = watched_compute
        return classifier

    monkeypatch.setattr(module, "train", watched_train)
    monkeypatch.setattr(module.HierarchicalClassifier, "load", watched_load)
    found = audit_folds(run, folds=2, effort="full", top=200)
    texts = [document.text for document in DataFolder(toy_data).documents("train")]
    assert len(trained) == len(asked) == 2
    assert sorted(text for fold in asked.values() for text in fold) == sorted(texts)
    for place, seen in trained.items():
        assert seen.isdisjoint(asked[place])
        assert seen | set(asked[place]) == set(texts)
    assert found.documents == 96
    assert found.split == "train"
    assert {finding.text for finding in found.findings} <= set(texts)
    assert len({finding.row for finding in found.findings}) == len(found.findings)
    left = {path.name for path in (tmp_path / "out" / "folds" / "1").iterdir()}
    assert {"model", "metrics.json", "config.yaml"} <= left
    assert left.isdisjoint({"data", "checkpoints", "training-model"})

    def refuse(*arguments, **choices):
        raise AssertionError("a finished fold is trained again")

    monkeypatch.setattr(module, "train", refuse)
    assert audit_folds(run, folds=2, effort="full", top=200).to_json() == found.to_json()

    shutil.rmtree(tmp_path / "out" / "folds" / "2")  # as if the audit had been interrupted there
    monkeypatch.setattr(module, "train", watched_train)
    trained.clear()
    assert audit_folds(run, folds=2, effort="full", top=200).to_json() == found.to_json()
    assert list(trained) == [tmp_path / "out" / "folds" / "2"]


def test_heads_of_folds_are_those_of_training_on_the_others(make_encoder, many: DataFolder, tmp_path: Path) -> None:
    """The same logits as from ``fit`` with the effort ``head`` on the other folds; nothing is written."""
    run = make_run(make_encoder("bert"), many.path, tmp_path / "out")
    _, found = head_folds(run, many, 3)
    logits = {row.number: values for window, rows, _ in found for row, values in zip(window, rows, strict=True)}
    documents = list(many.documents("train"))
    assert sorted(logits) == list(range(1, len(documents) + 1))
    dealt = deal(many, "train", 3, run.training.seed)
    tokenizer = load_tokenizer(run.model.encoder)
    settings = TrainingSettings(effort="head", calibrate=False)
    for fold in range(3):
        model = FlatForSequenceClassification.from_encoder(run.model.encoder, many.taxonomy, tokenizer)
        others = [document for document, place in zip(documents, dealt.folds, strict=True) if place != fold]
        fit(model, tokenizer, others, documents[:2], settings=settings)
        inside = np.flatnonzero(dealt.folds == fold)
        outputs = HierarchicalClassifier.from_model(model, tokenizer).outputs(documents[place] for place in inside)
        expected = outputs.logits
        assert np.abs(expected - np.stack([logits[place + 1] for place in inside])).max() < 1e-2
    assert not (tmp_path / "out").exists()


def test_an_encoder_without_pretraining_has_no_vectors_for_heads(many: DataFolder, tmp_path: Path) -> None:
    model = {"encoder": "textrcnn", "architecture": "flat"}
    run = RunConfig.model_validate({"data": {"path": many.path}, "model": model, "output": tmp_path / "out"})
    with pytest.raises(InputError, match="textrcnn"):
        audit_folds(run)


def test_other_folds_data_or_settings_are_refused(make_encoder, toy_data: Path, tmp_path: Path, monkeypatch) -> None:
    data = shutil.copytree(toy_data, tmp_path / "data")
    run = make_run(make_encoder("bert"), data, tmp_path / "out")

    def stop(*arguments, **choices):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "train", stop)
    with pytest.raises(KeyboardInterrupt):
        audit_folds(run, folds=2, effort="full")
    cases = [
        (run, 3),
        (make_run(make_encoder("bert"), data, tmp_path / "out", epochs=2), 2),
    ]
    for other, count in cases:
        with pytest.raises(InputError) as caught:
            audit_folds(other, folds=count, effort="full")
        assert caught.value.path == tmp_path / "out" / "folds"
    with gzip.open(data / "train.jsonl.gz", "at", encoding="utf-8") as file:
        file.write(json.dumps({"text": "one more", "labels": ["society"]}) + "\n")
    with pytest.raises(InputError):
        audit_folds(run, folds=2, effort="full")


def test_what_cannot_be_audited_is_refused_before_training(make_encoder, toy_data: Path, tmp_path: Path) -> None:
    run = make_run(make_encoder("bert"), toy_data, tmp_path / "out")
    with pytest.raises(InputError, match=r"\b1\b"):
        audit_folds(run, folds=1)
    start = RunConfig.build({"data": {"path": toy_data}, "model": {"start": "old"}, "output": tmp_path / "out"})
    with pytest.raises(InputError, match=r"model\.start"):
        audit_folds(start)
    data = shutil.copytree(toy_data, tmp_path / "data")
    (data / "dev.jsonl.gz").unlink()
    with pytest.raises(InputError, match="dev"):
        audit_folds(make_run(make_encoder("bert"), data, tmp_path / "out"), effort="full")
    assert not (tmp_path / "out").exists()


def test_the_run_of_a_fold_keeps_the_settings(toy_data: Path, tmp_path: Path) -> None:
    data = {"path": toy_data, "limit": 9, "dev_share": 0.2, "label_separator": "|", "add_ancestors": True}
    run = RunConfig.build({"data": data, "training": {"seed": 4}, "output": tmp_path / "out"})
    own = fold_run(run, 1)
    assert own.output == tmp_path / "out" / "folds" / "2"
    assert own.data == run.data
    # Only its logits are used, so its decisions are not tuned.
    assert own.training == run.training.model_copy(update={"calibrate": False})
