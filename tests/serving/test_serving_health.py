"""Health and metrics: what orchestrators and Prometheus ask, answered however much waits."""

from __future__ import annotations

import asyncio
import re
import threading

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from hgclr.serving.app import create_app
from support.fake_service import (
    LONGEST,
    PATIENCE,
    TREE,
    GatedBackend,
    WordBackend,
    fake_service,
    make_classifier,
    metric,
    until,
)


def test_it_is_ready_only_once_it_is_warm() -> None:
    backend = GatedBackend()
    backend.close()
    app = create_app(make_classifier(backend))

    async def ask() -> list[tuple[int, int, int]]:
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://here") as client,
        ):
            states = []
            for _ in range(2):
                live, ready = await client.get("/livez"), await client.get("/readyz")
                asked = await client.post("/predict", json={"text": "atom"})
                states.append((live.status_code, ready.status_code, asked.status_code))
                backend.gate.set()
                await asyncio.to_thread(app.state.service.engine.warm.wait, PATIENCE)
            app.state.service.draining = True
            states.append(
                (
                    (await client.get("/livez")).status_code,
                    (answer := await client.get("/readyz")).status_code,
                    (await client.post("/predict", json={"text": "atom"})).status_code,
                )
            )
            assert answer.json()["error"] == {"type": "not_ready", "message": "the service is draining"}
            return states

    assert asyncio.run(ask()) == [(200, 503, 503), (200, 200, 200), (200, 503, 503)]


def test_it_warms_up_with_a_batch_as_large_as_any_will_be() -> None:
    backend = WordBackend()
    with fake_service(backend):
        largest = max(backend.batches, key=lambda batch: sum(map(len, batch)))
    assert list(map(len, largest)) == [LONGEST] * (backend.batch_tokens // LONGEST)


def test_a_service_whose_thread_has_ended_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    with fake_service() as (client, app):
        engine = app.state.service.engine
        engine._queue.take_batch = lambda *_: 1 / 0
        client.post("/predict", json={"text": "atom"})  # the last that the old way of waiting gets
        until(lambda: not engine.alive)
        assert client.get("/livez").status_code == 503
        assert client.get("/readyz").status_code == 503


def test_a_service_whose_model_never_answers_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
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
        assert client.get("/livez").status_code == 503  # a worker of several ends itself then, and is replaced
        refused = client.post("/predict", json={"text": "lens"})
        assert refused.json()["error"]["message"] == "the service is broken"
        backend.gate.set()
        asking.join(PATIENCE)
        until(lambda: client.get("/livez").status_code == 200)
    assert statuses == [200]


def test_metrics_tell_tokenising_queueing_and_computing_apart() -> None:
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


@pytest.mark.slow
def test_what_clients_send_makes_no_new_series() -> None:
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


def test_the_model_is_described(client: httpx.Client) -> None:
    model = client.get("/model").json()
    assert model["name"] == "fake"
    assert (model["labels"], model["depth"], model["max_length"]) == (len(TREE), 2, LONGEST)
    assert model["decisions"] == make_classifier().decisions.to_json()
    assert model["limits"] == {
        "texts_per_request": 256,
        "characters_per_text": 20_000,
        "body_bytes": 4 * 2**20,
        "queue": 1024,
        "probabilities": 2**18,
    }
    assert model["explain"] == ["occlusion"]


def test_the_tree_is_given_once(client: httpx.Client) -> None:
    answer = client.get("/taxonomy")
    rows = [(label["id"], label["name"], label["parent"]) for label in answer.json()["labels"]]
    parents = [None if parent < 0 else TREE.ids[parent] for parent in TREE.parents]
    assert rows == list(zip(TREE.ids, TREE.names, parents, strict=True))
    tag = answer.headers["ETag"]
    for known in (tag, f'"other", {tag}', f"W/{tag}"):
        again = client.get("/taxonomy", headers={"If-None-Match": known})
        assert (again.status_code, again.content, again.headers["ETag"]) == (304, b"", tag)
    assert client.get("/taxonomy", headers={"If-None-Match": '"other"'}).status_code == 200
