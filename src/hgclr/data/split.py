"""Draw train, dev and test: a share held out at random, or splits in which every label has the same share."""

from __future__ import annotations

import logging
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hgclr.data.folder import SPLITS
from hgclr.errors import InputError, require_extra

logger = logging.getLogger(__name__)
TRAIN = 0
LARGEST_TABLE = 2**32
"""Bytes that the table of texts and labels may take, with the two copies that the algorithm makes of it."""
SECONDS_PER_CELL = 4e-10
"""Rough time for each text, label and label again: the algorithm adds up what is left of the table for each label."""
LONG = 60
"""Seconds from which a warning is due."""


def hold_out(documents: int, share: float, seed: int, *, least: int = 1) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the places of documents to train on, and those of the share that is held out for dev, both shuffled.

    Only the number of documents, the share and the seed decide which ones. At least ``least`` are held out.
    """
    held_out = max(least, ceil(share * documents))
    if held_out >= documents:
        remedy = f"give more than {held_out} documents, or a dev set"
        raise InputError(f"{documents} documents are too few: {held_out} are held out for dev", remedy=remedy)
    shuffled = np.random.default_rng(seed).permutation(documents)
    return shuffled[held_out:], shuffled[:held_out]


def checked_shares(dev: float, test: float) -> NDArray[np.float64]:
    """Refuse shares that leave nothing for training or draw nothing."""
    if min(dev, test) < 0 or dev + test >= 1:
        remedy = "give shares of at least 0 that leave documents for training, such as 0.1 and 0.1"
        raise InputError(f"the shares of dev and test are {dev:g} and {test:g}", remedy=remedy)
    if not dev + test:
        raise InputError("nothing to split: the shares of dev and test are both 0", remedy="give one of them a share")
    return np.array([1 - dev - test, dev, test])


def check_place(source: Path, output: Path) -> None:
    """Refuse an output folder that would replace the source, or the folder that it is in."""
    if output.resolve() in {source.resolve(), source.resolve().parent}:
        raise InputError("the output would stand in the place of the source", path=output, remedy="name another folder")


@dataclass(slots=True)
class TextSurvey:
    """The texts and labels of all good rows of a file, in their order."""

    hashes: array[int] = field(default_factory=lambda: array("Q"))
    counts: array[int] = field(default_factory=lambda: array("q"))
    flat: array[int] = field(default_factory=lambda: array("q"))

    def add(self, text: int, labels: Sequence[int]) -> None:
        """Note the hash of a row's text, and the indices of its labels."""
        self.hashes.append(text)
        self.counts.append(len(labels))
        self.flat.extend(labels)

    @property
    def texts(self) -> NDArray[np.uint64]:
        """The hash of each row's text; shape (N,)."""
        return np.frombuffer(self.hashes, dtype=np.uint64)

    @property
    def pairs(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The row and the label of each label that a row has; two of shape (P,)."""
        rows = np.repeat(np.arange(len(self.counts)), np.frombuffer(self.counts, dtype=np.int64))
        return rows, np.frombuffer(self.flat, dtype=np.int64)


def deal(
    survey: TextSurvey, shares: NDArray[np.float64], *, seed: int, stratify: bool, path: Path
) -> NDArray[np.int64]:
    """Return the place in `SPLITS` of each row; rows of the same text have the same, and train has every label."""
    texts, text_of_row = np.unique(survey.texts, return_inverse=True)
    rows, labels = survey.pairs
    used, label = np.unique(labels, return_inverse=True)
    different = np.unique(text_of_row[rows] * len(used) + label)  # a text and a label as one number
    pairs = different // len(used), different % len(used)
    if stratify:
        dealt = deal_evenly(len(texts), len(used), pairs, shares, seed=seed)
    else:
        ends = np.rint(np.cumsum(shares) * len(texts)).astype(np.int64)
        dealt = np.empty(len(texts), dtype=np.int64)
        order = np.random.default_rng(seed).permutation(len(texts))
        dealt[order] = np.searchsorted(ends, np.arange(len(texts)), side="right")
    give_train_every_label(pairs, dealt)
    for place, (split, share) in enumerate(zip(SPLITS, shares, strict=True)):
        if share and not (dealt == place).any():
            what = f"none of the {len(texts):,} different texts is left for the split {split!r}"
            remedy = "give it a larger share, or add documents: every label needs one in train first"
            raise InputError(what, path=path, remedy=remedy)
    return dealt[text_of_row]


Pairs = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Which text has which label, both numbered from 0: two arrays, (P,)."""


def deal_evenly(texts: int, labels: int, pairs: Pairs, shares: NDArray[np.float64], *, seed: int) -> NDArray[np.int64]:
    """Return a split for each text, by iterative stratification (Sechidis et al., 2011).

    Rarest label first, each text goes to the split that is furthest from its share of that label; the seed decides
    between equals. The shares of the splits add up to 1.
    """
    require_extra("iterstrat", extra="data", capability="A stratified split")
    from iterstrat.ml_stratifiers import IterativeStratification

    size = 3 * texts * labels
    if size > LARGEST_TABLE:
        what = f"stratifying {texts:,} texts over {labels:,} labels would take {size / 2**30:.1f} GB"
        raise InputError(what, remedy="--no-stratify splits at random")
    if (seconds := SECONDS_PER_CELL * texts * labels**2) > LONG:
        logger.warning(
            "stratifying %d texts over %d labels may take %d minutes; --no-stratify splits at random, at once",
            texts,
            labels,
            np.ceil(seconds / 60),
        )
    random = np.random.default_rng(seed)
    order = random.permutation(texts)
    dealt = np.empty(texts, dtype=np.int64)
    table = np.zeros((texts, labels), dtype=np.bool_)
    table[pairs] = True
    # The function behind the library's splitters: it deals to any number of splits at once, they to two only.
    dealt[order] = IterativeStratification(labels=table[order], r=shares, random_state=random)
    return dealt


def give_train_every_label(pairs: Pairs, dealt: NDArray[np.int64]) -> None:
    """Move one text of each label that has none in train there, in place: it could not be learned otherwise."""
    text, label = pairs
    order = np.argsort(label, kind="stable")
    texts = text[order]
    labels = int(label.max()) + 1
    starts = np.searchsorted(label[order], np.arange(labels + 1))
    trained = np.bincount(label[dealt[text] == TRAIN], minlength=labels)
    for missing in np.flatnonzero(trained == 0).tolist():
        own = texts[starts[missing] : starts[missing + 1]]
        if (dealt[own] != TRAIN).all():  # unless a text moved for another label has this one too
            dealt[own[0]] = TRAIN


def label_spread(survey: TextSurvey, dealt: NDArray[np.int64]) -> dict[str, tuple[int, float]]:
    """Return, for each split that rows were dealt to, how many labels have no row in it, and their mean deviation.

    The deviation is between the share of its rows that have a label, and the share of all rows.
    """
    rows, labels = survey.pairs
    used, label = np.unique(labels, return_inverse=True)
    overall = np.bincount(label, minlength=len(used)) / len(dealt)
    spread = {}
    for place in np.unique(dealt).tolist():
        uses = np.bincount(label[dealt[rows] == place], minlength=len(used))
        deviation = np.abs(uses / np.count_nonzero(dealt == place) - overall).mean()
        spread[SPLITS[place]] = int(np.count_nonzero(uses == 0)), float(deviation)
    return spread
