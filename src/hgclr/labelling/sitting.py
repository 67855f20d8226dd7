"""A sitting: the next text with suggestions, answers, progress, and a model that learns in the background."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from hgclr.labelling.store import Answer
from hgclr.taxonomy import Taxonomy


@dataclass(frozen=True)
class Suggestion:
    """A path that the model suggests.

    Args:
        label: id of the label where the path ends.
        path: the names from the top label down to it.
        probability: its calibrated probability.
        words: the words of the text that carried it, strongest first, as they are in the text.
    """

    label: str
    path: tuple[str, ...]
    probability: float
    words: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"path": list(self.path), "words": list(self.words)}


@dataclass(frozen=True)
class Task:
    """A text to label.

    Args:
        document: id of the text.
        text: the text.
        hidden: the text is in the random slice, so there are no suggestions.
        suggestions: the best paths, best first, five at most.
        question: in the yes-or-no mode, the path to ask about, if the model is sure enough.
        model: id of the model that made the suggestions; None if it has learned from label names only.
        others: in the mode ``disagreements``, the answers of all people to this text.
    """

    document: int
    text: str
    hidden: bool
    suggestions: list[Suggestion] = field(default_factory=list)
    question: Suggestion | None = None
    model: int | None = None
    others: list[Answer] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return vars(self) | {
            "suggestions": [each.to_json() for each in self.suggestions],
            "question": None if self.question is None else self.question.to_json(),
            "others": [each.to_json() for each in self.others],
        }


@dataclass(frozen=True)
class Progress:
    """The state of a sitting.

    Args:
        answers: number of texts with an answer, "belongs nowhere" included; of one user, if one was asked for.
        skipped: number of texts skipped by somebody, or by this user.
        documents: number of texts.
        labels_covered: number of labels with at least one text, ancestors included.
        labels: number of labels.
        labels_without_text: ids of the others, in the order of the tree.
        model: id of the newest model.
        training: a model is being trained.
        curve: for each model the answers it learned from, Macro-F1 on the random slice, and the ends of its interval.
        agreement: share of the texts for which the newest two models suggest the same leaf first.
        people: answers of each user.
        people_agreement: Cohen's kappa at each level for texts with answers of two people, None where it is undefined;
            None if there is no such text.
        disagreements: number of texts on which people disagree.
        advice: one sentence.
    """

    answers: int
    skipped: int
    documents: int
    labels_covered: int
    labels: int
    labels_without_text: list[str]
    model: int | None
    training: bool
    curve: list[tuple[int, float, float, float]]
    agreement: float | None
    people: dict[str, int]
    people_agreement: list[float | None] | None
    disagreements: int
    advice: str

    def to_json(self) -> dict[str, Any]:
        return vars(self) | {"curve": [list(point) for point in self.curve]}


class Sitting:
    """Labelling in an output folder; see :meth:`open`. All methods may be called from any thread."""

    taxonomy: Taxonomy

    @classmethod
    def open(
        cls,
        output: Path,
        *,
        texts: Path | None = None,
        taxonomy: Path | None = None,
        model: Path | None = None,
        data: Path | None = None,
        encoder: str = "all-MiniLM-L6-v2",
        seed: int = 0,
        text_column: str | None = None,
        progress: Callable[[int, int | None], None] | None = None,
    ) -> Sitting:
        """Open or begin a sitting."""
        raise NotImplementedError

    def next(self, user: str, *, mode: Literal["all", "disagreements"] = "all", yes_no: bool = False) -> Task | None:
        """Lease the next text to a user and return it; None if there is none. Asked again, it is the same text."""
        raise NotImplementedError

    def answer(self, answer: Answer) -> int:
        """Store an answer and return its id once it is on the disk."""
        raise NotImplementedError

    def undo(self, user: str) -> Task | None:
        """Undo the user's latest answer; return its text, leased again, or None if there is no answer left."""
        raise NotImplementedError

    def progress(self, user: str | None = None) -> Progress:
        """Return the state of the sitting."""
        raise NotImplementedError

    def retrain(self, effort: Literal["head", "full"] = "head", *, wait: bool = False) -> None:
        """Train a model on the answers so far, in the background unless ``wait``."""
        raise NotImplementedError

    def close(self) -> None:
        """Wait for a model that is being trained, and close the store."""
        raise NotImplementedError
