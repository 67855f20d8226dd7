"""Bodies: never more bytes than allowed, in one request or in all together, and none waited for without end."""

from __future__ import annotations

import asyncio
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hgclr.serving.problems import Problem, answer_with

__all__ = ["BodyLimit"]

HELD = 16
"""As many bodies of the largest size are held in memory at a time."""


class BodyLimit:
    """Count the bytes of bodies as they come, whatever their header says.

    Args:
        app: what reads the bodies.
        limit: bytes in one.
        deadline: seconds within which one must have come.
    """

    def __init__(self, app: ASGIApp, *, limit: int, deadline: float) -> None:
        self._app, self._limit, self._deadline = app, limit, deadline
        self._held = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a body that is announced as too large; let the others be read within the limits."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        announced = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
        if announced.isdigit() and int(announced) > self._limit:
            answer = answer_with(scope, "too_large", self._too_large)
            await answer(scope, receive, send)
            return
        body = _Body(self, receive)
        try:
            await self._app(scope, body.receive, send)
        finally:
            self._held -= body.size

    def take(self, more: int, size: int) -> None:
        """Count bytes of a body that has ``size`` of them now.

        Raises:
            Problem: if they are too many.
        """
        self._held += more
        if size > self._limit:
            raise Problem("too_large", self._too_large)
        if self._held > HELD * self._limit:
            raise Problem("overloaded", "too many requests are being read", retry_after=1)

    @property
    def deadline(self) -> float:
        """Seconds within which a body must have come."""
        return self._deadline

    @property
    def _too_large(self) -> str:
        return f"the body is larger than {self._limit} bytes"


class _Body:
    """The body of one request on its way in."""

    def __init__(self, limits: BodyLimit, receive: Receive) -> None:
        self.size = 0
        self._limits, self._receive = limits, receive
        self._end = time.monotonic() + limits.deadline
        self._whole = False

    async def receive(self) -> Message:
        """Return the next part; once the body is whole, whatever comes."""
        if self._whole:
            return await self._receive()
        try:
            message = await asyncio.wait_for(self._receive(), max(0.0, self._end - time.monotonic()))
        except TimeoutError:
            raise Problem("deadline", "the body did not come in time") from None
        self._whole = not message.get("more_body", False)
        more = len(message.get("body", b""))
        self.size += more
        self._limits.take(more, self.size)
        return message
