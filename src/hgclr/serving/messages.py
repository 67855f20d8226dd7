"""Requests, answers and errors: their form, as clients send them and as the API's description shows them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Scope

from hgclr.decisions.decoding import Rule
from hgclr.evaluation.explanation import Method

MOST_PATHS = 100
"""Paths of top-k-paths in one answer: every one costs a pass over the labels."""
EXPLAINED_LABELS = 32
"""Labels explained in one request: every one costs a backward pass."""
LONGEST_FIELD = 64
"""Characters of an unknown field's name that an error repeats."""
PROBLEMS = {
    "overloaded": (429, "Too much is under way; try again after the seconds in Retry-After."),
    "too_large": (413, "The body is too large."),
    "invalid": (422, "The request does not have the form described here, or exceeds a limit."),
    "unauthorised": (401, "The key is missing or wrong."),
    "deadline": (504, "The answer took too long; the work for it was dropped."),
    "not_ready": (503, "The service is warming up, or has too many connections."),
    "not_found": (404, "There is nothing at this address."),
    "method_not_allowed": (405, "This address has no such method."),
    "client_gone": (499, "The client has hung up: a status for metrics and log only."),
    "internal": (500, "Something went wrong in the service."),
}
"""The status of each type of problem, and when it occurs."""
TYPES = {status: kind for kind, (status, _) in PROBLEMS.items()}


class Problem(HTTPException):
    """An error answer. The framework passes its own exceptions on while it reads a body, and would wrap others.

    Args:
        kind: decides the status.
        message: what is wrong and, where it helps, what to do; never a text of the request.
        field: the field of the request that is wrong, such as ``texts.3``.
        retry_after: seconds after which to try again.
    """

    def __init__(self, kind: str, message: str, *, field: str | None = None, retry_after: float | None = None) -> None:
        headers = {} if retry_after is None else {"Retry-After": str(max(1, math.ceil(retry_after)))}
        super().__init__(PROBLEMS[kind][0], message, headers)
        self.kind, self.field = kind, field


def error_json(kind: str, message: str, field: str | None = None) -> dict[str, Any]:
    """Return an error as JSON; a lone surrogate in a name that a client made up becomes a question mark."""
    error = {"type": kind, "message": message}
    if field is not None:
        error["field"] = field if len(field) <= LONGEST_FIELD else field[:LONGEST_FIELD] + "…"
    return {"error": {name: value.encode("utf-8", "replace").decode() for name, value in error.items()}}


def error_answer(
    scope: Scope, kind: str, message: str, field: str | None = None, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """Return the answer to a request that went wrong, and leave the type for the metrics."""
    scope.setdefault("state", {})["problem"] = kind
    return JSONResponse(error_json(kind, message, field), PROBLEMS[kind][0], headers)


async def on_http_error(request: Request, error: Exception) -> JSONResponse:
    """Answer with a `Problem`, or with an error of the framework: no such address, no such method."""
    if isinstance(error, Problem):
        return error_answer(request.scope, error.kind, error.detail, error.field, error.headers)
    assert isinstance(error, HTTPException)  # what this is registered for
    kind = TYPES.get(error.status_code, "invalid" if error.status_code < 500 else "internal")
    return error_answer(request.scope, kind, error.detail, headers=error.headers)


async def on_invalid(request: Request, error: Exception) -> JSONResponse:
    """Answer a request of the wrong form; of several faults with the first."""
    assert isinstance(error, RequestValidationError)  # what this is registered for
    first = error.errors()[0]
    place = [str(part) for part in first["loc"] if part != "body"]
    return error_answer(request.scope, "invalid", first["msg"], ".".join(place) or None)


def _string(value: Any) -> str:
    """Take any string; pydantic's own check would refuse a whole request for a lone surrogate in one text."""
    if not isinstance(value, str):
        raise PydanticCustomError("string_type", "Input should be a string")
    return value


def _whole(value: Any) -> Any:
    """Take 3.0 as 3: JSON does not tell them apart."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Text = Annotated[str, PlainValidator(_string), WithJsonSchema({"type": "string"})]
Paths = Annotated[int, Field(ge=1, le=MOST_PATHS), BeforeValidator(_whole)]
Share = Annotated[float, Field(ge=0, le=1)]


class PredictRequest(BaseModel):
    """Texts to label; the model's decisions are the default."""

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
        default=None,
        description="Stop at the parent of a label less probable than this; the label is listed as abstained.",
    )
    probabilities: bool = Field(default=False, description="Also return the probability of every label.")

    @model_validator(mode="after")
    def one_of_both(self) -> PredictRequest:
        if ("text" in self.model_fields_set) == ("texts" in self.model_fields_set):
            raise PydanticCustomError("texts", "Give either 'text' or 'texts'")
        return self


class ExplainRequest(BaseModel):
    """A text whose labels are to be explained."""

    model_config = ConfigDict(extra="forbid", strict=True)

    text: Text = Field(description="The text.")
    labels: Annotated[list[str], Field(min_length=1, max_length=EXPLAINED_LABELS)] | None = Field(
        default=None, description="Ids of the labels to explain; by default the predicted ones."
    )
    method: Method = Field(default="auto", description="One of the model's methods; auto takes the first of them.")
    keep: float = Field(
        default=0.3, gt=0, le=1, description="Share of the words that is kept to see whether they alone suffice."
    )


class ErrorDetail(BaseModel):
    """What is wrong."""

    type: Annotated[str, Field(json_schema_extra={"enum": list(PROBLEMS)})]
    message: str
    field: str = Field(default="", description="The field of the request that is wrong, where it is one.")


class ErrorAnswer(BaseModel):
    """The answer to a request, or to one text of it, that went wrong."""

    error: ErrorDetail


class LabelAnswer(BaseModel):
    """A label of a text."""

    id: str
    path: list[str] = Field(description="Names from the top label down to this one.")
    probability: Share


class TextAnswer(BaseModel):
    """The labels of a text, parents before their children."""

    labels: list[LabelAnswer]
    abstained: list[LabelAnswer] = Field(description="Labels held back because they are less than abstain_below.")
    truncated: bool = Field(description="Whether the text is longer than the model reads.")
    note: str = Field(default="", description="Why there is no label, where the text is empty or blank.")
    probabilities: dict[str, Share] = Field(default={}, description="By label id, if the request asks for them.")


class PredictAnswer(BaseModel):
    """The labels of all texts, in their order; a text that cannot be labelled has an error in its place."""

    predictions: list[TextAnswer | ErrorAnswer]
    seconds: float = Field(ge=0, description="From the request's arrival to its answer.")


class ExplainAnswer(BaseModel):
    """The words that carry each label of a text."""

    text: str
    method: str
    words: list[dict[str, str | int]] = Field(description="Each word with start and stop, counted in code points.")
    words_not_read: int
    labels: list[dict[str, Any]] = Field(
        description="Each label with id, path, probability and status; relevance of each word; kept, the words that"
        " speak most for it, by index; and its probability with only these words, as many random ones, or the others."
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
        description="Limits of a request, the texts that may wait, and texts times labels of a request that asks for"
        " all probabilities."
    )
    explain: list[str] = Field(description="Methods of explanation, the best first.")
    version: str
