"""Deal documents out to folds."""

from __future__ import annotations

import hashlib
from array import array
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hgclr.auditing.rows import labelled_rows
from hgclr.data.checking import text_hash
from hgclr.data.folder import DataFolder
from hgclr.errors import InputError

__all__ = ["Dealt", "deal"]


@dataclass(frozen=True)
class Dealt:
    """Which document is in which fold.

    Args:
        folds: the fold of each document, counted from 0, (N,).
        one_fold_labels: labels all of whose texts are in one fold, by index: the model that audits them has never seen
            the label.
        digest: tells these documents, with their labels and in this order, from all others.
    """

    folds: NDArray[np.int64]
    one_fold_labels: list[int]
    digest: str


def deal(folder: DataFolder, split: str, folds: int, seed: int) -> Dealt:
    """Deal the documents of a split out to folds.

    Documents with the same text, as ``hgclr data check`` sees it, go to the same fold: a model that was trained on one
    of them has seen the other. Texts are dealt out one fold after the other, in the order of their rarest label and, of
    those with the same one, at random; so the documents of a label are spread over the folds as evenly as possible.

    Raises:
        InputError: if there are fewer different texts than folds, or a row is bad.
    """
    hashes, rarest, pairs, digest = _read(folder, split)
    _, first, text_of_document = np.unique(hashes, return_index=True, return_inverse=True)
    if len(first) < folds:
        raise InputError(
            f"{len(first)} different texts cannot be dealt out to {folds} folds",
            path=folder.split_path(split),
            remedy="give fewer folds or more documents",
        )
    chance = np.random.default_rng(seed).permutation(len(first))
    order = np.lexsort((chance, rarest[first]))
    fold_of_text = np.empty(len(first), dtype=np.int64)
    fold_of_text[order] = np.arange(len(first)) % folds
    dealt = fold_of_text[text_of_document]
    documents, labels = pairs
    seen = np.unique(labels * folds + dealt[documents]) // folds
    alone, count = np.unique(seen, return_counts=True)
    return Dealt(dealt, alone[count == 1].tolist(), digest)


def _read(
    folder: DataFolder, split: str
) -> tuple[NDArray[np.uint64], NDArray[np.int64], tuple[NDArray[np.int64], NDArray[np.int64]], str]:
    """Return the hash of each text, each document's rarest label, pairs of document and label, and a digest."""
    hashes, counts, flat = array("Q"), array("q"), array("q")
    digest = hashlib.sha256()
    for row in labelled_rows(folder, split):
        hashes.append(text_hash(row.text))
        counts.append(len(row.labels))
        flat.extend(row.labels)
        content = row.text.encode()
        # The lengths come first, so that no other texts and labels make the same bytes.
        numbers = np.array([len(content), len(row.labels), *row.labels], dtype="<i8")
        digest.update(numbers.tobytes() + content)
    sizes, labels = np.array(counts, dtype=np.int64), np.array(flat, dtype=np.int64)
    documents = np.repeat(np.arange(len(sizes)), sizes)
    frequencies = np.bincount(labels, minlength=len(folder.taxonomy))[labels]
    # Each document's first pair in the order of frequency, equally frequent labels by index.
    order = np.lexsort((labels, frequencies, documents))
    rarest = labels[order[np.cumsum(sizes) - sizes]]
    return np.array(hashes, dtype=np.uint64), rarest, (documents, labels), digest.hexdigest()
