"""Score a classifier on a split of a data folder."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hgclr.data.folder import DataFolder
from hgclr.decisions.decoding import Rule
from hgclr.evaluation.metrics import MultiLabelScores
from hgclr.inference.batches import windows
from hgclr.inference.classifier import HierarchicalClassifier

__all__ = ["evaluate"]


def evaluate(
    classifier: HierarchicalClassifier,
    folder: DataFolder,
    split: str,
    *,
    threshold: float | None = None,
    decode: Rule | None = None,
    paths: int | None = None,
    sure: float | None = None,
    progress: Callable[[int], None] | None = None,
) -> MultiLabelScores:
    """Return the scores of a classifier, counted window by window.

    Args:
        classifier: the model.
        folder: the documents, read with the classifier's own label tree.
        split: which of its splits.
        threshold, decode, paths, sure: see :meth:`HierarchicalClassifier.predict`. What is left out for doubt counts as
            not given.
        progress: called with the number of documents scored since the last call.
    """
    decisions = classifier.decisions.changed(rule=decode, threshold=threshold, paths=paths, sure=sure)
    scores = MultiLabelScores(classifier.taxonomy)
    for documents in windows(folder.documents(split), classifier.window):
        gold = np.zeros((len(documents), len(classifier.taxonomy)), dtype=np.bool_)
        for row, document in enumerate(documents):
            gold[row, list(document.labels)] = True
        probabilities = classifier.predict_proba([document.text for document in documents])
        scores.update(decisions.decide(probabilities).given, gold)
        if progress is not None:
            progress(len(documents))
    return scores
