"""What a model says of documents, beside what they are: the material to calibrate on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hgclr.data.folder import DataFolder
from hgclr.data.tokens import sample_documents
from hgclr.decisions.settings import Decisions
from hgclr.decisions.tuning import ENTRIES, Outputs
from hgclr.inference.backends import windows
from hgclr.inference.classifier import HierarchicalClassifier
from hgclr.metrics.scores import MultiLabelScores

__all__ = ["evaluate", "outputs_of", "read_outputs"]

logger = logging.getLogger(__name__)


class Labelled(Protocol):
    """A document with its labels."""

    @property
    def text(self) -> str:
        """The text."""

    @property
    def labels(self) -> tuple[int, ...]:
        """Indices into the taxonomy, every label with its parent."""


def read_outputs(
    classifier: HierarchicalClassifier,
    folder: DataFolder,
    split: str,
    *,
    entries: int = ENTRIES,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> Outputs:
    """Return what a model says of a split, or of a random sample of it.

    Args:
        classifier: the model.
        folder: the documents, read with the classifier's own label tree.
        split: which of its splits.
        entries: documents times labels, at most.
        seed: decides the sample where there are more.
        progress: called with the number of documents read since the last call.

    Raises:
        InputError: if there is no such split or no document in it.
    """
    most = max(1, entries // len(classifier.taxonomy))
    count = sum(1 for _ in folder.documents(split))
    if count > most:
        logger.warning("%d of the %d documents of %s are looked at, a random sample", most, count, split)
    return outputs_of(classifier, sample_documents(folder, split, (most, seed)), progress=progress)


def outputs_of(
    classifier: HierarchicalClassifier,
    documents: Iterable[Labelled],
    *,
    progress: Callable[[int], None] | None = None,
) -> Outputs:
    """Return what a model says of documents, at least one; see :func:`read_outputs`."""
    logits: list[NDArray[np.float32]] = []
    gold: list[NDArray[np.bool_]] = []
    for window in windows(documents, classifier.window):
        labels = np.zeros((len(window), len(classifier.taxonomy)), dtype=np.bool_)
        for row, document in enumerate(window):
            labels[row, list(document.labels)] = True
        gold.append(labels)
        logits += classifier.logits([document.text for document in window])
        if progress is not None:
            progress(len(window))
    return Outputs(np.concatenate(logits), np.concatenate(gold))


def evaluate(
    classifier: HierarchicalClassifier,
    folder: DataFolder,
    split: str,
    *,
    decisions: Decisions | None = None,
    progress: Callable[[int], None] | None = None,
) -> MultiLabelScores:
    """Return the scores of a classifier, counted window by window.

    Args:
        classifier: the model.
        folder: the documents, read with the classifier's own label tree.
        split: which of its splits.
        decisions: how to decide; the classifier's own by default. What is left out for doubt counts as not predicted.
        progress: called with the number of documents scored since the last call.
    """
    decisions = decisions or classifier.decisions
    scores = MultiLabelScores(classifier.taxonomy)
    for documents in windows(folder.documents(split), classifier.window):
        gold = np.zeros((len(documents), len(classifier.taxonomy)), dtype=np.bool_)
        for row, document in enumerate(documents):
            gold[row, list(document.labels)] = True
        probabilities = classifier.predict_proba([document.text for document in documents])
        scores.update(decisions.decide(probabilities).predicted, gold)
        if progress is not None:
            progress(len(documents))
    return scores
