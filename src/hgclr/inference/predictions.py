"""The labels of one text as users get them, and the order in which they are listed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hgclr.taxonomy import Taxonomy


@dataclass(frozen=True, slots=True)
class PredictedLabel:
    """One label of a text: its id, the names from the top down to it, and how probable the model finds it."""

    id: str
    path: tuple[str, ...]
    probability: float

    def to_json(self) -> dict[str, Any]:
        """Return the label in plain Python types."""
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
"""The prediction for every text without a visible character; see :func:`hgclr.data.rows.is_blank`."""


def reading_order(taxonomy: Taxonomy) -> Sequence[int]:
    """Return the place of each label when the tree is read from the top: a label, then all below it, siblings by name.

    This is the order of the labels' paths, compared name by name, without holding the paths: a depth-first walk of the
    tree whose labels are numbered by name.
    """
    by_name = np.array(sorted(range(len(taxonomy)), key=taxonomy.names.__getitem__))
    number = np.argsort(by_name)
    parents = taxonomy.parents[by_name]
    renumbered = Taxonomy([taxonomy.ids[label] for label in by_name], np.where(parents < 0, -1, number[parents]))
    places: list[int] = np.argsort(by_name[renumbered.walk]).tolist()
    return places
