"""Several workers share an address and are replaced when they die; their metrics are one, and all of them drain."""

from __future__ import annotations

import os
import signal
import threading
from functools import partial
from pathlib import Path

import httpx
import pytest

from hgclr.errors import InputError
from hgclr.serving import workers
from hgclr.serving.server import listen
from hgclr.serving.settings import Settings
from hgclr.serving.workers import Deployment, run_workers
from support.fake_service import PATIENCE, metric, service_process, until

pytestmark = pytest.mark.skipif(not hasattr(os, "setpgrp"), reason="several workers need a Unix system")


def refuse() -> None:
    raise InputError("there is no such model", path="here")


def die() -> None:
    os._exit(7)


def pids(folder: Path) -> set[int]:
    return {int(file.name) for file in folder.iterdir() if file.name.isdecimal()}


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
def test_a_worker_that_dies_is_replaced_and_all_drain(tmp_path: Path) -> None:
    # A connection for each request: one that is kept would always reach the same worker.
    limits = httpx.Limits(max_keepalive_connections=0)
    with (
        service_process(tmp_path, grace=60, workers=2) as (running, address),
        httpx.Client(base_url=address, limits=limits, timeout=PATIENCE) as client,
    ):
        until(lambda: metric(client, "hgclr_ready") == 2)
        for _ in range(12):
            assert client.post("/predict", json={"text": "atom"}).status_code == 200
        asked = 'hgclr_requests_total{endpoint="/predict",status="200"}'
        assert metric(client, asked) == metric(client, "hgclr_texts_total") == 12
        first, _ = sorted(pids(tmp_path))
        os.kill(first, signal.SIGKILL)
        until(lambda: len(pids(tmp_path)) == 3)
        until(lambda: metric(client, "hgclr_ready") == 2)
        assert metric(client, asked) == 12  # what the dead one has done still counts
        assert client.post("/predict", json={"text": "atom"}).status_code == 200

        (tmp_path / "closed").touch()
        answers: list[int] = []

        def ask() -> None:
            answers.append(httpx.post(f"{address}/predict", json={"texts": ["atom"] * 40}, timeout=60).status_code)

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        until(lambda: metric(client, "hgclr_queue_texts") > 100)
        running.send_signal(signal.SIGTERM)
        until(lambda: client.get("/readyz").status_code == 503)
        (tmp_path / "closed").unlink()
        for thread in threads:
            thread.join(PATIENCE)
        assert running.wait(PATIENCE) == 0
        assert not any(map(alive, pids(tmp_path)))
        assert running.stderr is not None
        (told,) = running.stderr.read().splitlines()
    assert answers == [200] * 4
    assert f"worker {first} ended with signal SIGKILL: another takes its place" in told


@pytest.mark.slow
def test_workers_do_not_outlive_their_supervisor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    with service_process(tmp_path, grace=60, workers=2) as (running, address), httpx.Client(base_url=address) as client:
        until(lambda: metric(client, "hgclr_ready") == 2)
        running.kill()
        until(lambda: not any(map(alive, pids(tmp_path))))
    assert not list((tmp_path / "temporary").glob("hgclr-*"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("load", "message"),
    [(refuse, "here: there is no such model"), (die, "workers end before they answer, with exit code 7")],
)
def test_a_model_that_cannot_be_loaded_ends_all(load, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "EARLY_DEATHS", 1)
    with listen("127.0.0.1", 0) as listener, pytest.raises(InputError, match=message):
        run_workers(Deployment(partial(load), Settings(), "none"), listener, 1)


def test_cores_are_divided_unless_the_environment_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "usable_threads", lambda: 9)
    for name in workers.THREADS:
        monkeypatch.delenv(name, raising=False)
    for count, threads in ((4, "2"), (20, "1")):
        with workers._environment(count):
            assert [os.environ[name] for name in workers.THREADS] == [threads, threads]
    assert not set(workers.THREADS) & set(os.environ)
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    with workers._environment(4):
        assert [os.environ[name] for name in workers.THREADS] == ["5", "5"]


def test_pauses_grow_while_no_worker_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    class Dead:
        pid, exitcode = 1, 3

    class Closed:
        def close(self) -> None:
            pass

    monkeypatch.setattr("prometheus_client.multiprocess.mark_process_dead", lambda _: None)
    with listen("127.0.0.1", 0) as listener:
        supervisor = workers._Supervisor(Deployment(refuse, Settings(), "none"), listener, 1, lambda _: None)
        supervisor._answered = True
        pauses = []
        for _ in range(8):
            worker = workers._Worker(Dead(), Closed())
            supervisor._workers.append(worker)
            supervisor._bury(worker)
            pauses.append(supervisor._pause)
    assert pauses == [1, 2, 4, 8, 16, 30, 30, 30]
