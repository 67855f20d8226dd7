"""What a classifier answers: the labels of a text, in the order in which one reads the tree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hgclr.taxonomy import Taxonomy

__all__ = ["PredictedLabel", "Prediction", "PredictionMaker", "reading_order"]

NAMES_KEPT = 2**20
"""Names in all the paths that are kept at hand: a deep tree of many labels has far more."""


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
        labels: what the text is given.
        doubtful: what the decoding rule would give and is not sure enough.
    """

    labels: tuple[PredictedLabel, ...]
    doubtful: tuple[PredictedLabel, ...] = ()

    def to_json(self) -> dict[str, list[dict[str, Any]]]:
        """Return ``predictions`` and, where there are any, ``doubtful`` labels in plain Python types."""
        fields = {"predictions": [label.to_json() for label in self.labels]}
        return fields | ({"doubtful": [label.to_json() for label in self.doubtful]} if self.doubtful else {})


class PredictionMaker:
    """Turn decisions about labels into predictions.

    Args:
        taxonomy: the label tree.
    """

    def __init__(self, taxonomy: Taxonomy) -> None:
        self._taxonomy, self._places = taxonomy, reading_order(taxonomy)
        self._paths: dict[int, tuple[str, ...]] = {}

    def __call__(
        self, probabilities: NDArray[np.float32], given: NDArray[np.bool_], doubtful: NDArray[np.bool_] | None = None
    ) -> Prediction:
        """Return the labels of one text, parents first and siblings by name.

        Args:
            probabilities: of every label, (K,).
            given: whether the text is given each label, (K,).
            doubtful: whether each label was left out for doubt, (K,); by default none was.
        """
        left_out = () if doubtful is None else self._labels(probabilities, doubtful)
        return Prediction(self._labels(probabilities, given), left_out)

    def _labels(self, probabilities: NDArray[np.float32], chosen: NDArray[np.bool_]) -> tuple[PredictedLabel, ...]:
        labels = np.flatnonzero(chosen)
        found = zip(labels.tolist(), probabilities[labels].tolist(), strict=True)
        ordered = sorted(found, key=lambda pair: self._places[pair[0]])
        ids = self._taxonomy.ids
        return tuple(PredictedLabel(ids[label], self._path(label), probability) for label, probability in ordered)

    def _path(self, label: int) -> tuple[str, ...]:
        """Return the names from the top down to a label."""
        if (path := self._paths.get(label)) is None:
            if (len(self._paths) + 1) * self._taxonomy.depth > NAMES_KEPT:
                self._paths.clear()
            path = tuple(self._taxonomy.names[node] for node in self._taxonomy.path(label).tolist())
            self._paths[label] = path
        return path


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
