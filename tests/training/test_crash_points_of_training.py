"""A training that is killed at any of its file-system events goes on to the weights of one that was not."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from hgclr.inference import HierarchicalClassifier
from hgclr.training import train
from support.crash_points import run_forked, survive_every_crash
from support.short_runs import make_run


@pytest.fixture
def _light_forks() -> Iterator[None]:
    """What is there by now need not be gone through by the garbage collector of every fork."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.slow
@pytest.mark.usefixtures("_light_forks")
def test_a_killed_training_goes_on_to_the_same_weights(make_encoder, toy_data: Path, tmp_path: Path) -> None:
    encoder = make_encoder("bert")

    def work(place: Path) -> None:
        train(make_run(encoder, toy_data, place / "run"), resume=True)

    assert run_forked(lambda: work(tmp_path / "whole"), tmp_path / "log") == 0, (tmp_path / "log").read_text()
    expected = load_file(tmp_path / "whole" / "run" / "model" / "model.safetensors")
    history = json.loads((tmp_path / "whole" / "run" / "metrics.json").read_text())["history"]
    scores = [epoch["macro_f1"] for epoch in history]
    assert scores.index(max(scores)) == 1, scores
    last = load_file(tmp_path / "whole" / "run" / "checkpoints" / "checkpoint-6" / "model.safetensors")
    assert not torch.equal(last["classifier.weight"], expected["classifier.weight"])

    def check(place: Path) -> None:
        run = place / "run"
        if (run / "model").exists():  # then it is one to predict with, also before training goes on
            HierarchicalClassifier.load(run / "model")
        work(place)
        for folder in ("model", "training-model"):
            found = load_file(run / folder / "model.safetensors")
            assert sorted(found) == sorted(expected)
            assert all(torch.equal(found[name], expected[name]) for name in expected)
        assert json.loads((run / "metrics.json").read_text())["history"] == history

    events = survive_every_crash(work, check, tmp_path)
    assert any("checkpoint-2.deleted/" in event for event in events)  # killed in the middle of deleting
    assert any("checkpoint-6/COMPLETE" in event for event in events)
    assert len(survive_every_crash(work, check, tmp_path, torn=True)) > 20
