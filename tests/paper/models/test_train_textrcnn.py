"""Whole runs on TextRCNN: learning, the words it knows, word vectors, files, what is refused."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoTokenizer

from hgclr.data.tokens import tokenize_split
from hgclr.errors import InputError
from hgclr.inference import HierarchicalClassifier
from hgclr.models import HGCLRForSequenceClassification
from hgclr.training import RunConfig, train
from hgclr.training.run import TrainingResult, new_model, started_model, tokenize_splits
from support.learned import StopWhenLearned
from support.tiny_set import tiny_set


def make_run(data: Path, output: Path, model: dict | None = None, **training) -> RunConfig:
    return RunConfig.model_validate(
        {
            "data": {"path": data},
            "model": {"encoder": "textrcnn", "architecture": "hgclr"} | (model or {}),
            "training": {"epochs": 2, "precision": "fp32", "seed": 3} | training,
            "output": output,
        }
    )


def own_words(toy_data: Path, folder: Path) -> Path:
    """A copy of the toy data in which each training document says twice a word of its own."""
    data = shutil.copytree(toy_data, folder)
    with gzip.open(data / "train.jsonl.gz", "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    (data / "train.jsonl.gz").unlink()
    for number, row in enumerate(rows):
        row["text"] += f" own{number} own{number}"
    (data / "train.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return data


def own_numbers(words) -> set[str]:
    return {word for word in words if word.startswith("own")}


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["flat", "hgclr"])
def test_a_tiny_set_is_learned_saved_and_predicted(toy_data: Path, tmp_path: Path, architecture: str) -> None:
    data = tiny_set(toy_data, tmp_path / "data")
    training = {"epochs": 12, "patience": 12, "batch_size": 8, "learning_rate": 3e-3}
    run = make_run(data, tmp_path / "run", {"architecture": architecture}, **training)
    result = train(run, callbacks=[StopWhenLearned()])
    assert result.metrics["dev"]["micro"]["f1"] > 0.95
    assert result.metrics["recipe"]["head_learning_rate"] == result.metrics["recipe"]["learning_rate"]
    classifier = HierarchicalClassifier.load(result.model)
    (prediction,) = classifier.predict(["The LENS of a prism, mirror and nonsense"], rule="closure")
    assert [label.id for label in prediction.labels] == ["science", "physics", "optics"]
    config = json.loads((result.model / "config.json").read_text())
    assert (config["pooling"], config["max_length"]) == ("max", 256)
    assert {path.suffix for path in result.model.iterdir()} == {".json", ".safetensors"}


@pytest.fixture(scope="module")
def first(toy_data: Path, tmp_path_factory: pytest.TempPathFactory) -> TrainingResult:
    """A run of one epoch."""
    return train(make_run(toy_data, tmp_path_factory.mktemp("first") / "run", epochs=1))


@pytest.mark.slow
def test_a_trained_model_can_be_trained_on(toy_data: Path, tmp_path: Path, first: TrainingResult) -> None:
    settings = {"data": {"path": toy_data}, "model": {"start": first.training_model}, "output": tmp_path / "second"}
    model, tokenizer, _ = started_model(RunConfig.model_validate(settings), first.training_model)
    saved = AutoTokenizer.from_pretrained(first.model)
    assert tokenizer.get_vocab() == saved.get_vocab()
    known = tokenizer.convert_tokens_to_ids("law")  # in no text, but a label's name
    assert known != tokenizer.unk_token_id
    assert model.name_tokens[model.config.taxonomy.resolve("law")].tolist() == [known]
    settings["model"]["word_vectors"] = tmp_path / "vectors.txt"
    with pytest.raises(InputError, match=r"a model to train on from has its own word embeddings; leave it out"):
        train(RunConfig.model_validate(settings))


@pytest.mark.slow
def test_one_seed_gives_the_same_model(toy_data: Path, tmp_path: Path, first: TrainingResult) -> None:
    second = train(make_run(toy_data, tmp_path / "second", epochs=1))
    weights = [(run.model / "model.safetensors").read_bytes() for run in (first, second)]
    assert weights[0] == weights[1]


def test_choices_of_the_user_come_first(toy_data: Path, tmp_path: Path) -> None:
    choices = {"pooling": "mean", "max_length": 30, "label_heads": 3}
    model, _, _ = new_model(make_run(toy_data, tmp_path, choices))
    assert isinstance(model, HGCLRForSequenceClassification)
    assert {name: getattr(model.config, name) for name in choices} == choices
    model, _, _ = new_model(make_run(toy_data, tmp_path, {"preset": "published", "token_label_heads": 6}))
    assert (model.config.pooling, model.config.label_heads) == ("max", 5)  # the preset leaves the heads to the encoder


def test_only_words_of_the_sample_are_known(toy_data: Path, tmp_path: Path) -> None:
    run = make_run(own_words(toy_data, tmp_path / "data"), tmp_path / "run")
    run.data.limit = 20
    _, tokenizer, folder = new_model(run)
    known = own_numbers(tokenizer.get_vocab())
    assert len(known) == 20
    everything = new_model(make_run(run.data.path, tmp_path / "run"))[1]
    sample = tokenize_split(folder, "train", everything, max_length=99, limit=20, seed=3, cache=tmp_path / "cache")
    trained_on = {word for row in sample["input_ids"] for word in everything.convert_ids_to_tokens(row)}
    assert known == own_numbers(trained_on)


def test_words_of_documents_held_out_for_dev_are_not_known(toy_data: Path, tmp_path: Path) -> None:
    run = make_run(own_words(toy_data, tmp_path / "data"), tmp_path / "run")
    (run.data.path / "dev.jsonl.gz").unlink()
    with pytest.raises(InputError, match=r"there is no dev split .* data\.dev_share=0\.1"):
        new_model(run)
    run.data.dev_share = 0.25
    _, tokenizer, folder = new_model(run)
    known = own_numbers(tokenizer.get_vocab())
    assert len(known) == 72
    tokens = tokenize_splits(run, folder, tokenizer, 256, None)
    unknown = tokenizer.unk_token_id
    assert all(unknown not in row for row in tokens["train"]["input_ids"])
    assert all(unknown in row for row in tokens["dev"]["input_ids"])


@pytest.mark.slow
def test_word_vectors_are_the_start(toy_data: Path, tmp_path: Path) -> None:
    file = tmp_path / "vectors.txt"
    file.write_text("lens " + "1.5 " * 50 + "\n[PAD] " + "9 " * 50 + "\nunheard " + "3 " * 50 + "\natom " + "-2 " * 50)
    run = make_run(toy_data, tmp_path / "run", {"architecture": "flat", "word_vectors": file}, epochs=1)
    model, tokenizer, _ = new_model(run)
    table = model.encoder.get_input_embeddings().weight.detach()
    ids = tokenizer.get_vocab()
    assert table.shape == (len(ids), 50)  # as wide as the file's
    assert (table[ids["lens"]] == 1.5).all()
    assert (table[ids["atom"]] == -2).all()
    assert (table[0] == 0).all()
    others = np.delete(table.numpy(), [0, ids["lens"], ids["atom"]], axis=0)
    assert 0.24 < np.abs(others).max() <= 0.25
    assert train(run).metrics["dev"]["micro"]["f1"] >= 0


def test_word_vectors_for_another_encoder_are_refused(toy_data: Path, tmp_path: Path, make_encoder) -> None:
    run = make_run(toy_data, tmp_path / "run", {"encoder": make_encoder("bert"), "word_vectors": tmp_path / "v.txt"})
    with pytest.raises(InputError, match=r"model\.word_vectors is given, but .* set model\.encoder to textrcnn"):
        train(run)
    assert not (tmp_path / "run").exists()


def test_a_missing_train_split_is_named(toy_data: Path, tmp_path: Path) -> None:
    data = shutil.copytree(toy_data, tmp_path / "data")
    (data / "train.jsonl.gz").unlink()
    with pytest.raises(InputError, match=r"there is no train split; add train\.jsonl"):
        new_model(make_run(data, tmp_path / "run"))


def test_bad_rows_are_left_out_of_the_vocabulary(toy_data: Path, tmp_path: Path) -> None:
    data = own_words(toy_data, tmp_path / "data")
    with (data / "train.jsonl").open("a") as file:
        file.write('\n{"text": "ownbad ownbad", "labels": ["no such"]}')
    run = make_run(data, tmp_path / "run")
    with pytest.raises(InputError, match=r"train\.jsonl:97: unknown label 'no such'"):
        new_model(run)
    run.data.skip_bad_rows = True
    assert "ownbad" not in new_model(run)[1].get_vocab()
