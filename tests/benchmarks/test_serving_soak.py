"""The soak of the service, for moments: every kind of client is answered as it must be, and what is not is told."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("fastapi", reason="the web service is an optional part: pip install 'hgclr[serve]'")

import serving_soak
from hgclr.serving import server
from support.fake_service import PATIENCE, fake_service, until


def test_every_kind_of_client_is_answered_as_it_must_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HEADER_TIMEOUT", 0.5)
    monkeypatch.setattr(serving_soak, "CLIENTS", 3)
    texts = ["atom lens", "judge", "goal boat", "laser", "court", "lens lens", "a", "b"]
    with fake_service(hosts=(), max_connections=64) as (client, app):
        outcomes = asyncio.run(serving_soak.soak(client.base_url.port, texts, 2.0, seed=1))
        for kind in serving_soak.KINDS:
            draw = serving_soak.random.Random(kind.__name__)
            outcomes[kind.__name__][asyncio.run(kind(client.base_url.port, draw, texts))] += 1
        until(lambda: app.state.service.in_flight == 0)
        assert client.get("/readyz", timeout=PATIENCE).status_code == 200
    assert set(outcomes) == {kind.__name__ for kind in serving_soak.KINDS}
    assert serving_soak.faults_of(outcomes, 1, 1, log_bytes_per_second=0, ready=True) == []


def test_what_is_not_as_it_must_be_is_told() -> None:
    outcomes = {"predict": {"200": 5, "500": 1}, "malform": {"422": 3, "no answer": 2}}
    assert serving_soak.faults_of(outcomes, 1000, 1200, log_bytes_per_second=1e6, ready=False) == [
        "predict: 1 x 500",
        "malform: 2 x no answer",
        "memory grew from 1000 to 1200 bytes",
        "the log grew by 1000000 bytes a second",
        "the service was not ready at the end",
    ]
