"""Deal texts out to splits, so that every label has the same share in each."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hgclr.errors import InputError, require_extra

__all__ = ["LabelledTexts", "deal_at_random", "deal_evenly", "give_train_every_label"]

logger = logging.getLogger(__name__)

TRAIN = 0

LARGEST_TABLE = 2**32
"""Bytes that the table of texts and labels may take, with the two copies that the algorithm makes of it."""

SECONDS_PER_CELL = 4e-10
"""Rough time for each text, label and label again: the algorithm adds up what is left of the table for each label."""

LONG = 60
"""Seconds from which a warning is due."""


@dataclass(frozen=True, slots=True)
class LabelledTexts:
    """Which text has which labels, as pairs, each once; texts and labels are numbered from 0.

    Args:
        texts: number of texts.
        labels: number of labels, all of which occur.
        text: the text of each pair; shape (P,).
        label: the label of each pair; shape (P,).
    """

    texts: int
    labels: int
    text: NDArray[np.int64]
    label: NDArray[np.int64]

    def table(self) -> NDArray[np.bool_]:
        """Return the pairs as a table; shape (texts, labels)."""
        table = np.zeros((self.texts, self.labels), dtype=np.bool_)
        table[self.text, self.label] = True
        return table


def deal_evenly(pairs: LabelledTexts, shares: NDArray[np.float64], *, seed: int) -> NDArray[np.int64]:
    """Return a split for each text, by iterative stratification (Sechidis et al., 2011).

    Rarest label first, each text goes to the split that is furthest from its share of that label.

    Args:
        pairs: the texts and their labels.
        shares: of each split; they add up to 1.
        seed: decides between equals.

    Raises:
        InputError: if the table of texts and labels would be too large for memory.
        MissingExtraError: if the ``data`` extra is not installed.
    """
    require_extra("iterstrat", extra="data", capability="A stratified split")
    from iterstrat.ml_stratifiers import IterativeStratification

    size = 3 * pairs.texts * pairs.labels
    if size > LARGEST_TABLE:
        raise InputError(
            f"stratifying {pairs.texts:,} texts over {pairs.labels:,} labels would take {size / 2**30:.1f} GB",
            remedy="--no-stratify splits at random",
        )
    seconds = SECONDS_PER_CELL * pairs.texts * pairs.labels**2
    if seconds > LONG:
        logger.warning(
            "stratifying %d texts over %d labels may take some %d minutes; --no-stratify splits at random, at once",
            pairs.texts,
            pairs.labels,
            np.ceil(seconds / 60),
        )
    random = np.random.default_rng(seed)
    order = random.permutation(pairs.texts)
    dealt = np.empty(pairs.texts, dtype=np.int64)
    # The function behind the library's splitters: it deals to any number of splits in one go, they to two only.
    dealt[order] = IterativeStratification(labels=pairs.table()[order], r=shares, random_state=random)
    return dealt


def deal_at_random(texts: int, shares: NDArray[np.float64], *, seed: int) -> NDArray[np.int64]:
    """Return a split for each text, whatever its labels.

    Args:
        texts: number of texts.
        shares: of each split; they add up to 1.
        seed: decides the split.
    """
    ends = np.rint(np.cumsum(shares) * texts).astype(np.int64)
    dealt = np.empty(texts, dtype=np.int64)
    dealt[np.random.default_rng(seed).permutation(texts)] = np.searchsorted(ends, np.arange(texts), side="right")
    return dealt


def give_train_every_label(pairs: LabelledTexts, dealt: NDArray[np.int64]) -> None:
    """Move to train, in place, one text of each label that has none there: it could not be learned otherwise."""
    order = np.argsort(pairs.label, kind="stable")
    texts = pairs.text[order]
    starts = np.searchsorted(pairs.label[order], np.arange(pairs.labels + 1))
    trained = np.bincount(pairs.label[dealt[pairs.text] == TRAIN], minlength=pairs.labels)
    for label in np.flatnonzero(trained == 0).tolist():
        own = texts[starts[label] : starts[label + 1]]
        if (dealt[own] != TRAIN).all():  # unless a text moved for another label has this one too
            dealt[own[0]] = TRAIN
