"""Training on a local Ray cluster of several nodes, one of which is killed."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray", reason="needs the extra ray")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import ray
import torch
from ray.cluster_utils import Cluster
from safetensors.torch import load_file

from hgclr.errors import HGCLRError, InputError
from hgclr.training import RunConfig, on_ray, train
from hgclr.training.on_ray import most_workers, train_on_ray
from support.ray_cluster import ray_cluster
from support.short_runs import without_dropout


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with ray_cluster(nodes=3) as cluster:
        yield cluster


@pytest.fixture
def run(make_encoder, toy_data: Path, tmp_path: Path) -> RunConfig:
    return RunConfig.model_validate(
        {
            "data": {"path": toy_data, "label_documents": False},
            "model": {
                "encoder": without_dropout(make_encoder("bert"), tmp_path / "still"),
                "classifier_dropout": 0.0,  # so that nothing is random
            },
            "training": {"epochs": 3, "batch_size": 12, "precision": "fp32", "learning_rate": 1e-3, "patience": 50},
            "output": tmp_path / "ray",
        }
    )


@pytest.mark.slow
def test_a_node_dies_and_the_run_ends_with_the_weights_of_one_process(
    cluster: Cluster, run: RunConfig, tmp_path: Path
) -> None:
    nodes = len(cluster.worker_nodes)

    def kill() -> None:
        while not list(run.output.glob("checkpoints/checkpoint-*/COMPLETE")):
            time.sleep(0.05)
        for node in busy_nodes(cluster)[:1]:
            cluster.remove_node(node, allow_graceful=False)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    result = train_on_ray(run, workers=2, address=cluster.address)
    killer.join(60)
    assert len(cluster.worker_nodes) == nodes - 1
    assert not (run.output / "ray").exists()
    alone = train(run.model_copy(update={"output": tmp_path / "alone"}))
    weights = [load_file(path.training_model / "model.safetensors") for path in (result, alone)]
    for name, value in weights[1].items():
        torch.testing.assert_close(weights[0][name], value, atol=1e-4, rtol=1e-3, msg=name)
    assert [epoch["loss"] for epoch in result.metrics["history"]] == pytest.approx(
        [epoch["loss"] for epoch in alone.metrics["history"]], rel=1e-3
    )
    with pytest.raises(InputError, match="holds a finished run"):
        train_on_ray(run, address=cluster.address)


def busy_nodes(cluster: Cluster) -> list:
    """The nodes that a worker of Ray Train runs on."""
    workers = ray._private.state.actors(actor_state_name="ALIVE").values()
    places = {worker["Address"]["NodeID"] for worker in workers if worker["ActorClassName"] == "RayTrainWorker"}
    return [node for node in cluster.worker_nodes if node.node_id in places]


def test_what_the_user_can_mend_is_one_line_and_not_tried_again(
    run: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray tries again what fails, so that a worker must end well; here it is this process, without a cluster."""
    works: list[object] = []

    class Workers:
        def __init__(self, work: Callable[[Any], None], *, train_loop_config: object, **_: object) -> None:
            self.work, self.settings = work, train_loop_config

        def fit(self) -> None:
            works.append(self.work(self.settings))

    monkeypatch.setattr("ray.train.torch.TorchTrainer", Workers)
    monkeypatch.setattr(on_ray, "connected", lambda *_, **__: nullcontext())
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 2.0})
    monkeypatch.setattr(torch.distributed, "destroy_process_group", lambda: works.append("left"))
    broken = RunConfig.build(json.loads(run.model_dump_json(exclude_unset=True)), ["model.encoder=nowhere/nothing"])
    with pytest.raises(HGCLRError, match=r"nowhere/nothing.*; ") as told:
        train_on_ray(broken, workers=2)
    assert "\n" not in str(told.value)
    assert works == ["left", None]
    assert not (run.output / "ray").exists()


@pytest.mark.parametrize(("size", "room", "workers"), [(12, 8, 6), (16, 64, 16), (5, 4, 1), (None, 3, 2)])
def test_as_many_workers_as_can_share_a_batch(size: int | None, room: int, workers: int, run: RunConfig) -> None:
    settings = run.training.model_copy(update={"batch_size": size})
    assert most_workers(run.model_copy(update={"training": settings}), room) == workers
