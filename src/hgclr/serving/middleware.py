"""Middleware of every request: id, metrics and log line, the key, limits on the body, and strict JSON."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import json
import logging
import re
import time
import traceback
import uuid
from collections.abc import Callable, Coroutine
from itertools import islice
from typing import Any

from fastapi.routing import APIRoute
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hgclr.serving.messages import Problem, error_answer
from hgclr.serving.monitoring import ACCESS, Metrics

logger = logging.getLogger(__name__)
access = logging.getLogger(ACCESS)
REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
"""Request ids that are safe in headers and logs."""
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}
"""Default headers of every answer."""
PUBLIC_PATHS = frozenset({"/livez", "/readyz", "/metrics"})
"""Paths that need no key: orchestrators and Prometheus ask for them, and they show no texts and no labels."""
CHALLENGE = 'Basic realm="hgclr", charset="UTF-8", Bearer realm="hgclr"'
BODIES_HELD = 16
"""Limit on the memory for bodies, in bodies of the largest size."""
MOST_FIELDS = 16
"""Limit on the fields of a request, above any valid one: pydantic collects an error for each unknown field."""
MARKS = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[{,]', re.DOTALL)
"""A string, or a mark before a value."""


class RequestLog:
    """Give every answer an id, count it, log it, and answer unexpected errors."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get("x-request-id", "")
        name = given if REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
        started, status = time.monotonic(), 0
        state = scope.setdefault("state", {})
        state.update(arrived=started, id=name)

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["X-Request-Id"] = name
                for header, value in HEADERS.items():
                    headers.setdefault(header, value)
            await send(message)

        try:
            await self._app(scope, receive, send_with_headers)
        except Exception as error:  # the outermost layer: the client needs an answer
            # The message is not logged, because it may quote a text.
            frames = "".join(traceback.format_tb(error.__traceback__))
            logger.error("request %s: %s\n%s", name, type(error).__name__, frames)
            if not status:
                answer = error_answer(scope, "internal", f"the service failed; its log has request {name}")
                await answer(scope, receive, send_with_headers)
        finally:
            seconds, endpoint = time.monotonic() - started, getattr(scope.get("route"), "path", "other")
            self._metrics.requests.labels(endpoint, status).inc()
            self._metrics.request_seconds.labels(endpoint).observe(seconds)
            if kind := state.get("problem"):
                self._metrics.errors.labels(kind).inc()
            parts = name, scope["method"], endpoint, status, 1000 * seconds, state.get("texts", 0)
            access.info("%s %s %s %d %.1f ms, %d texts", *parts)


class KeyCheck:
    """Answer 401 to requests without the key, except on :data:`PUBLIC_PATHS`.

    Programs send ``Authorization: Bearer KEY``. In a browser, the key is the password, with any user name.
    """

    def __init__(self, app: ASGIApp, *, key: str) -> None:
        self._app, self._key = app, key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or scope["path"] in PUBLIC_PATHS or self._has_key(scope):
            await self._app(scope, receive, send)
            return
        headers = {"WWW-Authenticate": CHALLENGE}
        await error_answer(scope, "unauthorised", "send the key of this service", headers=headers)(scope, receive, send)

    def _has_key(self, scope: Scope) -> bool:
        """Return whether a request has the key, by a comparison in constant time."""
        scheme, _, credentials = Headers(scope=scope).get("authorization", "").encode("latin-1").partition(b" ")
        if scheme.lower() == b"basic":
            try:
                _, _, credentials = base64.b64decode(credentials.strip(), validate=True).partition(b":")
            except binascii.Error:
                return False
        elif scheme.lower() != b"bearer":
            return False
        return hmac.compare_digest(credentials.strip(), self._key)


class BodyLimit:
    """Limit the bytes of each body and of all bodies, counted on arrival, and the seconds that a body may take."""

    def __init__(self, app: ASGIApp, *, limit: int, deadline: float) -> None:
        self._app, self._limit, self._deadline = app, limit, deadline
        self._held = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        too_large = f"the body is larger than {self._limit} bytes"
        announced = Headers(scope=scope).get("content-length", "")
        if announced.isdecimal() and int(announced) > self._limit:
            await error_answer(scope, "too_large", too_large)(scope, receive, send)
            return
        size, complete, end = 0, False, time.monotonic() + self._deadline

        async def receive_within_limits() -> Message:
            nonlocal size, complete
            if complete:
                return await receive()
            try:
                message = await asyncio.wait_for(receive(), max(0.0, end - time.monotonic()))
            except TimeoutError:
                raise Problem("deadline", "the body did not arrive before the deadline") from None
            complete = not message.get("more_body", False)
            more = len(message.get("body", b""))
            size += more
            self._held += more
            if size > self._limit:
                raise Problem("too_large", too_large)
            if self._held > BODIES_HELD * self._limit:
                raise Problem("overloaded", "too many requests are being read", retry_after=1)
            return message

        try:
            await self._app(scope, receive_within_limits, send)
        finally:
            self._held -= size


def strict_route(before: Callable[[Request], None], most: int) -> type[APIRoute]:
    """Return a class of routes that parse bodies with :func:`read_json`, with lists of at most ``most`` entries.

    ``before`` is called before the body is read, to reject a request cheaply.
    """

    class StrictRequest(Request):
        async def json(self) -> Any:
            return read_json(await self.body(), most)

    class StrictRoute(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handle = super().get_route_handler()

            async def handle_strictly(request: Request) -> Response:
                before(request)
                return await handle(StrictRequest(request.scope, request.receive))

            return handle_strictly

    return StrictRoute


def read_json(body: bytes, most: int) -> Any:
    """Return the content of a body.

    Values are counted before they are parsed, because a million small lists would hold the event loop for seconds.
    Fields and entries are counted here, because pydantic collects an error for every wrong one. A lone surrogate in a
    value passes: it is a fault of one text, not of the request.

    Raises:
        Problem: if the body is not JSON, has NaN or an infinity, is nested too deeply, has a number of thousands of
            digits, more than ``MOST_FIELDS`` fields, or a field with more than ``most`` entries.
    """

    def refuse_constant(name: str) -> Any:
        raise ValueError(f"{name} is not JSON")

    def check_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if not all(name.isascii() for name, _ in pairs):  # all known names are
            raise ValueError("unknown field")
        return dict(pairs)

    try:
        text = body.decode("utf-8")
        limit = 4 * (most + MOST_FIELDS)
        if next(islice(MARKS.finditer(text), limit, None), None) is not None:
            raise Problem("invalid", f"the request has far too many values; a list may have {most}")
        value = json.loads(text, parse_constant=refuse_constant, object_pairs_hook=check_names)
    except RecursionError:
        raise Problem("invalid", "the JSON is nested too deeply") from None
    except ValueError as error:  # not UTF-8, not JSON, rejected above, or an integer of more digits than Python reads
        raise Problem("invalid", f"the body is not JSON: {error}") from None
    if isinstance(value, dict):
        if len(value) > MOST_FIELDS:
            raise Problem("invalid", f"the request has {len(value)} fields, more than {MOST_FIELDS}")
        for name, entries in value.items():
            if isinstance(entries, list) and len(entries) > most:
                raise Problem("invalid", f"the list has {len(entries)} entries, more than {most}", field=name)
    return value
