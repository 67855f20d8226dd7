"""Several workers share an address and are replaced when they die; their metrics are one, and all of them drain."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from functools import partial
from itertools import pairwise
from pathlib import Path

import httpx
import pytest

from hgclr.errors import InputError
from hgclr.serving import workers
from hgclr.serving.monitoring import SHARED_FOLDER
from hgclr.serving.server import listen
from hgclr.serving.settings import Settings
from hgclr.serving.workers import Deployment, run_workers
from support.fake_service import PATIENCE, load_from, metric, service_process, until

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
        told = running.stderr.read()
    assert answers == [200] * 4
    assert f"worker {first} ended with signal SIGKILL: another takes its place\n" in told
    assert told.count("another takes its place") == 1, told


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


class Clock:
    """The supervisor's time and its processes: nothing runs, and a second passes with each look at the workers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, says: tuple[str, object] | None, lives: float) -> None:
        self.now, self.started, self.killed, self.says, self.lives = 0.0, [], 0, says, lives
        monkeypatch.setattr("prometheus_client.multiprocess.mark_process_dead", lambda _: None)
        monkeypatch.setattr(workers.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(workers, "get_context", lambda _: self)

    def Pipe(self, duplex: bool) -> tuple[Clock, Clock]:  # noqa: N802
        return self, self

    def Process(self, **_: object) -> Clock.Worker:  # noqa: N802
        return Clock.Worker(self)

    def close(self) -> None:
        pass

    class Worker:
        """A process that says something at once, if at all, and ends after a while by itself, or when it is killed."""

        pid = 1

        def __init__(self, clock: Clock) -> None:
            self.clock = clock

        def start(self) -> None:
            self.end = self.clock.now + self.clock.lives
            self.clock.started.append(self.clock.now)

        @property
        def exitcode(self) -> int | None:
            return 7 if self.clock.now >= self.end else None

        def kill(self) -> None:
            self.clock.killed += self.exitcode is None
            self.end = self.clock.now

        def join(self) -> None:
            pass

    def supervise(self, count: int, seconds: float) -> None:
        """Supervise for so many seconds."""
        supervisor = workers._Supervisor(Deployment(refuse, Settings(), "none"), None, count, lambda _: None)
        heard: set[object] = set()

        def wait(_: object, timeout: float) -> list[object]:
            for worker in supervisor._workers if self.says else ():
                if worker not in heard:
                    heard.add(worker)
                    self.recv = lambda: self.says
                    supervisor._hear(worker)
            self.now += 1
            supervisor._signals = self.now >= seconds
            return []

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(workers.connection, "wait", wait)
            patch.setattr(supervisor, "_drain", lambda: None)
            supervisor.run()


def test_workers_that_die_at_the_start_end_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, says=None, lives=0)
    with pytest.raises(InputError, match=r"^workers end before they answer, with exit code 7$"):
        clock.supervise(1, seconds=1000)
    assert clock.started == [0, 2, 5]  # a second for each to be found dead, and pauses of one and of two


@pytest.mark.parametrize(
    ("lives", "pauses"), [(1, [1, 2, 4, 8, 16, 30, 30]), (workers.STEADY + 1, [0] * 7)], ids=["young", "steady"]
)
def test_workers_that_die_young_are_started_less_and_less_often(
    monkeypatch: pytest.MonkeyPatch, lives: float, pauses: list[float]
) -> None:
    clock = Clock(monkeypatch, says=("ready", 5), lives=lives)
    clock.supervise(1, seconds=8 * (lives + 30))
    between = [later - earlier - lives for earlier, later in pairwise(clock.started)]
    assert between[:7] == pauses


def test_a_worker_that_gives_no_sign_of_life_is_ended_and_replaced(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock(monkeypatch, says=("ready", 5), lives=float("inf"))
    clock.supervise(1, seconds=3 * workers.HUNG)
    assert clock.started == [0, workers.HUNG + 1, 2 * (workers.HUNG + 1)]
    assert clock.killed == 3  # the last at the end
    assert "worker 1 hangs" in caplog.text


@pytest.mark.slow
def test_a_worker_that_is_stopped_is_replaced_and_the_service_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "HUNG", 3.0)
    statuses: list[int] = []

    def stop_one(address: str) -> None:
        (first,) = pids(tmp_path)
        os.kill(first, signal.SIGSTOP)
        until(lambda: len(pids(tmp_path)) == 2)
        until(lambda: httpx.get(f"{address}/readyz", timeout=PATIENCE).status_code == 200)
        statuses.append(httpx.post(f"{address}/predict", json={"text": "atom"}, timeout=PATIENCE).status_code)
        statuses.append(alive(first))
        os.kill(os.getpid(), signal.SIGTERM)

    with listen("127.0.0.1", 0) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread = threading.Thread(target=stop_one, args=[address])
        deployment = Deployment(partial(load_from, tmp_path), Settings(), "fake")
        run_workers(deployment, listener, 1, started=lambda _: thread.start())
        thread.join()
    assert statuses == [200, False]


def test_metrics_do_not_mind_a_worker_that_is_just_starting(tmp_path: Path) -> None:
    """In a process of its own: where metrics are kept is decided when the library is imported."""
    script = """
from pathlib import Path
import sys
from hgclr.serving.monitoring import Metrics
metrics = Metrics()
metrics.texts.inc(3)
(Path(sys.argv[1]) / "counter_1.db").touch()
print(metrics.text().decode())
"""
    environment = os.environ | {SHARED_FOLDER: str(tmp_path)}
    command = [sys.executable, "-c", script, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert "hgclr_texts_total 3.0" in done.stdout, done.stderr
