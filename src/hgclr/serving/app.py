"""The application: the endpoints, the pages for people, and around them what no request gets past."""

from __future__ import annotations

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
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.staticfiles import StaticFiles

from hgclr.errors import InputError
from hgclr.files import json_text
from hgclr.inference import HierarchicalClassifier
from hgclr.serving.engine import Answer, Failure, QueueFullError, fault_of
from hgclr.serving.messages import (
    PROBLEMS,
    ErrorAnswer,
    ExplainAnswer,
    ExplainRequest,
    HealthAnswer,
    ModelAnswer,
    PredictAnswer,
    PredictRequest,
    Problem,
    ProblemType,
    TaxonomyAnswer,
    error_of,
    on_http_error,
    on_invalid,
)
from hgclr.serving.middleware import PUBLIC_PATHS, BodyLimit, HostCheck, KeyCheck, RequestLog, strict_route
from hgclr.serving.monitoring import CONTENT_TYPE
from hgclr.serving.service import ClientGoneError, Service, methods_of
from hgclr.serving.settings import PROBABILITIES, Settings
from hgclr.taxonomy import Taxonomy

__all__ = ["add_pages", "api_page", "create_app", "describing_routes", "health_routes", "predicting_routes"]

DIGITS = 4
"""Decimal places of a probability: finer than what a text's neighbours in its batch change in it."""
CLIENT_GONE = 499
"""The status, in metrics and log, of an answer that nobody was there to take."""
FILES = Path(__file__).parent / "page"
TEMPLATES = Path(__file__).parent / "templates"
PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline';"
    " object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "Cache-Control": "private, no-cache",
}
DOCS_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none'",
    "Cache-Control": "private, no-cache",
}
LIMITS = {
    "minimum": "from",
    "exclusiveMinimum": "above",
    "maximum": "up to",
    "minItems": "at least",
    "maxItems": "at most",
    "maxLength": "characters up to",
}
"""Limits of a field in a schema, and what they are called on the page."""


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


def _json_answer(content: Any) -> Response:
    """Return content as JSON; it is checked against no schema, as the framework would do, for there may be much."""
    body = json_text(content, allow_nan=False, separators=(",", ":"))
    return Response(body, media_type="application/json")


def _problems(*kinds: ProblemType) -> dict[int | str, dict[str, Any]]:
    everywhere: tuple[ProblemType, ...] = (
        "unauthorised",
        "wrong_host",
        "method_not_allowed",
        "too_large",
        "internal",
    )
    retry = {"Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer", "minimum": 1}}}
    return {
        status: {"model": ErrorAnswer, "description": text, **({"headers": retry} if kind == "overloaded" else {})}
        for kind in (*kinds, *everywhere)
        for status, text in [PROBLEMS[kind]]
    }


def predicting_routes(service: Service) -> APIRouter:
    """Return what labels and explains texts."""

    def before(request: Request) -> None:
        service.require_ready()
        if request.url.path == "/predict" and service.engine.full:
            raise _overloaded(service)

    router = APIRouter(route_class=strict_route(before, service.settings.texts_per_request))
    ids = set(service.classifier.taxonomy.ids)
    methods = methods_of(service.classifier)

    @router.post(
        "/predict",
        summary="Label texts",
        response_model=PredictAnswer,
        responses=_problems("overloaded", "invalid", "deadline", "not_ready"),
    )
    async def predict(wanted: PredictRequest, request: Request) -> Response:
        """Give one text, or several, labels from the tree.

        The answers are in the order of the texts. Of several texts, one that cannot be labelled fails alone: it has an
        error in its place.
        """
        alone = "text" in wanted.model_fields_set
        texts = [wanted.text] if alone else wanted.texts
        request.state.texts = len(texts)
        _check_lengths(texts, service.settings, alone=alone)
        if wanted.probabilities and len(texts) * len(ids) > PROBABILITIES:
            raise Problem("invalid", f"more than {PROBABILITIES} probabilities are asked for", field="probabilities")
        try:
            decisions = service.decisions(
                rule=wanted.rule,
                threshold=wanted.threshold,
                paths=wanted.paths,
                abstain_below=wanted.abstain_below,
            )
            pending = service.engine.submit(texts, decisions, probabilities=wanted.probabilities)
        except QueueFullError:
            raise _overloaded(service) from None
        try:
            answers = await service.wait_for(pending.future, request, lambda why: service.engine.drop(pending, why))
        except ClientGoneError:
            return Response(status_code=CLIENT_GONE)
        return _predictions(service, answers, request, alone=alone)

    @router.post(
        "/explain",
        summary="Explain labels",
        response_model=ExplainAnswer,
        responses=_problems("overloaded", "invalid", "deadline", "not_ready"),
    )
    async def explain(wanted: ExplainRequest, request: Request) -> Response:
        """Tell which words of a text carry its labels, and whether those words alone would do.

        Explanations are made one at a time, beside the predictions.
        """
        _check_lengths([wanted.text], service.settings, alone=True)
        if fault := fault_of(wanted.text):
            raise Problem("invalid", fault, field="text")
        for place, label in enumerate(wanted.labels or ()):
            if label not in ids:
                raise Problem("invalid", f"the model has no label with the id {label!r:.80}", field=f"labels.{place}")
        if wanted.method not in ("auto", *methods):
            raise Problem("invalid", f"this model has the methods {', '.join(methods)}", field="method")
        try:
            future = service.explanations.submit(wanted.text, wanted.labels, wanted.method, wanted.keep)
        except QueueFullError:
            raise Problem("overloaded", "too many explanations wait", retry_after=1) from None
        try:
            explanation = await service.wait_for(future, request, lambda _: future.cancel())
        except ClientGoneError:
            return Response(status_code=CLIENT_GONE)
        except InputError as error:
            raise Problem("invalid", str(error), field="text") from None
        return _json_answer(explanation)

    return router


