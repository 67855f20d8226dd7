"""Texts stay private: in no log, for no other site; every answer has an id that can be told apart in the log."""

from __future__ import annotations

import asyncio
import inspect
import logging
import re

import httpx
import pytest

from hgclr.cli.serve import serve
from hgclr.serving.app import create_app
from support.fake_service import fake_service, make_classifier

SECRET = "lens Geheimnis"


def test_texts_are_in_no_log_and_no_metric(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), fake_service() as (client, _):
        client.post("/predict", json={"text": SECRET})
        client.post("/predict", json={"texts": [SECRET + " poison", SECRET + "\0"]})
        client.post("/predict", json={"text": SECRET, "rule": SECRET, SECRET: 1})
        client.post(f"/predict?text={SECRET}", content=SECRET.encode())
        client.get(f"/{SECRET}")
        client.post("/explain", json={"text": SECRET + " poison"})
        metrics = client.get("/metrics").text
    assert "POST /predict 200" in caplog.text
    ours = "".join(record.getMessage() for record in caplog.records if record.name.startswith(("hgclr", "uvicorn")))
    assert "Geheimnis" not in ours
    assert "Geheimnis" not in metrics


def test_an_unexpected_error_is_answered_and_its_message_kept(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise KeyError(SECRET)

    monkeypatch.setattr("hgclr.serving.app._predictions", lambda *_, **__: fail())
    with fake_service() as (client, _):
        answer = client.post("/predict", json={"text": "atom"}, headers={"X-Request-Id": "mine"})
    assert answer.status_code == 500
    assert answer.json() == {"error": {"type": "internal", "message": "something went wrong here"}}
    assert "request mine: KeyError" in caplog.text
    assert SECRET not in caplog.text


@pytest.mark.parametrize("given", ["mine-1.2_x", "a" * 64])
def test_a_sane_request_id_is_echoed(client: httpx.Client, given: str) -> None:
    for path in ("/livez", "/nowhere", "/predict"):
        assert client.get(path, headers={"X-Request-Id": given}).headers["X-Request-Id"] == given


@pytest.mark.parametrize("given", [None, "", "a" * 65, "two words", "new\\nline", "<b>", "ümlaut".encode("latin-1")])
def test_any_other_gets_a_new_one(client: httpx.Client, given: str | bytes | None) -> None:
    headers = {} if given is None else {"X-Request-Id": given}
    first, second = (client.get("/livez", headers=headers).headers["X-Request-Id"] for _ in range(2))
    assert first != second
    assert re.fullmatch("[0-9a-f]{32}", first)


def test_other_sites_are_told_nothing(client: httpx.Client) -> None:
    for method, path in (("GET", "/model"), ("OPTIONS", "/predict"), ("POST", "/predict")):
        answer = client.request(
            method, path, headers={"Origin": "https://elsewhere.example", "Access-Control-Request-Method": "POST"}
        )
        assert not [name for name in answer.headers if name.startswith("access-control-")]


def test_only_this_machine_is_served_unless_asked() -> None:
    assert inspect.signature(serve).parameters["host"].default == "127.0.0.1"


def test_a_service_for_this_machine_answers_to_its_names_only() -> None:
    def status(host: str, path: str = "/model") -> int:
        return client.get(path, headers={"Host": host}).status_code

    with fake_service(hosts=("proxy.example",)) as (client, _):
        for host in ("localhost", "LOCALHOST:8000", "127.0.0.1:1", "127.1.2.3", "[::1]:80", "a.localhost"):
            assert status(host) == 200, host
        assert status("Proxy.example:8080") == 200
        for host in (
            "evil.example",
            "evil.example:8000",
            "localhost.evil.example",
            "192.0.2.1",
            "127.0.0.1.evil",
            "[::2]",
        ):
            assert status(host) == 421, host
            assert status(host, "/metrics") == 421, host
        refused = client.post("/predict", json={"text": "atom"}, headers={"Host": "evil.example"})
        assert refused.json()["error"]["type"] == "wrong_host"
        assert client.get("/model").status_code == 200


def test_answers_are_not_kept_not_guessed_at_and_in_no_frame(client: httpx.Client) -> None:
    answer = client.post("/predict", json={"text": "atom"})
    assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_an_app_is_made_without_threads_or_files() -> None:
    import threading

    before = threading.active_count()
    asyncio.run(asyncio.sleep(0))
    create_app(make_classifier())
    assert threading.active_count() == before
