"""Answers as bytes, and what the API's description says of those that went wrong."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from hgclr.serving.messages import ErrorAnswer
from hgclr.serving.problems import STATUSES, ProblemType

__all__ = ["json_answer", "problems"]

DESCRIPTIONS: dict[ProblemType, str] = {
    "overloaded": "Too many texts wait; try again after the seconds in Retry-After.",
    "too_large": "The body is too large.",
    "invalid": "The request is not of the form described here, or beyond a limit.",
    "unauthorised": "The key is missing or wrong.",
    "deadline": "The answer took too long; the work for it was dropped.",
    "not_ready": "The service is warming up or about to stop.",
    "not_found": "There is nothing here.",
    "method_not_allowed": "There is something here, but not for this method.",
    "internal": "Something went wrong in the service.",
}


def json_answer(content: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return content as JSON; it is checked against no schema, as the framework would do, for there may be much."""
    body = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    return Response(body, status, headers, media_type="application/json")


def problems(*kinds: ProblemType) -> dict[int | str, dict[str, Any]]:
    """Return the description of the problems that an endpoint may answer with; some are everywhere."""
    everywhere: tuple[ProblemType, ...] = ("unauthorised", "method_not_allowed", "too_large", "internal")
    retry = {"Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer", "minimum": 1}}}
    return {
        STATUSES[kind]: {
            "model": ErrorAnswer,
            "description": DESCRIPTIONS[kind],
            **({"headers": retry} if kind == "overloaded" else {}),
        }
        for kind in (*kinds, *everywhere)
    }
