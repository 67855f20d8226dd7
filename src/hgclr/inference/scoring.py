"""Score a classifier on a split of a data folder."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hgclr.data.folder import DataFolder
from hgclr.evaluation.metrics import MultiLabelScores
from hgclr.inference.batches import windows
from hgclr.inference.classifier import Decoding, HierarchicalClassifier

__all__ = ["evaluate"]


def evaluate(
    classifier: HierarchicalClassifier,
    folder: DataFolder,
    split: str,
    *,
    threshold: float | None = None,
    decode: Decoding = "threshold",
    progress: Callable[[int], None] | None = None,
) -> MultiLabelScores:
    """Return the scores of a classifier, counted window by window.

    Args:
        classifier: the model.
        folder: the documents, read with the classifier's own label tree.
        split: which of its splits.
        threshold: see :meth:`HierarchicalClassifier.predict`.
        decode: see :meth:`HierarchicalClassifier.predict`.
        progress: called with the number of documents scored since the last call.
    """
    scores = MultiLabelScores(classifier.taxonomy)
    for documents in windows(folder.documents(split), classifier.window):
        gold = np.zeros((len(documents), len(classifier.taxonomy)), dtype=np.bool_)
        for row, document in enumerate(documents):
            gold[row, list(document.labels)] = True
        probabilities = classifier.predict_proba([document.text for document in documents])
        scores.update(classifier.decide(probabilities, threshold=threshold, decode=decode), gold)
        if progress is not None:
            progress(len(documents))
    return scores
