"""``torchrun -m hgclr train``: several processes are one run, also when one of them is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch
import yaml
from safetensors.torch import load_file

from hgclr.training import RunConfig, train
from support.ranks import run_ranks

EPOCHS = 3
TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("torchrun")


@pytest.fixture(scope="module")
def config(make_encoder, toy_data: Path, folder: Path) -> Path:
    settings = {
        "data": {"path": str(toy_data)},
        "model": {"encoder": make_encoder("bert"), "architecture": "hgclr"},
        "training": {"epochs": EPOCHS, "batch_size": 12, "precision": "fp32", "learning_rate": 1e-3, "patience": 50},
    }
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump(settings))
    return file


def start(launcher: tuple[str, ...], config: Path, output: Path) -> subprocess.Popen[str]:
    environment = os.environ | {"HGCLR_CACHE": str(output.parent / "cache"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *launcher, "-m", "hgclr", "train", str(config), "--output", str(output)]
    return subprocess.Popen(
        command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )


def weights(output: Path) -> dict[str, torch.Tensor]:
    return load_file(output / "training-model" / "model.safetensors")


def check_weights(output: Path, expected: Path) -> None:
    """Where sums are taken in another order, weights are the same to rounding, over all steps."""
    found = weights(output)
    for name, value in weights(expected).items():
        torch.testing.assert_close(
            found[name], value, atol=1e-4, rtol=1e-3, msg=lambda text, name=name: f"{name}: {text}"
        )


def train_together(rank: int, ranks: int, folder: Path, config: Path) -> None:
    """Train as one of several, with what torchrun would say in the environment."""
    numbers = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "MASTER_PORT": 29500}
    os.environ |= {"MASTER_ADDR": "localhost", **{name: str(number) for name, number in numbers.items()}}
    train(RunConfig.read(config, output=folder / "together"))


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
    together: Path, config: Path, folder: Path
) -> None:
    output = folder / "killed"
    process = start((*TORCHRUN, "--max-restarts", "1"), config, output)
    while not list(output.glob("checkpoints/checkpoint-*/COMPLETE")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    (second,) = (child for child in psutil.Process(process.pid).children() if child.environ().get("RANK") == "1")
    second.send_signal(signal.SIGKILL)
    printed, problems = process.communicate(timeout=900)
    assert process.returncode == 0, problems
    assert printed.count("model:") == 1
    expected, found = weights(together), weights(output)
    assert all(torch.equal(found[name], value) for name, value in expected.items())
    histories = [json.loads((path / "metrics.json").read_text())["history"] for path in (together, output)]
    assert len(histories[0]) == EPOCHS
    assert histories[0] == histories[1]


def test_accelerate_launch_is_the_same(together: Path, config: Path, folder: Path) -> None:
    launcher = (
        "-m",
        "accelerate.commands.accelerate_cli",
        "launch",
        "--cpu",
        "--num_processes",
        "2",
        "--num_machines",
        "1",
    )
    process = start((*launcher, "--mixed_precision", "no", "--dynamo_backend", "no"), config, folder / "accelerate")
    _, problems = process.communicate(timeout=900)
    assert process.returncode == 0, problems
    check_weights(folder / "accelerate", together)
