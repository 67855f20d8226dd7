"""Documents with their labels, beside what a model says of them: to score it, and to calibrate it on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from hgclr.data.folder import DataFolder, Document
from hgclr.data.tokens import sample_documents
from hgclr.decisions.settings import Decisions
from hgclr.decisions.tuning import ENTRIES, Outputs
from hgclr.inference.backends import windows
from hgclr.inference.classifier import HierarchicalClassifier
from hgclr.metrics.scores import MultiLabelScores

__all__ = ["evaluate", "outputs_of", "read_outputs", "sampled", "scored_windows"]

logger = logging.getLogger(__name__)


class LabelledDocument(Protocol):
    """A document with its labels."""

    @property
    def text(self) -> str: ...

    @property
    def labels(self) -> tuple[int, ...]:
        """Indices into the taxonomy, every label with its parent."""


AnyLabelled = TypeVar("AnyLabelled", bound=LabelledDocument)


def scored_windows(
    classifier: HierarchicalClassifier,
    documents: Iterable[AnyLabelled],
    *,
    logits: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Iterator[tuple[list[AnyLabelled], NDArray[np.float32], NDArray[np.bool_]]]:
    """Pass documents through a classifier, as many at a time as memory should hold.

    ``progress`` is called with the number of documents done since the last call.

    Yields:
        Consecutive documents, the probability (or logit) of each label for each of them, (N, K), and their gold labels.
    """
    for window in windows(documents, classifier.window):
        gold = np.zeros((len(window), len(classifier.taxonomy)), dtype=np.bool_)
        for row, document in enumerate(window):
            gold[row, list(document.labels)] = True
        texts = [document.text for document in window]
        values = np.concatenate(list(classifier.logits(texts))) if logits else classifier.predict_proba(texts)
        yield window, values, gold
        if progress is not None:
            progress(len(window))


def evaluate(
    classifier: HierarchicalClassifier,
    folder: DataFolder,
    split: str,
    *,
    decisions: Decisions | None = None,
    limit: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> MultiLabelScores:
    """Return the scores of a classifier, counted window by window.

    Args:
        classifier: the model.
        folder: the documents, read with the classifier's own label tree.
        split: which of its splits.
        decisions: how to decide; the classifier's own by default. What is left out for doubt counts as not predicted.
        limit: score a random sample of so many documents, the same one every time.
        progress: called with the number of documents scored since the last call.
    """
    decisions = decisions or classifier.decisions
    scores = MultiLabelScores(classifier.taxonomy)
    for _, probabilities, gold in scored_windows(classifier, sampled(folder, split, limit), progress=progress):
        scores.update(decisions.decide(probabilities).predicted, gold)
    return scores


def sampled(folder: DataFolder, split: str, limit: int | None, seed: int = 0) -> Iterator[Document]:
    """Return the documents of a split in order or, where there are more than ``limit``, a random sample of them."""
    if limit is None:
        return folder.documents(split)
    count = sum(1 for _ in folder.documents(split))
    if count > limit:
        logger.warning("%d of the %d documents of %s are looked at, a random sample", limit, count, split)
    return sample_documents(folder, split, (limit, seed))


def read_outputs(
    classifier: HierarchicalClassifier,
    folder: DataFolder,
    split: str,
    *,
    entries: int = ENTRIES,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> Outputs:
    """Return what a model says of a split, or of a random sample of it: ``entries`` documents times labels at most.

    The documents are read with the classifier's own label tree; ``progress`` is called as in :func:`scored_windows`.
    """
    most = max(1, entries // len(classifier.taxonomy))
    return outputs_of(classifier, sampled(folder, split, most, seed), progress=progress)


def outputs_of(
    classifier: HierarchicalClassifier,
    documents: Iterable[LabelledDocument],
    *,
    progress: Callable[[int], None] | None = None,
) -> Outputs:
    """Return what a model says of documents, at least one; see :func:`read_outputs`."""
    scored = scored_windows(classifier, documents, logits=True, progress=progress)
    logits, gold = zip(*((values, labels) for _, values, labels in scored), strict=True)
    return Outputs(np.concatenate(logits), np.concatenate(gold))
