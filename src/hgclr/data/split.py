"""Random and stratified splits into train, dev and test."""

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
"""Maximum bytes of the table of texts and labels, with the two copies that the algorithm makes."""
SECONDS_PER_CELL = 4e-10
"""Rough time per text and squared label: the algorithm sums the rest of the table for each label."""
LONG = 60
"""Expected seconds above which hgclr warns."""


def hold_out(documents: int, share: float, seed: int, *, least: int = 1) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the positions of the documents for training and of those held out for dev, both shuffled.

    The result depends only on the arguments. At least ``least`` documents are held out.
    """
    held_out = max(least, ceil(share * documents))
    if held_out >= documents:
        remedy = f"give more than {held_out} documents, or a dev set"
        raise InputError(f"{documents} documents are too few: {held_out} are held out for dev", remedy=remedy)
    shuffled = np.random.default_rng(seed).permutation(documents)
    return shuffled[held_out:], shuffled[:held_out]


def checked_shares(dev: float, test: float) -> NDArray[np.float64]:
    """Return the shares of train, dev and test; raise if train, or both dev and test, would be empty."""
    if min(dev, test) < 0 or dev + test >= 1:
        remedy = "choose shares of at least 0 that sum to less than 1, such as 0.1 and 0.1"
        raise InputError(f"invalid shares of dev and test: {dev:g} and {test:g}", remedy=remedy)
    if not dev + test:
        raise InputError("nothing to split: the shares of dev and test are both 0", remedy="increase one of them")
    return np.array([1 - dev - test, dev, test])


def check_place(source: Path, output: Path) -> None:
    """Raise if the output folder would replace the source or its folder."""
    if output.resolve() in {source.resolve(), source.resolve().parent}:
        raise InputError("the output would replace the source", path=output, remedy="choose another folder")


@dataclass(slots=True)
class TextSurvey:
    """Text hashes and labels of all good rows of a file, in order."""

    hashes: array[int] = field(default_factory=lambda: array("Q"))
    counts: array[int] = field(default_factory=lambda: array("q"))
    flat: array[int] = field(default_factory=lambda: array("q"))

    def add(self, text: int, labels: Sequence[int]) -> None:
        """Add a row: the hash of its text and the indices of its labels."""
        self.hashes.append(text)
        self.counts.append(len(labels))
        self.flat.extend(labels)

    @property
    def texts(self) -> NDArray[np.uint64]:
        """The hash of each row's text; shape (N,)."""
        return np.frombuffer(self.hashes, dtype=np.uint64)

    @property
    def pairs(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The rows and the labels of all pairs of a row with one of its labels; two arrays, (P,)."""
        rows = np.repeat(np.arange(len(self.counts)), np.frombuffer(self.counts, dtype=np.int64))
        return rows, np.frombuffer(self.flat, dtype=np.int64)


def deal(
    survey: TextSurvey, shares: NDArray[np.float64], *, seed: int, stratify: bool, path: Path
) -> NDArray[np.int64]:
    """Return each row's split, as an index into `SPLITS`; equal texts share a split, and train has every label."""
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
            remedy = "increase its share, or add documents: train takes at least one for every label"
            raise InputError(what, path=path, remedy=remedy)
    return dealt[text_of_row]


Pairs = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Pairs of a text and one of its labels, both numbered from 0: two arrays, (P,)."""


def deal_evenly(texts: int, labels: int, pairs: Pairs, shares: NDArray[np.float64], *, seed: int) -> NDArray[np.int64]:
    """Return a split for each text, by iterative stratification (Sechidis et al., 2011).

    Rarest label first, each text goes to the split that is furthest below its share of that label; the seed breaks
    ties. The shares of the splits sum to 1.
    """
    require_extra("iterstrat", extra="data", capability="A stratified split")
    from iterstrat.ml_stratifiers import IterativeStratification

    size = 3 * texts * labels
    if size > LARGEST_TABLE:
        what = f"stratifying {texts:,} texts over {labels:,} labels would take {size / 2**30:.1f} GB"
        raise InputError(what, remedy="use --no-stratify for a random split")
    if (seconds := SECONDS_PER_CELL * texts * labels**2) > LONG:
        logger.warning(
            "stratifying %d texts over %d labels may take %d minutes; use --no-stratify for a fast random split",
            texts,
            labels,
            np.ceil(seconds / 60),
        )
    random = np.random.default_rng(seed)
    order = random.permutation(texts)
    dealt = np.empty(texts, dtype=np.int64)
    table = np.zeros((texts, labels), dtype=np.bool_)
    table[pairs] = True
    # The library's public splitters make two splits; the function that they call makes any number.
    dealt[order] = IterativeStratification(labels=table[order], r=shares, random_state=random)
    return dealt


def give_train_every_label(pairs: Pairs, dealt: NDArray[np.int64]) -> None:
    """Move one text of each label without a training text to train, in place; otherwise it could not be learned."""
    text, label = pairs
    order = np.argsort(label, kind="stable")
    texts = text[order]
    labels = int(label.max()) + 1
    starts = np.searchsorted(label[order], np.arange(labels + 1))
    trained = np.bincount(label[dealt[text] == TRAIN], minlength=labels)
    for missing in np.flatnonzero(trained == 0).tolist():
        own = texts[starts[missing] : starts[missing + 1]]
        if (dealt[own] != TRAIN).all():  # a text moved for another label may have this one too
            dealt[own[0]] = TRAIN


def label_spread(survey: TextSurvey, dealt: NDArray[np.int64]) -> dict[str, tuple[int, float]]:
    """Return, for each split with rows, the number of labels without a row and the mean deviation over labels.

    The deviation is between a label's share of the split's rows and its share of all rows.
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
