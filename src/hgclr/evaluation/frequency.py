"""Labels by how often they occur in training: head, middle, tail, and those that never do."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["frequency_thirds"]


def frequency_thirds(counts: ArrayLike) -> dict[str, NDArray[np.int64]]:
    """Divide the labels into thirds by frequency.

    The S labels with training documents are put in order, the most frequent first. Labels of the same frequency stay
    together, in the middle of the places that they fill: with ``m`` labels more frequent and ``e`` equally frequent, a
    label itself among them, ``r = m + e / 2``. The head are the labels with ``r < S / 3``, the tail those with
    ``r > 2 S / 3``. But for ties these are thirds; where all labels are equally frequent, all are in the middle.

    Args:
        counts: training documents of each label, (K,).

    Returns:
        The indices of the labels, in index order, under ``head``, ``middle``, ``tail`` and ``unseen``: labels without
        training documents belong to no third. A group may be empty.

    Raises:
        ValueError: if these are not counts.

    Example:
        >>> {name: labels.tolist() for name, labels in frequency_thirds([0, 50, 7, 2, 7]).items()}
        {'head': [1], 'middle': [2, 4], 'tail': [3], 'unseen': [0]}
    """
    numbers = np.asarray(counts)
    if numbers.ndim != 1 or (numbers.size and (numbers.dtype.kind not in "iu" or int(numbers.min()) < 0)):
        raise ValueError(f"expected the number of documents of each label, got {numbers.dtype} {numbers.shape}")
    numbers = numbers.astype(np.int64)
    seen = numbers > 0
    ordered = np.sort(numbers[seen])
    more = len(ordered) - np.searchsorted(ordered, numbers, side="right")
    not_fewer = len(ordered) - np.searchsorted(ordered, numbers, side="left")
    places = 3 * (more + not_fewer)  # six times r, to compare whole numbers
    groups = {
        "head": seen & (places < 2 * len(ordered)),
        "middle": seen & (places >= 2 * len(ordered)) & (places <= 4 * len(ordered)),
        "tail": seen & (places > 4 * len(ordered)),
        "unseen": ~seen,
    }
    return {name: np.flatnonzero(chosen) for name, chosen in groups.items()}
