"""Requests, answers and errors of the API."""

from __future__ import annotations

import math
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Annotated, Any, Literal

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Scope

from hgclr.decisions.decoding import Rule
from hgclr.decisions.review import NO_REASON, REASONS
from hgclr.evaluation.explanation import Method

MOST_PATHS = 100
"""Limit on the paths of top-k-paths: each costs a pass over the labels."""
EXPLAINED_LABELS = 32
"""Limit on the labels explained in one request: each costs a backward pass."""
LONGEST_FIELD = 64
"""Characters of a field's name that an error repeats."""
PROBLEMS = {
    "overloaded": (429, "The service is busy; try again after the seconds in Retry-After."),
    "too_large": (413, "The body is too large."),
    "invalid": (422, "The request does not have the form described here, or exceeds a limit."),
    "unauthorised": (401, "The key is missing or wrong."),
    "deadline": (504, "The answer took longer than the deadline; the request was dropped."),
    "not_ready": (503, "The service is warming up, or has too many connections."),
    "not_found": (404, "There is nothing at this address."),
    "method_not_allowed": (405, "This address does not support the HTTP method."),
    "client_gone": (499, "The client has disconnected; only metrics and log show this status."),
    "internal": (500, "The service failed; its log has the cause."),
}
"""The status of each type of problem, and when it occurs."""
TYPES = {status: kind for kind, (status, _) in PROBLEMS.items()}


class Problem(HTTPException):
    """An error answer; an HTTPException, because FastAPI wraps any other error that is raised while it reads a body.

    Args:
        kind: a key of :data:`PROBLEMS`.
        message: the fault and, where it helps, the fix; never a text of the request.
        field: the field of the request that is wrong, such as ``texts.3``.
        retry_after: seconds after which to try again.
    """

    def __init__(self, kind: str, message: str, *, field: str | None = None, retry_after: float | None = None) -> None:
        headers = {} if retry_after is None else {"Retry-After": str(max(1, math.ceil(retry_after)))}
        super().__init__(PROBLEMS[kind][0], message, headers)
        self.kind, self.field = kind, field


def error_json(kind: str, message: str, field: str | None = None) -> dict[str, Any]:
    """Return an error as JSON; a lone surrogate from the client becomes a question mark."""
    error = {"type": kind, "message": message}
    if field is not None:
        error["field"] = field if len(field) <= LONGEST_FIELD else field[:LONGEST_FIELD] + "…"
    return {"error": {name: value.encode("utf-8", "replace").decode() for name, value in error.items()}}


def error_answer(
    scope: Scope, kind: str, message: str, field: str | None = None, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """Return an error answer, and store its type in the scope for the metrics."""
    scope.setdefault("state", {})["problem"] = kind
    return JSONResponse(error_json(kind, message, field), PROBLEMS[kind][0], headers)


async def on_http_error(request: Request, error: Exception) -> JSONResponse:
    """Answer a `Problem`, or an error of the framework such as an unknown address or method."""
    if isinstance(error, Problem):
        return error_answer(request.scope, error.kind, error.detail, error.field, error.headers)
    assert isinstance(error, HTTPException)  # registered for it only
    kind = TYPES.get(error.status_code, "invalid" if error.status_code < 500 else "internal")
    return error_answer(request.scope, kind, error.detail, headers=error.headers)


async def on_invalid(request: Request, error: Exception) -> JSONResponse:
    """Answer an invalid request with its first fault."""
    assert isinstance(error, RequestValidationError)  # registered for it only
    first = error.errors()[0]
    place = [str(part) for part in first["loc"] if part != "body"]
    message = first["msg"]
    if first["type"] == "extra_forbidden":
        known = list(request.scope["route"].body_field.field_info.annotation.model_fields)
        near = get_close_matches(place[-1], known, n=1)
        message = "unknown field; " + (f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}")
    return error_answer(request.scope, "invalid", message, ".".join(place) or None)


def _string(value: Any) -> str:
    """Accept any string; pydantic would reject the whole request for a lone surrogate in one text."""
    if not isinstance(value, str):
        raise PydanticCustomError("string_type", "Input should be a string")
    return value


def _whole(value: Any) -> Any:
    """Accept 3.0 as 3: JSON has one type for both."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Text = Annotated[str, PlainValidator(_string), WithJsonSchema({"type": "string"})]
Paths = Annotated[int, Field(ge=1, le=MOST_PATHS), BeforeValidator(_whole)]
Share = Annotated[float, Field(ge=0, le=1)]


class PredictRequest(BaseModel):
    """Texts to label; by default with the model's decisions."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={"oneOf": [{"required": ["text"]}, {"required": ["texts"]}]},
    )

    text: Text = Field(default="", description="One text.")
    texts: list[Text] = Field(default=[], min_length=1, description="Several texts.")
    rule: Rule | None = Field(default=None, description="The decoding rule.")
    threshold: Share | None = Field(default=None, description="Probability above which a label is predicted.")
    paths: Paths | None = Field(default=None, description="How many paths top-k-paths predicts.")
    abstain_below: Share | None = Field(
        default=None, description="Abstain from labels less probable than this: the path stops at the parent."
    )
    probabilities: bool = Field(default=False, description="Also return the probability of every label.")
    review: bool = Field(
        default=False, description="Also return how much a review of each text would help, and its best paths."
    )

    @model_validator(mode="after")
    def one_of_both(self) -> PredictRequest:
        if ("text" in self.model_fields_set) == ("texts" in self.model_fields_set):
            raise PydanticCustomError("texts", "Give either 'text' or 'texts'")
        return self


