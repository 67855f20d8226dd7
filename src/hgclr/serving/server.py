"""The server around the application: its listener, a bounded number of connections, and an end that loses nothing."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, ClassVar

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from hgclr.errors import InputError
from hgclr.serving.messages import error_of
from hgclr.serving.service import Service

__all__ = ["Server", "listen", "run"]

logger = logging.getLogger(__name__)

BACKLOG = 2048
"""Connections that wait to be taken."""
TAKEN_AT_ONCE = 16
"""Connections that are taken before the ones there are get their turn again, or another worker may take some."""
KEEP_ALIVE = 75
"""Seconds that an idle connection is kept: longer than proxies do, who would else now and then use one just gone."""
HEADER_TIMEOUT = 10.0
"""Seconds that the head of a request has to come in, counted from the connection or from its first byte."""
READ_TIMEOUT = 60.0
"""Seconds in which a client must have read some more of its answer."""
SEND_TIMEOUT = 5
"""Seconds that answers have to be sent in once all work is done."""
OTHER_FILES = 128
"""Files that the process may need besides its connections."""


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens; port 0 lets the system choose one.

    Raises:
        InputError: if the address is not this machine's or is taken.
    """
    try:
        (family, _, _, _, address), *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        made = socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        raise InputError(
            f"cannot listen on {host}:{port}: {error.strerror}", remedy="choose another with --host and --port"
        ) from None
    # Of sockets that do not say that they are TCP, asyncio turns Nagle's algorithm not off: every answer would be late.
    return socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=made.detach())


def run(
    app: FastAPI,
    listener: socket.socket,
    *,
    started: Callable[[], None] = lambda: None,
    tick: Callable[[], None] = lambda: None,
) -> None:
    """Serve an application of :func:`~hgclr.serving.app.create_app` until told to stop.

    ``started`` is called once it answers, ``tick`` ten times a second.
    """
    Server(app, started, tick).run(sockets=[listener])


class Server(uvicorn.Server):
    """Drain before the door is closed: requests that still come, such as those to ``/readyz``, get their answer."""

    def __init__(
        self, app: FastAPI, started: Callable[[], None] = lambda: None, tick: Callable[[], None] = lambda: None
    ) -> None:
        self._service: Service = app.state.service

        class Connection(_Connection):
            most, idle = _bound(self._service.settings.max_connections), {}

        config = uvicorn.Config(
            app,
            http=Connection,
            access_log=False,  # ours says more, and never a text
            log_config=None,
            server_header=False,
            proxy_headers=False,
            ws="none",
            lifespan="on",
            backlog=TAKEN_AT_ONCE,
            timeout_keep_alive=KEEP_ALIVE,
            timeout_graceful_shutdown=SEND_TIMEOUT,
        )
        super().__init__(config)
        self._started, self._tick = started, tick
        self._end: float | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().set_exception_handler(_tell)
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(BACKLOG)  # what is taken at once was the backlog, too, until now
        self._started()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """Drain on the first signal, end on the second. It is not raised again afterwards: the process ends with 0."""
        if self._end is None:
            self._service.draining = True
            self._end = time.monotonic() + self._service.settings.grace
        else:
            self.should_exit = self.force_exit = True

    async def on_tick(self, counter: int) -> bool:
        """Tell, ten times a second, whether it is time to end."""
        self._service.metrics.refresh()
        self._tick()
        if self._end is not None:
            if late := time.monotonic() >= self._end:
                self._service.abandon()
            self.should_exit = self.should_exit or late or not self._service.in_flight
        return await super().on_tick(counter)


class _Connection(H11Protocol):
    """A connection that does not keep others out: by saying nothing, by slow headers, or by not reading its answer.

    Attributes:
        most: connections of this server.
        idle: those without a request under way, the one that has been so for longest first.
    """

    most: ClassVar[int]
    idle: ClassVar[dict[_Connection, None]]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection; one too many takes the place of the one that is idle longest, or gets 429."""
        self._late: asyncio.TimerHandle | None = None
        self._reading: asyncio.TimerHandle | None = None
        super().connection_made(transport)
        if len(self.connections) > self.most:
            oldest = next(iter(self.idle), None)
            logger.warning("more than %d connections: %s", self.most, "refused" if oldest is None else "idle ones end")
            if oldest is None:
                transport.write(_REFUSAL)
                transport.close()
                return
            oldest.transport.abort()
            self.idle.pop(oldest)
        self.idle[self] = None
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        """Take what has come; the head of a request must be complete in time."""
        super().data_received(data)
        if self._busy:
            self.idle.pop(self, None)
            self._stop_waiting()
        elif self._late is None and not self.transport.is_closing():
            self._expect_head()

    def on_response_complete(self) -> None:
        """Keep the connection for the next request, which may be there already."""
        super().on_response_complete()
        if not self._busy and not self.transport.is_closing():
            self.idle[self] = None

    def timeout_keep_alive_handler(self) -> None:
        """End a connection that nothing comes on, also if its last answer has not been read."""
        self.transport.abort()

    def pause_writing(self) -> None:
        """Wait until the client has read some of its answer, but not for ever."""
        super().pause_writing()
        self._expect_reading()

    def resume_writing(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self.idle.pop(self, None)
        self._stop_waiting()
        if self._reading is not None:
            self._reading.cancel()
        super().connection_lost(exc)

    @property
    def _busy(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _expect_reading(self, before: float = float("inf")) -> None:
        """Look now and then whether the client still reads; what it has not read takes memory."""
        left = self.transport.get_write_buffer_size()
        if left < before:
            self._reading = self.loop.call_later(READ_TIMEOUT, self._expect_reading, left)
        else:
            self.transport.abort()

    def _expect_head(self) -> None:
        self._late = self.loop.call_later(HEADER_TIMEOUT, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


def _refusal() -> bytes:
    body = json.dumps(error_of("overloaded", "too many connections are open")).encode()
    head = "HTTP/1.1 429 Too Many Requests\r\nConnection: close\r\nRetry-After: 1\r\nContent-Type: application/json"
    return f"{head}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


_REFUSAL = _refusal()


def _bound(wanted: int) -> int:
    """Return how many connections there may be: as many as are wanted, and as this process may open."""
    try:
        import resource
    except ImportError:  # there is no such limit
        return wanted
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    possible = wanted if files == resource.RLIM_INFINITY else max(1, files - OTHER_FILES)
    if possible < wanted:
        logger.warning("%d connections at most, not %d: the process may open %d files", possible, wanted, files)
    return min(wanted, possible)


def _tell(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log in a line what went wrong in the loop; not the error's own message, which may quote a text."""
    error = context.get("exception")
    kind = error.strerror if isinstance(error, OSError) else type(error).__name__
    logger.error("%s: %s", context["message"], kind)
