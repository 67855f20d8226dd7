"""The label side of HGCLR: label features, and the probability of each token under a text's labels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import initialization as init

from hgclr.config import HGCLRConfig
from hgclr.errors import InputError
from hgclr.models.flat import FlatModel
from hgclr.models.label_layers import make_label_encoder, make_token_label_attention
from hgclr.models.label_names import name_embeddings
from hgclr.nn.label_attention import TreeAttention
from hgclr.nn.token_guidance import gold_probability

__all__ = ["LabelSide"]


class LabelSide(FlatModel):
    """A flat model beside what guides the choice of tokens, where positive samples are chosen by labels.

    Other positive samples need no label side, and none is built: no work for it, nothing without gradient in the
    optimiser.
    """

    name_tokens: Tensor | None

    def __init__(self, config: HGCLRConfig) -> None:
        super().__init__(config)
        guided = config.positives == "hierarchy"
        if guided:
            width = self.encoder.get_input_embeddings().embedding_dim  # label features meet word embeddings
            self.label_encoder = make_label_encoder(config, width)
            self.token_label_attention = make_token_label_attention(config, width)
        names = torch.full((config.label_count, config.label_name_length), -1) if guided else None
        self.register_buffer("name_tokens", names)
        if guided and config.name_embedding == "layer" and not hasattr(self.encoder, "embeddings"):
            raise InputError(
                f"a {config.text_encoder.model_type} encoder has no embedding layer of its own",
                remedy="set model.name_embedding to words",
            )

    @torch.no_grad()
    def _init_weights(self, module: Any) -> None:
        """Draw new weights from N(0, 0.02), the structural scalars included; graph convolutions as their authors do."""
        if isinstance(module, TreeAttention):
            for weight in (module.spatial, module.edge):
                if weight is not None:
                    init.normal_(weight, std=0.02)
        elif type(module).__module__.startswith("torch_geometric."):  # an extra: its classes may not be there
            for weight in module.parameters(recurse=False):
                limit = 0.0 if weight.ndim == 1 else (6 / sum(weight.shape[-2:])) ** 0.5  # a bias; else Glorot
                init.uniform_(weight, -limit, limit)
        elif module is self:
            if self.name_tokens is not None:
                init.constant_(self.name_tokens, -1)
        else:
            super()._init_weights(module)  # type: ignore[no-untyped-call]

    def label_features(self) -> Tensor:
        """Return the label features L, (K, H); they depend on no document."""
        features: Tensor = self.label_encoder(self.name_embeddings())
        return features

    def name_embeddings(self) -> Tensor | None:
        """Return the label names' embeddings, (K, H), or None where names are left out."""
        if self.name_tokens is None or self.config.name_embedding == "none":
            return None
        return name_embeddings(
            self.encoder, self.name_tokens, self.config.name_embedding, self.config.special_token_ids or []
        )

    def token_probability(
        self, words: Tensor, candidates: Tensor, labels: Tensor, noise: Tensor | None = None
    ) -> Tensor:
        """Return P_i, how probably a token is sampled for one of its text's labels, (B, L); 0 for no candidates."""
        gold = nn.utils.rnn.pad_sequence([row.nonzero()[:, 0] for row in labels], batch_first=True, padding_value=-1)
        sampled = gold_probability(
            self.token_label_attention,
            words[candidates],
            self.label_features(),
            gold[candidates.nonzero()[:, 0]],
            temperature=self.config.gumbel_temperature,
            noise=None if noise is None else noise[candidates],
        )
        return sampled.new_zeros(candidates.shape).masked_scatter(candidates, sampled)
