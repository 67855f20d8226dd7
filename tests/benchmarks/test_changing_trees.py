"""The benchmark of labels that are added later, on toy data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import changing_trees
from hgclr.data.folder import DataFolder


def test_held_back_labels_and_their_documents_are_left_out(toy_data: Path, tmp_path: Path) -> None:
    data = DataFolder(toy_data)
    labels = [data.taxonomy.resolve(name) for name in ("tennis", "optics")]
    smaller = changing_trees.write_folder(data, tmp_path / "smaller", labels, documents=40, scored=None, seed=1)
    whole = changing_trees.write_folder(data, tmp_path / "whole", [], documents=40, scored=None, seed=1)
    assert set(whole.taxonomy.ids) - set(smaller.taxonomy.ids) == {"tennis", "optics"}
    assert smaller.taxonomy.path_name(smaller.taxonomy.resolve("rowing")) == "society > sports > rowing"
    every = [(one.text, {whole.taxonomy.ids[i] for i in one.labels}) for one in whole.documents("train")]
    kept = [(one.text, {smaller.taxonomy.ids[i] for i in one.labels}) for one in smaller.documents("train")]
    assert len(every) == 40
    assert kept == [(text, names) for text, names in every if not names & {"tennis", "optics"}]
    assert len(list(whole.documents("test"))) == 24


@pytest.mark.slow
def test_the_whole_benchmark(make_encoder, toy_data: Path) -> None:
    result = changing_trees.run(
        toy_data,
        seeds=[0],
        held_back=2,
        model={"architecture": "flat", "encoder": make_encoder("bert"), "max_length": 32},
        epochs=6,
        more_epochs=2,
        documents=90,
        scored=20,
        training={"precision": "fp32", "learning_rate": 6e-3, "batch_size": 8},
    )
    (run,) = result["runs"]
    assert len(run["held_back"]) == 2
    scores = {kind: run[kind]["macro_f1"] for kind in result["macro_f1"]}
    assert scores["without the labels"]["held back"] == 0.0
    for values in scores.values():  # nine labels, two of them held back
        assert values["all"] == pytest.approx((2 * values["held back"] + 7 * values["others"]) / 9)
    assert scores["trained on"]["all"] > scores["anew, as few epochs"]["all"]
    assert run["without the labels"]["documents"] < run["trained on"]["documents"] == 90
    assert [run[kind]["epochs"] for kind in scores] == [6, 2, 6, 2]
    assert {"command", "machine", "setting"} <= set(json.loads(json.dumps(result)))
