"""A text under its labels, and which of its tokens stay in its positive samples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hgclr.taxonomy import Taxonomy

__all__ = ["KeptTokens", "Piece"]


@dataclass(frozen=True)
class Piece:
    """Characters of the text that a token stands for.

    Args:
        start: the first character.
        stop: the one after the last.
        word: number of the word that the tokenizer split it from.
        share: in how many of all draws it was kept.
        kept: whether it was, in each of the draws that are shown.
    """

    start: int
    stop: int
    word: int
    share: float
    kept: tuple[bool, ...]


@dataclass(frozen=True)
class KeptTokens:
    """A text under its labels, and the tokens that its positive samples keep.

    Args:
        text: the text.
        labels: indices into the label tree.
        paths: the labels' paths, of the deepest ones only.
        tokens: as the tokenizer writes them, special tokens included, L.
        spans: the characters of each, as start and stop; empty for a special token that the tokenizer added.
        words: the number of the word that each was split from; -1 for such a special token.
        special: which tokens are special ones, bool (L,).
        kept: the tokens that each draw keeps, bool (draws, L).
        shown: how many of the draws, the first ones, a figure shows one by one.
    """

    text: str
    labels: tuple[int, ...]
    paths: tuple[str, ...]
    tokens: tuple[str, ...]
    spans: tuple[tuple[int, int], ...]
    words: tuple[int, ...]
    special: NDArray[np.bool_]
    kept: NDArray[np.bool_]
    shown: int

    @cached_property
    def shares(self) -> NDArray[np.float64]:
        """How often each token is kept, (L,)."""
        shares: NDArray[np.float64] = self.kept.mean(0)
        return shares

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """How many tokens each draw keeps, special ones not counted, (draws,)."""
        counts: NDArray[np.int64] = self.kept[:, ~self.special].sum(1)
        return counts

    @property
    def length(self) -> int:
        """How many tokens there are, special ones not counted."""
        return int((~self.special).sum())

    @property
    def read(self) -> int:
        """How many characters of the text the tokens cover; the model reads no more."""
        return max(stop for _, stop in self.spans)

    @property
    def cut(self) -> bool:
        """Whether the text goes on where the model stops reading."""
        return bool(self.text[self.read :].strip())

    @property
    def whole(self) -> bool:
        """Whether every draw keeps the whole text."""
        return bool(self.kept[:, ~self.special].all())

    @property
    def fraction(self) -> float:
        """The share of tokens kept, over all draws."""
        return float(self.shares[~self.special].mean())

    @property
    def spread(self) -> float:
        """The standard deviation of the tokens' shares."""
        return float(self.shares[~self.special].std(ddof=1)) if self.length > 1 else 0.0

    @property
    def spread_by_chance(self) -> float:
        """What that deviation would be if every token were as likely to be kept as any other."""
        return float(np.sqrt(self.fraction * (1 - self.fraction) / len(self.kept)))

    @property
    def spread_without_chance(self) -> float:
        """What that deviation would be if all draws kept the same tokens, as many as they keep on average."""
        return float(np.sqrt(self.fraction * (1 - self.fraction) * self.length / max(1, self.length - 1)))

    def summary(self) -> str:
        """Return in a line what the draws come to."""
        if self.whole:
            return "every draw keeps the whole text"
        return (
            f"{self.fraction:.0%} kept; between tokens the share varies by ±{self.spread:.2f}"
            f" (by pure chance {self.spread_by_chance:.2f}, with all draws alike {self.spread_without_chance:.2f})"
        )

    def pieces(self) -> Iterator[Piece]:
        """Yield the text's pieces in order.

        Tokens that share characters, as the bytes of one letter do in some tokenizers, are one piece: kept if one of
        them is.
        """
        tokens = [token for token, (start, stop) in enumerate(self.spans) if stop > start]
        groups: list[list[int]] = []
        for token in tokens:
            if groups and self.spans[token][0] < self.spans[groups[-1][-1]][1]:
                groups[-1].append(token)
            else:
                groups.append([token])
        for group in groups:
            yield Piece(
                self.spans[group[0]][0],
                self.spans[group[-1]][1],
                self.words[group[0]],
                float(self.shares[group].mean()),
                tuple(map(bool, np.any(self.kept[: self.shown, group], axis=1))),
            )

    def word_shares(self) -> list[tuple[str, float]]:
        """Return the words, pieces joined, with how often their tokens are kept, the most often first.

        A word that occurs several times, in whatever case, is listed once with the mean.
        """
        shares: dict[str, list[float]] = {}
        for _, group in groupby(self.pieces(), key=lambda piece: piece.word):
            pieces = list(group)
            word = self.text[pieces[0].start : pieces[-1].stop].casefold()
            shares.setdefault(word, []).extend(piece.share for piece in pieces)
        means = [(word, float(np.mean(values))) for word, values in shares.items()]
        return sorted(means, key=lambda item: -item[1])

    def to_json(self, taxonomy: Taxonomy) -> dict[str, Any]:
        """Return everything that a figure shows, and the tokens."""
        return {
            "text": self.text,
            "labels": [taxonomy.ids[label] for label in self.labels],
            "paths": list(self.paths),
            "characters_read": self.read,
            "tokens_without_special": self.length,
            "kept_share": round(self.fraction, 4),
            "kept_share_sd_over_tokens": round(self.spread, 4),
            "kept_share_sd_by_chance_alone": round(self.spread_by_chance, 4),
            "kept_share_sd_without_chance": round(self.spread_without_chance, 4),
            "tokens": [
                {
                    "token": token,
                    "start": start,
                    "stop": stop,
                    "word": word,
                    "special": bool(special),
                    "kept_share": round(float(share), 4),
                    "kept": kept,
                }
                for token, (start, stop), word, special, share, kept in zip(
                    self.tokens,
                    self.spans,
                    self.words,
                    self.special,
                    self.shares,
                    self.kept[: self.shown].T.tolist(),
                    strict=True,
                )
            ],
        }
