"""Labels by how often they occur in training, from the most frequent to those that never do, and their scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hgclr.metrics.scores import MultiLabelScores

__all__ = ["by_frequency", "frequency_bands", "frequency_thirds"]

BANDS = {"unseen": 0, "1-5": 5, "6-20": 20}
"""The most training documents of the labels in each band; those with more are in the last one."""
MORE = "more than 20"
Groups = dict[str, NDArray[np.int64]]


def frequency_bands(counts: ArrayLike) -> Groups:
    """Divide the labels by their number of training documents: none, 1 to 5, 6 to 20, more.

    Args:
        counts: training documents of each label, (K,).

    Example:
        >>> {name: labels.tolist() for name, labels in frequency_bands([0, 50, 7, 2, 7]).items()}
        {'unseen': [0], '1-5': [3], '6-20': [2, 4], 'more than 20': [1]}
    """
    band = np.searchsorted(list(BANDS.values()), _counts(counts))
    return {name: np.flatnonzero(band == place) for place, name in enumerate([*BANDS, MORE])}


def frequency_thirds(counts: ArrayLike) -> Groups:
    """Divide the labels into thirds by frequency.

    The S labels with training documents are put in order, the most frequent first. Labels of the same frequency stay
    together, in the middle of the places that they fill: with ``m`` labels more frequent and ``e`` equally frequent, a
    label itself among them, ``r = m + e / 2``. The head are the labels with ``r < S / 3``, the tail those with
    ``r > 2 S / 3``. But for ties these are thirds; where all labels are equally frequent, all are in the middle.

    Args:
        counts: training documents of each label, (K,).

    Returns:
        The indices of the labels; those without training documents, ``unseen``, belong to no third. A group may be
        empty.

    Example:
        >>> {name: labels.tolist() for name, labels in frequency_thirds([0, 50, 7, 2, 7]).items()}
        {'head': [1], 'middle': [2, 4], 'tail': [3], 'unseen': [0]}
    """
    numbers = _counts(counts)
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


def by_frequency(
    scores: MultiLabelScores, counts: ArrayLike, groups: Callable[[ArrayLike], Groups] = frequency_bands
) -> dict[str, dict[str, Any]]:
    """Score rare and frequent labels apart, and those that training never saw.

    ``macro`` averages over **all** labels of the group, and a label without gold documents counts as 0, so that the
    mean of the groups' Macro-F1, weighted by their labels, is the Macro-F1 of all. Rare labels often have no gold
    document in a small split, where no prediction could be right; ``macro_gold`` therefore averages over the labels of
    the group that have gold documents, and is None where none has.

    Args:
        scores: what was counted on dev or test.
        counts: training documents of each label, (K,), ancestors included, and without documents made from the tree.
        groups: divides labels by their counts.

    Returns:
        By group, in plain Python types, and without groups that have no label: ``fewest`` and ``most`` training
        documents of a label, ``labels_with_gold``, what :meth:`MultiLabelScores.group` gives, and ``macro_gold``.

    Raises:
        ValueError: if these are not the counts of the scored labels.
    """
    numbers, gold = _counts(counts), scores.per_label().gold
    if len(numbers) != len(gold):
        raise ValueError(f"expected the number of documents of each of {len(gold)} labels, got {len(numbers)}")
    scored = {}
    for name, labels in groups(numbers).items():
        if not len(labels):
            continue
        present = labels[gold[labels] > 0]
        scored[name] = {
            "fewest": int(numbers[labels].min()),
            "most": int(numbers[labels].max()),
            "labels_with_gold": len(present),
            **asdict(scores.group(labels)),
            "macro_gold": asdict(scores.group(present).macro) if len(present) else None,
        }
    return scored


def _counts(counts: ArrayLike) -> NDArray[np.int64]:
    numbers = np.asarray(counts)
    if numbers.ndim != 1 or (numbers.size and (numbers.dtype.kind not in "iu" or int(numbers.min()) < 0)):
        raise ValueError(f"expected the number of documents of each label, got {numbers.dtype} {numbers.shape}")
    return numbers.astype(np.int64)
