"""The form of requests and answers: what clients may send, and what the API's description says they get."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from functools import cache
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

__all__ = [
    "PROBLEMS",
    "ErrorAnswer",
    "ExplainAnswer",
    "ExplainRequest",
    "HealthAnswer",
    "ModelAnswer",
    "PredictAnswer",
    "PredictRequest",
    "Problem",
    "ProblemType",
    "TaxonomyAnswer",
    "answer_with",
    "error_of",
    "on_http_error",
    "on_invalid",
]

logger = logging.getLogger(__name__)
MOST_PATHS = 100
"""Paths of top-k-paths in one answer: every one costs a pass over the labels."""
EXPLAINED_LABELS = 32
"""Labels explained in one request: every one costs a backward pass."""
LONGEST_FIELD = 64
"""Characters of a field's name that are told again: it may be a client's, and be anything."""
ProblemType = Literal[
    "overloaded",
    "too_large",
    "invalid",
    "unauthorised",
    "wrong_host",
    "deadline",
    "not_ready",
    "not_found",
    "method_not_allowed",
    "internal",
]
PROBLEMS: dict[ProblemType, tuple[int, str]] = {
    "overloaded": (429, "Too much is under way; try again after the seconds in Retry-After."),
    "too_large": (413, "The body is too large."),
    "invalid": (422, "The request is not of the form described here, or beyond a limit."),
    "unauthorised": (401, "The key is missing or wrong."),
    "wrong_host": (421, "The request is for a host that the service does not answer for."),
    "deadline": (504, "The answer took too long; the work for it was dropped."),
    "not_ready": (503, "The service is warming up or about to stop."),
    "not_found": (404, "There is nothing here."),
    "method_not_allowed": (405, "There is something here, but not for this method."),
    "internal": (500, "Something went wrong in the service."),
}
"""The status of each type of problem, and when it comes."""
TYPES = {status: kind for kind, (status, _) in PROBLEMS.items()}


class Problem(HTTPException):
    """An answer other than the one that was asked for.

    It is an exception of the framework, because that lets those pass which come up while a body is read.

    Args:
        kind: decides the status.
        message: what is wrong and, where it helps, what to do; never a text of the request.
        field: the field of the request that is wrong, such as ``texts.3``.
        retry_after: seconds after which to try again.
    """

    def __init__(
        self, kind: ProblemType, message: str, *, field: str | None = None, retry_after: float | None = None
    ) -> None:
        headers = {} if retry_after is None else {"Retry-After": str(max(1, math.ceil(retry_after)))}
        super().__init__(PROBLEMS[kind][0], message, headers)
        self.kind, self.field = kind, field


def error_of(kind: ProblemType, message: str, field: str | None = None) -> dict[str, Any]:
    """Return an error in plain Python types."""
    if field is not None and len(field) > LONGEST_FIELD:
        field = field[:LONGEST_FIELD] + "…"
    named = {} if field is None else {"field": _utf8(field)}
    return {"error": {"type": kind, "message": _utf8(message), **named}}


def answer_with(
    scope: Scope, kind: ProblemType, message: str, field: str | None = None, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """Return the answer to a request that went wrong, and leave the type for the metrics."""
    scope.setdefault("state", {})["problem"] = kind
    return JSONResponse(error_of(kind, message, field), PROBLEMS[kind][0], headers)


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


def _string(value: Any) -> str:
    """Take any string; pydantic's own check would refuse a whole request for half a surrogate pair in one text."""
    if not isinstance(value, str):
        raise PydanticCustomError("string_type", "Input should be a string")
    return value


Text = Annotated[str, PlainValidator(_string), WithJsonSchema({"type": "string"})]


def _whole(value: Any) -> Any:
    """Take 3.0 as 3: JSON does not tell them apart."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Paths = Annotated[int, Field(ge=1, le=MOST_PATHS), BeforeValidator(_whole)]
Share = Annotated[float, Field(ge=0, le=1)]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


@cache  # once is enough
def _deprecated(former: str, name: str) -> None:
    logger.warning("a request has the field %r, which is called %r now; version 0.3 will refuse it", former, name)


class PredictRequest(_Request):
    """Texts to label; what is left out is as the model's decisions say."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": ["text"]}, {"required": ["texts"]}]})

    text: Text = Field(default="", description="One text.")
    texts: list[Text] = Field(default=[], min_length=1, description="Several texts.")
    rule: Rule | None = Field(default=None, description="The decoding rule.")
    threshold: Share | None = Field(default=None, description="Probability above which a label is given.")
    paths: Paths | None = Field(default=None, description="How many paths top-k-paths gives.")
    abstain_below: Share | None = Field(
        default=None,
        description="Stop at the parent of a label less probable than this; it is listed as abstained.",
    )
    probabilities: bool = Field(default=False, description="Give the probability of every label, too.")

    @model_validator(mode="before")
    @classmethod
    def former_names(cls, fields: Any) -> Any:
        """Take ``sure``, which ``abstain_below`` was called in version 0.1."""
        if not isinstance(fields, dict) or "sure" not in fields or "abstain_below" in fields:
            return fields
        _deprecated("sure", "abstain_below")
        return {"abstain_below" if name == "sure" else name: value for name, value in fields.items()}

    @model_validator(mode="after")
    def one_of_both(self) -> PredictRequest:
        if ("text" in self.model_fields_set) == ("texts" in self.model_fields_set):
            raise PydanticCustomError("texts", "Give either 'text' or 'texts'")
        return self


