"""What a model says of the documents of a split, beside what they are: the material to calibrate on."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from hgclr.data.folder import DataFolder
from hgclr.inference.batches import windows
from hgclr.inference.classifier import HierarchicalClassifier

__all__ = ["Outputs", "read_outputs"]

logger = logging.getLogger(__name__)

ENTRIES = 2**23
"""Documents times labels: to tune on more would take minutes and tell little more."""


@dataclass(frozen=True, eq=False)
class Outputs:
    """Logits and gold labels of documents, both (N, K)."""

    logits: NDArray[np.float32]
    gold: NDArray[np.bool_]


def read_outputs(
    classifier: HierarchicalClassifier,
    folder: DataFolder,
    split: str,
    *,
    entries: int = ENTRIES,
    progress: Callable[[int], None] | None = None,
) -> Outputs:
    """Return what a model says of a split, of as many documents as ``entries`` allow.

    Raises:
        InputError: if there is no such split or no document in it.
    """
    most = max(1, entries // len(classifier.taxonomy))
    documents = folder.documents(split)
    logits: list[NDArray[np.float32]] = []
    gold: list[NDArray[np.bool_]] = []
    for window in windows(islice(documents, most), classifier.window):
        labels = np.zeros((len(window), len(classifier.taxonomy)), dtype=np.bool_)
        for row, document in enumerate(window):
            labels[row, list(document.labels)] = True
        gold.append(labels)
        logits += classifier.logits([document.text for document in window])
        if progress is not None:
            progress(len(window))
    if next(documents, None) is not None:
        logger.warning("only the first %d documents of %s are looked at", most, split)
    return Outputs(np.concatenate(logits), np.concatenate(gold))
