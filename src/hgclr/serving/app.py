"""The web application: endpoints, pages and middleware."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from jinja2 import Environment, FileSystemLoader
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.staticfiles import StaticFiles

from hgclr.decisions.review import best_paths, review
from hgclr.decisions.settings import Decisions
from hgclr.errors import InputError, MissingExtraError
from hgclr.files import json_text
from hgclr.inference import HierarchicalClassifier
from hgclr.inference.classifier import PredictedLabel
from hgclr.serving.engine import Answer
from hgclr.serving.messages import (
    PROBLEMS,
    ErrorAnswer,
    ExplainAnswer,
    ExplainRequest,
    ModelAnswer,
    PredictAnswer,
    PredictRequest,
    Problem,
    error_json,
    on_http_error,
    on_invalid,
)
from hgclr.serving.middleware import PUBLIC_PATHS, BodyLimit, KeyCheck, RequestLog, strict_route
from hgclr.serving.monitoring import log_loop_error
from hgclr.serving.service import Service, Settings
from hgclr.serving.workbooks import CSV, UNPACKED, WORKBOOK, to_csv, to_workbook
from hgclr.taxonomy import Taxonomy

LOCAL_HOSTS = ("localhost", "*.localhost", "127.0.0.1", "[::1]")
PROBABILITIES = 2**18
"""Limit on texts times labels in a request for a review or the probability of every label: an answer of about 10 MB."""
SUGGESTIONS = 3
"""Best paths of a text that a review offers."""
LIMITS = ("texts_per_request", "characters_per_text", "body_bytes", "max_queue")  # settings that GET /model returns
FILES = Path(__file__).parent / "page"
TEMPLATES = Path(__file__).parent / "templates"
PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline';"
    " object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "Cache-Control": "private, no-cache",
}


def create_app(
    classifier: HierarchicalClassifier,
    settings: Settings | None = None,
    *,
    name: str = "model",
    supervised: bool = False,
) -> FastAPI:
    """Return the web application that serves a model; its :class:`Service` is ``app.state.service``.

    A ``supervised`` application runs in a worker, and ends the process when one of its threads has ended or hangs.
    """
    settings = settings or Settings()
    service = Service(classifier, settings, name)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        asyncio.get_running_loop().set_exception_handler(log_loop_error)
        service.engine.start()
        watch = asyncio.create_task(service.watch(supervised=supervised))
        yield
        watch.cancel()
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
    for routes in (
        _predicting_routes(service),
        _converting_routes(service),
        _describing_routes(service),
        taxonomy_routes(Taxonomy(**classifier.taxonomy.arguments() | {"descriptions": None})),
        _health_routes(service),
    ):
        app.include_router(routes)
    app.mount("/page", StaticFiles(directory=FILES), name="page")

    @app.get("/", include_in_schema=False)
    async def index() -> Response:
        return FileResponse(FILES / "index.html", headers=PAGE_HEADERS)

    # FastAPI's own page loads its scripts from another server.
    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return HTMLResponse(api_page(app.openapi()), headers=PAGE_HEADERS)

    # The middleware added last runs first.
    app.add_middleware(BodyLimit, limit=settings.body_bytes, deadline=settings.deadline)
    if settings.key is not None:
        app.add_middleware(KeyCheck, key=settings.key)
    if settings.hosts is not None:
        # DNS rebinding: a foreign page can point its own host name to 127.0.0.1 and would then read our answers.
        hosts = [*LOCAL_HOSTS, *settings.hosts]
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=hosts, www_redirect=False)
    app.add_middleware(RequestLog, metrics=service.metrics)
    description = _description(app, settings)
    app.openapi = lambda: description  # type: ignore[method-assign]
    return app


def _description(app: FastAPI, settings: Settings) -> dict[str, Any]:
    """Return the OpenAPI description with this service's limits and ways to send the key."""
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


def _json_answer(content: Any) -> Response:
    """Return content as JSON, without FastAPI's check against the schema, which is slow for large answers."""
    return Response(json_text(content, allow_nan=False, separators=(",", ":")), media_type="application/json")


def _problems(*kinds: str) -> dict[int | str, dict[str, Any]]:
    """Return the error answers of an endpoint for the OpenAPI description."""
    host = {"description": "The host is not allowed.", "content": {"text/plain": {"schema": {"type": "string"}}}}
    answers: dict[int | str, dict[str, Any]] = {400: host}
    for kind in (*kinds, "unauthorised", "method_not_allowed", "too_large", "not_ready", "internal"):
        status, text = PROBLEMS[kind]
        answers[status] = {"model": ErrorAnswer, "description": text}
    seconds = {"description": "Seconds to wait.", "schema": {"type": "integer", "minimum": 1}}
    for status in {429, 503} & answers.keys():
        answers[status]["headers"] = {"Retry-After": seconds}
    return answers


