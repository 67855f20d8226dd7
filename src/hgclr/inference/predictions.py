"""The labels of one text as users get them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class PredictedLabel:
    """One label of a text: its id, the names from the top down to it, and how probable the model finds it."""

    id: str
    path: tuple[str, ...]
    probability: float

    def to_json(self) -> dict[str, Any]:
        return {"id": self.id, "path": list(self.path), "probability": round(self.probability, 4)}


@dataclass(frozen=True, slots=True)
class Prediction:
    """The labels of one text, parents before their children.

    Args:
        labels: the predicted labels.
        abstained: labels that the decoding rule gives and that are less probable than ``abstain_below``.
        truncated: whether the text is longer than the model reads.
        note: why the text has no label, if the text is the reason.
    """

    labels: tuple[PredictedLabel, ...]
    abstained: tuple[PredictedLabel, ...] = ()
    truncated: bool = False
    note: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return ``labels``, ``abstained``, ``truncated`` and, where there is one, ``note``, in plain Python types."""
        fields: dict[str, Any] = {
            "labels": [label.to_json() for label in self.labels],
            "abstained": [label.to_json() for label in self.abstained],
            "truncated": self.truncated,
        }
        return fields if self.note is None else fields | {"note": self.note}


BLANK = Prediction((), note="the text is empty or blank")
"""The prediction for every text without a visible character; see :func:`hgclr.data.readers.is_blank`."""
