"""The key: nothing but health and metrics without it, wherever a route may lie."""

from __future__ import annotations

import base64
import hmac
import logging
from collections.abc import Iterable, Iterator
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from starlette.routing import BaseRoute, Mount

from hgclr.errors import InputError
from hgclr.serving.app import create_app
from hgclr.serving.settings import Settings, read_key
from support.fake_service import fake_service, make_classifier

KEY = "right-key-0123456789"
PUBLIC_PATHS = {"/livez", "/readyz", "/metrics"}


@pytest.fixture(scope="module")
def locked() -> Iterator[tuple[httpx.Client, FastAPI]]:
    with fake_service(key=KEY) as service:
        yield service


def basic(password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"anyone:{password}".encode()).decode()}


def walk(routes: Iterable[BaseRoute]) -> Iterator[BaseRoute]:
    """All routes, those of included routers too, which some versions of the framework keep together."""
    for route in routes:
        if hasattr(route, "original_router"):
            yield from walk(route.original_router.routes)
        else:
            yield route


@pytest.mark.slow
def test_every_route_but_three_needs_the_key(locked) -> None:
    client, app = locked
    routes = [route for route in walk(app.routes) if route.path not in PUBLIC_PATHS]
    assert {"/", "/predict", "/explain", "/taxonomy", "/model", "/docs", "/openapi.json", "/page"} == {
        route.path for route in routes
    }
    for route in routes:
        path = f"{route.path}/index.html" if isinstance(route, Mount) else route.path
        for method in ("GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD"):
            answer = client.request(method, path, content=b"x" * 10)
            assert answer.status_code == 401, (method, path)
            if method != "HEAD":
                assert answer.json()["error"]["type"] == "unauthorised"
            assert answer.headers["WWW-Authenticate"].startswith("Basic ")  # which makes a browser ask
            assert answer.headers["X-Request-Id"]
    for path in PUBLIC_PATHS:
        assert client.get(path).status_code == 200


@pytest.mark.parametrize(
    "path", ["/nowhere", "//livez", "/livez/", "/livez/../predict", "/LIVEZ", "/metrics/x", "/page/../livez"]
)
def test_what_is_not_there_needs_the_key_too(locked, path: str) -> None:
    client, _ = locked
    host, port = client.base_url.host, client.base_url.port
    with httpx.Client() as raw:  # an address as it stands, not tidied up
        request = raw.build_request("GET", f"http://{host}:{port}")
        request.extensions["target"] = path.encode()
        assert raw.send(request).status_code == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": f"Bearer {KEY}"},
        {"Authorization": f"bearer {KEY}"},
        basic(KEY),
    ],
)
def test_the_key_opens(locked, headers: dict[str, str]) -> None:
    client, _ = locked
    assert client.post("/predict", json={"text": "atom"}, headers=headers).status_code == 200
    assert client.get("/model", headers=headers).status_code == 200
    assert client.get("/nowhere", headers=headers).status_code == 404


@pytest.mark.parametrize(
    "headers",
    [
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
    ],
)
def test_anything_else_does_not(locked, headers: dict[str, str]) -> None:
    assert locked[0].post("/predict", json={"text": "atom"}, headers=headers).status_code == 401


def test_a_large_body_without_the_key_is_not_read(locked) -> None:
    assert locked[0].post("/predict", content=b"x" * (5 * 2**20)).status_code == 401


def test_keys_are_compared_in_constant_time(locked, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[bytes, bytes]] = []
    compare = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda shown, key: seen.append((shown, key)) or compare(shown, key))
    locked[0].get("/model", headers={"Authorization": "Bearer wrong"})
    assert (b"wrong", KEY.encode()) in seen


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


def test_the_description_says_where_the_key_is_needed() -> None:
    paths = create_app(make_classifier(), Settings(key=KEY)).openapi()["paths"]
    assert {
        path for path, methods in paths.items() for endpoint in methods.values() if "security" not in endpoint
    } == PUBLIC_PATHS
    assert "securitySchemes" not in create_app(make_classifier()).openapi()["components"]


def test_the_key_comes_from_the_environment_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("from-a-file\n", encoding="utf-8")
    assert read_key({}) is None
    assert read_key({"HGCLR_API_KEY": "given"}) == "given"
    assert read_key({"HGCLR_API_KEY_FILE": str(file)}) == "from-a-file"


def test_a_key_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.write_text("\n", encoding="utf-8")
    with pytest.raises(InputError, match="both HGCLR_API_KEY and HGCLR_API_KEY_FILE are set; set one of them"):
        read_key({"HGCLR_API_KEY": "a", "HGCLR_API_KEY_FILE": "b"})
    with pytest.raises(InputError, match="missing: the key cannot be read: No such file or directory"):
        read_key({"HGCLR_API_KEY_FILE": str(tmp_path / "missing")})
    with pytest.raises(InputError, match=r"empty: the key is empty, .*; make one with: python -c"):
        read_key({"HGCLR_API_KEY_FILE": str(empty)})
    for bad in ("", "two words", "schlüssel"):
        with pytest.raises(InputError, match="the key is empty, or has a character that is no printable ASCII"):
            read_key({"HGCLR_API_KEY": bad})
