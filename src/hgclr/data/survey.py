"""Read a data folder once and count what statistics and findings are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import pi
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hgclr.data.folder import DataFolder, Document
from hgclr.data.rows import BadRow
from hgclr.data.texts import Histogram, TextMarks
from hgclr.encoders import TEXTRCNN, encoder_load_error, resolve_encoder
from hgclr.errors import InputError
from hgclr.taxonomy import Taxonomy

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = ["Agreement", "SplitSurvey", "agreement", "survey_split", "token_lengths"]

TokenLengths = Callable[[Sequence[str]], list[int]]
"""Gives for each text how many tokens it is."""
BATCH = 256
"""Texts tokenised, and in memory, at a time."""


@dataclass(slots=True)
class SplitSurvey:
    """What was counted in one split; its size does not depend on the number of documents.

    Args:
        path: its file or folder.
        label_counts: (K,) documents by label.
        labels: of each document, how many labels it has, ancestors counted.
        paths: of each document, how many of its labels have none of the others below them.
        depths: of each document, the depth of its deepest label.
        words: of each text, the words between white space.
        tokens: of each text, an encoder's tokens, special ones counted; empty if no encoder was given.
        above_leaf: documents with a path that ends in a label with children.
    """

    path: Path
    label_counts: NDArray[np.int64]
    labels: Histogram = field(default_factory=Histogram)
    paths: Histogram = field(default_factory=Histogram)
    depths: Histogram = field(default_factory=Histogram)
    words: Histogram = field(default_factory=Histogram)
    tokens: Histogram = field(default_factory=Histogram)
    above_leaf: int = 0

    @property
    def documents(self) -> int:
        """The number of good rows."""
        return self.words.total


def survey_split(
    folder: DataFolder,
    split: str,
    *,
    bad_row: Callable[[BadRow], None],
    token_lengths: TokenLengths | None = None,
    marks: TextMarks | None = None,
    progress: Callable[[int], None] | None = None,
) -> SplitSurvey:
    """Read every row of a split and count.

    Args:
        folder: the data.
        split: which of its splits.
        bad_row: called with each row that cannot be used.
        token_lengths: counts the tokens of texts.
        marks: remembers texts and label sets, to find repeated ones.
        progress: called with the number of rows read since the last call.

    Raises:
        InputError: if the file cannot be read as a whole: damaged, or a table without the columns.
    """
    result = SplitSurvey(folder.split_path(split), np.zeros(len(folder.taxonomy), dtype=np.int64))
    count_labels = _label_counter(folder.taxonomy, result)
    waiting: list[str] = []
    for item in folder.scan(split):
        if progress is not None:
            progress(1)
        if not isinstance(item, Document):
            bad_row(item)
            continue
        count_labels(item.labels)
        result.words.add(len(item.text.split()))
        if marks is not None:
            marks.add(item)
        if token_lengths is not None:
            waiting.append(item.text)
            if len(waiting) == BATCH:
                result.tokens.update(token_lengths(waiting))
                waiting.clear()
    if token_lengths is not None and waiting:
        result.tokens.update(token_lengths(waiting))
    return result


def _label_counter(taxonomy: Taxonomy, result: SplitSurvey) -> Callable[[tuple[int, ...]], None]:
    """Return what enters the labels of one document into the result."""
    depths: list[int] = taxonomy.depths.tolist()  # a plain list: one number at a time is faster on it

    def count(labels: tuple[int, ...]) -> None:
        ends = taxonomy.path_ends(labels)
        result.label_counts[list(labels)] += 1
        result.labels.add(len(labels))
        result.paths.add(len(ends))
        result.depths.add(max(depths[label] for label in ends))
        result.above_leaf += taxonomy.ends_inside(ends)

    return count


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far the label distributions of two splits are apart.

        distance = 1/2 sum_k |p_k - q_k|        (total variation: 0 is equal, 1 is nothing in common)

    where p_k is the share of label k in all labels given in a split, ancestors counted.

    Args:
        distance: between the two splits.
        by_chance: what to expect if documents were dealt to them at random.
    """

    distance: float
    by_chance: float


def agreement(one: SplitSurvey, other: SplitSurvey) -> Agreement | None:
    """Return how far the label distributions of two splits are apart; None if one of them is empty.

    If documents are dealt at random, each p_k - q_k is about normal around 0, and the mean of its absolute value is
    sqrt(2 / pi) standard deviations.
    """
    if not one.documents or not other.documents:
        return None
    p, q = (split.label_counts / split.label_counts.sum() for split in (one, other))
    rate = (one.label_counts + other.label_counts) / (one.documents + other.documents)  # (K,) of documents
    variance = rate * (1 - rate) * (1 / one.documents + 1 / other.documents)
    by_chance = np.sqrt(2 / pi * variance).sum() / rate.sum() / 2  # rates sum up to the labels of a document
    return Agreement(float(np.abs(p - q).sum() / 2), float(by_chance))


def token_lengths(encoder: str) -> TokenLengths:
    """Return what counts the tokens of texts, the special ones included, however long the texts are.

    Args:
        encoder: a name or a folder, as `hgclr.encoders.resolve_encoder` takes it.

    Raises:
        InputError: if there is no such encoder, or it has no ``tokenizer.json``.
    """
    if encoder == TEXTRCNN:
        raise InputError(
            f"the tokens of {TEXTRCNN} are the words of a training set, and unknown before it is trained",
            remedy="leave out --encoder: lengths in words are close",
        )
    place = resolve_encoder(encoder)
    tokenizer = _read(Path(place)) if Path(place).is_dir() else _from_hub(place)
    # Published files carry a maximum length and a padding of their own.
    tokenizer.no_truncation()
    tokenizer.no_padding()

    def count(texts: Sequence[str]) -> list[int]:
        return [len(encoding) for encoding in tokenizer.encode_batch_fast(list(texts))]

    return count


def _read(folder: Path) -> Tokenizer:
    from tokenizers import Tokenizer

    file = folder / "tokenizer.json"
    if not file.is_file():
        raise InputError("no tokenizer.json in it", path=folder, remedy="give the folder of an encoder that has one")
    try:
        return Tokenizer.from_file(str(file))
    except Exception as error:  # what tokenizers raises is of no narrower class
        raise InputError(f"not a tokenizer: {error}", path=file, remedy="copy it again from its source") from error


def _from_hub(name: str) -> Tokenizer:
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_pretrained(name)
    except Exception as error:  # as above
        raise encoder_load_error(name, error) from error
