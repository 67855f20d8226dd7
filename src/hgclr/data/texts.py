"""Find texts that occur several times in a data folder, and those among them whose labels differ."""

from __future__ import annotations

import hashlib
import unicodedata
from array import array
from collections.abc import Mapping
from itertools import combinations, islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hgclr.data.folder import DataFolder, Document

__all__ = ["Conflict", "TextMarks", "conflicting_texts", "first_conflicts", "shared_texts", "stable_hash", "text_hash"]


def text_hash(text: str) -> int:
    """Return an 8-byte hash of a text that ignores case, white space and character composition."""
    normal = " ".join(unicodedata.normalize("NFC", text.casefold()).split())
    return int.from_bytes(hashlib.blake2b(normal.encode(), digest_size=8).digest(), "little")


def stable_hash(*parts: object) -> int:
    """Return a 64-bit hash of the parts that is the same in every run."""
    digest = hashlib.blake2b("\n".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")


class TextMarks:
    """Remember every document of a split by 16 bytes: a hash of its text and one of its labels."""

    def __init__(self) -> None:
        self._texts, self._labels = array("Q"), array("q")

    def add(self, document: Document) -> None:
        self._texts.append(text_hash(document.text))
        self._labels.append(hash(document.labels))

    @property
    def texts(self) -> NDArray[np.uint64]:
        """The hashes of the texts, in the order of the documents."""
        return np.frombuffer(self._texts, dtype=np.uint64)

    @property
    def labels(self) -> NDArray[np.int64]:
        """The hashes of the label sets, in the order of the documents."""
        return np.frombuffer(self._labels, dtype=np.int64)


class Conflict(NamedTuple):
    """A text, as it is first written, that has different labels in two documents, and the splits of these."""

    text: str
    splits: tuple[str, str]
    labels: tuple[tuple[str, ...], tuple[str, ...]]

    def sides(self) -> tuple[str, str]:
        """Return where the text is and with which labels, for each of the two documents."""
        first, second = (f"{split}: {', '.join(ids)}" for split, ids in zip(self.splits, self.labels, strict=True))
        return first, second


def shared_texts(marks: Mapping[str, TextMarks]) -> dict[tuple[str, str], int]:
    """Return, for each pair of splits that share texts, the number of distinct texts they share."""
    different = {name: np.unique(split.texts) for name, split in marks.items()}
    shared = {}
    for first, second in combinations(different, 2):
        if count := len(np.intersect1d(different[first], different[second], assume_unique=True)):
            shared[first, second] = count
    return shared


def conflicting_texts(marks: Mapping[str, TextMarks]) -> NDArray[np.uint64]:
    """Return the hashes of the texts that have different labels in the folder, be it in one split or in two."""
    texts = np.concatenate([split.texts for split in marks.values()])
    labels = np.concatenate([split.labels for split in marks.values()])
    order = np.lexsort((labels, texts))
    texts, labels = texts[order], labels[order]
    differs = (texts[1:] == texts[:-1]) & (labels[1:] != labels[:-1])
    return np.unique(texts[1:][differs])


def first_conflicts(
    folder: DataFolder, marks: Mapping[str, TextMarks], hashes: NDArray[np.uint64], count: int
) -> list[Conflict]:
    """Return the first ``count`` of the conflicting texts, each with two documents that have it.

    The texts themselves were not kept: the splits are read again, no further than need be.
    """
    places: dict[int, dict[int, tuple[str, int]]] = {}  # by text and label set: a document's split and place in it
    for name, split in marks.items():
        for place in np.flatnonzero(np.isin(split.texts, hashes)).tolist():
            text = int(split.texts[place])
            if text in places or len(places) < count:
                places.setdefault(text, {}).setdefault(int(split.labels[place]), (name, place))
    pairs = [list(by_labels.values())[:2] for by_labels in places.values()]
    documents = _documents(folder, {place for pair in pairs for place in pair})
    ids = folder.taxonomy.ids
    return [
        Conflict(
            documents[first].text,
            (first[0], second[0]),
            (
                tuple(ids[label] for label in documents[first].labels),
                tuple(ids[label] for label in documents[second].labels),
            ),
        )
        for first, second in pairs
    ]


def _documents(folder: DataFolder, places: set[tuple[str, int]]) -> dict[tuple[str, int], Document]:
    """Return the documents at some places, each given by its split and its number among the good rows, from 0."""
    found = {}
    for split in folder.splits:
        last = max((place for name, place in places if name == split), default=-1)
        good = (item for item in folder.scan(split) if isinstance(item, Document))
        for place, document in enumerate(islice(good, last + 1)):
            if (split, place) in places:
                found[split, place] = document
    return found
