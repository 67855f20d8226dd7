"""What is for people: the page to try the model on, and the description of the API as a page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from jinja2 import Environment, FileSystemLoader
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.staticfiles import StaticFiles

__all__ = ["add_pages", "api_page"]

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
    """Return the type of a field in words."""
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
    """Return the name of what an answer holds."""
    contents = answer.get("content", {}).items()
    return " or ".join(_type(content["schema"]) if "schema" in content else kind for kind, content in contents)