def _check_lengths(texts: Sequence[str], settings: Settings, *, alone: bool) -> None:
    """Refuse texts that are too long, in the field ``texts`` unless there is one ``alone``."""
    longest = settings.characters_per_text
    for place, text in enumerate(texts):
        if len(text) > longest:
            field = "text" if alone else f"texts.{place}"
            raise Problem("invalid", f"the text has {len(text)} characters, more than {longest}", field=field)


def _overloaded(service: Service) -> Problem:
    return Problem(
        "overloaded",
        f"{service.engine.waiting} texts wait, and no more than {service.settings.max_queue} may",
        retry_after=service.engine.wait,
    )


def _predictions(service: Service, answers: Sequence[Answer], request: Request, *, alone: bool) -> Response:
    """Return the answer to a request; if no text has labels and it is our fault, or the only text's own, an error."""
    failures = [answer for answer in answers if isinstance(answer, Failure)]
    internal = [failure for failure in failures if failure.kind == "internal"]
    if len(internal) == len(answers):
        raise Problem("internal", internal[0].message)
    if alone and failures:
        raise Problem("invalid", failures[0].message, field="text")
    for failure in failures:
        service.metrics.errors.labels(failure.kind).inc()
    return _json_answer(
        {
            "predictions": [_text_answer(service, answer) for answer in answers],
            "seconds": round(time.monotonic() - request.state.arrived, 6),
        }
    )


def _text_answer(service: Service, answer: Answer) -> dict[str, Any]:
    if isinstance(answer, Failure):
        return error_of(answer.kind, answer.message)
    fields = answer.prediction.to_json()
    if answer.probabilities is not None:
        values = answer.probabilities.round(DIGITS).astype(float).round(DIGITS).tolist()
        fields["probabilities"] = dict(zip(service.classifier.taxonomy.ids, values, strict=True))
    return fields