def _predicting_routes(service: Service) -> APIRouter:
    """Return the endpoints that label and explain texts."""

    def before(request: Request) -> None:
        service.require_ready()
        if request.url.path == "/predict":
            service.engine.queue.require_room(1)

    def check_lengths(texts: Sequence[str], *, alone: bool) -> None:
        longest = service.settings.characters_per_text
        for place, text in enumerate(texts):
            if len(text) > longest:
                field = "text" if alone else f"texts.{place}"
                raise Problem("invalid", f"the text has {len(text)} characters, more than {longest}", field=field)

    router = APIRouter(route_class=strict_route(before, service.settings.texts_per_request))
    ids = set(service.classifier.taxonomy.ids)

    @router.post(
        "/predict",
        summary="Label texts",
        response_model=PredictAnswer,
        responses=_problems("overloaded", "invalid", "deadline"),
    )
    async def predict(wanted: PredictRequest, request: Request) -> Response:
        """Predict labels for one text or several.

        The answers are in the order of the texts. A text that cannot be labelled has an error in its place.
        """
        alone = "text" in wanted.model_fields_set
        texts = [wanted.text] if alone else wanted.texts
        request.state.texts = len(texts)
        check_lengths(texts, alone=alone)
        for field in ("probabilities", "review"):
            if getattr(wanted, field) and len(texts) * len(ids) > PROBABILITIES:
                message = f"texts times labels may be {PROBABILITIES} at most with {field}: send fewer texts"
                raise Problem("invalid", message, field=field)
        decisions = service.decisions(
            rule=wanted.rule, threshold=wanted.threshold, paths=wanted.paths, abstain_below=wanted.abstain_below
        )
        pending = service.engine.submit(texts, decisions)
        answers = await service.wait_for(pending.future, request, lambda why: service.engine.drop(pending, why))
        problems = [answer for answer in answers if isinstance(answer, Problem)]
        if problems and (alone or all(isinstance(one, Problem) and one.kind == "internal" for one in answers)):
            raise problems[0]
        for problem in problems:
            service.metrics.errors.labels(problem.kind).inc()
        return _json_answer(
            {
                "predictions": [_text_answer(service, answer, wanted, decisions) for answer in answers],
                "seconds": round(time.monotonic() - request.state.arrived, 6),
            }
        )

    @router.post(
        "/explain",
        summary="Explain labels",
        response_model=ExplainAnswer,
        responses=_problems("overloaded", "invalid", "deadline"),
    )
    async def explain(wanted: ExplainRequest, request: Request) -> Response:
        """Find the words of a text that carry its labels, and test whether those words alone suffice.

        The service computes one explanation at a time.
        """
        check_lengths([wanted.text], alone=True)
        for place, label in enumerate(wanted.labels or ()):
            if label not in ids:
                raise Problem("invalid", f"the model has no label with the id {label!r:.80}", field=f"labels.{place}")
        if wanted.method not in ("auto", *service.methods):
            raise Problem("invalid", f"this model supports {', '.join(service.methods)} and auto", field="method")
        classifier, method, labels = service.classifier, wanted.method, wanted.labels
        future, drop = service.run_aside(
            lambda check_wanted: classifier.explain(
                wanted.text, labels=labels, method=method, keep=wanted.keep, before_pass=check_wanted
            ).to_json()
        )
        try:
            return _json_answer(await service.wait_for(future, request, lambda _: drop()))
        except InputError as error:
            raise Problem("invalid", str(error), field="text") from None

    return router


def _text_answer(service: Service, answer: Answer, wanted: PredictRequest, decisions: Decisions) -> dict[str, Any]:
    if isinstance(answer, Problem):
        return error_json(answer.kind, answer.detail)
    prediction, probabilities = answer
    fields, taxonomy = prediction.to_json(), service.classifier.taxonomy
    if wanted.probabilities:
        values = probabilities.astype(float).round(4).tolist()
        fields["probabilities"] = dict(zip(taxonomy.ids, values, strict=True))
    if wanted.review:
        row = probabilities[None]
        found, (ends,) = review(decisions, row), best_paths(row, decisions.decoder, SUGGESTIONS)
        best = [PredictedLabel(taxonomy.ids[end], taxonomy.path_names(end), probability) for end, probability in ends]
        fields["review"] = {"score": round(float(found.score[0]), 4), "reason": found.reason[0]}
        fields["suggestions"] = [label.to_json() for label in best]
    return fields


