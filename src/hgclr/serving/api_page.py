"""The API's description as a page: every address, what it takes and what it answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hgclr.html_page import Html, Section, page, paragraph, table

__all__ = ["api_page"]

Schema = Mapping[str, Any]


def api_page(description: Schema) -> str:
    """Return an OpenAPI description as one page that loads nothing."""
    endpoints = [
        (method.upper(), path, endpoint)
        for path, methods in description["paths"].items()
        for method, endpoint in methods.items()
    ]
    models = description["components"]["schemas"]
    sections = [Section(f"{method} {path}", _endpoint(endpoint, models)) for method, path, endpoint in endpoints]
    taken = {_body(endpoint) for _, _, endpoint in endpoints}
    sections += [Section(name, _model(model)) for name, model in sorted(models.items()) if name not in taken]
    info = description["info"]
    return page(f"{info['title']} {info['version']}", sections, lead=info["description"])


def _endpoint(endpoint: Schema, models: Schema) -> Html:
    parts = [paragraph(text) for text in endpoint.get("description", endpoint["summary"]).split("\n\n")]
    if name := _body(endpoint):
        parts.append(_model(models[name]))
    rows = [
        (status, answer["description"], _answer(answer)) for status, answer in sorted(endpoint["responses"].items())
    ]
    parts.append(table(("status", "when", "answer"), rows, text_columns=3))
    return Html("\n".join(parts))


def _body(endpoint: Schema) -> str:
    """Return the name of what an endpoint takes, nothing if it takes no body."""
    body = endpoint.get("requestBody")
    return _type(body["content"]["application/json"]["schema"]) if body else ""


def _answer(answer: Schema) -> str:
    """Return the name of what an answer holds."""
    return " or ".join(
        _type(content["schema"]) if "schema" in content else kind for kind, content in answer.get("content", {}).items()
    )


def _model(model: Schema) -> Html:
    required = set(model.get("required", ()))
    rows = [
        (name, _type(field), "yes" if name in required else "no", field.get("description", ""))
        for name, field in model.get("properties", {}).items()
    ]
    lead = paragraph(model.get("description", ""))
    return Html(f"{lead}\n{table(('field', 'type', 'always', 'what it is'), rows, text_columns=4)}") if rows else lead


def _type(schema: Schema) -> str:
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
    return ", ".join([kind, *_limits(schema)])


def _limits(schema: Schema) -> Iterator[str]:
    words = {
        "minimum": "from",
        "exclusiveMinimum": "above",
        "maximum": "up to",
        "minItems": "at least",
        "maxItems": "at most",
        "maxLength": "characters up to",
    }
    return (f"{word} {schema[name]:,g}" for name, word in words.items() if name in schema)
