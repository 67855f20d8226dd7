"""Label matrices as bits, 64 documents to a word: counting and climbing the tree touch 1/8 of the memory."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hgclr.taxonomy import Taxonomy

__all__ = ["Bits", "PackedTree", "count_bits", "pack"]

Bits = NDArray[np.uint64]
WORD = 8
"""Bytes in a word."""


def pack(matrix: NDArray[np.bool_]) -> Bits:
    """Return the bits of a label matrix by label, (K, ⌈N / 64⌉), from (N, K); the last bits of a row may be unused, 0.

    Which bit of its row a document has is the same for all labels.
    """
    by_label = np.packbits(np.ascontiguousarray(matrix.T), axis=1)
    words = -(-by_label.shape[1] // WORD)
    padded = np.zeros((len(by_label), words * WORD), dtype=np.uint8)
    padded[:, : by_label.shape[1]] = by_label
    return padded.view(np.uint64)


def count_bits(bits: Bits) -> NDArray[np.int64]:
    """Return the number of documents in each row, (K,)."""
    counts: NDArray[np.int64] = np.bitwise_count(bits).sum(axis=1, dtype=np.int64)
    return counts


class PackedTree:
    """The label tree, as far as packed matrices need it."""

    def __init__(self, taxonomy: Taxonomy) -> None:
        parents = taxonomy.parents
        self._downwards = [(level, parents[level]) for level in taxonomy.levels[1:]]
        self._upwards = []
        for level in taxonomy.levels[:0:-1]:
            children = level[np.argsort(parents[level], kind="stable")]
            above, starts = np.unique(parents[children], return_index=True)
            self._upwards.append((above, children, starts))

    def close(self, bits: Bits) -> Bits:
        """Return a copy in which every label brings its ancestors."""
        closed = bits.copy()
        for parents, children, starts in self._upwards:
            closed[parents] |= np.bitwise_or.reduceat(closed[children], starts, axis=0)
        return closed

    def whole(self, bits: Bits) -> Bits:
        """Return a copy that keeps a label only where all its ancestors are there too."""
        kept = bits.copy()
        for level, parents in self._downwards:
            kept[level] &= kept[parents]
        return kept
