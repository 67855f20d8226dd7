"""The words that a label chooses: the token-label attention that a training model has and a deployed one has not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hgclr.errors import require_extra
from hgclr.explaining.reading import ReadText

if TYPE_CHECKING:
    from hgclr.models import HGCLRModel

__all__ = ["AttentionRelevance"]

TOKENS = 64
"""Tokens that are scored against all labels at a time."""


class AttentionRelevance:
    """Tell how probably a token is sampled for a label: ``P_ij = softmax_j(A_i / τ)``, without the Gumbel noise.

    A_ij is the attention of token i on label j (paper, Eq. 7), from the raw word embedding: it is the same wherever a
    word stands. P_ij shares a token out among all K labels, so that chance would give each 1 / K. The value of a word
    is the mean over its tokens.

    This is what chooses the tokens of positive samples in training. The classifier does not use it: it tells what the
    label side has learnt of words and labels, not why the classifier gives a label.

    Args:
        model: an HGCLR model with its label side. Only its word embeddings, the attention and the label features,
            which depend on no text, are kept.
    """

    name = "attention"

    def __init__(self, model: HGCLRModel) -> None:
        import torch

        self.taxonomy = model.config.taxonomy
        self.neutral = 1 / len(self.taxonomy)
        self._temperature = model.config.gumbel_temperature
        self._embeddings, self._attention = model.encoder.get_input_embeddings(), model.token_label_attention
        with torch.no_grad():
            self._labels = model.label_features()

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> AttentionRelevance:
        """Load the folder ``training-model`` of a run.

        Raises:
            InputError: if there is no such model, or it has no label side.
            MissingExtraError: if torch is not installed.
        """
        require_extra("torch", extra="train", capability="Token-label attention")
        from hgclr.models.training_model import load_training_model

        return cls(load_training_model(Path(folder)))

    def __call__(self, text: ReadText, labels: Sequence[int]) -> NDArray[np.float64]:
        """Return how probably each word is sampled for each label, (len(labels), W)."""
        import torch

        blocks = []
        with torch.inference_mode():
            for ids in torch.from_numpy(text.ids).split(TOKENS):
                scores = self._attention(self._embeddings(ids), self._labels)  # A, (n, K)
                blocks.append((scores / self._temperature).softmax(-1)[:, list(labels)])
        return text.mean(torch.cat(blocks).T.double().numpy())
