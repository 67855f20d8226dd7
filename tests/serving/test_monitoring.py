"""Metrics and logs: what is counted, a line for each request, no fault over and over, and never a text."""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Iterator
from types import SimpleNamespace

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from hgclr.serving.monitoring import start_log
from support.fake_service import fake_service, metric

LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z [A-Z]+ .+")
SECRET = "lens Geheimnis"


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """The log of the service; afterwards the loggers are as before."""
    others = [logging.getLogger(name) for name in ("uvicorn", "asyncio")]
    before = [(list(logger.handlers), logger.propagate, logger.level) for logger in others]
    stream = io.StringIO()
    start_log(stream)
    yield stream
    for logger, (handlers, propagate, level) in zip(others, before, strict=True):
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)


def test_requests_are_logged_if_asked_a_line_each(stream: io.StringIO) -> None:
    with fake_service() as (client, _):
        client.get("/livez")
        assert stream.getvalue() == ""
        start_log(stream, requests=True)
        for number in range(3):
            client.post("/predict", json={"texts": ["atom"] * 3}, headers={"X-Request-Id": f"id{number}" * 12})
    lines = stream.getvalue().splitlines()
    assert all(LINE.fullmatch(line) for line in lines)
    asked = [line for line in lines if " POST /predict 200 " in line and line.endswith(" ms, 3 texts")]
    assert [line.split()[2][:3] for line in asked] == ["id0", "id1", "id2"]


def test_a_fault_is_logged_once_a_second_and_counted(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("hgclr.serving.monitoring.time", SimpleNamespace(monotonic=lambda: now))  # not asyncio's
    log = logging.getLogger("hgclr.serving.somewhere")
    for _ in range(1000):
        log.error("cannot take %s", "more")
        log.warning("another fault")
        now += 0.0029
    lines = [line.partition(" ")[2] for line in stream.getvalue().splitlines()]
    assert lines[:2] == ["ERROR cannot take more", "WARNING another fault"]
    assert len(lines) == 6  # in the first moment of three seconds
    assert "344" in lines[2]


def test_texts_are_in_no_log_and_no_metric(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KeyError(SECRET)

    with caplog.at_level(logging.DEBUG), fake_service() as (client, _):
        client.post("/predict", json={"text": SECRET})
        client.post("/predict", json={"texts": [SECRET + " poison", SECRET + "\0"]})
        client.post("/predict", json={"text": SECRET, "rule": SECRET, SECRET: 1})
        client.post(f"/predict?text={SECRET}", content=SECRET.encode())
        client.get(f"/{SECRET}")
        client.post("/explain", json={"text": SECRET + " poison"})
        monkeypatch.setattr("hgclr.serving.app._text_answer", fail)
        answer = client.post("/predict", json={"text": "atom"}, headers={"X-Request-Id": "mine"})
        metrics = client.get("/metrics").text
    assert (answer.status_code, answer.json()["error"]["type"]) == (500, "internal")
    assert "POST /predict 200" in caplog.text
    assert "request mine: KeyError" in caplog.text
    ours = "".join(record.getMessage() for record in caplog.records if record.name.startswith(("hgclr", "uvicorn")))
    assert "Geheimnis" not in ours
    assert "Geheimnis" not in metrics + answer.text


def test_metrics_have_tokenising_queueing_and_computing_apart() -> None:
    with fake_service() as (client, _):
        client.post("/predict", json={"texts": ["atom lens", "judge", "\0"]})
        client.post("/predict", content=b"{")
        client.get("/nowhere/at/all")
        client.get("/predict")
        text = client.get("/metrics")
        families = {family.name: family for family in text_string_to_metric_families(text.text)}
        assert text.headers["Content-Type"].startswith("text/plain")
        for name in ("tokenise", "queue", "compute", "request"):
            assert families[f"hgclr_{name}_seconds"].type == "histogram"
        for name, value in {
            "hgclr_queue_seconds_count": 2,  # texts
            "hgclr_texts_total": 2,
            "hgclr_batch_texts_sum": 2,
            'hgclr_errors_total{type="invalid"}': 2,  # a text and a request
            'hgclr_errors_total{type="not_found"}': 1,
            'hgclr_errors_total{type="method_not_allowed"}': 1,
            'hgclr_requests_total{endpoint="/predict",status="200"}': 1,
            'hgclr_requests_total{endpoint="/predict",status="422"}': 1,
            "hgclr_queue_texts": 0,
            "hgclr_ready": 1,
        }.items():
            assert metric(client, name) == value, name
        assert 1 <= metric(client, "hgclr_compute_seconds_count") == metric(client, "hgclr_batch_tokens_count") <= 2
        assert metric(client, "process_resident_memory_bytes") > 0


def test_clients_cannot_make_new_series() -> None:
    def series(client: httpx.Client) -> set[str]:
        lines = (line for line in client.get("/metrics").text.splitlines() if not line.startswith("#"))
        return {re.sub(r" [^ ]+$", "", line) for line in lines}

    with fake_service() as (client, _):
        client.get("/nowhere")
        client.request("BREW", "/predict")
        client.get("/metrics")
        before = series(client)
        for number in range(20):
            client.get(f"/nowhere/{number}", headers={"X-Request-Id": f"id{number}"})
            client.request(f"METHOD{number}", "/predict")
        assert series(client) == before
