"""A text as a classifier reads it: token ids, the words they belong to, and the text with some words only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding

from hgclr.errors import InputError
from hgclr.explaining.words import Word, find_words
from hgclr.inference import HierarchicalClassifier
from hgclr.inference.batches import batches_by_length, pad
from hgclr.inference.classifier import check_text

__all__ = ["ReadText", "logits_of", "read_text"]


@dataclass(frozen=True)
class ReadText:
    """A text and its tokens.

    Args:
        text: the text.
        ids: its tokens as the model takes them, special ones included, (L,).
        words: the W words that were read.
        word_of: the index of each token's word, -1 for a special token, (L,).
        unread: how many words come after the last one that the model reads.
    """

    text: str
    ids: NDArray[np.int64]
    words: tuple[Word, ...]
    word_of: NDArray[np.int64]
    unread: int

    def only(self, words: NDArray[np.bool_]) -> list[int]:
        """Return the token ids of some words, (W,), in their order, between the special tokens.

        Ids are left out, not characters: no word is tokenised anew, and none that was not read moves up.
        """
        kept: list[int] = self.ids[np.append(words, True)[self.word_of]].tolist()  # -1, the special tokens, is the last
        return kept

    def sum(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return for each word the sum over its tokens, (n, W), from values of the tokens, (n, L)."""
        members = self.word_of[:, np.newaxis] == np.arange(len(self.words))  # (L, W)
        sums: NDArray[np.float64] = values @ members.astype(np.float64)
        return sums

    def mean(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return for each word the mean over its tokens, (n, W), from values of the tokens, (n, L)."""
        means: NDArray[np.float64] = self.sum(values) / self.sum(np.ones((1, len(self.ids))))
        return means


def read_text(classifier: HierarchicalClassifier, text: str) -> ReadText:
    """Return a text as a classifier reads it.

    Raises:
        InputError: if it is no text, or has no words.
    """
    check_text(text)
    encoding = classifier.tokenizer.encode(text)
    words, word_of = find_words(text, _spans(encoding))
    if not words:
        raise InputError(f"the text {text!r:.80} has no words", remedy="give a text with some")
    whole, _ = find_words(text, [span for part in (encoding, *encoding.overflowing) for span in _spans(part)])
    return ReadText(
        text,
        np.array(encoding.ids, dtype=np.int64),
        tuple(words),
        np.array(word_of, dtype=np.int64),
        unread=sum(word.start >= words[-1].stop for word in whole),
    )


def logits_of(
    classifier: HierarchicalClassifier, texts: Sequence[Sequence[int]], labels: Sequence[int] | None = None
) -> NDArray[np.float32]:
    """Return the logits of texts given as token ids, (n, K), or those of some labels only, (n, len(labels))."""
    columns = slice(None) if labels is None else list(labels)
    logits = np.empty((len(texts), len(classifier.taxonomy) if labels is None else len(labels)), dtype=np.float32)
    for batch in batches_by_length([len(ids) for ids in texts], classifier.backend.batch_tokens):
        ids, mask = pad([texts[row] for row in batch], classifier.pad_token)
        logits[batch] = classifier.backend.logits(ids, mask)[:, columns]
    return logits


def _spans(encoding: Encoding) -> list[tuple[int, int] | None]:
    pairs = zip(encoding.offsets, encoding.special_tokens_mask, strict=True)
    return [None if special else span for span, special in pairs]
