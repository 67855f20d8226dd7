"""``GET /livez``, ``/readyz`` and ``/metrics``: answered at once, however much waits."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from hgclr.serving.answers import json_answer, problems
from hgclr.serving.messages import HealthAnswer
from hgclr.serving.metrics import CONTENT_TYPE
from hgclr.serving.problems import Problem
from hgclr.serving.service import Service

__all__ = ["health_routes"]


def health_routes(service: Service) -> APIRouter:
    """Return what tells how the service is."""
    router = APIRouter()

    @router.get("/livez", summary="Alive?", response_model=HealthAnswer, responses=problems("not_ready"))
    async def livez() -> Response:
        """Tell whether the process works; one that does not should be started again."""
        if service.state == "broken":
            raise Problem("not_ready", "a thread has ended")
        return json_answer({"status": "alive"})

    @router.get("/readyz", summary="Ready?", response_model=HealthAnswer, responses=problems("not_ready"))
    async def readyz() -> Response:
        """Tell whether requests are taken: the model is loaded and warm, and the service is not about to stop."""
        service.require_ready()
        return json_answer({"status": "ready"})

    @router.get(
        "/metrics",
        summary="Metrics",
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **problems()},
    )
    async def metrics() -> Response:
        """Give all metrics in Prometheus' format."""
        return Response(service.metrics.text(), headers={"Content-Type": CONTENT_TYPE})

    return router
