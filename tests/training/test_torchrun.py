"""Several processes are one run, as torchrun's agent and ``accelerate launch`` start them, also when one is killed."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
import yaml
from accelerate.commands import accelerate_cli
from safetensors.torch import load_file
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from hgclr.training import RunConfig, train
from support.crash_points import run_forked
from support.ranks import run_ranks, train_by_command, train_together
from support.short_runs import without_dropout

EPOCHS = 3
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("torchrun")


@pytest.fixture(scope="module")
def config(make_encoder, toy_data: Path, folder: Path) -> Path:
    settings = {
        "data": {"path": str(toy_data), "label_documents": False},
        "model": {
            "encoder": without_dropout(make_encoder("bert"), folder / "still"),
            "classifier_dropout": 0.0,  # nothing is random, and 96 documents fill their batches
        },
        "training": {"epochs": EPOCHS, "batch_size": 12, "precision": "fp32", "learning_rate": 1e-3, "patience": 50},
    }
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump(settings))
    return file


def weights(output: Path) -> dict[str, torch.Tensor]:
    return load_file(output / "training-model" / "model.safetensors")


def check_weights(output: Path, expected: Path) -> None:
    """Where sums are taken in another order, weights are the same to rounding, over all steps."""
    found = weights(output)
    for name, value in weights(expected).items():
        torch.testing.assert_close(
            found[name], value, atol=1e-4, rtol=1e-3, msg=lambda text, name=name: f"{name}: {text}"
        )


@pytest.fixture(scope="module")
def together(config: Path, folder: Path) -> Path:
    """The folder of a run by two processes that nothing happens to; forks, which import nothing, are enough for it."""
    run_ranks(train_together, 2, folder, config)
    return folder / "together"


def test_two_processes_end_where_one_does(together: Path, config: Path, folder: Path) -> None:
    one = train(RunConfig.read(config, output=folder / "alone"))
    metrics = json.loads((together / "metrics.json").read_text())
    check_weights(together, folder / "alone")
    for split in ("dev", "test"):
        assert metrics[split]["documents"] == one.metrics[split]["documents"]
        assert metrics[split]["micro"]["f1"] == pytest.approx(one.metrics[split]["micro"]["f1"], abs=0.05)
    losses = [[epoch["loss"] for epoch in run["history"]] for run in (metrics, one.metrics)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


def test_a_run_that_loses_a_process_goes_on_and_ends_with_the_same_weights(
    together: Path, config: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With torchrun's own agent, which starts forks in the place of programs that would import for long."""
    monkeypatch.setenv("TORCHELASTIC_SIGNALS_TO_HANDLE", "")  # which the agent sets
    output, logs = folder / "killed", folder / "logs"
    agent = elastic_launch(
        LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=2,
            max_restarts=1,
            rdzv_backend="c10d",
            rdzv_endpoint="localhost:0",
            run_id="killed",
            start_method="forkserver",
            logs_specs=DefaultLogsSpecs(log_dir=str(logs), redirects=Std.ALL),
        ),
        train_by_command,
    )
    with ThreadPoolExecutor() as threads:  # in the main one it would keep signals for itself
        done = threads.submit(agent, dict(os.environ), config, output)
        while not list(output.glob("checkpoints/checkpoint-*/COMPLETE")):
            assert not done.done(), done.result()
            time.sleep(0.05)
        os.kill(int((folder / "process-1").read_text()), signal.SIGKILL)
        done.result(timeout=900)
    attempts = [sorted(path.name for path in attempt.iterdir()) for attempt in logs.glob("*/attempt_*")]
    assert attempts == [["0", "1"]] * 2
    assert "".join(path.read_text() for path in logs.rglob("stdout.log")).count("model:") == 1
    expected, found = weights(together), weights(output)
    assert all(torch.equal(found[name], value) for name, value in expected.items())
    histories = [json.loads((path / "metrics.json").read_text())["history"] for path in (together, output)]
    assert len(histories[0]) == EPOCHS
    assert histories[0] == histories[1]


def test_accelerate_launch_is_the_same(together: Path, config: Path, folder: Path, tmp_path: Path) -> None:
    """Its launcher runs in a fork, which has imported torch; the two processes that it starts are programs."""
    options = ["--cpu", "--num_processes=2", "--num_machines=1", "--mixed_precision=no", "--dynamo_backend=no"]
    output = folder / "accelerate"

    def launch() -> None:
        os.environ |= {"HGCLR_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
        sys.argv = ["accelerate", "launch", *options, "-m", "hgclr", "train", str(config), "--output", str(output)]
        accelerate_cli.main()

    assert run_forked(launch, tmp_path / "log") == 0, (tmp_path / "log").read_text()
    check_weights(output, together)
