"""A model being served: settings, the key, deadlines, clients that leave, health, explanations."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from hgclr.errors import InputError
from hgclr.serving.app import create_app
from hgclr.serving.service import Settings, read_key
from support.fake_service import PATIENCE, GatedBackend, fake_service, make_classifier, metric, until


@contextmanager
def deadline(app: FastAPI, seconds: float) -> Iterator[None]:
    """Let requests that come meanwhile have another deadline."""
    service = app.state.service
    before, service.settings = service.settings, replace(service.settings, deadline=seconds)
    try:
        yield
    finally:
        service.settings = before


@contextmanager
def sent(client: httpx.Client, body: bytes) -> Iterator[None]:
    """Ask for a prediction, and hang up at the end."""
    with socket.create_connection((client.base_url.host, client.base_url.port)) as connection:
        connection.sendall(
            b"POST /predict HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
        )
        yield


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_queue": 0},
        {"deadline": float("nan")},
        {"max_wait": -1},
        {"max_queue": 9, "texts_per_request": 10},
        {"hosts": ("*example.com",)},
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError) as error:
        Settings(**wrong)
    assert error.value.remedy


def test_the_key_comes_from_the_environment_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("from-a-file\n", encoding="utf-8")
    assert read_key({}) is None
    assert read_key({"HGCLR_API_KEY": "given"}) == "given"
    assert read_key({"HGCLR_API_KEY_FILE": str(file)}) == "from-a-file"
    (tmp_path / "empty").touch()
    for name in ("empty", "missing"):
        with pytest.raises(InputError) as error:
            read_key({"HGCLR_API_KEY_FILE": str(tmp_path / name)})
        assert error.value.path == str(tmp_path / name)
    for bad in ("", "two words", "schlüssel"):
        with pytest.raises(InputError):
            read_key({"HGCLR_API_KEY": bad})
    with pytest.raises(InputError):
        read_key({"HGCLR_API_KEY": "a", "HGCLR_API_KEY_FILE": str(file)})


def test_it_is_ready_only_once_it_is_warm() -> None:
    backend = GatedBackend()
    backend.close()
    app, waits = create_app(make_classifier(backend)), list[str | None]()

    async def ask() -> list[tuple[int, int, int]]:
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://here") as client,
        ):
            states: list[tuple[int, int, int]] = []
            for _ in range(2):
                live, ready = await client.get("/livez"), await client.get("/readyz")
                asked = await client.post("/predict", json={"text": "atom"})
                states.append((live.status_code, ready.status_code, asked.status_code))
                waits.append(asked.headers.get("Retry-After"))
                app.state.service.engine.warm_at = time.monotonic() + 6.5  # as if the first batch had been slow
                waits.append((await client.get("/readyz")).headers.get("Retry-After"))
                backend.gate.set()
                await asyncio.to_thread(app.state.service.engine.warm.wait, PATIENCE)
            return states

    assert asyncio.run(ask()) == [(200, 503, 503), (200, 200, 200)]
    assert waits == ["1", "7", None, None]


def test_a_service_whose_thread_has_ended_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    with fake_service() as (client, app):
        engine = app.state.service.engine
        engine.queue.take_batch = lambda *_: 1 / 0
        client.post("/predict", json={"text": "atom"})  # the last that the real take_batch returns
        until(lambda: not engine.alive)
        assert client.get("/livez").status_code == client.get("/readyz").status_code == 503


def test_a_worker_that_is_broken_ends_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []

    def end(code: int) -> None:
        ended.append(code)
        raise SystemExit

    monkeypatch.setattr("os._exit", end)
    service = create_app(make_classifier()).state.service  # its threads have not started
    with pytest.raises(SystemExit):
        asyncio.run(service.watch(supervised=True))
    assert ended == [1]


def test_a_service_whose_model_hangs_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    backend, statuses = GatedBackend(), []
    with fake_service(backend) as (client, _):
        backend.close()
        asking = threading.Thread(
            target=lambda: statuses.append(client.post("/predict", json={"text": "atom"}).status_code)
        )
        asking.start()
        assert backend.entered.wait(PATIENCE)
        assert client.get("/livez").status_code == 200
        monkeypatch.setattr("hgclr.serving.engine.STUCK", 0.0)
        assert client.get("/livez").status_code == 503
        assert client.post("/predict", json={"text": "lens"}).status_code == 503
        backend.gate.set()
        asking.join(PATIENCE)
        until(lambda: client.get("/livez").status_code == 200)
    assert statuses == [200]


def test_a_deadline_is_answered_with_504_and_a_client_that_left_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    backend = GatedBackend()
    with fake_service(backend) as (client, app):
        engine = app.state.service.engine
        backend.close()
        with sent(client, b'{"text": "goal"}'):  # keeps the backend busy, and its client leaves meanwhile
            assert backend.entered.wait(PATIENCE)
        with deadline(app, 0.1):
            late = client.post("/predict", json={"texts": ["lens", "atom"]})
        assert (late.status_code, late.json()["error"]["type"]) == (504, "deadline")
        assert engine.queue.length == 0
        assert metric(client, 'hgclr_dropped_texts_total{reason="deadline"}') == 2
        with sent(client, b'{"texts": ["lens", "atom", "laser"]}'):
            until(lambda: engine.queue.length == 3)
        until(lambda: engine.queue.length == 0)
        assert metric(client, 'hgclr_dropped_texts_total{reason="client_gone"}') == 3  # not what is being computed
        backend.gate.set()
        assert client.post("/predict", json={"text": "judge"}).status_code == 200
    assert [len(batch) for batch in backend.batches] == [1, 1]  # the first and the last
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_explanations_are_bounded_and_leave_predictions_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    gate, started = threading.Event(), threading.Event()
    calls: list[str] = []

    def explain(_: object, text: str, *, before_pass: Callable[[], None], **options: object) -> object:
        calls.append(text)
        started.set()
        assert gate.wait(PATIENCE)
        before_pass()
        raise AssertionError("the work for an unwanted explanation continued")

    monkeypatch.setattr("hgclr.inference.HierarchicalClassifier.explain", explain)
    monkeypatch.setattr("hgclr.serving.service.MOST_ASIDE", 2)
    with fake_service() as (client, app):
        explanations, statuses = app.state.service.aside, []
        threads = [
            threading.Thread(target=lambda: statuses.append(client.post("/explain", json={"text": "lens"}).status_code))
            for _ in range(2)
        ]
        with deadline(app, 1.0):
            for thread in threads:
                thread.start()
            until(lambda: len(explanations) == 2)
            assert started.wait(PATIENCE)
            refused = client.post("/explain", json={"text": "atom"})
            assert (refused.status_code, refused.json()["error"]["type"]) == (429, "overloaded")
            for thread in threads:
                thread.join(PATIENCE)
        assert client.post("/predict", json={"text": "atom"}).status_code == 200
        assert statuses == [504, 504]
        gate.set()
        until(lambda: not explanations)
    assert calls == ["lens"]  # the second was dropped before it began
