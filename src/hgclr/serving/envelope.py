"""What every answer has in common: an id, a line in the log, a place in the metrics, and no traceback."""

from __future__ import annotations

import logging
import re
import time
import traceback
import uuid

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hgclr.serving.metrics import Metrics
from hgclr.serving.problems import answer_with

__all__ = ["ACCESS", "Envelope"]

logger = logging.getLogger(__name__)
ACCESS = "hgclr.serving.access"
"""The log of requests, a line each: id, method, endpoint, status, milliseconds, number of texts. Never a text."""
access = logging.getLogger(ACCESS)

SANE = re.compile(rb"[A-Za-z0-9._-]{1,64}")
HEADERS = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store"}


class Envelope:
    """Give every answer an id, count it, log it, and turn what nobody expected into an answer.

    Args:
        app: what answers.
        metrics: where to count.
    """

    def __init__(self, app: ASGIApp, *, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        state = scope.setdefault("state", {})
        state["arrived"] = started = time.monotonic()
        state["id"] = name = _request_id(scope)
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
        endpoint = getattr(scope.get("route"), "path", "other")
        self._metrics.requests.labels(endpoint, status).inc()
        self._metrics.request_seconds.labels(endpoint).observe(seconds)
        if kind := scope["state"].get("problem"):
            self._metrics.errors.labels(kind).inc()
        access.info(
            "%s %s %s %d %.1f ms, %d texts",
            scope["state"]["id"],
            scope["method"],
            endpoint,
            status,
            1000 * seconds,
            scope["state"].get("texts", 0),
        )


def _request_id(scope: Scope) -> str:
    """Return the id that the client gave, if it is fit to be in headers and logs, or else a new one."""
    given: bytes = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"")
    return given.decode("ascii") if SANE.fullmatch(given) else uuid.uuid4().hex
