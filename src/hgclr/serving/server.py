"""The server: uvicorn with our limits, in one process or in several workers."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import uvicorn
from uvicorn.config import STARTUP_FAILURE
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.supervisors import Multiprocess

from hgclr.errors import HGCLRError, InputError
from hgclr.serving.monitoring import SHARED_FOLDER, start_log

if TYPE_CHECKING:
    from fastapi import FastAPI

    from hgclr.inference import HierarchicalClassifier
    from hgclr.serving.service import Settings

logger = logging.getLogger(__name__)

KEEP_ALIVE = 75
"""Seconds that an idle connection stays open: longer than in common proxies, so that they never use a closed one."""
HEAD_SECONDS = 20.0
"""Seconds for the headers of a connection's first request."""
UNREAD_SECONDS = 60
"""Seconds after which a client that does not read its answer is disconnected."""
HUNG = 60
"""Seconds without a heartbeat after which a worker is replaced; heartbeats start after a worker's imports."""
OTHER_FILES = 128
"""Open files of the process besides its connections."""
THREADS = ("OMP_NUM_THREADS", "RAYON_NUM_THREADS")
"""Environment variables for the threads of torch and onnxruntime, and of the tokenizer."""


class TimedProtocol(H11Protocol):
    """uvicorn's connection, closed if no request arrives.

    uvicorn only limits the pause after a request: a new connection that sends nothing would stay open for ever.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.loop.call_later(HEAD_SECONDS, self._close_without_request, None)

    def _close_without_request(self, last: object) -> None:
        """Close the connection if no request has arrived since the ``last`` one and none is being answered."""
        if self.transport.is_closing():
            return
        if self.cycle is None or (self.cycle is last and self.cycle.response_complete):
            self.transport.abort()
        else:
            self.loop.call_later(KEEP_ALIVE, self._close_without_request, self.cycle)


class Supervisor(Multiprocess):
    """uvicorn's supervisor, which closes its copy of the listener before it stops the workers.

    Otherwise new connections would wait unanswered until the last worker has finished.
    """

    def terminate_all(self) -> None:
        for listener in self.sockets:
            listener.close()
        super().terminate_all()


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; with port 0 the system chooses the port.

    Raises:
        InputError: if the address belongs to another machine or is in use.
    """
    try:
        (family, _, _, _, address), *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        made = socket.create_server(address[:2], family=family, backlog=2048)  # as uvicorn does
    except OSError as error:
        raise InputError(
            f"cannot listen on {host}:{port}: {error.strerror}", remedy="choose another address with --host and --port"
        ) from None
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # accepted connections inherit it
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNREAD_SECONDS * 1000)
    # asyncio turns Nagle's algorithm off only for sockets with the protocol set to TCP.
    return socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=made.detach())


def server_config(app: FastAPI | Callable[[], FastAPI], settings: Settings, **options: Any) -> uvicorn.Config:
    """Return uvicorn's settings for an application or, with ``factory=True``, for a function that returns one."""
    return uvicorn.Config(
        app,
        http=TimedProtocol,
        limit_concurrency=settings.max_connections,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=settings.grace,
        access_log=False,  # hgclr.serving.access replaces it
        log_config=None,
        server_header=False,
        proxy_headers=False,
        ws="none",
        lifespan="on",
        **options,
    )


def raise_file_limit(connections: int) -> None:
    """Raise the limit on open files to twice the connections, as far as the system allows."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * connections + OTHER_FILES
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def run(app: FastAPI, listener: socket.socket, settings: Settings | None = None) -> None:
    """Serve an application until SIGTERM or Ctrl-C; the settings are by default those of its service."""
    settings = settings or app.state.service.settings
    raise_file_limit(settings.max_connections)
    # uvicorn raises the signal again after it has stopped; the default handler would make the exit code nonzero.
    signal.signal(signal.SIGTERM, lambda *_: None)
    with suppress(KeyboardInterrupt):
        uvicorn.Server(server_config(app, settings)).run(sockets=[listener])


def run_workers(app: Callable[[], FastAPI], settings: Settings, listener: socket.socket, count: int) -> None:
    """Serve with ``count`` workers, each with the model in memory, until SIGTERM or Ctrl-C.

    uvicorn replaces a worker that dies or hangs. The workers share the cores equally, unless the environment sets the
    number of threads. ``app``, such as a partial of :func:`worker_app`, is pickled.

    Raises:
        InputError: if a worker cannot load the model.
    """
    from hgclr.inference.backends import usable_threads

    threads = os.environ.get(THREADS[0]) or str(max(1, usable_threads() // count))
    for name in THREADS:
        os.environ.setdefault(name, threads)
    raise_file_limit(settings.max_connections)
    config = server_config(app, settings, factory=True, workers=count, timeout_worker_healthcheck=HUNG)
    with tempfile.TemporaryDirectory(prefix="hgclr-metrics-", ignore_cleanup_errors=True) as folder:
        os.environ[SHARED_FOLDER] = folder
        try:
            supervisor = Supervisor(config, sockets=[listener])
            supervisor.run()
        finally:
            del os.environ[SHARED_FOLDER]
    if any(worker.exitcode == STARTUP_FAILURE for worker in supervisor.processes):
        raise InputError("the workers cannot load the model", remedy="see the error in the log above")


def worker_app(
    load: Callable[[], HierarchicalClassifier], settings: Settings, name: str, *, level: int, log_requests: bool
) -> FastAPI:
    """Set up the log of a worker, and return its application."""
    logging.getLogger("hgclr").setLevel(level)
    start_log(requests=log_requests)
    from hgclr.serving.app import create_app

    try:
        return create_app(load(), settings, name=name, supervised=True)
    except HGCLRError as error:
        logger.error("%s", error)
        time.sleep(1)  # a heartbeat first: the supervisor waits HUNG seconds for one that an ending process never sends
        os._exit(STARTUP_FAILURE)  # tells the supervisor not to start another worker
