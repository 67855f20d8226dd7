"""Run a service until it is told to stop, and then until what is in flight has landed."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from types import FrameType

import uvicorn
from fastapi import FastAPI

from hgclr.errors import InputError
from hgclr.serving.service import Service

__all__ = ["listen", "run"]

BACKLOG = 2048
KEEP_ALIVE = 75
"""Seconds that an idle connection is kept: longer than proxies do, who would else now and then use one just gone."""
LAST_WORDS = 5
"""Seconds that answers have to be sent in once all work is done."""


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens.

    Args:
        host: name or address of this machine.
        port: the port; 0 lets the system choose one.

    Raises:
        InputError: if the address is not this machine's or is taken.
    """
    try:
        (family, _, _, _, address), *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        raise InputError(
            f"cannot listen on {host}:{port}: {error.strerror}", remedy="choose another with --host and --port"
        ) from None


def run(app: FastAPI, listener: socket.socket, *, started: Callable[[], None] = lambda: None) -> None:
    """Serve an application that :func:`~hgclr.serving.app.create_app` made; return when it has been told to stop.

    Args:
        app: the application.
        listener: where to serve it.
        started: called once requests are answered.
    """
    config = uvicorn.Config(
        app,
        access_log=False,  # ours says more, and never a text
        log_config=None,
        server_header=False,
        proxy_headers=False,
        ws="none",
        lifespan="on",
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=LAST_WORDS,
    )
    _Server(config, app.state.service, started).run(sockets=[listener])


class _Server(uvicorn.Server):
    """Drain before the door is closed: requests that still come, such as those to ``/readyz``, get their answer."""

    def __init__(self, config: uvicorn.Config, service: Service, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._service, self._started = service, started
        self._end: float | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
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
        if self._end is not None:
            if late := time.monotonic() >= self._end:
                self._service.abandon()
            self.should_exit = self.should_exit or late or not self._service.in_flight
        return await super().on_tick(counter)
