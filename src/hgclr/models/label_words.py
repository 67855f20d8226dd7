"""The words that tell the training documents of one label from those of the others."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hgclr.errors import require_extra

if TYPE_CHECKING:
    import datasets

__all__ = ["label_words"]

COMMON = 0.8
"""A word in more than this share of all documents says nothing about a label (max_df)."""
RARE = 0.1
"""A word in less than this share of a label's documents is not typical of it (min_df)."""


def label_words(
    documents: datasets.Dataset, *, labels: int, vocabulary: int, special: Collection[int], most: int
) -> list[NDArray[np.int64]]:
    """Return the strongest words of each label by TF-IDF, strongest first; words are the tokenizer's tokens.

    All documents of a label are one text: term frequency is counted in that text, inverse document frequency over the
    texts of all labels. Words that are too common or too rare do not count, unless a label has no others: then its most
    frequent words stand for it. A label without documents has no words.

    The released program of HiMatch takes all words that are in a tenth to four fifths of the label's own documents, in
    no order: it fits TF-IDF label by label and uses its vocabulary alone. So it loses a word that all documents of a
    label have, though it may be the label's best; here :data:`COMMON` is a share of all documents.

    Args:
        documents: the tokenised training set, with the columns ``input_ids`` and ``labels``.
        labels: K.
        vocabulary: the number of tokens.
        special: tokens that are no words.
        most: words of a label at most.

    Raises:
        MissingExtraError: if scikit-learn is not installed.
    """
    require_extra("sklearn", extra="paper", capability="Describing labels by their strongest words")
    from scipy.sparse import csr_array
    from sklearn.feature_extraction.text import TfidfTransformer

    words = np.ones(vocabulary, dtype=bool)
    words[list(special)] = False
    frequency = csr_array((labels, vocabulary), dtype=np.int64)  # of each word in each label's text
    holding = frequency.copy()  # documents of each label that hold each word
    everywhere = np.zeros(vocabulary, dtype=np.int64)  # documents that hold each word
    sizes = np.zeros(labels, dtype=np.int64)  # documents of each label
    for batch in documents.select_columns(["input_ids", "labels"]).iter(batch_size=10_000):
        texts = _rows([[token for token in row if words[token]] for row in batch["input_ids"]], vocabulary)
        gold = _rows(batch["labels"], labels)
        holds, carries = texts.sign(), gold.sign()
        frequency = frequency + carries.T @ texts
        holding = holding + carries.T @ holds
        everywhere += holds.sum(0)
        sizes += carries.sum(0)

    typical = holding.multiply(1 / np.maximum(sizes, 1)[:, None]).tocsr()  # share of the label's documents
    strength = TfidfTransformer(norm=None).fit_transform(frequency)
    chosen = []
    for label in range(labels):
        counts, shares, weights = (matrix[[label]].toarray()[0] for matrix in (frequency, typical, strength))
        fit = (counts > 0) & (shares >= RARE) & (everywhere <= COMMON * len(documents))
        rank = np.where(fit, weights, 0) if fit.any() else counts
        strongest = np.argsort(-rank, kind="stable")[:most]
        chosen.append(strongest[rank[strongest] > 0])
    return chosen


def _rows(rows: Sequence[Sequence[int]], columns: int) -> Any:
    """Return lists of column numbers as a sparse matrix of how often each occurs in each."""
    from scipy.sparse import csr_array

    ends = np.cumsum([0, *map(len, rows)])
    places = np.concatenate([np.asarray(row, dtype=np.int64) for row in rows])
    matrix = csr_array((np.ones(len(places), dtype=np.int64), places, ends), shape=(len(rows), columns))
    matrix.sum_duplicates()
    return matrix
