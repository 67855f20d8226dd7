"""What a bulk prediction is about: model, decisions, files; and the form in which an engine returns its answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hgclr.bulk.chunks import Chunk
from hgclr.inference.classifier import HierarchicalClassifier

__all__ = ["Answer", "BulkJob", "Label", "spread"]

Answer = dict[str, Any]
"""The labels of a text, as :meth:`hgclr.inference.Prediction.to_json` has them."""
NO_ANSWER: Answer = {"predictions": []}
Label = Callable[[Path], Iterator[tuple[Chunk, list[Answer]]]]
"""What an engine is to the rest: it yields the rows of a file with their answers, all of them, in order. It must be
called with the files of the job, in their order, each once and to its end."""


@dataclass(frozen=True)
class BulkJob:
    """What an engine is started with. It is sent to other processes and nodes, which load the model themselves.

    Args:
        model: its folder, or the hub name under which nodes without that folder find it.
        files: what to label.
        text_column: the column with the text.
        changes: arguments of :meth:`hgclr.decisions.settings.Decisions.changed`.
        onnx: whether the model runs on onnxruntime.
    """

    model: str
    files: Sequence[Path] = ()
    text_column: str = "text"
    changes: Mapping[str, Any] = field(default_factory=dict)
    onnx: bool = False

    def answers(self, classifier: HierarchicalClassifier, texts: Sequence[str]) -> list[Answer]:
        """Return the labels of texts."""
        decisions = classifier.decisions.changed(**self.changes)
        return [prediction.to_json() for prediction in classifier.stream(texts, decisions)]


def spread(chunk: Chunk, answers: Sequence[Answer]) -> list[Answer]:
    """Return an answer for every row of a chunk, from those to its usable texts."""
    given = iter(answers)
    return [NO_ANSWER if text is None else next(given) for text in chunk.texts]
