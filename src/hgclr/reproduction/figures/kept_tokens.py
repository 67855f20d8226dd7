"""Figure 3: which tokens of a text stay in its positive samples under given labels.

The paper shows one draw of two texts. A draw is noise to a good part, so that here several are shown, and how often
each token stays over many of them, beside how much such shares differ when nothing but chance chooses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hgclr.data.folder import DataFolder, Document, empty_split
from hgclr.data.tokens import sample_documents
from hgclr.errors import InputError, require_extra
from hgclr.reproduction.figures.kept_text import KeptTokens

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from hgclr.config import HGCLRConfig
    from hgclr.models import HGCLRModel

__all__ = ["keep_rule", "keep_tokens", "load_training_model", "some_documents"]

BATCH_TOKENS = 4096
"""Tokens of repeated copies of a text for which draws are made together."""


def load_training_model(
    folder: Path, *, keep_fraction: float | None = None
) -> tuple[HGCLRModel, PreTrainedTokenizerBase]:
    """Load an HGCLR model with its label side, and its tokenizer.

    Args:
        folder: ``training-model`` of a run.
        keep_fraction: keep this share of every text's tokens instead of what the model's own rule says.

    Raises:
        InputError: if there is no such model, it has no label side, or its labels choose no tokens.
        MissingExtraError: if torch is not installed.
    """
    require_extra("torch", extra="paper", capability="Showing kept tokens")
    from hgclr.models import training_model
    from hgclr.models.saving import load_tokenizer

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


def some_documents(folder: DataFolder, split: str, count: int, seed: int = 0) -> list[Document]:
    """Return ``count`` documents of a split, drawn at random, in the order of the file; all if there are fewer.

    Raises:
        InputError: if a row is bad and may not be skipped, or there are no good ones.
    """
    documents = list(sample_documents(folder, split, (count, seed)))
    if not documents:
        raise empty_split(folder.split_path(split), 0)
    return documents


def keep_tokens(
    model: HGCLRModel,
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
        tokenizer: the model's, a fast one.
        documents: texts with label indices.
        shown: how many draws a figure will show.
        draws: how many draws the shares are taken over, those shown among them.
        seed: decides all draws; torch's own generator is left as it was.

    Raises:
        InputError: if the tokenizer is no fast one, or a text has no token but special ones.
    """
    import torch

    if not tokenizer.is_fast:
        raise InputError(f"{type(tokenizer).__name__} is not a fast tokenizer", remedy="use one with a tokenizer.json")
    state = torch.Generator().manual_seed(seed).get_state()
    taxonomy = model.config.taxonomy
    for document in documents:
        encoded = tokenizer(
            document.text,
            truncation=True,
            max_length=model.config.max_length,
            padding=False,
            return_offsets_mapping=True,
        )
        special = np.isin(encoded["input_ids"], model.config.special_token_ids or [])
        if special.all():
            raise InputError(f"the text {document.text!r:.80} has no tokens", remedy="give a text of some words")
        ids = torch.tensor(encoded["input_ids"])
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.set_rng_state(state)
            kept = _draw(model, ids, document.labels, max(shown, draws))
            state = torch.get_rng_state()
        labels = set(document.labels)
        inner = {int(taxonomy.parents[label]) for label in labels}
        yield KeptTokens(
            text=document.text,
            labels=document.labels,
            paths=tuple(taxonomy.path_name(label) for label in document.labels if label not in inner),
            tokens=tuple(tokenizer.convert_ids_to_tokens(encoded["input_ids"])),
            spans=tuple((int(start), int(stop)) for start, stop in encoded["offset_mapping"]),
            words=tuple(-1 if word is None else word for word in encoded.word_ids()),
            special=special,
            kept=kept,
            shown=shown,
        )


def _draw(model: HGCLRModel, ids: Any, labels: Sequence[int], draws: int) -> NDArray[np.bool_]:
    """Return the tokens that each draw keeps, (draws, L), from token ids, (L,)."""
    import torch

    gold = torch.zeros(model.config.label_count)
    gold[list(labels)] = 1.0
    at_once = max(1, BATCH_TOKENS // len(ids))
    kept = []
    for start in range(0, draws, at_once):
        copies = min(at_once, draws - start)
        batch = ids.expand(copies, -1)
        words = model.encoder.get_input_embeddings()(batch)
        weights, _ = model.positive_weights(batch, words, torch.ones_like(batch), gold.expand(copies, -1))
        kept.append(weights.numpy() != 0)
    return np.concatenate(kept)
