"""The application: the routes, and around them what no request gets past."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException

from hgclr.inference import HierarchicalClassifier
from hgclr.serving.messages import on_http_error, on_invalid
from hgclr.serving.middleware import PUBLIC_PATHS, BodyLimit, HostCheck, KeyCheck, RequestLog
from hgclr.serving.routes import add_pages, describing_routes, health_routes, predicting_routes
from hgclr.serving.service import Service
from hgclr.serving.settings import Settings

__all__ = ["create_app"]


def create_app(classifier: HierarchicalClassifier, settings: Settings | None = None, *, name: str = "model") -> FastAPI:
    """Return the web application that serves a model under a name; its :class:`Service` is ``app.state.service``."""
    settings = settings or Settings()
    service = Service(classifier, settings, name)
    service.metrics.describe(version("hgclr"), service.backend)

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
    if settings.hosts is not None:
        app.add_middleware(HostCheck, hosts=settings.hosts)
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
