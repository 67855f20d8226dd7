"""Training on with a label tree that has changed, as a run does it."""

from __future__ import annotations

import gzip
import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from hgclr.errors import InputError
from hgclr.inference import HierarchicalClassifier
from hgclr.models import architecture
from hgclr.taxonomy import Taxonomy
from hgclr.training import RunConfig, train
from hgclr.training.run import started_model
from support.short_runs import StopWhenLearned

pytestmark = pytest.mark.slow

HELD_BACK = "tennis"


def make_run(data: Path, output: Path, model: dict, **training) -> RunConfig:
    settings = {"learning_rate": 3e-3, "precision": "fp32", "seed": 3, "epochs": 1} | training
    return RunConfig.model_validate({"data": {"path": data}, "model": model, "training": settings, "output": output})


def new_model(encoder: str, architecture: str) -> dict:
    """Settings of a model that soon learns: from the mean of its tokens, not from a random encoder's first."""
    return {
        "encoder": encoder,
        "architecture": architecture,
        "label_heads": 4,
        "keep_at_least": 2,
        "pooling": "mean",
    }


def copy_data(source: Path, target: Path, keep: Callable[[list[str]], bool], rename: Callable[[str], str]) -> Path:
    """Copy a data folder without its tree: some of its rows, the labels under other names."""
    target.mkdir()
    for split in ("train", "dev", "test"):
        with gzip.open(source / f"{split}.jsonl.gz", "rt") as file:
            rows = [json.loads(line) for line in file]
        kept = [row | {"labels": [rename(label) for label in row["labels"]]} for row in rows if keep(row["labels"])]
        (target / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in kept))
    return target


def same(label: str) -> str:
    return label


