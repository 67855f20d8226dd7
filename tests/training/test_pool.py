"""Learning from unlabelled texts: which texts are read, which labels they get, and which model is kept."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import datasets
import numpy as np
import pytest

from hgclr.data.folder import DataFolder
from hgclr.decisions.settings import Decisions
from hgclr.errors import InputError
from hgclr.inference import HierarchicalClassifier
from hgclr.training import RunConfig, pool, train
from hgclr.training.pool import DOUBT, pseudo_labels, read_pool
from support.ranks import run_ranks, train_together
from support.toy import random_tree


@pytest.mark.parametrize("seed", range(3))
def test_pseudo_labels_by_loops(seed: int) -> None:
    tree, most = random_tree(12, seed), 2
    logits = np.random.default_rng(seed).normal(size=(40, 12), scale=3).astype(np.float32)
    probabilities = 1 / (1 + np.exp(-logits.astype(np.float64)))
    by_leaf: dict[int, list[tuple[float, int]]] = {}
    for text, row in enumerate(logits.astype(np.float64)):
        scores = {}
        for leaf in tree.leaves.tolist():
            scores[leaf] = 0.0
            for label in tree.path(leaf).tolist():
                siblings = [row[other] for other in range(12) if tree.parents[other] == tree.parents[label]]
                scores[leaf] += row[label] - np.log(np.sum(np.exp(siblings)))
        (best, leaf), (second, _) = sorted(((score, leaf) for leaf, score in scores.items()), reverse=True)[:2]
        by_leaf.setdefault(leaf, []).append((best - second, text))
    expected = {}
    for leaf, texts in by_leaf.items():
        for _, text in sorted(texts, reverse=True)[:most]:
            own = tree.path(leaf).tolist()
            possible = [label for label in range(12) if probabilities[text, label] > DOUBT and label not in own]
            expected[text] = sorted(own), possible
    places, found = pseudo_labels(logits, Decisions(tree), most)
    assert places.tolist() == sorted(expected)
    for text, row in zip(places.tolist(), found, strict=True):
        assert (sorted(row["labels"]), row["unsure"]) == expected[text]


def settings(folder: Path, encoder: str, output: Path, **sections: object) -> RunConfig:
    return RunConfig.model_validate(
        {
            "data": {"path": folder, **sections.pop("data", {})},
            "model": {"encoder": encoder, "max_length": 16},
            "training": {"effort": "head", "seed": 3, **sections},
            "output": output,
        }
    )


@pytest.fixture
def encoder(make_encoder) -> str:
    return make_encoder("bert")


def write_lines(path: Path, texts: list[str]) -> Path:
    path.write_text("".join(json.dumps({"text": text, "labels": ["x"]}) + "\n" for text in texts))
    return path


def test_texts_of_the_splits_are_left_out(encoder: str, toy_data: Path, tmp_path: Path) -> None:
    folder = DataFolder(toy_data)
    splits = {name: [document.text for document in folder.documents(name)] for name in ("train", "dev", "test")}
    texts = ["new words", splits["train"][0].upper(), splits["dev"][0], splits["dev"][1], "NEW  words", "more words"]
    file = write_lines(tmp_path / "mail.jsonl", texts)
    run = settings(toy_data, encoder, tmp_path / "run", data={"unlabelled": file})
    found = read_pool(run, folder)
    assert found is not None
    assert found.texts == ["new words", "more words"]
    assert found.left_out == {"in train": 1, "in dev": 2, "repeated": 1}
    from_names = read_pool(
        settings(toy_data, encoder, tmp_path / "run", effort="names", data={"unlabelled": file}), folder
    )
    assert from_names is not None
    assert from_names.left_out == {"in dev": 2, "repeated": 1}
    write_lines(file, texts[2:4])
    with pytest.raises(InputError, match="no unlabelled text can be used: 2 in dev"):
        read_pool(run, folder)


def test_the_file_of_the_data_folder_is_found(encoder: str, few: tuple[Path, list[str]], tmp_path: Path) -> None:
    data, _ = few
    folder = DataFolder(data)
    run = settings(data, encoder, tmp_path / "run")
    assert read_pool(run, folder) is None
    write_lines(data / "unlabelled.jsonl", ["some new words"])
    found = read_pool(run, folder)
    assert found is not None
    assert found.texts == ["some new words"]
    assert read_pool(settings(data, encoder, tmp_path / "run", data={"unlabelled": "none"}), folder) is None


@pytest.fixture
def few(toy_data: Path, tmp_path: Path) -> tuple[Path, list[str]]:
    """A data folder with the first ten documents of train, and the texts of the others."""
    data = shutil.copytree(toy_data, tmp_path / "data")
    with gzip.open(data / "train.jsonl.gz", "rt", encoding="utf-8") as file:
        lines = file.read().splitlines()
    with gzip.open(data / "train.jsonl.gz", "wt", encoding="utf-8") as file:
        file.write("\n".join(lines[:10]) + "\n")
    return data, [json.loads(line)["text"] for line in lines[10:]]


@pytest.mark.parametrize("effort", ["head", "full"])
def test_a_model_learns_from_unlabelled_texts(
    encoder: str, few: tuple[Path, list[str]], tmp_path: Path, effort: str
) -> None:
    data, texts = few
    write_lines(data / "unlabelled.jsonl", texts)
    results = [train(settings(data, encoder, tmp_path / name, effort=effort, epochs=1)) for name in ("one", "two")]
    found = results[0].metrics["unlabelled"]
    assert found["texts"] == len(set(texts))
    best = max(one["dev"] for one in found["tried"])
    assert found["kept"] == (best > found["dev"])
    if found["kept"]:
        assert results[0].calibrated.after.by("both") == pytest.approx(best)
        assert found["before"]["dev"]["micro"]["f1"] > 0
        assert sum(found["labels"].values()) > 0
    assert results[0].metrics["documents"]["train"] < len(texts)
    for name in ("dev", "test", "tuned", "unlabelled"):
        first, second = (result.metrics[name] for result in results)
        if name == "unlabelled":
            first, second = ({**each, "before": None} for each in (first, second))  # it has the seconds
        assert first == second
    model = HierarchicalClassifier.load(results[0].model)
    assert model.evaluate(data).to_json()["micro"] == results[0].metrics["test"]["micro"]


def test_hgclr_labels_texts_for_a_head(encoder: str, few: tuple[Path, list[str]], tmp_path: Path) -> None:
    data, texts = few
    write_lines(data / "unlabelled.jsonl", texts)
    run = settings(data, encoder, tmp_path / "run", effort="full", epochs=1)
    run.model = run.model.model_copy(update={"architecture": "hgclr"})
    result = train(run)
    assert result.metrics["unlabelled"]["texts"] == len(set(texts))
    assert (
        HierarchicalClassifier.load(result.model).evaluate(data).to_json()["micro"] == result.metrics["test"]["micro"]
    )


def test_a_worse_student_is_not_kept(
    encoder: str, few: tuple[Path, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, texts = few
    alone = train(settings(data, encoder, tmp_path / "alone"))
    write_lines(data / "unlabelled.jsonl", texts)
    whole = pool.pseudo_labels

    def wrong(*arguments: object) -> tuple[np.ndarray, datasets.Dataset]:
        places, found = whole(*arguments)
        nothing = {"labels": [[]] * len(places), "unsure": [[]] * len(places)}
        return np.tile(places, 20), datasets.concatenate_datasets(
            [datasets.Dataset.from_dict(nothing, features=found.features)] * 20
        )

    monkeypatch.setattr(pool, "pseudo_labels", wrong)
    result = train(settings(data, encoder, tmp_path / "both"))
    assert not result.metrics["unlabelled"]["kept"]
    assert result.metrics["unlabelled"]["labels"] == {}
    assert result.metrics["test"] == alone.metrics["test"]
    for name in ("model.safetensors", "decisions.json"):
        assert (result.model / name).read_bytes() == (alone.model / name).read_bytes()


def test_a_tree_and_texts_are_enough(encoder: str, few: tuple[Path, list[str]], tmp_path: Path) -> None:
    data, texts = few
    write_lines(data / "unlabelled.jsonl", texts)
    result = train(settings(data, encoder, tmp_path / "run", effort="names"))
    found = result.metrics["unlabelled"]
    assert found["dev"] is None
    assert found["kept"] == (found["tried"][0]["dev"] > pool.AGREEMENT)
    assert "tuned" not in result.metrics
    predicted = HierarchicalClassifier.load(result.model).predict(texts[:5])
    leaves = {DataFolder(data).taxonomy.ids[leaf] for leaf in DataFolder(data).taxonomy.leaves}
    assert all(prediction.labels[-1].id in leaves for prediction in predicted)


def test_a_pool_unlike_train_is_reported(
    encoder: str, few: tuple[Path, list[str]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data, texts = few
    write_lines(data / "unlabelled.jsonl", texts)
    train(settings(data, encoder, tmp_path / "alike"))
    assert "check data.unlabelled" not in caplog.text
    write_lines(data / "unlabelled.jsonl", [f"Чужой текст {number}" for number in range(30)])
    train(settings(data, encoder, tmp_path / "foreign"))
    assert "as in another language: check data.unlabelled" in caplog.text


def test_other_architectures_say_so(few: tuple[Path, list[str]], tmp_path: Path) -> None:
    pytest.importorskip("hgclr.paper")
    data, texts = few
    write_lines(data / "unlabelled.jsonl", texts)
    run = settings(data, "textrcnn", tmp_path / "run", effort="full", epochs=1)
    run.model = run.model.model_copy(update={"architecture": "hiagm-tp"})
    with pytest.raises(InputError, match="unlabelled texts need a flat model"):
        train(run)


def test_a_run_stopped_while_texts_are_labelled_is_resumed(
    encoder: str, few: tuple[Path, list[str]], tmp_path: Path
) -> None:
    data, texts = few
    write_lines(data / "unlabelled.jsonl", texts)
    whole = train(settings(data, encoder, tmp_path / "whole", effort="full", epochs=1))

    def stop(stage: str, total: int | None) -> None:
        if stage == "labelling unlabelled texts":
            raise KeyboardInterrupt

    run = settings(data, encoder, tmp_path / "stopped", effort="full", epochs=1)
    with pytest.raises(KeyboardInterrupt):
        train(run, on_stage=stop)
    write_lines(data / "unlabelled.jsonl", texts[:-1])
    with pytest.raises(InputError, match="other documents in unlabelled"):
        train(run, resume=True)
    write_lines(data / "unlabelled.jsonl", texts)
    resumed = train(run, resume=True)
    assert resumed.metrics["test"] == whole.metrics["test"]
    assert (resumed.model / "model.safetensors").read_bytes() == (whole.model / "model.safetensors").read_bytes()


@pytest.mark.slow
def test_two_processes_learn_what_one_does(encoder: str, few: tuple[Path, list[str]], tmp_path: Path) -> None:
    data, texts = few
    write_lines(data / "unlabelled.jsonl", texts)
    run = settings(data, encoder, tmp_path / "alone")
    alone = train(run)
    run.write(tmp_path / "config.yaml")
    run_ranks(train_together, 2, tmp_path, tmp_path / "config.yaml")
    together = json.loads((tmp_path / "together" / "metrics.json").read_text())
    assert together["unlabelled"]["labels"] == alone.metrics["unlabelled"]["labels"]
    assert together["test"]["micro"]["f1"] == pytest.approx(alone.metrics["test"]["micro"]["f1"], abs=0.02)
