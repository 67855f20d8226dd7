"""Around every request: ids, hosts, the key, limits on bodies, strict JSON."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import logging
import socket
import threading
import time
from collections.abc import Iterable, Iterator

import httpx
import pytest
from fastapi import FastAPI
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.routing import BaseRoute, Mount

from hgclr.serving.messages import Problem
from hgclr.serving.middleware import BodyLimit, read_json
from support.fake_service import PATIENCE, WordBackend, fake_service

JSON = {"Content-Type": "application/json"}
KEY = "right-key-0123456789"
PUBLIC_PATHS = {"/livez", "/readyz", "/metrics"}


def problem(answer: httpx.Response) -> tuple[int, str, str | None]:
    error = answer.json()["error"]
    assert error["message"]
    return answer.status_code, error["type"], error.get("field")


def basic(password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"anyone:{password}".encode()).decode()}


@pytest.fixture(scope="module")
def locked() -> Iterator[tuple[httpx.Client, FastAPI]]:
    with fake_service(key=KEY) as service:
        yield service


@pytest.fixture(scope="module")
def small() -> Iterator[tuple[httpx.Client, WordBackend]]:
    """A service with narrow limits."""
    backend = WordBackend()
    with fake_service(backend, body_bytes=1000, texts_per_request=3, characters_per_text=50) as (client, _):
        yield client, backend


def test_other_sites_can_read_nothing(client: httpx.Client) -> None:
    for method, path in (("GET", "/model"), ("OPTIONS", "/predict"), ("POST", "/predict")):
        headers = {"Origin": "https://elsewhere.example", "Access-Control-Request-Method": "POST"}
        answer = client.request(method, path, headers=headers)
        assert not [name for name in answer.headers if name.startswith("access-control-")]
    for headers in ({"Content-Type": "text/plain"}, {}):  # what another site's page may send without a preflight
        answer = client.post("/predict", content=b'{"text": "a"}', headers=headers)
        assert problem(answer)[:2] == (422, "invalid")
        assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
        assert answer.headers["Cache-Control"] == "no-store"


def test_a_service_for_this_machine_answers_to_its_names_only() -> None:
    def status(host: str, path: str = "/model") -> int:
        return client.get(path, headers={"Host": host}).status_code

    with fake_service(hosts=("proxy.example",)) as (client, _):
        for host in ("localhost", "LOCALHOST:8000", "127.0.0.1:1", "[::1]:80", "a.localhost", "Proxy.example:8080"):
            assert status(host) == 200, host
        for host in ("evil.example:80", "localhost.evil.example", "192.0.2.1", "127.0.0.1.evil", "[::2]"):
            assert status(host) == status(host, "/metrics") == 400, host


def test_every_route_but_three_needs_the_key(locked) -> None:
    def walk(routes: Iterable[BaseRoute]) -> Iterator[BaseRoute]:
        """All routes, also those of included routers, which some versions of the framework keep together."""
        for route in routes:
            if hasattr(route, "original_router"):
                yield from walk(route.original_router.routes)
            else:
                yield route

    client, app = locked
    routes = [route for route in walk(app.routes) if route.path not in PUBLIC_PATHS]
    assert {"/", "/predict", "/explain", "/workbook", "/taxonomy", "/model", "/docs", "/openapi.json", "/page"} == {
        route.path for route in routes
    }
    for route in routes:
        path = f"{route.path}/index.html" if isinstance(route, Mount) else route.path
        for method in ("GET", "POST", "OPTIONS", "HEAD"):
            answer = client.request(method, path, content=b"x" * 10)
            assert answer.status_code == 401, (method, path)
            assert answer.headers["WWW-Authenticate"].startswith("Basic ")  # which makes a browser ask
    for path in PUBLIC_PATHS:
        assert client.get(path).status_code == 200
    with httpx.Client() as raw:  # addresses as they are, not normalised
        for path in ("/nowhere", "//livez", "/livez/", "/livez/../predict", "/LIVEZ", "/page/../livez"):
            request = raw.build_request("GET", client.base_url)
            request.extensions["target"] = path.encode()
            assert raw.send(request).status_code == 401, path


def test_only_the_key_opens(locked, monkeypatch: pytest.MonkeyPatch) -> None:
    client, _ = locked
    for headers in ({"Authorization": f"Bearer {KEY}"}, {"Authorization": f"bearer {KEY}"}, basic(KEY)):
        assert client.post("/predict", json={"text": "atom"}, headers=headers).status_code == 200
        assert client.get("/nowhere", headers=headers).status_code == 404
    compared, compare = [], hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda *keys: compared.append(keys) or compare(*keys))
    for headers in (
        {"Authorization": "Bearer wrong"},
        {"Authorization": f"Bearer {KEY}x"},
        {"Authorization": f"Bearer {KEY[:-1]}"},
        {"Authorization": "Bearer"},
        {"Authorization": KEY},
        {"Authorization": f"Token {KEY}"},
        {"Authorization": "Basic %%%"},
        {"Authorization": f"Basic {KEY}"},
        {"X-Api-Key": KEY},
        basic(""),
        basic(KEY + ":"),
        {"Authorization": "Bearer schlüssel".encode("latin-1")},
    ):
        assert client.get("/model", headers=headers).status_code == 401, headers
    assert (b"wrong", KEY.encode()) in compared  # in constant time
    assert client.post("/predict", content=b"x" * (5 * 2**20)).status_code == 401  # which is not read


def test_the_key_is_in_no_log_and_no_answer(locked, caplog: pytest.LogCaptureFixture) -> None:
    client, app = locked
    with caplog.at_level(logging.DEBUG):
        answers = [
            client.get(path, headers=basic(KEY)).text for path in ("/model", "/docs", "/openapi.json", "/metrics")
        ]
        client.get("/model", headers={"Authorization": "Bearer nearly-" + KEY})
    assert KEY not in caplog.text
    assert all(KEY not in answer for answer in answers)
    assert KEY not in repr(app.state.service.settings)


def test_a_large_body_is_refused_by_its_header_and_in_pieces(small) -> None:
    client, backend = small
    backend.batches.clear()
    assert problem(client.post("/predict", json={"text": "a" * 1000})) == (413, "too_large", None)
    pieces = (b'{"text": "', *[b"a" * 100] * 20, b'"}')
    answer = client.post("/predict", content=iter(pieces), headers=JSON)
    assert "content-length" not in answer.request.headers
    assert problem(answer) == (413, "too_large", None)
    assert client.post("/predict", content=iter((b'{"text":', b' "atom"}')), headers=JSON).status_code == 200
    assert sum(map(len, backend.batches)) == 1


def test_bodies_are_counted_each_and_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hgclr.serving.middleware.BODIES_HELD", 2)
    answers = []

    async def app(scope, receive, send) -> None:
        try:
            while (await receive()).get("more_body"):
                pass
            scope["held"].release()
            await scope["wait"].wait()
        except Problem as error:
            answers.append(error.kind)

    async def ask() -> None:
        limit, wait, held = BodyLimit(app, limit=100, deadline=10), asyncio.Event(), asyncio.Semaphore(0)
        scope = {"type": "http", "headers": [(b"content-length", b"5")], "wait": wait, "held": held}

        async def receive():
            return {"type": "http.request", "body": b"a" * 90}

        async def receive_on():
            return {"type": "http.request", "body": b"a" * 60, "more_body": True}

        await limit(scope, receive_on, None)  # more than announced
        first = [asyncio.ensure_future(limit(scope, receive, None)) for _ in range(2)]
        for _ in first:
            await held.acquire()
        await limit(scope, receive, None)  # 270 bytes
        wait.set()
        await asyncio.gather(*first)
        await limit(scope, receive, None)

    asyncio.run(ask())
    assert answers == ["too_large", "overloaded"]


def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    with (
        fake_service(deadline=0.2) as (client, _),
        socket.create_connection((client.base_url.host, client.base_url.port), timeout=PATIENCE) as connection,
    ):
        head = b"POST /predict HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
        connection.sendall(head)
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
        (b'{"text": "a", "rule": "min-parent"}', "rule"),
        (b'{"text": "a", "decode": "closure"}', "decode"),
        (b'{"text": "a", "paths": 0}', "paths"),
        (b'{"text": "a", "paths": 1000000000}', "paths"),
        (b'{"text": "a", "abstain_below": -0.1}', "abstain_below"),
        (b'{"text": "a", "' + b"n" * 100_000 + b'": 1}', "n" * 64 + "…"),
    ],
)
def test_a_request_of_the_wrong_form_is_refused(client: httpx.Client, body: bytes, field: str | None) -> None:
    status, kind, named = problem(client.post("/predict", content=body, headers=JSON))
    assert (status, kind) == (422, "invalid")
    assert named is None if field is None else named.startswith(field)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b'{"texts": [' + b"1," * 2_000_000 + b"1]}", None),
        (b'{"text": "a", "x": [' + b'"",' * 1_000_000 + b"1]}", None),
        (b"[" + b"{}," * 1_000_000 + b"1]", None),
        (b"{" + b",".join(b'"%d":1' % i for i in range(300_000)) + b"}", None),
    ],
)
def test_a_fault_that_occurs_a_million_times_is_refused_cheaply(
    client: httpx.Client, body: bytes, field: str | None
) -> None:
    started = time.process_time()
    answer = client.post("/predict", content=body, headers=JSON)
    assert time.process_time() - started < 6  # collecting an error for each takes 10 to 20
    assert problem(answer) == (422, "invalid", field)


@pytest.mark.parametrize("start", [b"[", b'{"texts": [', b'{"text": "\\"", "x": {"y": ['])
def test_a_million_lists_are_refused_before_they_are_parsed(client: httpx.Client, start: bytes) -> None:
    body = start + b"[]," * 1_300_000 + b"[]" + b"]" * start.count(b"[") + b"}" * start.count(b"{")
    began = time.thread_time()
    json.loads(body)
    parsing = time.thread_time() - began
    began = time.thread_time()
    with pytest.raises(Problem):
        read_json(body, most=256)
    assert time.thread_time() - began < parsing / 4
    done = threading.Event()

    def send() -> None:
        assert problem(client.post("/predict", content=body, headers=JSON))[:2] == (422, "invalid")
        done.set()

    waits = []
    sending = threading.Thread(target=send)
    sending.start()
    while not waits or (not done.is_set() and sending.is_alive()):
        began = time.monotonic()
        assert client.get("/livez").status_code == 200
        waits.append(time.monotonic() - began)
    sending.join()
    assert done.is_set()
    assert sorted(waits)[len(waits) // 2] < 1


def test_marks_inside_texts_do_not_count() -> None:
    texts = ['[{,"\\' * 2000, "[[[", "\\", '"'] * 64
    assert read_json(json.dumps({"texts": texts}).encode(), most=256) == {"texts": texts}


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abc"), inner, max_size=4),
        max_leaves=10,
    )
)
@settings(max_examples=100, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_json_is_read_as_it_is(value: object) -> None:
    assert read_json(json.dumps(value).encode(), most=4) == value
