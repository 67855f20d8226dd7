"""Hold an export against the torch model it came from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from hgclr.inference.backends import Backend
from hgclr.inference.batches import pad, windows
from hgclr.inference.classifier import sigmoid
from hgclr.inference.loading import LoadedModel

__all__ = ["Difference", "compare", "sample_batches"]

Batch = tuple[NDArray[np.int64], NDArray[np.int64]]

SHORT = 24
"""Label names among the texts of the comparison."""
GROUP = 8
"""Given texts in a batch."""


@dataclass(frozen=True)
class Difference:
    """How far two backends are apart on the same texts.

    Args:
        texts: how many there were.
        logit: the largest difference of two logits; NaN if a logit is none.
        relative: the same, as a share of the logit where that is larger than 1.
        probability: the largest difference of two probabilities.
    """

    texts: int
    logit: float
    relative: float
    probability: float


def sample_batches(model: LoadedModel, texts: Sequence[str] = ()) -> list[Batch]:
    """Return real texts as ids and mask, (B, L): label names, longer texts made of them, and those that are given.

    Lengths go from the shortest there can be to the longest that is read, in batches with much padding, with none, and
    of one text.
    """
    random = np.random.default_rng(0)
    names = [model.taxonomy.names[label] for label in random.permutation(len(model.taxonomy))]
    prose = " ".join(random.choice(names, size=model.max_length))
    tokenizer = Tokenizer.from_str(model.tokenizer.to_str())
    tokenizer.no_padding()

    def encode(text: str, length: int) -> list[int]:
        tokenizer.enable_truncation(length)
        ids: list[int] = tokenizer.encode(text).ids
        return ids

    shortest = encode("", model.max_length)
    short = [encode(name, model.max_length) for name in names[:SHORT]]
    long = [encode(prose, max(model.max_length // share, len(shortest))) for share in (8, 4, 2, 1)]
    mixed = [*short[:3], *long, shortest]
    groups = [mixed, short, [long[-1]] * 2, *([text] for text in (shortest, short[0], *long))]
    groups += windows([encode(text, model.max_length) for text in texts], GROUP)
    return [pad(group, model.pad_token) for group in groups]


def compare(
    expected: Backend, found: Backend, batches: Sequence[Batch], shift: NDArray[np.float32] | None = None
) -> Difference:
    """Return how far one backend is from another.

    Args:
        expected: the model.
        found: the export.
        batches: what to hold them against each other on.
        shift: what the export's logits have been moved by, (K,).
    """
    logit = relative = probability = np.float64(0)
    for batch in batches:
        one, other = (backend.logits(*batch).astype(np.float64) for backend in (expected, found))
        one += 0 if shift is None else shift
        apart = np.abs(one - other)
        logit = np.maximum(logit, apart.max())  # which keeps a NaN
        relative = np.maximum(relative, (apart / np.maximum(np.abs(one), 1)).max())
        probability = np.maximum(probability, np.abs(sigmoid(one) - sigmoid(other)).max())
    return Difference(sum(len(ids) for ids, _ in batches), float(logit), float(relative), float(probability))
