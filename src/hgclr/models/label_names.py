"""What stands for a label in words: its name as tokens and as a vector, and the words of its documents."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hgclr.data.folder import label_texts
from hgclr.errors import require_extra
from hgclr.nn.draws import drawn_for_labels

if TYPE_CHECKING:
    import datasets

__all__ = [
    "is_special",
    "label_words",
    "name_blocks",
    "name_directions",
    "name_embeddings",
    "name_tokens",
    "name_vectors",
]

LONGEST = 64
"""Tokens of a label name that are read, special tokens included."""
BLOCK = 2**14
"""Tokens of label names that are embedded at a time, padding included."""
COMMON = 0.8
"""A word in more than this share of all documents says nothing about a label (max_df)."""
RARE = 0.1
"""A word in less than this share of a label's documents is not typical of it (min_df)."""


def name_tokens(names: Sequence[str], tokenizer: PreTrainedTokenizerBase) -> Tensor:
    """Return the tokens of label names with special tokens, (K, T), padded with -1; long names are cut."""
    encoded = tokenizer(list(names), add_special_tokens=True, truncation=True, max_length=LONGEST)["input_ids"]
    return nn.utils.rnn.pad_sequence([torch.tensor(ids) for ids in encoded], batch_first=True, padding_value=-1)


def name_blocks(tokens: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Return the names in blocks of similar length: the labels of each block, (n,), and their tokens, (n, T').

    Names that fit one block stay as they are, (K, T).
    """
    if tokens.numel() <= BLOCK:
        return [(torch.arange(len(tokens), device=tokens.device), tokens)]
    lengths = (tokens >= 0).sum(1)
    longest_first = lengths.argsort(descending=True, stable=True)
    blocks, start = [], 0
    while start < len(tokens):
        longest = max(1, int(lengths[longest_first[start]]))
        labels = longest_first[start : start + max(1, BLOCK // longest)]
        blocks.append((labels, tokens[labels, :longest]))
        start += len(labels)
    return blocks


def is_special(tokens: Tensor, special_token_ids: Sequence[int]) -> Tensor:
    """Return which tokens are special ones, bool, in the shape of the tokens."""
    return torch.isin(tokens, torch.tensor(special_token_ids, dtype=tokens.dtype, device=tokens.device))


@torch.no_grad()
def name_vectors(model: Any, tokenizer: PreTrainedTokenizerBase) -> Tensor:
    """Return the vector of each label's name read as a text, (K, H), by a model of :mod:`hgclr.models`."""
    training = model.training
    model.eval()
    vectors = torch.empty_like(model.classifier.weight)
    for labels, tokens in name_blocks(name_tokens(label_texts(model.config.taxonomy), tokenizer)):
        real = tokens >= 0
        ids = tokens.masked_fill(~real, int(tokenizer.pad_token_id))
        vectors[labels] = model.encode(real.long().to(model.device), input_ids=ids.to(model.device))
    model.train(training)
    return vectors


def name_directions(model: Any, tokenizer: PreTrainedTokenizerBase) -> Tensor:
    """Return ``u_k = (n_k - n̄) / ‖n_k - n̄‖``, n_k from :func:`name_vectors` and n̄ their mean, (K, H)."""
    vectors = name_vectors(model, tokenizer)
    return F.normalize(vectors - vectors.mean(0), dim=-1)


def name_embeddings(encoder: PreTrainedModel, tokens: Tensor, kind: str, special_token_ids: Sequence[int]) -> Tensor:
    """Return the label names' embeddings, (K, H), from a text encoder's own embedding weights.

    Args:
        encoder: the text encoder.
        tokens: see :func:`name_tokens`, (K, T).
        kind: ``layer`` or ``words``, see ``name_embedding`` in the settings of HGCLR.
        special_token_ids: tokens that count in a ``layer`` and not among ``words``.
    """
    embed = partial(_embed, encoder, kind, special_token_ids)
    blocks = name_blocks(tokens)
    if len(blocks) == 1:
        return embed(tokens)
    embedded = [checkpoint(embed, block, use_reentrant=False) for _, block in blocks]
    order = torch.cat([labels for labels, _ in blocks])
    return torch.cat(embedded).index_select(0, order.argsort())


def _embed(encoder: Any, kind: str, special_token_ids: Sequence[int], tokens: Tensor) -> Tensor:
    """Return the mean embedding of each name, (n, H), from tokens, (n, T), padded with -1."""
    real = tokens >= 0
    if kind == "layer":
        pad = getattr(encoder.config, "pad_token_id", None) or 0
        with drawn_for_labels():  # here, because a checkpoint comes back to this function and to no caller of it
            embedded = encoder.embeddings(tokens.masked_fill(~real, pad))  # (n, T, H)
    else:
        embedded = encoder.get_input_embeddings()(tokens.clamp(min=0))
        real = real & ~is_special(tokens, special_token_ids)
    share = real / real.sum(1, keepdim=True).clamp(min=1)  # (n, T)
    mean: Tensor = torch.bmm(share.unsqueeze(1).to(embedded.dtype), embedded).squeeze(1)
    return mean


def label_words(
    documents: datasets.Dataset, *, labels: int, vocabulary: int, special: Collection[int], most: int
) -> list[NDArray[np.int64]]:
    """Return the strongest words of each label by TF-IDF, strongest first; words are the tokenizer's tokens.

    All documents of a label are one text: term frequency is counted in that text, inverse document frequency over the
    texts of all labels. Words that are too common or too rare do not count, unless a label has no others: then its most
    frequent words stand for it. A label without documents has no words.

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
