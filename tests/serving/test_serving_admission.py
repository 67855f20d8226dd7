"""Bounded admission, deadlines and clients that leave: what is refused or unwanted is never computed."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import httpx
import pytest
from fastapi import FastAPI

from support.fake_service import PATIENCE, GatedBackend, fake_service, metric, until


@contextmanager
def busy(backend: GatedBackend, client: httpx.Client) -> Iterator[None]:
    """Let one text keep the backend busy meanwhile."""
    backend.close()
    thread = threading.Thread(target=client.post, args=("/predict",), kwargs={"json": {"text": "goal"}})
    thread.start()
    assert backend.entered.wait(PATIENCE)
    try:
        yield
    finally:
        backend.gate.set()
        thread.join(PATIENCE)


@contextmanager
def deadline(app: FastAPI, seconds: float) -> Iterator[None]:
    """Let requests that come meanwhile have another deadline; those before and after have all the time they need."""
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


def test_more_than_may_wait_is_refused_before_it_is_tokenised() -> None:
    backend = GatedBackend()
    with fake_service(backend, max_queue=4, texts_per_request=4) as (client, app):
        tokenised = metric(client, "hgclr_tokenise_seconds_count")
        with busy(backend, client):
            waiting = threading.Thread(target=client.post, args=("/predict",), kwargs={"json": {"texts": ["atom"] * 3}})
            waiting.start()
            until(lambda: metric(client, "hgclr_tokenise_seconds_count") == tokenised + 2)
            refused = client.post("/predict", json={"texts": ["lens"] * 2})
            assert refused.status_code == 429
            assert refused.json()["error"]["type"] == "overloaded"
            assert int(refused.headers["Retry-After"]) >= 1
            assert metric(client, "hgclr_queue_texts") == 3
            last = threading.Thread(target=client.post, args=("/predict",), kwargs={"json": {"text": "judge"}})
            last.start()
            until(lambda: app.state.service.engine.full)
            # Now that no text would find room, the body is not even looked at.
            assert client.post("/predict", content=b"no JSON").status_code == 429
            for path in ("/livez", "/readyz", "/metrics", "/model", "/taxonomy"):
                assert client.get(path).status_code == 200
        waiting.join(PATIENCE)
        last.join(PATIENCE)
        assert client.post("/predict", json={"texts": ["lens"] * 4}).status_code == 200
        assert metric(client, "hgclr_queue_texts") == 0
        assert metric(client, 'hgclr_errors_total{type="overloaded"}') == 2
        assert metric(client, 'hgclr_requests_total{endpoint="/predict",status="429"}') == 2
    computed = [text for batch in backend.batches for text in batch]
    assert len(computed) == 1 + 3 + 1 + 4  # nothing of what was refused


def test_a_storm_of_requests_is_answered_with_200_or_429_only() -> None:
    backend = GatedBackend()
    statuses: list[int] = []
    with fake_service(backend, max_queue=8, texts_per_request=4) as (client, _):

        def ask() -> None:
            body = {"texts": ["atom lens"] * 4}
            statuses.extend(client.post("/predict", json=body).status_code for _ in range(5))

        with busy(backend, client):
            threads = [threading.Thread(target=ask) for _ in range(10)]
            for thread in threads:
                thread.start()
            until(lambda: 429 in statuses)
        for thread in threads:
            thread.join(PATIENCE)
        assert client.post("/predict", json={"text": "atom"}).status_code == 200
    assert len(statuses) == 50
    assert set(statuses) == {200, 429}


def test_a_deadline_is_answered_with_504_and_the_work_is_dropped() -> None:
    backend = GatedBackend()
    with fake_service(backend) as (client, app):
        with busy(backend, client):
            with deadline(app, 0.1):
                late = client.post("/predict", json={"texts": ["lens", "atom"]})
            assert late.status_code == 504
            assert late.json()["error"]["type"] == "deadline"
            assert app.state.service.engine.waiting == 0
            assert metric(client, 'hgclr_dropped_texts_total{reason="deadline"}') == 2
        until(lambda: len(backend.batches) == 1)
        assert client.post("/predict", json={"text": "judge"}).status_code == 200
    assert [len(batch) for batch in backend.batches] == [1, 1]  # the first and the last; never what was late


def test_the_work_for_a_client_that_left_is_dropped() -> None:
    backend = GatedBackend()
    with fake_service(backend) as (client, app):
        with busy(backend, client):
            with sent(client, b'{"texts": ["lens", "atom", "laser"]}'):
                until(lambda: app.state.service.engine.waiting == 3)
            until(lambda: app.state.service.engine.waiting == 0)
            assert metric(client, 'hgclr_dropped_texts_total{reason="client_gone"}') == 3
        assert client.post("/predict", json={"text": "judge"}).status_code == 200
    assert [len(batch) for batch in backend.batches] == [1, 1]


def test_an_answer_that_nobody_waits_for_any_more_disturbs_nobody(caplog: pytest.LogCaptureFixture) -> None:
    backend = GatedBackend()
    with fake_service(backend) as (client, app):
        backend.close()
        with sent(client, b'{"text": "atom"}'):
            assert backend.entered.wait(PATIENCE)
        until(lambda: app.state.service.in_flight == 0)
        backend.gate.set()
        assert client.post("/predict", json={"text": "judge"}).status_code == 200
        assert metric(client, 'hgclr_dropped_texts_total{reason="client_gone"}') == 0  # it was being computed
    assert [len(batch) for batch in backend.batches] == [1, 1]
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.slow
def test_explanations_are_bounded_and_leave_predictions_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    gate, started = threading.Event(), threading.Event()
    calls: list[str] = []

    def explain(_: object, text: str, *, before_pass: Callable[[], None], **options: object) -> object:
        calls.append(text)
        started.set()
        assert gate.wait(PATIENCE)
        before_pass()
        raise AssertionError("the work for an explanation that nobody wants went on")

    monkeypatch.setattr("hgclr.inference.HierarchicalClassifier.explain", explain)
    with fake_service() as (client, app):
        explanations = app.state.service.explanations
        explanations._places = 2
        statuses: list[int] = []
        threads = [
            threading.Thread(target=lambda: statuses.append(client.post("/explain", json={"text": "lens"}).status_code))
            for _ in range(2)
        ]
        with deadline(app, 2.0):
            for thread in threads:
                thread.start()
            until(lambda: app.state.service.in_flight == 2)
        assert started.wait(PATIENCE)
        refused = client.post("/explain", json={"text": "atom"})
        assert refused.status_code == 429
        assert refused.json()["error"]["type"] == "overloaded"
        assert client.post("/predict", json={"text": "atom"}).status_code == 200
        for thread in threads:
            thread.join(PATIENCE)
        assert statuses == [504, 504]
        gate.set()
        until(lambda: explanations.under_way == 0)
    assert calls == ["lens"]  # the second was dropped before it began
