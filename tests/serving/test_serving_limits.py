"""Limits before work: size of bodies, number and length of texts, and JSON that is none."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hgclr.errors import InputError
from hgclr.serving.app import create_app
from hgclr.serving.messages import Problem
from hgclr.serving.middleware import BodyLimit, read
from hgclr.serving.settings import Settings
from support.fake_service import WordBackend, fake_service, make_classifier

JSON = {"Content-Type": "application/json"}


def problem(answer: httpx.Response) -> tuple[int, str, str | None]:
    error = answer.json()["error"]
    assert error["message"]
    return answer.status_code, error["type"], error.get("field")


@pytest.fixture(scope="module")
def small() -> Iterator[tuple[httpx.Client, WordBackend]]:
    """A service with narrow limits."""
    backend = WordBackend()
    with fake_service(backend, body_bytes=1000, texts_per_request=3, characters_per_text=50) as (client, _):
        yield client, backend


def test_a_large_body_is_refused_by_its_header(small) -> None:
    client, _ = small
    assert problem(client.post("/predict", json={"text": "a" * 1000})) == (413, "too_large", None)
    assert client.get("/livez").status_code == 200


def test_a_large_body_is_refused_in_pieces(small) -> None:
    client, backend = small
    backend.batches.clear()
    pieces = (b'{"text": "', *[b"a" * 100] * 20, b'"}')
    answer = client.post("/predict", content=iter(pieces), headers=JSON)
    assert "content-length" not in answer.request.headers
    assert problem(answer) == (413, "too_large", None)
    assert client.post("/predict", content=iter((b'{"text":', b' "atom"}')), headers=JSON).status_code == 200
    assert sum(map(len, backend.batches)) == 1


def test_a_body_that_is_announced_too_small_is_counted() -> None:
    async def app(scope, receive, send) -> None:
        while (await receive()).get("more_body"):
            pass

    async def ask() -> None:
        parts = iter([{"type": "http.request", "body": b"a" * 60, "more_body": True}] * 2)

        async def receive():
            return next(parts)

        await BodyLimit(app, limit=100, deadline=10)(
            {"type": "http", "headers": [(b"content-length", b"5")]}, receive, None
        )

    with pytest.raises(Problem, match="larger than 100 bytes"):
        asyncio.run(ask())


def test_all_bodies_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hgclr.serving.middleware.BODIES_HELD", 2)
    answers = []

    async def app(scope, receive, send) -> None:
        try:
            await receive()
            scope["held"].release()
            await scope["wait"].wait()
        except Problem as error:
            answers.append(error.kind)

    async def ask() -> None:
        limit, wait, held = BodyLimit(app, limit=100, deadline=10), asyncio.Event(), asyncio.Semaphore(0)

        async def receive():
            return {"type": "http.request", "body": b"a" * 90}

        scope = {"type": "http", "headers": [], "wait": wait, "held": held}
        first = [asyncio.ensure_future(limit(scope, receive, None)) for _ in range(2)]
        for _ in first:
            await held.acquire()
        await limit(scope, receive, None)  # 270 bytes
        wait.set()
        await asyncio.gather(*first)
        await limit(scope, receive, None)

    asyncio.run(ask())
    assert answers == ["overloaded"]


def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    with (
        fake_service(deadline=0.2) as (client, _),
        socket.create_connection((client.base_url.host, client.base_url.port)) as connection,
    ):
        head = b"POST /predict HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
        connection.sendall(head)
        connection.settimeout(20)
        assert connection.recv(100).startswith(b"HTTP/1.1 504 ")


def test_too_many_texts_and_too_long_ones_are_refused(small) -> None:
    client, backend = small
    backend.batches.clear()
    assert problem(client.post("/predict", json={"texts": ["a"] * 4})) == (422, "invalid", "texts")
    assert problem(client.post("/predict", json={"texts": ["a", "b" * 51]})) == (422, "invalid", "texts.1")
    assert problem(client.post("/predict", json={"text": "b" * 51})) == (422, "invalid", "text")
    assert problem(client.post("/explain", json={"text": "b" * 51})) == (422, "invalid", "text")
    assert backend.batches == []
    assert client.post("/predict", json={"texts": ["b" * 50] * 3}).status_code == 200


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"", None),
        (b"{", None),
        (b"[]", None),
        (b'{"text": "a", "threshold": NaN}', None),
        (b'{"text": "a", "threshold": -Infinity}', None),
        (b'{"text": "a", "threshold": 1e999}', "threshold"),
        (b'{"text": "a", "paths": 1' + b"0" * 5000 + b"}", None),
        (b'{"text": "\xff"}', None),
        (rb'{"text": "\ud800"}', "text"),
        (rb'{"text": "a\u0000"}', "text"),
        (rb'{"\ud800": 1, "text": "a"}', None),
        (rb'{"text": "a", "rule": "\ud800"}', "rule"),
        (b"[" * 100_000 + b"]" * 100_000, None),
        (b'{"text": ' + b'{"a": ' * 100_000 + b"1" + b"}" * 100_001, None),
        (b'{"text": "a", "texts": ["b"]}', None),
        (b"{}", None),
        (b'{"texts": []}', "texts"),
        (b'{"texts": ["a", 3]}', "texts.1"),
        (b'{"text": null}', "text"),
        (b'{"text": "a", "threshold": 1.5}', "threshold"),
        (b'{"text": "a", "threshold": "0.5"}', "threshold"),
        (b'{"text": "a", "threshold": true}', "threshold"),
        (b'{"text": "a", "rule": "magic"}', "rule"),
        (b'{"text": "a", "paths": 0}', "paths"),
        (b'{"text": "a", "paths": 1000000000}', "paths"),
        (b'{"text": "a", "abstain_below": -0.1}', "abstain_below"),
        (b'{"text": "a", "sure": -0.1}', "abstain_below"),
        (b'{"text": "a", "treshold": 0.5}', "treshold"),
    ],
)
def test_what_is_no_request_is_refused(client: httpx.Client, body: bytes, field: str | None) -> None:
    answer = client.post("/predict", content=body, headers=JSON)
    status, kind, named = problem(answer)
    assert (status, kind) == (422, "invalid")
    assert named is None if field is None else named.startswith(field)


@pytest.mark.parametrize(
    ("body", "field", "message"),
    [
        (b'{"texts": [' + b"1," * 2_000_000 + b"1]}", "texts", "2000001 entries are more than 256"),
        (b'{"text": [' + b"1," * 2_000_000 + b"1]}", "text", "2000001 entries are more than 256"),
        (b'{"text": "a", "x": [' + b'"",' * 1_000_000 + b"1]}", "x", "1000001 entries are more than 256"),
        (b"[" + b"{}," * 1_000_000 + b"1]", None, None),
        (b"{" + b",".join(b'"%d":1' % i for i in range(300_000)) + b"}", None, "the request has 300000 fields"),
    ],
)
def test_a_fault_that_is_there_a_million_times_is_told_once_and_cheaply(
    client: httpx.Client, body: bytes, field: str | None, message: str | None
) -> None:
    started = time.process_time()
    answer = client.post("/predict", content=body, headers=JSON)
    assert time.process_time() - started < 6  # collecting an error for each takes 10 to 20
    assert problem(answer) == (422, "invalid", field)
    assert answer.json()["error"]["message"].startswith(message or "")


def test_long_bodies_are_read_beside_the_loop(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []

    def note(body: bytes, most: int) -> object:
        threads.append(threading.current_thread().name)
        return read(body, most)

    monkeypatch.setattr("hgclr.serving.middleware.read", note)
    for length in (10, 19_000):
        assert client.post("/predict", json={"texts": ["a" * length] * 4}).status_code == 200
    assert not threads[0].startswith("hgclr-read")
    assert threads[1].startswith("hgclr-read")


def test_a_name_that_a_client_made_up_is_not_echoed_whole(client: httpx.Client) -> None:
    error = client.post("/predict", json={"text": "a", "n" * 100_000: 1}).json()["error"]
    assert error["field"] == "n" * 64 + "…"
    assert len(error["message"]) < 100


def test_only_json_is_read(client: httpx.Client) -> None:
    for headers in ({"Content-Type": "text/plain"}, {}):  # what another site's page could send without being asked
        answer = client.post("/predict", content=b'{"text": "a"}', headers=headers)
        assert problem(answer)[:2] == (422, "invalid")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abc"), inner, max_size=4),
        max_leaves=10,
    )
)
@settings(max_examples=100, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_json_is_read_as_it_is(value: object) -> None:
    assert read(json.dumps(value).encode(), most=4) == value


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"max_queue": 0}, "max_queue is 0; give a number above 0"),
        ({"deadline": float("nan")}, "deadline is nan; give a number above 0"),
        ({"max_wait": -1}, "max_wait is -1; give a number from 0"),
        ({"max_queue": 9, "texts_per_request": 10}, "10 texts a request are more than may wait, 9; raise max_queue"),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Settings(**wrong)


def test_the_description_tells_the_limits() -> None:
    limits = Settings(texts_per_request=7, characters_per_text=99)
    fields = create_app(make_classifier(), limits).openapi()["components"]["schemas"]["PredictRequest"]["properties"]
    assert fields["texts"]["maxItems"] == 7
    assert fields["text"]["maxLength"] == fields["texts"]["items"]["maxLength"] == 99
