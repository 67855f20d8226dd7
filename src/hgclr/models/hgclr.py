"""HGCLR: train a text encoder so that it absorbs the label tree (Wang et al., ACL 2022)."""

from __future__ import annotations

import logging
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedTokenizerBase
from transformers import initialization as init

from hgclr.config import HGCLRConfig
from hgclr.errors import InputError
from hgclr.models.base import ClassifierOutput
from hgclr.models.flat import FlatModel
from hgclr.models.label_names import name_blocks, name_tokens
from hgclr.models.positions import absolute_positions, first_position
from hgclr.nn.label_attention import TreeAttention
from hgclr.nn.label_encoder import Graphormer
from hgclr.nn.objective import ProjectionHead, classification_loss, nt_xent
from hgclr.nn.positive_samples import (
    KeepByFraction,
    KeepByThreshold,
    TokenLabelAttention,
    compact,
    gold_probability,
    keep_weights,
)
from hgclr.taxonomy import Taxonomy

__all__ = ["HGCLRModel"]

logger = logging.getLogger(__name__)


class HGCLRModel(FlatModel):
    """Train encoder and head on each text and on a shortened positive sample of it, and pull the two together.

    ``L = L_C + L̂_C + λ L_con`` (Eq. 19): classification of the text, classification of its positive sample, NT-Xent
    between them. The label side is needed for training only; without labels the model is a :class:`FlatModel`.
    """

    name_tokens: Tensor

    def __init__(self, config: HGCLRConfig) -> None:
        super().__init__(config)
        width = self.encoder.get_input_embeddings().embedding_dim  # label features meet word embeddings
        label_heads = config.label_heads or config.text_encoder.num_attention_heads
        for name, heads in (("label_heads", label_heads), ("token_label_heads", config.token_label_heads)):
            if width % heads:
                raise InputError(
                    f"{name} is {heads}, which does not divide the width {width}", remedy=f"set model.{name}"
                )
        self.label_encoder = Graphormer(
            config.taxonomy,
            width,
            layers=config.label_layers,
            heads=label_heads,
            label_embedding=config.label_embedding,
            spatial=config.spatial_encoding,
            edge=config.edge_encoding,
            span=config.label_span,
            scale_by=config.attention_scale,
            bias=config.attention_bias,
            output_projection=config.label_output_projection,
            dropout=config.label_dropout,
            layer_norm_eps=getattr(config.text_encoder, "layer_norm_eps", 1e-12),
        )
        if config.label_span is None and self.label_encoder.structure.span < config.label_count:
            logger.warning(
                "%d labels are too many for attention between all: each attends to the %d around it and the path above"
                " (model.label_span, docs/method.md)",
                config.label_count,
                self.label_encoder.structure.span,
            )
        self.token_label_attention = TokenLabelAttention(
            width,
            width,
            heads=config.token_label_heads,
            scale_by=config.attention_scale,
            bias=config.attention_bias,
            probabilities=config.guidance == "probabilities",
        )
        self.projection = ProjectionHead(
            config.text_encoder.hidden_size, bias=config.contrastive_bias, dropout=config.contrastive_dropout
        )
        self.keep = (
            KeepByThreshold(config.keep_threshold)
            if config.keep_threshold is not None
            else KeepByFraction(config.keep_fraction or 1.0, config.keep_at_least)
        )
        self.register_buffer("name_tokens", torch.full((config.label_count, config.label_name_length), -1))
        if config.name_embedding == "layer" and not hasattr(self.encoder, "embeddings"):
            raise InputError(
                f"a {config.text_encoder.model_type} encoder has no embedding layer of its own",
                remedy="set model.name_embedding to words",
            )
        if config.compact_positives and not absolute_positions(self.encoder):
            raise InputError(
                f"compact positives keep every token's position, and a {config.text_encoder.model_type} encoder"
                " also looks at distances in the shortened sequence",
                remedy="set model.compact_positives to false, or choose an encoder of the BERT or RoBERTa kind",
            )
        self.post_init()

    @classmethod
    def from_encoder(
        cls, encoder: str, taxonomy: Taxonomy, tokenizer: PreTrainedTokenizerBase, **settings: Any
    ) -> Self:
        """Put a new model on a pretrained encoder and tokenise the label names; see :meth:`FlatModel.from_encoder`."""
        names = name_tokens(taxonomy.names, tokenizer)
        model = super().from_encoder(encoder, taxonomy, tokenizer, label_name_length=names.shape[1], **settings)
        model.name_tokens.copy_(names)
        return model

    @torch.no_grad()
    def _init_weights(self, module: Any) -> None:
        """Draw new weights from N(0, 0.02), the structural scalars included."""
        if isinstance(module, TreeAttention):
            for weight in (module.spatial, module.edge):
                if weight is not None:
                    init.normal_(weight, std=0.02)
        elif module is self:
            init.constant_(self.name_tokens, -1)
        else:
            super()._init_weights(module)  # type: ignore[no-untyped-call]

    def label_features(self) -> Tensor:
        """Return the label features L, (K, H); they depend on no document."""
        features: Tensor = self.label_encoder(self.name_embeddings())
        return features

    def name_embeddings(self) -> Tensor | None:
        """Return the label names' embeddings, (K, H), from the text encoder's own embedding weights."""
        if self.config.name_embedding == "none":
            return None
        blocks = name_blocks(self.name_tokens)
        if len(blocks) == 1:
            return self.embed_names(self.name_tokens)
        embedded = [checkpoint(self.embed_names, tokens, use_reentrant=False) for _, tokens in blocks]
        order = torch.cat([labels for labels, _ in blocks])
        return torch.cat(embedded).index_select(0, order.argsort())

    def embed_names(self, tokens: Tensor) -> Tensor:
        """Return the mean embedding of each name, (n, H), from tokens, (n, T), padded with -1."""
        real = tokens >= 0
        if self.config.name_embedding == "layer":
            pad = getattr(self.config.text_encoder, "pad_token_id", None) or 0
            embedded = self.encoder.embeddings(tokens.masked_fill(~real, pad))  # (n, T, H)
        else:
            embedded = self.encoder.get_input_embeddings()(tokens.clamp(min=0))
            position = torch.arange(real.shape[1], device=real.device)
            real = real & (position > 0) & (position < real.sum(1, keepdim=True) - 1)  # no special tokens
        share = real / real.sum(1, keepdim=True).clamp(min=1)  # (n, T)
        mean: Tensor = torch.bmm(share.unsqueeze(1).to(embedded.dtype), embedded).squeeze(1)
        return mean

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        labels: Tensor | None = None,
        noise: Tensor | None = None,
    ) -> ClassifierOutput:
        """Classify texts; in training mode with labels, compute the three-term objective.

        Args:
            input_ids: (B, L).
            attention_mask: 1 on real tokens, (B, L).
            labels: gold labels as 0/1, (B, K).
            noise: Gumbel noise, (B, L, K); drawn if not given.
        """
        if labels is None or not self.training:
            return super().forward(input_ids, attention_mask, labels)
        words = self.encoder.get_input_embeddings()(input_ids)  # e, (B, L, H)
        weights, kept = self.positive_weights(input_ids, words, attention_mask, labels, noise)  # (B, L), ()
        vectors = self.encode_both(words, weights, attention_mask)  # h and ĥ, (2B, H)
        logits, positive_logits = self.classifier(vectors).chunk(2)  # (B, K) each

        reduction = self.config.classification_loss
        loss_original = classification_loss(logits, labels, reduction)
        loss_positive = classification_loss(positive_logits, labels, reduction)
        projected, positive_projected = self.projection(vectors).chunk(2)  # c and ĉ, (B, H) each
        loss_contrastive = nt_xent(projected, positive_projected, self.config.contrastive_temperature)
        return ClassifierOutput(
            loss=loss_original + loss_positive + self.config.contrastive_weight * loss_contrastive,
            logits=logits,
            terms={
                "loss_original": loss_original.detach(),
                "loss_positive": loss_positive.detach(),
                "loss_contrastive": loss_contrastive.detach(),
                "kept": kept,
            },
        )

    def encode_both(self, words: Tensor, weights: Tensor, attention_mask: Tensor) -> Tensor:
        """Return the vectors of texts and of their positive samples, (2B, H).

        The choice of tokens needs word embeddings and label features only, so that text and positive sample go through
        the encoder together, as one batch of 2B; compact positive samples are shorter and go by themselves.

        Args:
            words: word embeddings, (B, L, H).
            weights: what those of the positive samples are multiplied by, (B, L).
            attention_mask: (B, L).
        """
        if not self.config.compact_positives:
            both = torch.cat([words, words * weights.unsqueeze(-1)])  # (2B, L, H)
            return self.encode(attention_mask.repeat(2, 1), inputs_embeds=both)
        shorter, places, mask = compact(words, weights)
        positive = self.encode(mask, inputs_embeds=shorter, position_ids=places + first_position(self.encoder))
        return torch.cat([self.encode(attention_mask, inputs_embeds=words), positive])

    def positive_weights(
        self,
        input_ids: Tensor,
        words: Tensor,
        attention_mask: Tensor,
        labels: Tensor,
        noise: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Choose the tokens of the positive samples.

        Returns:
            What the word embeddings are multiplied by, (B, L), and the share of real tokens kept, ().
        """
        real = attention_mask.bool()
        special = torch.zeros_like(real)
        if self.config.keep_special_tokens:
            special = torch.isin(input_ids, torch.tensor(self.config.special_token_ids, device=real.device)) & real
        candidates = real & ~special
        gold = nn.utils.rnn.pad_sequence([row.nonzero()[:, 0] for row in labels], batch_first=True, padding_value=-1)
        sampled = gold_probability(
            self.token_label_attention,
            words[candidates],
            self.label_features(),
            gold[candidates.nonzero()[:, 0]],
            temperature=self.config.gumbel_temperature,
            noise=None if noise is None else noise[candidates],
        )
        probability = sampled.new_zeros(candidates.shape).masked_scatter(candidates, sampled)  # P_i, (B, L)
        kept = self.keep(probability, candidates)
        weights = keep_weights(probability, kept).masked_fill(special, 1.0)
        return weights, (kept | special).sum() / real.sum()