class ExplainRequest(_Request):
    """A text whose labels are to be explained."""

    text: Text = Field(description="The text.")
    labels: Annotated[list[str], Field(min_length=1, max_length=EXPLAINED_LABELS)] | None = Field(
        default=None, description="Ids of the labels to explain; by default those that the text is given."
    )
    method: Method = Field(
        default="auto", description="How: see the model for those that it has; auto takes the first of them."
    )
    keep: float = Field(
        default=0.3, gt=0, le=1, description="Share of the words that is kept to see whether they alone would do."
    )


class ErrorDetail(BaseModel):
    """What is wrong."""

    type: ProblemType
    message: str
    field: str = Field(default="", description="The field of the request that is wrong, where it is one.")


class ErrorAnswer(BaseModel):
    """The answer to a request, or to one text of it, that went wrong."""

    error: ErrorDetail


class LabelAnswer(BaseModel):
    """A label of a text."""

    id: str
    path: list[str] = Field(description="Names from the top of the tree down to the label.")
    probability: Share


class TextAnswer(BaseModel):
    """The labels of a text, parents before their children."""

    labels: list[LabelAnswer]
    abstained: list[LabelAnswer] = Field(description="What the rule would give and is not probable enough.")
    truncated: bool = Field(description="Whether the text is longer than the model reads.")
    note: str = Field(default="", description="Why there is no label, where the text is empty or blank.")
    probabilities: dict[str, Share] = Field(default={}, description="By label id, if asked for.")


class PredictAnswer(BaseModel):
    """The labels of all texts, in their order; a text that cannot be labelled has an error in its place."""

    predictions: list[TextAnswer | ErrorAnswer]
    seconds: float = Field(ge=0, description="From the request's arrival to its answer.")


class WordAnswer(BaseModel):
    """A word of a text and its place, counted in code points."""

    word: str
    start: int
    stop: int


class ExplainedLabelAnswer(LabelAnswer):
    """A label and how much each word of the text speaks for it."""

    status: Literal["given", "abstained", "not given"]
    relevance: list[float] = Field(description="One number for each word.")
    kept: list[int] = Field(description="The words that speak most for the label, by index.")
    probability_only_kept: Share = Field(description="If these words are all of the text.")
    probability_only_random: Share = Field(description="If as many random words are.")
    probability_without_kept: Share = Field(description="If the text is all but these words.")
    sufficiency: float
    comprehensiveness: float


class StabilityAnswer(BaseModel):
    """What the text is given with the words alone that matter most for all labels together."""

    same_labels: bool
    kept: list[int]
    lost: list[LabelAnswer]
    gained: list[LabelAnswer]


class ExplainAnswer(BaseModel):
    """The words that carry each label of a text."""

    text: str
    method: str
    neutral: float = Field(description="The relevance of a word that says nothing.")
    words: list[WordAnswer]
    words_not_read: int
    labels: list[ExplainedLabelAnswer]
    keep: float
    stability: StabilityAnswer


class TreeLabel(BaseModel):
    """A label of the tree."""

    id: str
    name: str
    parent: str | None


class TaxonomyAnswer(BaseModel):
    """All labels in the model's order."""

    labels: list[TreeLabel]


class LimitsAnswer(BaseModel):
    """What the service takes."""

    texts_per_request: int
    characters_per_text: int
    body_bytes: int
    queue: int
    probabilities: int = Field(description="Texts times labels of a request that asks for all probabilities.")


class ModelAnswer(BaseModel):
    """What is served."""

    name: str
    labels: int
    depth: int
    max_length: int = Field(description="Tokens of a text that are read.")
    backend: Literal["torch", "onnx"]
    decisions: dict[str, Any] = Field(description="How it decides: the content of decisions.json.")
    limits: LimitsAnswer
    explain: list[str] = Field(description="Methods of explanation, the best first.")
    version: str


class HealthAnswer(BaseModel):
    """The state of the service."""

    status: Literal["alive", "ready"]
