"""uvicorn with our limits: connections that say nothing, SIGTERM, and workers that are replaced."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from http.client import HTTPResponse
from pathlib import Path

import httpx
import pytest

from hgclr.errors import InputError
from hgclr.inference import HierarchicalClassifier
from hgclr.serving import server
from hgclr.serving.monitoring import SHARED_FOLDER
from hgclr.serving.server import listen, run_workers, worker_app
from hgclr.serving.service import Settings
from support.fake_service import PATIENCE, GatedBackend, fake_service, metric, service_process, until

ASK = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"


def connect(client: httpx.Client) -> socket.socket:
    return socket.create_connection((client.base_url.host, client.base_url.port), timeout=PATIENCE)


def status(connection: socket.socket) -> int:
    """The status of the next answer, which is read whole."""
    answer = HTTPResponse(connection)
    answer.begin()
    answer.read()
    return answer.status


def ended(connection: socket.socket) -> bool:
    """Whether the other side ends a connection."""
    try:
        return connection.recv(100) == b""
    except ConnectionResetError:
        return True


def pids(folder: Path) -> set[int]:
    return {int(file.name) for file in folder.iterdir() if file.name.isdecimal()}


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@contextmanager
def asking(address: str, texts: int, times: int = 1) -> Iterator[list[int | str]]:
    """Ask for predictions meanwhile; the list has the statuses, or the kinds of error, at the end."""
    answers: list[int | str] = []

    def ask() -> None:
        try:
            answer = httpx.post(f"{address}/predict", json={"texts": ["atom"] * texts}, timeout=2 * PATIENCE)
        except httpx.HTTPError as error:
            answers.append(type(error).__name__)
        else:
            answers.append(answer.status_code)

    threads = [threading.Thread(target=ask) for _ in range(times)]
    for thread in threads:
        thread.start()
    yield answers
    for thread in threads:
        thread.join(2 * PATIENCE)


@pytest.mark.slow
@pytest.mark.parametrize("sent", [b"", ASK[:20]], ids=["idle", "slow-head"])
def test_1100_connections_without_a_request_keep_nobody_out(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HEAD_SECONDS", 6.0)
    server.raise_file_limit(4096)  # this process has both ends of each connection
    with fake_service() as (client, app), ExitStack() as stack:
        silent = [stack.enter_context(connect(client)) for _ in range(1100)]
        for connection in silent:
            connection.sendall(sent)
        until(lambda: len(app.state.server.server_state.connections) >= 1100)
        with httpx.Client(base_url=client.base_url, timeout=PATIENCE) as other:
            assert other.get("/readyz").status_code == 200
            assert other.post("/predict", json={"text": "atom"}).status_code == 200
            assert all(ended(connection) for connection in silent)
            assert other.get("/readyz").status_code == 200


def test_a_connection_without_a_request_is_closed_and_others_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HEAD_SECONDS", 0.3)
    monkeypatch.setattr(server, "KEEP_ALIVE", 1)
    backend = GatedBackend()
    with fake_service(backend) as (client, app), connect(client) as busy, ExitStack() as stack:
        backend.close()
        body = b'{"text": "atom"}'
        head = b"POST /predict HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        busy.sendall(head % len(body) + body)
        assert backend.entered.wait(PATIENCE)
        silent, slow, second = (stack.enter_context(connect(client)) for _ in range(3))
        slow.sendall(ASK[:20])
        second.sendall(ASK)
        assert status(second) == 200
        second.sendall(ASK[:20])  # the head of its next request
        assert all(ended(connection) for connection in (silent, slow, second))
        backend.gate.set()  # the answer may take longer than a head
        assert status(busy) == 200
        until(lambda: not app.state.server.server_state.tasks)


def test_requests_beyond_the_number_of_connections_get_503() -> None:
    with fake_service(max_connections=4) as (client, _), ExitStack() as stack:
        assert client.get("/livez").status_code == 200
        idle = [stack.enter_context(connect(client)) for _ in range(4)]
        idle[-1].sendall(ASK)
        assert status(idle[-1]) == 503
        for connection in idle:
            connection.close()
        until(lambda: client.get("/livez").status_code == 200)


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="this system cannot cut such clients off")
@pytest.mark.slow
def test_an_answer_that_is_never_read_does_not_stay_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "UNREAD_SECONDS", 1)
    with fake_service() as (client, app), socket.socket() as connection:
        client.close()
        connections = app.state.server.server_state.connections
        until(lambda: not connections)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect((client.base_url.host, client.base_url.port))
        connection.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                connection.send(b"GET /openapi.json HTTP/1.1\r\nHost: a\r\n\r\n" * 100)
        until(lambda: any(one.transport.get_write_buffer_size() for one in list(connections)))
        until(lambda: not connections)


def test_sigterm_finishes_requests_in_flight_and_exits_with_0(tmp_path: Path) -> None:
    with service_process(tmp_path, grace=60) as (running, address):
        (tmp_path / "closed").touch()
        with asking(address, texts=40) as answers:  # several batches
            until((tmp_path / "entered").exists)
            running.send_signal(signal.SIGTERM)
            until(lambda: _refused(address))  # nothing new is taken
            assert running.poll() is None
            (tmp_path / "closed").unlink()
        assert running.wait(PATIENCE) == 0
        assert running.stderr is not None
        assert running.stderr.read() == ""
    assert answers == [200]


@pytest.mark.slow
def test_an_idle_service_stops_at_once(tmp_path: Path) -> None:
    with service_process(tmp_path, grace=600) as (running, address), httpx.Client() as client:
        assert client.get(f"{address}/readyz").status_code == 200  # and the connection stays open
        running.send_signal(signal.SIGTERM)
        assert running.wait(PATIENCE) == 0


@pytest.mark.slow
def test_the_grace_time_ends_what_takes_longer(tmp_path: Path) -> None:
    with service_process(tmp_path, grace=1) as (running, address):
        (tmp_path / "closed").touch()
        with asking(address, texts=1) as answers:
            until((tmp_path / "entered").exists)
            running.send_signal(signal.SIGTERM)
            assert running.wait(PATIENCE) == 0
    assert answers != [200]


def _refused(address: str) -> bool:
    try:
        httpx.get(f"{address}/readyz", timeout=PATIENCE)
    except httpx.HTTPError:
        return True
    return False


@pytest.mark.slow
def test_a_worker_that_dies_is_replaced_and_all_finish_their_requests(tmp_path: Path) -> None:
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
        until(lambda: metric(client, asked) == metric(client, "hgclr_texts_total") == 12)  # counted after the answer
        os.kill(min(pids(tmp_path)), signal.SIGKILL)
        until(lambda: len(pids(tmp_path)) == 3)
        until(lambda: metric(client, "hgclr_ready") == 2)
        assert metric(client, asked) == 12  # the requests of the dead one still count
        (tmp_path / "closed").touch()
        with asking(address, texts=40, times=4) as answers:
            until(lambda: metric(client, "hgclr_queue_texts") > 100)
            running.send_signal(signal.SIGTERM)
            until(lambda: _refused(address))
            (tmp_path / "closed").unlink()
        assert running.wait(PATIENCE) == 0
        assert not any(map(alive, pids(tmp_path)))
    assert answers == [200] * 4


@pytest.mark.slow
def test_workers_do_not_outlive_their_supervisor(tmp_path: Path) -> None:
    with service_process(tmp_path, grace=60, workers=2) as (running, address), httpx.Client(base_url=address) as client:
        until(lambda: metric(client, "hgclr_ready") == 2)
        running.kill()
        until(lambda: not any(map(alive, pids(tmp_path))))


@pytest.mark.slow
def test_a_model_that_cannot_be_loaded_ends_all(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in server.THREADS:
        monkeypatch.setenv(name, "1")
    monkeypatch.setattr("uvicorn.supervisors.multiprocess.SIGNALS", {})  # leave pytest's handlers alone
    load = partial(HierarchicalClassifier.load, "no/such/model")  # a worker must find the function by its name
    make = partial(worker_app, load, Settings(), "none", level=30, log_requests=False)
    with listen("127.0.0.1", 0) as listener, pytest.raises(InputError) as error:
        run_workers(make, Settings(), listener, 2)
    assert error.value.remedy


def test_cores_are_divided_among_workers_unless_the_environment_sets_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    class Noted:
        processes: tuple[()] = ()

        def __init__(self, config: object, sockets: object) -> None: ...

        def run(self) -> None:
            seen.append([os.environ[name] for name in server.THREADS])
            assert Path(os.environ[SHARED_FOLDER]).is_dir()

    seen: list[list[str]] = []
    monkeypatch.setattr(server, "Supervisor", Noted)
    monkeypatch.setattr("hgclr.inference.backends.usable_threads", lambda: 9)
    with listen("127.0.0.1", 0) as listener:
        for count, given in ((4, None), (20, None), (4, "5")):
            for name in server.THREADS:
                monkeypatch.delenv(name, raising=False)
            if given is not None:
                monkeypatch.setenv("OMP_NUM_THREADS", given)
            run_workers(lambda: pytest.fail("no worker is started"), Settings(), listener, count)
    assert seen == [["2", "2"], ["1", "1"], ["5", "5"]]
    assert SHARED_FOLDER not in os.environ


def test_metrics_ignore_a_worker_that_is_just_starting_and_gauges_of_a_dead_one(tmp_path: Path) -> None:
    """In a separate process: the library reads the folder's name when it is imported."""
    script = """
import os, subprocess, sys
from pathlib import Path
from hgclr.serving.monitoring import Metrics
metrics = Metrics("0", "torch")
metrics.texts.inc(3)
metrics.watch("ready", "", lambda: 1)
metrics.refresh()
folder = Path(sys.argv[1])
(folder / "counter_1.db").touch()
dead = subprocess.Popen(["true"])
dead.wait()
own = folder / f"gauge_livesum_{os.getpid()}.db"
own.with_name(f"gauge_livesum_{dead.pid}.db").write_bytes(own.read_bytes())
print(metrics.text().decode())
"""
    environment = os.environ | {SHARED_FOLDER: str(tmp_path)}
    command = [sys.executable, "-c", script, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert "hgclr_texts_total 3.0" in done.stdout, done.stderr
    assert "hgclr_ready 1.0" in done.stdout
