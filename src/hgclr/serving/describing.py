"""``GET /taxonomy`` and ``GET /model``: what is served, as it was when the service started."""

from __future__ import annotations

import hashlib
from importlib.metadata import version

from fastapi import APIRouter, Request
from starlette.responses import Response

from hgclr.serving.answers import json_answer, problems
from hgclr.serving.explanations import methods_of
from hgclr.serving.messages import ModelAnswer, TaxonomyAnswer
from hgclr.serving.service import Service
from hgclr.serving.text_limits import PROBABILITIES
from hgclr.taxonomy import Taxonomy

__all__ = ["describing_routes"]


def describing_routes(service: Service) -> APIRouter:
    """Return what tells of the model."""
    router = APIRouter()
    tree, model = json_answer(_tree(service.classifier.taxonomy)), json_answer(_model(service))
    headers = {"ETag": f'"{hashlib.sha256(tree.body).hexdigest()[:32]}"', "Cache-Control": "private, no-cache"}

    @router.get(
        "/taxonomy",
        summary="The label tree",
        response_model=TaxonomyAnswer,
        responses={304: {"description": "It is still the one with the ETag in If-None-Match."}, **problems()},
    )
    async def taxonomy(request: Request) -> Response:
        """Give all labels in the model's order, each with the id of its parent."""
        known = {tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")}
        if headers["ETag"] in known:
            return Response(status_code=304, headers=headers)
        return Response(tree.body, headers=headers, media_type="application/json")

    @router.get("/model", summary="The model", response_model=ModelAnswer, responses=problems())
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
