"""Connections: bounded in number, heads that come in time, answers that are not held back."""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import suppress
from http.client import HTTPResponse

import httpx
import pytest

from hgclr.serving import server
from hgclr.serving.app import create_app
from hgclr.serving.server import Server, listen
from hgclr.serving.settings import Settings
from support.fake_service import PATIENCE, GatedBackend, fake_service, make_classifier, until

ASK = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"


def connect(client: httpx.Client) -> socket.socket:
    connection = socket.create_connection((client.base_url.host, client.base_url.port))
    connection.settimeout(PATIENCE)
    return connection


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


def test_small_packets_of_accepted_connections_are_not_held_back() -> None:
    async def ask() -> int:
        found: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def note(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            accepted = writer.get_extra_info("socket")
            found.set_result(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        listener = listen("127.0.0.1", 0)
        async with await asyncio.start_server(note, sock=listener):
            _, writer = await asyncio.open_connection(*listener.getsockname())
            writer.close()
            return await asyncio.wait_for(found, PATIENCE)

    assert asyncio.run(ask()) != 0


def test_the_connection_that_is_idle_longest_makes_room() -> None:
    with fake_service(max_connections=4) as (client, _):
        client.get("/livez")  # one
        idle = [connect(client) for _ in range(3)]
        idle[0].sendall(ASK)
        assert status(idle[0]) == 200  # now it is the client that has waited longest
        late = connect(client)
        late.sendall(ASK)
        assert status(late) == 200
        idle[0].sendall(ASK)
        assert status(idle[0]) == 200
        later = connect(client)
        assert ended(idle[1])
        for connection in (*idle, late, later):
            connection.close()


def test_many_idle_connections_keep_nobody_out(caplog: pytest.LogCaptureFixture) -> None:
    with fake_service(max_connections=8) as (client, _):
        idle = [connect(client) for _ in range(60)]
        with httpx.Client(base_url=client.base_url, timeout=PATIENCE) as other:
            assert other.post("/predict", json={"text": "atom"}).status_code == 200
        assert sum(ended(connection) for connection in idle[:50]) == 50
        for connection in idle:
            connection.close()
    assert "more than 8 connections: idle ones end" in caplog.text


def test_when_all_are_busy_one_more_is_refused() -> None:
    backend = GatedBackend()
    with fake_service(backend, max_connections=2) as (client, app):
        client.close()
        backend.close()
        answers: list[int] = []

        def ask() -> None:
            answers.append(httpx.post(f"{client.base_url}/predict", json={"text": "atom"}, timeout=60).status_code)

        threads = [threading.Thread(target=ask) for _ in range(2)]
        for thread in threads:
            thread.start()
        until(lambda: app.state.service.in_flight == 2)
        with connect(client) as refused:
            answer = refused.recv(1000)
            assert answer.startswith(b"HTTP/1.1 429 ")
            assert b'"type": "overloaded"' in answer
            assert ended(refused)
        backend.gate.set()
        for thread in threads:
            thread.join(PATIENCE)
    assert answers == [200, 200]


def test_the_head_of_a_request_must_come_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HEADER_TIMEOUT", 0.3)
    backend = GatedBackend()
    with fake_service(backend) as (client, app):
        kept = connect(client)
        backend.close()
        body = b'{"text": "atom"}'
        head = b"POST /predict HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        kept.sendall(head % len(body) + body)
        until(lambda: app.state.service.in_flight == 1)
        silent, slow, second = (connect(client) for _ in range(3))
        slow.sendall(ASK[:20])
        second.sendall(ASK)
        assert status(second) == 200
        second.sendall(ASK[:20])  # the head of its next one
        for connection in (silent, slow, second):
            assert ended(connection)
            connection.close()
        backend.gate.set()  # that took longer than the head may; the answer may
        assert status(kept) == 200
        kept.sendall(ASK)
        assert status(kept) == 200
        kept.close()


def test_an_answer_that_is_never_read_does_not_stay_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "READ_TIMEOUT", 0.2)
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


def test_there_are_no_more_connections_than_files_can_be_opened(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    resource = pytest.importorskip("resource", reason="this system has no such limit")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 256))
    protocol = Server(create_app(make_classifier(), Settings())).config.http
    assert protocol.most == 256 - server.OTHER_FILES
    assert "128 connections at most, not 512: the process may open 256 files" in caplog.text