class ExplainRequest(BaseModel):
    """A text with the labels to explain."""

    model_config = ConfigDict(extra="forbid", strict=True)

    text: Text = Field(description="The text.")
    labels: Annotated[list[str], Field(min_length=1, max_length=EXPLAINED_LABELS)] | None = Field(
        default=None, description="Ids of the labels to explain; by default the predicted ones."
    )
    method: Method = Field(default="auto", description="One of the model's methods; auto is the first of them.")
    keep: float = Field(
        default=0.3, gt=0, le=1, description="Share of the words to keep in the test whether they alone suffice."
    )


class ErrorDetail(BaseModel):
    """The error of a request or of one text."""

    type: Annotated[str, Field(json_schema_extra={"enum": list(PROBLEMS)})]
    message: str
    field: str = Field(default="", description="The field of the request that is wrong.")


class ErrorAnswer(BaseModel):
    """The answer to a request, or to one of its texts, that failed."""

    error: ErrorDetail


class LabelAnswer(BaseModel):
    """A label of a text."""

    id: str
    path: list[str] = Field(description="Names from the top label down to this one.")
    paths: list[list[str]] = Field(default=[], description="All paths, if there are several; the main one is first.")
    probability: Share


class ReviewAnswer(BaseModel):
    """How much a review of a text by a person would help."""

    score: Share
    reason: Annotated[str, Field(json_schema_extra={"enum": [*REASONS, NO_REASON]})]


class TextAnswer(BaseModel):
    """The labels of a text, parents before their children."""

    labels: list[LabelAnswer]
    abstained: list[LabelAnswer] = Field(description="Labels withheld because they are less than abstain_below.")
    truncated: bool = Field(description="Whether the text is longer than the model reads.")
    note: str = Field(
        default="", description="The reason why a blank text has no label, or why the labels are not to be trusted."
    )
    probabilities: dict[str, Share] = Field(default={}, description="By label id, if the request asks for them.")
    review: ReviewAnswer | None = Field(default=None, description="Only if the request asks for it.")
    suggestions: list[LabelAnswer] = Field(
        default=[],
        description="The labels at the ends of the best paths, best first, if the request asks for a review.",
    )


class PredictAnswer(BaseModel):
    """The labels of all texts, in order; a text that cannot be labelled has an error in its place."""

    predictions: list[TextAnswer | ErrorAnswer]
    seconds: float = Field(ge=0, description="From the request's arrival to its answer.")


class ExplainAnswer(BaseModel):
    """The words that carry each label of a text."""

    text: str
    method: str
    words: list[dict[str, str | int]] = Field(description="Each word with start and stop, counted in code points.")
    words_not_read: int
    labels: list[dict[str, Any]] = Field(
        description="Each label with id, path, probability and status; relevance of each word; kept, the indices of the"
        " most relevant words; and its probability with these words only, as many random ones, or the others."
    )
    keep: float
    stability: dict[str, Any] = Field(description="The labels lost and gained with the kept words alone.")


class ModelAnswer(BaseModel):
    """The model that is served."""

    name: str
    labels: int
    depth: int
    max_length: int = Field(description="Tokens of a text that are read.")
    backend: Literal["torch", "onnx"]
    decisions: dict[str, Any] = Field(description="The content of decisions.json.")
    limits: dict[str, int] = Field(
        description="Limits of a request, of the queue, and of texts times labels with all probabilities."
    )
    explain: list[str] = Field(description="Methods of explanation, the best first.")
    version: str
