"""What goes wrong, as clients see it: a status, a type for programs, a sentence for people."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, get_args

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Scope

__all__ = ["STATUSES", "Problem", "ProblemType", "answer_with", "error_of", "on_http_error", "on_invalid"]

ProblemType = Literal[
    "overloaded",
    "too_large",
    "invalid",
    "unauthorised",
    "deadline",
    "not_ready",
    "not_found",
    "method_not_allowed",
    "internal",
]
STATUSES: dict[ProblemType, int] = dict(
    zip(get_args(ProblemType), (429, 413, 422, 401, 504, 503, 404, 405, 500), strict=True)
)
TYPES = {status: kind for kind, status in STATUSES.items()}


class Problem(HTTPException):
    """An answer other than the one that was asked for.

    It is an exception of the framework, because that lets those pass which come up while a body is read.

    Args:
        kind: what it is, which decides the status.
        message: what is wrong and, where it helps, what to do; never a text of the request.
        field: the field of the request that is wrong, such as ``texts.3``.
        retry_after: seconds after which to try again.
    """

    def __init__(
        self, kind: ProblemType, message: str, *, field: str | None = None, retry_after: float | None = None
    ) -> None:
        headers = {} if retry_after is None else {"Retry-After": str(max(1, math.ceil(retry_after)))}
        super().__init__(STATUSES[kind], message, headers)
        self.kind, self.field = kind, field


def error_of(kind: ProblemType, message: str, field: str | None = None) -> dict[str, Any]:
    """Return an error in plain Python types."""
    named = {} if field is None else {"field": _utf8(field)}
    return {"error": {"type": kind, "message": _utf8(message), **named}}


def answer_with(
    scope: Scope, kind: ProblemType, message: str, field: str | None = None, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """Return the answer to a request that went wrong, and leave the type for the metrics."""
    scope.setdefault("state", {})["problem"] = kind
    return JSONResponse(error_of(kind, message, field), STATUSES[kind], headers)


async def on_http_error(request: Request, error: Exception) -> JSONResponse:
    """Answer with a problem of ours, or with one that the framework found: no such address, no such method."""
    if isinstance(error, Problem):
        return answer_with(request.scope, error.kind, error.detail, error.field, error.headers)
    assert isinstance(error, HTTPException)  # what this is registered for
    kind = TYPES.get(error.status_code, "invalid" if error.status_code < 500 else "internal")
    return answer_with(request.scope, kind, error.detail, headers=error.headers)


async def on_invalid(request: Request, error: Exception) -> JSONResponse:
    """Answer what does not have the form of a request; of several faults the first."""
    assert isinstance(error, RequestValidationError)  # what this is registered for
    first = error.errors()[0]
    place = [str(part) for part in first["loc"] if part != "body"]
    return answer_with(request.scope, "invalid", first["msg"], ".".join(place) or None)


def _utf8(text: str) -> str:
    """Return a text without halves of surrogate pairs, which a client may have sent as part of a name."""
    return text.encode("utf-8", "replace").decode()
