"""The load test of the service, on a tiny model and for moments only: everything that was sent is accounted for."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

import serving_client
import serving_load
from support.bulk_cases import write_model


class Answering:
    """A service on a free port that answers every third request with 429."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not reader.at_eof():
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:
                break
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            self.bodies.append(await reader.readexactly(length))
            status = b"429 Too Many Requests" if len(self.bodies) % 3 == 0 else b"200 OK"
            writer.write(b"HTTP/1.1 " + status + b"\r\nContent-Length: 2\r\n\r\n{}")


def with_service(work) -> tuple[Answering, serving_client.Load]:
    async def run() -> tuple[Answering, serving_client.Load]:
        answering = Answering()
        server = await asyncio.start_server(answering, "127.0.0.1", 0)
        load = await work(server.sockets[0].getsockname()[1])
        server.close()
        return answering, load

    return asyncio.run(run())


def test_requests_go_round_through_all_texts() -> None:
    texts = [f"text {number}" for number in range(6)]
    requests = [json.loads(made.partition(b"\r\n\r\n")[2]) for made in islice(serving_client.requests_of(texts, 2), 4)]
    assert [request["texts"] for request in requests] == [texts[:2], texts[2:4], texts[4:], texts[:2]]


def test_saturation_counts_every_answer() -> None:
    answering, load = with_service(
        lambda port: serving_client.saturate(
            port, serving_client.requests_of(["a", "b"], 2), each=2, clients=3, seconds=0.2
        )
    )
    asked = len(answering.bodies)
    assert load.statuses == Counter({"200": asked - asked // 3, "429": asked // 3})
    assert load.texts == 2 * (asked - asked // 3)
    assert load.texts_per_second == pytest.approx(load.texts / load.seconds)
    assert load.seconds >= 0.2


def test_an_open_loop_keeps_its_rate() -> None:
    answering, load = with_service(
        lambda port: serving_client.open_loop(
            port, serving_client.requests_of(["a"] * 4, 4), each=4, texts_per_second=400, seconds=1.0
        )
    )
    assert sum(load.statuses.values()) == len(answering.bodies)
    assert 60 < len(answering.bodies) < 150  # 100 on average, give or take four standard deviations
    assert len(load.latencies) == load.statuses["200"]
    assert 0 < load.percentile(50) <= load.percentile(99)


def test_a_service_that_is_gone_is_counted_as_an_error() -> None:
    async def ask() -> serving_client.Load:
        server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        server.close()
        await server.wait_closed()
        return await serving_client.open_loop(
            port, serving_client.requests_of(["a"], 1), each=1, texts_per_second=100, seconds=0.2
        )

    load = asyncio.run(ask())
    assert set(load.statuses) == {"ConnectionRefusedError"}
    assert load.texts == 0


@pytest.mark.slow
def test_the_whole_run_on_a_real_service(toy_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fastapi", reason="the web service is an optional part: pip install 'hgclr[serve]'")
    write_model(tmp_path / "tiny")  # whose processes need not import torch
    # However slow the machine is, everything that is sent is waited for.
    monkeypatch.setattr(serving_client, "SETTLE", 600.0)
    monkeypatch.setenv("HGCLR_DEADLINE", "600")
    monkeypatch.setattr(sys, "argv", ["serving_load.py", "--model", "tiny"])
    result = serving_load.run(
        tmp_path / "tiny", toy_data, clients=2, each=8, latency_each=2, rounds=1, seconds=0.4, overload_seconds=0.4
    )
    assert result["served_to_bare"]["median"] == pytest.approx(
        result["served_texts_per_second"]["median"] / result["bare_texts_per_second"]["median"]
    )
    for statuses in (result["half_load"]["statuses"], result["overload"]["statuses"], result["afterwards"]["statuses"]):
        assert set(statuses) <= {"200", "429"}
    assert result["half_load"]["p50_milliseconds"] <= result["half_load"]["p99_milliseconds"]
    assert result["overload"]["bytes"]["settled_highest"] > 10_000_000
    assert result["setting"]["model"] == "tiny"
    assert result["command"] == "serving_load.py --model tiny"
    json.dumps(result)
