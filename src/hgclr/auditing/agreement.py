"""How far a model agrees with the annotation of each label, on average."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hgclr.taxonomy import Taxonomy

__all__ = ["Agreement"]

SHRINKAGE = 10.0
"""Documents' worth of the level's mean in the mean of a label: one with a few documents has no mean of its own."""


class Agreement:
    """Average, for each label, the probability of what the annotation says; memory O(labels).

    The agreement with a decision of the annotation is a_ik = p_ik if document i is given label k, and 1 - p_ik if not.
    Its mean over the documents with the same decision on the same label, g = 1 or 0, is the *usual* agreement

        m_k(g) = (∑_i a_ik + 10 M(g)) / (n_k(g) + 10)      M(g): mean over all labels of k's level

    For g = 1 this is the label's mean self-confidence, the threshold of confident learning (Northcutt et al., 2021).

    Args:
        taxonomy: the label tree; column k of every array is its label k.
    """

    def __init__(self, taxonomy: Taxonomy) -> None:
        self.taxonomy = taxonomy
        self.documents = 0
        self.given = np.zeros(len(taxonomy), dtype=np.int64)
        """Documents that are given each label, (K,)."""
        self._all = np.zeros(len(taxonomy))
        self._given = np.zeros(len(taxonomy))

    def update(self, probabilities: NDArray[np.float32], gold: NDArray[np.bool_]) -> None:
        """Add documents: probabilities and given labels, both (N, K)."""
        self.documents += len(gold)
        self.given += np.count_nonzero(gold, axis=0)
        self._all += probabilities.sum(axis=0, dtype=np.float64)
        self._given += probabilities.sum(axis=0, dtype=np.float64, where=gold)

    def usual(self) -> NDArray[np.float64]:
        """Return m_k(g) of labels that are not given, g = 0, and of given ones, g = 1, (2, K)."""
        without = self.documents - self.given
        counts = np.stack([without, self.given]).astype(np.float64)
        sums = np.stack([without - (self._all - self._given), self._given])
        means = np.empty_like(sums)
        for level in self.taxonomy.levels:
            whole = sums[:, level].sum(axis=1) / np.maximum(counts[:, level].sum(axis=1), 1)
            means[:, level] = (sums[:, level] + SHRINKAGE * whole[:, None]) / (counts[:, level] + SHRINKAGE)
        return means
