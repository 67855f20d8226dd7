"""Figure 3: which tokens of a text stay in its positive samples under given labels.

The paper shows one draw of two texts. A draw is mostly noise, so that several are shown here, and how often each token
stays over many of them, beside how much such shares differ by chance alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from hgclr.data.folder import Document
from hgclr.errors import InputError
from hgclr.files import json_bytes, write_files
from hgclr.presentation import render_page
from hgclr.taxonomy import Taxonomy

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from hgclr.models import HGCLRConfig, HGCLRForSequenceClassification


BATCH_TOKENS = 4096
"""Tokens of repeated copies of a text for which draws are made together."""
LEVELS = 5
"""Steps in which the share of draws that keep a token is shown."""
Look = TypeVar("Look")


@dataclass(frozen=True)
class Piece:
    """Characters of a text, the number of their word, the share of draws that keep them, and which shown ones do."""

    start: int
    stop: int
    word: int
    share: float
    kept: tuple[bool, ...]


@dataclass(frozen=True)
class KeptTokens:
    """A text under its labels, and the tokens that its positive samples keep.

    Args:
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

    def spreads(self) -> tuple[float, float, float]:
        """Return how the tokens' shares vary, as standard deviations.

        The second is that of pure chance, if every token were as likely to be kept as any other; the third that without
        chance, if all draws kept the same tokens, as many as they keep on average.
        """
        own = float(self.shares[~self.special].std(ddof=1)) if self.length > 1 else 0.0
        variance = self.fraction * (1 - self.fraction)
        without = variance * self.length / max(1, self.length - 1)
        return own, float(np.sqrt(variance / len(self.kept))), float(np.sqrt(without))

    def summary(self) -> str:
        if self.whole:
            return "every draw keeps the whole text"
        own, by_chance, without_chance = self.spreads()
        return (
            f"{self.fraction:.0%} kept; between tokens the share varies by ±{own:.2f}"
            f" (by pure chance {by_chance:.2f}, with all draws alike {without_chance:.2f})"
        )

    def pieces(self) -> Iterator[Piece]:
        """Yield the text's pieces in order.

        Tokens that share characters, as the bytes of a letter may, are one piece: kept if one of them is.
        """
        groups: list[list[int]] = []
        for token, (start, stop) in enumerate(self.spans):
            if groups and start < stop and start < self.spans[groups[-1][-1]][1]:
                groups[-1].append(token)
            elif start < stop:
                groups.append([token])
        for group in groups:
            yield Piece(
                self.spans[group[0]][0],
                self.spans[group[-1]][1],
                self.words[group[0]],
                float(self.shares[group].mean()),
                tuple(map(bool, np.any(self.kept[: self.shown, group], axis=1))),
            )

    def to_json(self, taxonomy: Taxonomy) -> dict[str, Any]:
        own, by_chance, without_chance = self.spreads()
        kept = self.kept[: self.shown].T.tolist()
        return {
            "text": self.text,
            "labels": [taxonomy.ids[label] for label in self.labels],
            "paths": list(self.paths),
            "characters_read": self.read,
            "tokens_without_special": self.length,
            "kept_share": round(self.fraction, 4),
            "kept_share_sd_over_tokens": round(own, 4),
            "kept_share_sd_by_chance_alone": round(by_chance, 4),
            "kept_share_sd_without_chance": round(without_chance, 4),
            "tokens": [
                {
                    "token": token,
                    "start": self.spans[place][0],
                    "stop": self.spans[place][1],
                    "word": self.words[place],
                    "special": bool(self.special[place]),
                    "kept_share": round(float(self.shares[place]), 4),
                    "kept": kept[place],
                }
                for place, token in enumerate(self.tokens)
            ],
        }


def load_training_model(
    folder: Path, *, keep_fraction: float | None = None
) -> tuple[HGCLRForSequenceClassification, PreTrainedTokenizerBase]:
    """Load an HGCLR model with its label side from ``training-model`` of a run, and its tokenizer.

    With ``keep_fraction`` it keeps this share of every text's tokens instead of what its own rule says.
    """
    from hgclr.models import hgclr as training_model
    from hgclr.models.base import load_tokenizer

    if keep_fraction is not None and not 0 < keep_fraction <= 1:
        raise InputError(f"the share of tokens to keep is {keep_fraction}", remedy="give a share above 0, up to 1")
    rule: dict[str, Any] = (
        {} if keep_fraction is None else {"keep_fraction": keep_fraction, "keep_threshold": None, "keep_at_least": 0}
    )
    return training_model.load_training_model(folder, **rule), load_tokenizer(str(folder))