@pytest.fixture(scope="module")
def smaller(toy_data: Path, taxonomy: Taxonomy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The toy data without one of its labels, and without the documents that have it."""
    folder = copy_data(
        toy_data, tmp_path_factory.mktemp("smaller") / "data", lambda labels: HELD_BACK not in labels, same
    )
    edges = {i: p for i, p in zip(taxonomy.ids, taxonomy.parents.tolist(), strict=True) if i != HELD_BACK}
    ids = list(edges)
    parents = [-1 if parent < 0 else ids.index(taxonomy.ids[parent]) for parent in edges.values()]
    Taxonomy(ids, parents).write(folder / "taxonomy.json")
    return folder


@pytest.fixture(scope="module")
def first(make_encoder, smaller: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two runs without the label: the folders of their training models."""
    results = {}
    for name in ("flat", "hgclr"):
        model = new_model(make_encoder("bert"), name)
        output = tmp_path_factory.mktemp("first") / name
        run = make_run(smaller, output, model, epochs=25, batch_size=8)
        results[name] = train(run, callbacks=[StopWhenLearned()]).training_model
    return results


@pytest.mark.parametrize("name", ["flat", "hgclr"])
def test_a_label_that_is_added_is_learned_and_the_rest_is_kept(
    first: dict[str, Path], make_encoder, toy_data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    with caplog.at_level(logging.INFO, logger="hgclr"):
        model = {"start": first[name], "architecture": name}
        result = train(make_run(toy_data, tmp_path / "on", model, epochs=4, batch_size=8))
    assert "8 labels kept as they were; 1 new: tennis" in caplog.text
    classifier = HierarchicalClassifier.load(result.model)
    (prediction,) = classifier.predict(["the racket of a net serve"])
    assert {label.id for label in prediction.labels} == {"society", "sports", "tennis"}
    anew = new_model(make_encoder("bert"), name)
    other = train(make_run(toy_data, tmp_path / "anew", anew, epochs=4, batch_size=8))
    assert result.metrics["dev_at_0.5"]["macro"]["f1"] > 0.9  # eight labels of nine alone would be 0.89
    assert other.metrics["dev_at_0.5"]["macro"]["f1"] < 0.85  # from the encoder, the same steps do not suffice
    written = json.loads((tmp_path / "on" / "label-changes.json").read_text())
    assert written["added"] == [{"id": "tennis", "name": "tennis", "parent": "sports"}]
    assert len(written["kept"]) == 8


def test_the_same_tree_goes_the_old_way(first: dict[str, Path], smaller: Path, tmp_path: Path) -> None:
    expected = architecture("hgclr").from_pretrained(first["hgclr"]).state_dict()
    without = copy_data(smaller_rows(smaller, tmp_path), tmp_path / "no-tree", lambda _: True, same)
    for data in (smaller, without):
        run = make_run(data, tmp_path / "run", {"start": first["hgclr"]})
        model, _, folder = started_model(run, first["hgclr"])
        assert folder.taxonomy == model.config.taxonomy
        assert all(torch.equal(value, expected[key]) for key, value in model.state_dict().items())
    assert not (tmp_path / "run").exists()


def smaller_rows(folder: Path, tmp_path: Path) -> Path:
    """The splits of a folder as :func:`copy_data` takes them."""
    target = tmp_path / "zipped"
    target.mkdir()
    for split in ("train", "dev", "test"):
        with gzip.open(target / f"{split}.jsonl.gz", "wt") as file:
            file.write((folder / f"{split}.jsonl").read_text())
    return target


def test_another_order_of_the_tree_is_no_news(
    first: dict[str, Path], smaller: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = shutil.copytree(smaller, tmp_path / "data")
    (data / "taxonomy.json").unlink()
    Taxonomy.read(smaller / "taxonomy.json").write(data / "taxonomy.tsv")  # read back breadth first
    with caplog.at_level(logging.INFO, logger="hgclr"):
        model, _, folder = started_model(make_run(data, tmp_path / "run", {"start": first["hgclr"]}), first["hgclr"])
    assert "another order" in caplog.text
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING and "hgclr" in record.name]
    old = architecture("hgclr").from_pretrained(first["hgclr"])
    assert folder.taxonomy.ids != old.config.taxonomy.ids
    places = [old.config.taxonomy.ids.index(identifier) for identifier in folder.taxonomy.ids]
    assert torch.equal(model.classifier.weight, old.classifier.weight[places])


def test_changed_ids_need_a_file_that_says_so(
    first: dict[str, Path], smaller: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    new_names = {"law": "laws", "rowing": "regatta"}
    data = copy_data(
        smaller_rows(smaller, tmp_path), tmp_path / "data", lambda _: True, lambda label: new_names.get(label, label)
    )
    tree = Taxonomy.read(smaller / "taxonomy.json")
    Taxonomy([new_names.get(i, i) for i in tree.ids], tree.parents).write(data / "taxonomy.json")
    start = first["flat"]
    model = {"start": start, "architecture": "flat"}
    untold, _, _ = started_model(make_run(data, tmp_path / "run", model), start)
    assert "2 new: laws, regatta; 2 removed: law, rowing" in caplog.text
    changes = tmp_path / "changes.tsv"
    changes.write_text("old\tnew\nlaw\tlaws\nrowing\tregatta\n")
    caplog.clear()
    told, _, _ = started_model(make_run(data, tmp_path / "run", model | {"label_changes": changes}), start)
    assert "6 labels kept as they were; 2 renamed: law → laws, rowing → regatta" in caplog.text
    old = architecture("flat").from_pretrained(start)
    assert torch.equal(told.classifier.weight, old.classifier.weight)
    assert not torch.equal(untold.classifier.weight, old.classifier.weight)
    changes.write_text("old\tnew\nlaw\tlows\n")
    with pytest.raises(InputError, match=r"changes\.tsv:2: unknown label 'lows' in the new tree; did you mean 'laws'"):
        started_model(make_run(data, tmp_path / "run", model | {"label_changes": changes}), start)


def test_a_tree_of_other_labels_is_refused(first: dict[str, Path], smaller: Path, tmp_path: Path) -> None:
    data = copy_data(smaller_rows(smaller, tmp_path), tmp_path / "data", lambda _: True, lambda label: f"new {label}")
    tree = Taxonomy.read(smaller / "taxonomy.json")
    Taxonomy([f"new {i}" for i in tree.ids], tree.parents).write(data / "taxonomy.json")
    with pytest.raises(InputError, match=r"8 .*8 .*--changes FILE"):
        train(make_run(data, tmp_path / "run", {"start": first["flat"], "architecture": "flat"}))


def test_a_deployed_model_can_be_trained_on_only_as_a_flat_one(
    first: dict[str, Path], toy_data: Path, tmp_path: Path
) -> None:
    deployed = first["hgclr"].parent / "model"
    with pytest.raises(InputError, match=r"flat .*hgclr"):
        train(make_run(toy_data, tmp_path / "run", {"start": deployed, "architecture": "hgclr"}))
    result = train(make_run(toy_data, tmp_path / "run", {"start": deployed}))
    assert result.metrics["run"]["model"]["architecture"] == "flat"
    assert result.metrics["labels"] == 9
