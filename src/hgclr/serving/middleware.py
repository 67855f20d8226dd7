"""Around every request: its id, count and log line, host and key, limits on its body, and strict JSON."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import ipaddress
import json
import logging
import re
import time
import traceback
import uuid
from collections.abc import Callable, Collection, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fastapi.routing import APIRoute
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hgclr.serving.messages import Problem, answer_with
from hgclr.serving.monitoring import ACCESS, Metrics

__all__ = ["PUBLIC_PATHS", "BodyLimit", "HostCheck", "KeyCheck", "RequestLog", "read", "strict_route"]

logger = logging.getLogger(__name__)
access = logging.getLogger(ACCESS)
SANE = re.compile(rb"[A-Za-z0-9._-]{1,64}")
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}
"""Headers of every answer that does not set them itself."""
PUBLIC_PATHS = frozenset({"/livez", "/readyz", "/metrics"})
"""What is answered without the key: orchestrators and Prometheus ask it, and it tells nothing of texts or labels."""
CHALLENGE = 'Basic realm="hgclr", charset="UTF-8", Bearer realm="hgclr"'
BODIES_HELD = 16
"""As many bodies of the largest size are held in memory at a time."""
READ_ON_THE_LOOP = 2**16
"""Bytes of a body that are read at once; longer ones are read in a thread, one at a time, while others are answered."""
MOST_FIELDS = 16
"""Fields of a request, more than any has: each that is unknown would be an error of its own to collect."""


def _header(scope: Scope, name: bytes) -> bytes:
    """Return the first header of a name, nothing if there is none."""
    value: bytes = next((value for header, value in scope["headers"] if header == name), b"")
    return value


class RequestLog:
    """Give every answer an id, count it, log it, and turn what nobody expected into an answer."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = _header(scope, b"x-request-id")  # taken if it is fit to be in headers and logs
        name = given.decode("ascii") if SANE.fullmatch(given) else uuid.uuid4().hex
        started = time.monotonic()
        scope.setdefault("state", {}).update(arrived=started, id=name)
        status = 0

        async def send_on(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["X-Request-Id"] = name
                for header, value in HEADERS.items():
                    headers.setdefault(header, value)
            await send(message)

        try:
            await self._app(scope, receive, send_on)
        except Exception as error:  # the last place where it can still become an answer
            # Not its message, which may quote a text.
            frames = "".join(traceback.format_tb(error.__traceback__))
            logger.error("request %s: %s\n%s", name, type(error).__name__, frames)
            if not status:
                await answer_with(scope, "internal", "something went wrong here")(scope, receive, send_on)
        finally:
            self._count(scope, status, time.monotonic() - started)

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        endpoint, state = getattr(scope.get("route"), "path", "other"), scope["state"]
        self._metrics.requests.labels(endpoint, status).inc()
        self._metrics.request_seconds.labels(endpoint).observe(seconds)
        if kind := state.get("problem"):
            self._metrics.errors.labels(kind).inc()
        parts = state["id"], scope["method"], endpoint, status, 1000 * seconds, state.get("texts", 0)
        access.info("%s %s %s %d %.1f ms, %d texts", *parts)


class HostCheck:
    """Answer only requests for this machine, or for a host that is listed.

    A page from elsewhere can make its own name mean 127.0.0.1 ("DNS rebinding") and then read what a service answers
    that only this machine can reach. Its requests still say in ``Host`` which name they are for.
    """

    def __init__(self, app: ASGIApp, *, hosts: Collection[str]) -> None:
        self._app, self._hosts = app, {host.lower() for host in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self._known(_header(scope, b"host").decode("latin-1").lower()):
            await self._app(scope, receive, send)
            return
        message = "this service answers for this machine only; others are allowed with --allow-host"
        await answer_with(scope, "wrong_host", message)(scope, receive, send)

    def _known(self, host: str) -> bool:
        """Tell whether a host, with or without a port, is this machine or listed; programs need not name any."""
        name = re.sub(r":\d*$", "", host)
        if not name or name in self._hosts or name == "localhost" or name.endswith(".localhost"):
            return True
        try:
            return ipaddress.ip_address(name.removeprefix("[").removesuffix("]")).is_loopback
        except ValueError:
            return False


class KeyCheck:
    """Let nobody in without the key, wherever they want to go, but to what is :data:`PUBLIC_PATHS`.

    Programs show it as ``Authorization: Bearer KEY``. For browsers, which ask for a name and a password, it is the
    password, and any name will do.
    """

    def __init__(self, app: ASGIApp, *, key: str) -> None:
        self._app, self._key = app, key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer with 401 before anything of its body is read."""
        if scope["type"] == "lifespan" or scope["path"] in PUBLIC_PATHS or self._shown(scope):
            await self._app(scope, receive, send)
            return
        answer = answer_with(scope, "unauthorised", "this service needs a key", headers={"WWW-Authenticate": CHALLENGE})
        await answer(scope, receive, send)

    def _shown(self, scope: Scope) -> bool:
        """Tell whether the key is shown, in a time that does not depend on how much of it is right."""
        scheme, _, credentials = _header(scope, b"authorization").partition(b" ")
        if scheme.lower() == b"basic":
            try:
                _, _, credentials = base64.b64decode(credentials.strip(), validate=True).partition(b":")
            except binascii.Error:
                return False
        elif scheme.lower() != b"bearer":
            return False
        return hmac.compare_digest(credentials.strip(), self._key)


class BodyLimit:
    """Let no body be larger than ``limit``, nor all together too large, nor one take longer than ``deadline`` seconds.

    Bytes are counted as they come, whatever the header says.
    """

    def __init__(self, app: ASGIApp, *, limit: int, deadline: float) -> None:
        self._app, self._limit, self._deadline = app, limit, deadline
        self._held = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a body that is announced as too large; let the others be read within the limits."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        too_large = f"the body is larger than {self._limit} bytes"
        announced = _header(scope, b"content-length")
        if announced.isdigit() and int(announced) > self._limit:
            await answer_with(scope, "too_large", too_large)(scope, receive, send)
            return
        size, whole, end = 0, False, time.monotonic() + self._deadline

        async def receive_within_limits() -> Message:
            nonlocal size, whole
            if whole:
                return await receive()
            try:
                message = await asyncio.wait_for(receive(), max(0.0, end - time.monotonic()))
            except TimeoutError:
                raise Problem("deadline", "the body did not come in time") from None
            whole = not message.get("more_body", False)
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
    """Return a class of routes whose bodies are read by :func:`read`, with lists of ``most`` entries.

    ``before`` is told of a request before its body is read; what is to be refused anyway costs next to nothing there.
    """
    reader = ThreadPoolExecutor(1, thread_name_prefix="hgclr-read")  # starts no thread until one is needed

    class StrictRequest(Request):
        async def json(self) -> Any:
            body = await self.body()
            if len(body) <= READ_ON_THE_LOOP:
                return read(body, most)
            return await asyncio.get_running_loop().run_in_executor(reader, read, body, most)

    class StrictRoute(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handle = super().get_route_handler()

            async def strictly(request: Request) -> Response:
                before(request)
                return await handle(StrictRequest(request.scope, request.receive))

            return strictly

    return StrictRoute


def read(body: bytes, most: int) -> Any:
    """Return what a body says.

    It is counted before anything looks at each of its parts: whoever checks types collects an error for every one that
    is wrong. Half of a surrogate pair is let through inside of values: it is the fault of one text, not of all.

    Raises:
        Problem: if it is no JSON, has NaN or an infinity, is nested too deeply or has a number of thousands of digits;
            if it has more fields than any request, or one of them more than ``most`` entries.
    """
    value = _parse(body)
    if isinstance(value, dict):
        if len(value) > MOST_FIELDS:
            raise Problem("invalid", f"the request has {len(value)} fields, more than there are")
        for name, entries in value.items():
            if isinstance(entries, list) and len(entries) > most:
                raise Problem("invalid", f"{len(entries)} entries are more than {most}", field=name)
    return value


def _parse(body: bytes) -> Any:
    try:
        return json.loads(body.decode("utf-8"), parse_constant=_refuse, object_pairs_hook=_fields)
    except RecursionError:
        raise Problem("invalid", "the JSON is nested too deeply") from None
    except UnicodeDecodeError as error:
        raise Problem("invalid", f"the body is not UTF-8 at byte {error.start + 1}") from None
    except json.JSONDecodeError as error:
        raise Problem("invalid", f"the body is no JSON at character {error.pos + 1}: {error.msg}") from None
    except ValueError as error:  # one of the two below, or a whole number of more digits than Python reads
        raise Problem("invalid", f"the body is no JSON: {error}") from None


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no number there")


def _fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    for name, _ in pairs:
        if not name.isascii():  # all of ours are; and others must be quotable in an answer
            raise ValueError("unknown field")
    return dict(pairs)
