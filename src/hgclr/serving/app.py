"""The application, routes and around them what no request gets past; and the server that it runs in."""

from __future__ import annotations

import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException

from hgclr.errors import InputError
from hgclr.inference import HierarchicalClassifier
from hgclr.serving.messages import on_http_error, on_invalid
from hgclr.serving.middleware import PUBLIC_PATHS, BodyLimit, KeyCheck, RequestLog
from hgclr.serving.pages import add_pages
from hgclr.serving.routes import describing_routes, health_routes, predicting_routes
from hgclr.serving.service import Service
from hgclr.serving.settings import Settings

__all__ = ["create_app", "listen", "run"]

BACKLOG = 2048
KEEP_ALIVE = 75
"""Seconds that an idle connection is kept: longer than proxies do, who would else now and then use one just gone."""
SEND_TIMEOUT = 5
"""Seconds that answers have to be sent in once all work is done."""


def create_app(classifier: HierarchicalClassifier, settings: Settings | None = None, *, name: str = "model") -> FastAPI:
    """Return the web application that serves a model under a name; its :class:`Service` is ``app.state.service``."""
    settings = settings or Settings()
    service = Service(classifier, settings, name)
    service.metrics.info.info({"version": version("hgclr"), "backend": service.backend})

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        service.start()
        yield
        await service.stop()

    app = FastAPI(
        title="hgclr",
        version=version("hgclr"),
        description="Sort text into a tree of labels.",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        exception_handlers={HTTPException: on_http_error, RequestValidationError: on_invalid},
    )
    app.state.service = service
    for routes in (predicting_routes(service), describing_routes(service), health_routes(service)):
        app.include_router(routes)
    add_pages(app)
    # The last one added comes first.
    app.add_middleware(BodyLimit, limit=settings.body_bytes, deadline=settings.deadline)
    if settings.key is not None:
        app.add_middleware(KeyCheck, key=settings.key)
    app.add_middleware(RequestLog, metrics=service.metrics)
    description = _description(app, settings)
    app.openapi = lambda: description  # type: ignore[method-assign]
    return app


def _description(app: FastAPI, settings: Settings) -> dict[str, Any]:
    """Return the API's description with the limits and the key of this service."""
    description = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    models = description["components"]["schemas"]
    one_text = {"maxLength": settings.characters_per_text, "pattern": "^[^\\u0000]*$"}
    models["PredictRequest"]["properties"]["text"] |= one_text
    models["ExplainRequest"]["properties"]["text"] |= one_text
    texts = models["PredictRequest"]["properties"]["texts"]
    texts["maxItems"] = settings.texts_per_request
    texts["items"]["maxLength"] = settings.characters_per_text
    if settings.key is not None:
        schemes = {"bearer": {"type": "http", "scheme": "bearer"}, "basic": {"type": "http", "scheme": "basic"}}
        description["components"]["securitySchemes"] = schemes
        for path, methods in description["paths"].items():
            if path not in PUBLIC_PATHS:
                for endpoint in methods.values():
                    endpoint["security"] = [{scheme: []} for scheme in schemes]
    return description


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens; port 0 lets the system choose one.

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
    """Serve an application of :func:`create_app` until told to stop; ``started`` is called once it answers."""
    config = uvicorn.Config(
        app,
        access_log=False,  # ours says more, and never a text
        log_config=None,
        server_header=False,
        proxy_headers=False,
        ws="none",
        lifespan="on",
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=SEND_TIMEOUT,
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