def describing_routes(service: Service) -> APIRouter:
    """Return what tells of the model."""
    router = APIRouter()
    tree, model = _json_answer(_tree(service.classifier.taxonomy)), _json_answer(_model(service))
    headers = {"ETag": f'"{hashlib.sha256(tree.body).hexdigest()[:32]}"', "Cache-Control": "private, no-cache"}

    @router.get(
        "/taxonomy",
        summary="The label tree",
        response_model=TaxonomyAnswer,
        responses={304: {"description": "It is still the one with the ETag in If-None-Match."}, **_problems()},
    )
    async def taxonomy(request: Request) -> Response:
        """Give all labels in the model's order, each with the id of its parent."""
        known = {tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")}
        if headers["ETag"] in known:
            return Response(status_code=304, headers=headers)
        return Response(tree.body, headers=headers, media_type="application/json")

    @router.get("/model", summary="The model", response_model=ModelAnswer, responses=_problems())
    async def describe() -> Response:
        """Tell what is served, how it decides, and what requests may be."""
        return Response(model.body, media_type="application/json")

    return router


def _tree(taxonomy: Taxonomy) -> dict[str, list[dict[str, str | None]]]:
    parents = [taxonomy.ids[parent] if parent >= 0 else None for parent in taxonomy.parents.tolist()]
    rows = zip(taxonomy.ids, taxonomy.names, parents, strict=True)
    return {"labels": [{"id": label, "name": name, "parent": parent} for label, name, parent in rows]}


def _model(service: Service) -> dict[str, object]:
    settings, classifier = service.settings, service.classifier
    return {
        "name": service.name,
        "labels": len(classifier.taxonomy),
        "depth": classifier.taxonomy.depth,
        "max_length": service.engine.max_length,
        "backend": service.backend,
        "decisions": classifier.decisions.to_json(),
        "limits": {
            "texts_per_request": settings.texts_per_request,
            "characters_per_text": settings.characters_per_text,
            "body_bytes": settings.body_bytes,
            "queue": settings.max_queue,
            "probabilities": PROBABILITIES,
        },
        "explain": methods_of(classifier),
        "version": version("hgclr"),
    }


def health_routes(service: Service) -> APIRouter:
    """Return what tells how the service is."""
    router = APIRouter()

    @router.get("/livez", summary="Alive?", response_model=HealthAnswer, responses=_problems("not_ready"))
    async def livez() -> Response:
        """Tell whether the process works; one that does not should be started again."""
        if service.state == "broken":
            raise Problem("not_ready", "a thread has ended")
        return _json_answer({"status": "alive"})

    @router.get("/readyz", summary="Ready?", response_model=HealthAnswer, responses=_problems("not_ready"))
    async def readyz() -> Response:
        """Tell whether requests are taken: the model is loaded and warm, and the service is not about to stop."""
        service.require_ready()
        return _json_answer({"status": "ready"})

    @router.get(
        "/metrics",
        summary="Metrics",
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **_problems()},
    )
    async def metrics() -> Response:
        """Give all metrics in Prometheus' format."""
        return Response(service.metrics.text(), headers={"Content-Type": CONTENT_TYPE})

    return router


class _PageFiles(StaticFiles):
    """The files of the page, asked for anew when they have changed."""

    def file_response(self, *args: object, **kwargs: object) -> Response:
        response = super().file_response(*args, **kwargs)  # type: ignore[arg-type]
        response.headers.update(PAGE_HEADERS)
        return response


def add_pages(app: FastAPI) -> None:
    """Add the pages to an application whose other routes are there."""
    app.mount("/page", _PageFiles(directory=FILES, check_dir=False), name="page")

    @app.get("/", include_in_schema=False)
    async def index() -> Response:
        if not (FILES / "index.html").is_file():
            raise HTTPException(404, "this installation has no page")
        return FileResponse(FILES / "index.html", headers=PAGE_HEADERS)

    # The framework's own page would load its program from another server.
    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return HTMLResponse(api_page(app.openapi()), headers=DOCS_HEADERS)


def api_page(description: Mapping[str, Any]) -> str:
    """Return an OpenAPI description as one page that loads nothing."""
    models = description["components"]["schemas"]
    endpoints, taken = [], set()
    for path, methods in description["paths"].items():
        for method, endpoint in methods.items():
            body = endpoint.get("requestBody")
            name = _type(body["content"]["application/json"]["schema"]) if body else None
            taken.add(name)
            text = endpoint.get("description", endpoint["summary"])
            title = f"{method.upper()} {path}"
            endpoints.append({**endpoint, "title": title, "text": text, "body": models.get(name)})
    environment = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True)
    environment.filters |= {"type": _type, "content": _content}
    others = {name: model for name, model in sorted(models.items()) if name not in taken}
    return environment.get_template("api.html").render(info=description["info"], endpoints=endpoints, models=others)


def _type(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if options := schema.get("anyOf"):
        return " or ".join(map(_type, options))
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    kind = str(schema.get("type", "anything"))
    if kind == "array":
        kind = f"list of {_type(schema.get('items', {}))}"
    return ", ".join([kind, *(f"{word} {schema[name]:,g}" for name, word in LIMITS.items() if name in schema)])


def _content(answer: Mapping[str, Any]) -> str:
    contents = answer.get("content", {}).items()
    return " or ".join(_type(content["schema"]) if "schema" in content else kind for kind, content in contents)
