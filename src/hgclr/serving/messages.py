"""The form of requests and answers: what clients may send, and what the API's description says they get."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from hgclr.decisions.decoding import Rule
from hgclr.explaining import Method
from hgclr.serving.problems import ProblemType

__all__ = [
    "EXPLAINED_LABELS",
    "ErrorAnswer",
    "ExplainAnswer",
    "ExplainRequest",
    "HealthAnswer",
    "ModelAnswer",
    "PredictAnswer",
    "PredictRequest",
    "TaxonomyAnswer",
]

MOST_PATHS = 100
"""Paths of top-k-paths in one answer: every one costs a pass over the labels."""
EXPLAINED_LABELS = 32
"""Labels explained in one request: every one costs a backward pass."""


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


class PredictRequest(_Request):
    """Texts to label; what is left out is as the model's decisions say."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": ["text"]}, {"required": ["texts"]}]})

    text: Text = Field(default="", description="One text.")
    texts: list[Text] = Field(default=[], min_length=1, description="Several texts.")
    decode: Rule | None = Field(default=None, description="The decoding rule.")
    threshold: Share | None = Field(default=None, description="Probability above which a label is given.")
    paths: Paths | None = Field(default=None, description="How many paths top-k-paths gives.")
    sure: Share | None = Field(
        default=None, description="Stop at the parent of a label less probable than this; it is listed as doubtful."
    )
    probabilities: bool = Field(default=False, description="Give the probability of every label, too.")

    @model_validator(mode="after")
    def one_of_both(self) -> PredictRequest:
        """Refuse a request with both forms of texts, or neither."""
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
    doubtful: list[LabelAnswer] = Field(description="What the rule would give and is not sure enough.")
    truncated: bool = Field(description="Whether the text is longer than the model reads.")
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

    status: Literal["given", "doubtful", "not given"]
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