def keep_rule(config: HGCLRConfig) -> str:
    """Return in words which tokens a positive sample keeps."""
    if config.keep_threshold is not None:
        rule = f"tokens with a probability above {config.keep_threshold:g}"
    else:
        rule = f"the most probable {config.keep_fraction:.0%} of a text's tokens"
        if config.keep_at_least:
            rule += f", at least {config.keep_at_least}"
    return rule + ("; special tokens always" if config.keep_special_tokens else "; special tokens like all others")


def keep_tokens(
    model: HGCLRForSequenceClassification,
    tokenizer: PreTrainedTokenizerBase,
    documents: Sequence[Document],
    *,
    shown: int = 3,
    draws: int = 100,
    seed: int = 0,
) -> Iterator[KeptTokens]:
    """Draw positive samples of documents as training does, by the model's rule and its Gumbel noise.

    Nothing but the noise differs between draws: dropout, which training adds to the label features, is off.

    Args:
        model: with its label side, in evaluation mode.
        tokenizer: the model's; one that is not fast is refused, and so is a text without a token.
        documents: texts with label indices.
        shown: how many draws a figure will show.
        draws: how many draws the shares are taken over, those shown among them.
        seed: decides all draws; torch's own generator is left as it was.
    """
    import torch

    if not tokenizer.is_fast:
        raise InputError(f"{type(tokenizer).__name__} is not a fast tokenizer", remedy="use one with a tokenizer.json")
    state = torch.Generator().manual_seed(seed).get_state()
    taxonomy = model.config.taxonomy
    for document in documents:
        length, read = model.config.max_length, slice(model.config.cut_length)
        encoded = tokenizer(document.text, truncation=True, max_length=length, return_offsets_mapping=True)
        tokens = encoded["input_ids"][read]
        special = np.isin(tokens, model.config.special_token_ids or [])
        if special.all():
            raise InputError(f"the text {document.text!r:.80} has no tokens", remedy="give a text of some words")
        ids = torch.tensor(tokens)
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.set_rng_state(state)
            gold = torch.zeros(model.config.label_count)
            gold[list(document.labels)] = 1.0
            at_once, drawn = max(1, BATCH_TOKENS // len(ids)), []
            for start in range(0, max(shown, draws), at_once):
                copies = min(at_once, max(shown, draws) - start)
                batch = ids.expand(copies, -1)
                words = model.encoder.get_input_embeddings()(batch)
                weights, _ = model.positive_weights(batch, words, torch.ones_like(batch), gold.expand(copies, -1))
                drawn.append(weights.numpy() != 0)
            state = torch.get_rng_state()
        yield KeptTokens(
            text=document.text,
            labels=document.labels,
            paths=tuple(map(taxonomy.path_name, taxonomy.path_ends(document.labels))),
            tokens=tuple(tokenizer.convert_ids_to_tokens(tokens)),
            spans=tuple((int(start), int(stop)) for start, stop in encoded["offset_mapping"][read]),
            words=tuple(-1 if word is None else word for word in encoded.word_ids()[read]),
            special=special,
            kept=np.concatenate(drawn),
            shown=shown,
        )


def write_kept_tokens(
    documents: Sequence[KeptTokens],
    taxonomy: Taxonomy,
    folder: Path,
    *,
    model: str,
    rule: str,
    seed: int,
    report: Mapping[str, Any] | None = None,
) -> list[Path]:
    """Write ``figure3.html`` and ``figure3.json`` into a folder, and return their paths.

    ``rule`` says which tokens the model keeps, in words; ``report`` is what else the JSON is to say.
    """
    numbers = {
        **(report or {}),
        "model": model,
        "rule": rule,
        "seed": seed,
        "draws_shown": documents[0].shown,
        "draws": len(documents[0].kept),
        "documents": [document.to_json(taxonomy) for document in documents],
    }
    page = render_page(
        "paper/templates/kept_tokens.html.jinja",
        documents=documents,
        model=model,
        rule=rule,
        seed=seed,
        levels=LEVELS,
        draws=lambda document, draw: _stretches(document, lambda piece: piece.kept[draw]),
        shares=lambda document: _stretches(
            document, lambda piece: (min(LEVELS - 1, int(piece.share * LEVELS)), f"{piece.share:.0%}")
        ),
    )
    return write_files(folder, {"figure3.html": page.encode(), "figure3.json": json_bytes(numbers)})


def _stretches(document: KeptTokens, look: Callable[[Piece], Look]) -> Iterator[tuple[str, Look | None]]:
    """Yield the text part by part with what ``look`` says of it: pieces of a word that look alike are one part."""
    position = 0
    for (_, value), group in groupby(document.pieces(), key=lambda piece: (piece.word, look(piece))):
        pieces = list(group)
        yield document.text[position : pieces[0].start], None
        position = pieces[-1].stop
        yield document.text[pieces[0].start : position], value
    yield (" …" if document.cut else document.text[position:]), None
