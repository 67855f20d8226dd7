"""A text as a classifier reads it: token ids, the words they belong to, and the text with some words only."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding

from hgclr.errors import InputError
from hgclr.inference import HierarchicalClassifier
from hgclr.inference.backends import batches_by_length, pad
from hgclr.inference.classifier import check_text

__all__ = ["ReadText", "Word", "find_words", "logits_of", "read_text"]

APOSTROPHES = "'’"
# Scripts whose words have no space between them, as first and last character; there, each token stands for itself.
WITHOUT_SPACES = (
    ("\u0e00", "\u0fff"),  # Thai, Lao, Tibetan
    ("\u1000", "\u109f"),  # Burmese
    ("\u1780", "\u17ff"),  # Khmer
    ("\u3040", "\u30ff"),  # Hiragana, Katakana
    ("\u3400", "\u9fff"),  # Han
    ("\uf900", "\ufaff"),
    ("\U00020000", "\U000323af"),
)
SKIN_TONES = ("\U0001f3fb", "\U0001f3ff")
FLAG_LETTERS = ("\U0001f1e6", "\U0001f1ff")


@dataclass(frozen=True, slots=True)
class Word:
    """Characters of a text: the first, and the one after the last."""

    start: int
    stop: int


def find_words(text: str, spans: Sequence[tuple[int, int] | None]) -> tuple[list[Word], list[int]]:
    """Return the words that tokens make up, and which of them each token belongs to.

    Pieces of a word are one word again, and so are tokens that share a character, as the bytes of one do in some
    tokenizers. What stands between words, such as a comma, is a word of its own. A token without anything to be seen,
    as a space is in some tokenizers, belongs to the word after it.

    Args:
        text: the text.
        spans: the characters of each token, as start and stop, in order; None for a special token.

    Returns:
        The words in order, and for each token the index of its word, -1 for a special token.
    """
    words: list[Word] = []
    word_of = [-1] * len(spans)
    unseen: list[int] = []
    for token, span in enumerate(spans):
        if span is None:
            continue
        seen = text[slice(*span)].strip()
        if not seen:
            unseen.append(token)
            continue
        start = text.index(seen, *span)
        stop = start + len(seen)
        if words and all(_goes_on(text, place) for place in range(words[-1].stop, start + 1)):
            words[-1] = Word(words[-1].start, max(words[-1].stop, stop))
        else:
            words.append(Word(start, stop))
        for member in (*unseen, token):
            word_of[member] = len(words) - 1
        unseen = []
    for token in unseen:
        word_of[token] = len(words) - 1
    return words, word_of


def _goes_on(text: str, place: int) -> bool:
    """Tell whether the character at a place belongs to the word of the one before it."""
    before, after = text[place - 1], text[place]
    if _attached(after) or unicodedata.category(before) == "Cf":  # Cf: joiners, the soft hyphen
        return not before.isspace() and not after.isspace()
    if _between(before, FLAG_LETTERS) and _between(after, FLAG_LETTERS):
        return True
    if after in APOSTROPHES:
        return before.isalnum() and text[place + 1 : place + 2].isalnum()
    if before in APOSTROPHES:
        return after.isalnum() and place > 1 and text[place - 2].isalnum()
    return _in_word(before) and _in_word(after)


def _attached(character: str) -> bool:
    """Tell whether a character is part of the sign that the one before it begins."""
    return unicodedata.category(character) in ("Mn", "Mc", "Me", "Cf") or _between(character, SKIN_TONES)


def _in_word(character: str) -> bool:
    """Tell whether a character is a letter, digit or accent of a script that has spaces."""
    if any(_between(character, script) for script in WITHOUT_SPACES):
        return False
    return character.isalnum() or character == "_" or unicodedata.category(character).startswith("M")


def _between(character: str, ends: tuple[str, str]) -> bool:
    return ends[0] <= character <= ends[1]


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
    (encoding,) = classifier.encode([text], offsets=True)
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
    classifier: HierarchicalClassifier,
    texts: Sequence[Sequence[int]],
    labels: Sequence[int] | None = None,
    *,
    before_pass: Callable[[], None] = lambda: None,
) -> NDArray[np.float32]:
    """Return the logits of texts given as token ids, (n, K), or those of some labels only, (n, len(labels)).

    ``before_pass`` is called before each batch; what it raises ends the work.
    """
    columns = slice(None) if labels is None else list(labels)
    logits = np.empty((len(texts), len(classifier.taxonomy) if labels is None else len(labels)), dtype=np.float32)
    for batch in batches_by_length([len(ids) for ids in texts], classifier.backend.batch_tokens):
        before_pass()
        ids, mask = pad([texts[row] for row in batch], classifier.pad_token)
        logits[batch] = classifier.backend.logits(ids, mask)[:, columns]
    return logits


def _spans(encoding: Encoding) -> list[tuple[int, int] | None]:
    pairs = zip(encoding.offsets, encoding.special_tokens_mask, strict=True)
    return [None if special else span for span, special in pairs]