def _converting_routes(service: Service) -> APIRouter:
    """Return the endpoint that converts tables for the page."""
    router = APIRouter()
    kinds = {kind: {"schema": {"type": "string", "format": "binary"}} for kind in (CSV, WORKBOOK)}

    @router.post(
        "/workbook",
        summary="Convert a table",
        response_class=Response,
        openapi_extra={"requestBody": {"required": True, "content": kinds}},
        responses={200: {"content": kinds}, **_problems("overloaded", "invalid", "deadline")},
    )
    async def workbook(request: Request) -> Response:
        """Return the first sheet of an Excel workbook (.xlsx) as CSV, or CSV as a workbook, by the Content-Type.

        The service converts one table at a time.
        """
        given, body = request.headers.get("content-type", "").partition(";")[0].strip().lower(), await request.body()
        if given not in kinds:
            raise Problem("invalid", f"the Content-Type must be {CSV} or {WORKBOOK}", field="Content-Type")
        largest = UNPACKED * service.settings.body_bytes
        future, drop = service.run_aside(
            lambda check_wanted: (
                to_csv(body, largest, check_wanted) if given == WORKBOOK else to_workbook(body, check_wanted)
            )
        )
        try:
            content = await service.wait_for(future, request, lambda _: drop())
        except InputError as error:
            raise Problem("invalid", error.what + (f"; {error.remedy}" if error.remedy else "")) from None
        except MissingExtraError as error:
            raise Problem("invalid", str(error)) from None
        return Response(content, headers={"Content-Type": CSV if given == WORKBOOK else WORKBOOK})

    return router


def _describing_routes(service: Service) -> APIRouter:
    """Return the endpoint that describes the model; its answer is built once."""
    router = APIRouter()
    classifier, taxonomy = service.classifier, service.classifier.taxonomy
    model = _json_answer(
        {
            "name": service.name,
            "labels": len(taxonomy),
            "depth": taxonomy.depth,
            "max_length": classifier.max_length,
            "backend": service.backend,
            "decisions": classifier.decisions.to_json(),
            "limits": {name: getattr(service.settings, name) for name in LIMITS} | {"probabilities": PROBABILITIES},
            "explain": service.methods,
            "version": version("hgclr"),
        }
    )

    @router.get("/model", summary="The model", response_model=ModelAnswer, responses=_problems())
    async def get_model() -> Response:
        """Return the model's name and size, its decisions, and the limits of requests."""
        return Response(model.body, media_type="application/json")

    return router


def taxonomy_routes(taxonomy: Taxonomy) -> APIRouter:
    """Return the endpoint with the label tree; its answer is built once."""
    router = APIRouter()
    labels = _json_answer(taxonomy.to_json())
    headers = {"ETag": f'"{hashlib.sha256(labels.body).hexdigest()[:32]}"', "Cache-Control": "private, no-cache"}

    @router.get(
        "/taxonomy",
        summary="The label tree",
        response_model=dict[str, list[dict[str, Any]]],
        responses={304: {"description": "The label tree matches the ETag in If-None-Match."}, **_problems()},
    )
    async def get_taxonomy(request: Request) -> Response:
        """Return all labels in the model's order, each with the id of its parent.

        ``parents``, ``alt_labels`` and ``code`` are there for labels that have several parents, or one of these.
        """
        known = {tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")}
        if headers["ETag"] in known:
            return Response(status_code=304, headers=headers)
        return Response(labels.body, headers=headers, media_type="application/json")

    return router


def _health_routes(service: Service) -> APIRouter:
    """Return the endpoints for orchestrators and Prometheus."""
    router = APIRouter()

    @router.get("/livez", summary="Alive?", response_model=dict[str, str], responses=_problems())
    async def livez() -> Response:
        """Return 200 if the process works, 503 if it has to be restarted."""
        if service.state == "broken":
            raise Problem("not_ready", "a thread has ended or hangs: restart the service")
        return _json_answer({"status": "alive"})

    @router.get("/readyz", summary="Ready?", response_model=dict[str, str], responses=_problems())
    async def readyz() -> Response:
        """Return 200 if the service accepts requests: the model is loaded and warmed up."""
        service.require_ready()
        return _json_answer({"status": "ready"})

    @router.get(
        "/metrics",
        summary="Metrics",
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **_problems()},
    )
    async def metrics() -> Response:
        """Return all metrics in the Prometheus text format."""
        return Response(service.metrics.text(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    return router


def api_page(description: Mapping[str, Any]) -> str:
    """Return an OpenAPI description as one HTML page that loads no other file."""
    environment = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True)
    return environment.get_template("api.html").render(**description)
