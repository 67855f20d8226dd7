"""What every worker needs to label texts, small enough to be sent anywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hgclr.bulk.chunks import Chunk
from hgclr.decisions.decoding import Rule
from hgclr.decisions.settings import Decisions
from hgclr.inference.classifier import HierarchicalClassifier

__all__ = ["Answer", "Label", "Labelling", "spread", "usable_texts"]

Answer = dict[str, list[dict[str, Any]]]
"""The labels of a text, as :meth:`hgclr.inference.Prediction.to_json` has them."""
NO_ANSWER: Answer = {"predictions": []}
Label = Callable[[Path], Iterator[tuple[Chunk, list[Answer]]]]
"""What an engine is to the rest: it yields the rows of a file with their answers, all of them, in order. It must be
called with the files that the engine was started with, in their order, each once and to its end."""


@dataclass(frozen=True)
class Labelling:
    """A model and how to decide.

    Args:
        model: its folder or hub name.
        threshold, decode, paths, sure: see :meth:`hgclr.inference.HierarchicalClassifier.predict`.
    """

    model: str
    threshold: float | None = None
    decode: Rule | None = None
    paths: int | None = None
    sure: float | None = None

    def open(self, device: str | None = None) -> HierarchicalClassifier:
        """Load the model; see :meth:`hgclr.inference.HierarchicalClassifier.from_pretrained`."""
        return HierarchicalClassifier.from_pretrained(self.model, device=device)

    def decisions(self, classifier: HierarchicalClassifier) -> Decisions:
        """Return how labels are decided in the end."""
        return classifier.decisions.changed(
            rule=self.decode, threshold=self.threshold, paths=self.paths, sure=self.sure
        )

    def answers(self, classifier: HierarchicalClassifier, texts: Sequence[str]) -> list[Answer]:
        """Return the labels of texts."""
        found = classifier.predict(
            texts, threshold=self.threshold, decode=self.decode, paths=self.paths, sure=self.sure
        )
        return [prediction.to_json() for prediction in found]


def usable_texts(chunk: Chunk) -> list[str]:
    """Return the texts of a chunk that can be labelled."""
    return [text for text in chunk.texts if text is not None]


def spread(chunk: Chunk, answers: Sequence[Answer]) -> list[Answer]:
    """Return an answer for every row of a chunk, from those to its usable texts."""
    given = iter(answers)
    return [NO_ANSWER if text is None else next(given) for text in chunk.texts]
