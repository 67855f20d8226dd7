"""HGCLR: train a text encoder so that it absorbs the label tree (Wang et al., ACL 2022)."""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from hgclr.config import HGCLRConfig
from hgclr.errors import InputError
from hgclr.models.base import ClassifierOutput
from hgclr.models.label_names import is_special, name_tokens
from hgclr.models.label_side import LabelSide
from hgclr.models.positions import absolute_positions, first_position
from hgclr.nn.objective import ProjectionHead, classification_loss, negative_weights, nt_xent
from hgclr.nn.positive_samples import (
    KeepAtRandom,
    KeepByFraction,
    KeepByThreshold,
    adversarial_move,
    compact,
    keep_weights,
)
from hgclr.taxonomy import Taxonomy

__all__ = ["HGCLRModel"]


class HGCLRModel(LabelSide):
    """Train encoder and head on each text and on a positive sample of it, and pull the two together.

    ``L = L_C + L̂_C + λ L_con`` (Eq. 19): classification of the text, classification of its positive sample, NT-Xent
    between them. With e the word embeddings of the text, those of its positive sample are ``w ∘ e + r``: the weights w
    are 1 or, where a token is dropped, 0, and r is 0 but in adversarial samples.

    The label side chooses the tokens of hierarchy-guided samples. It is needed for training only; without labels the
    model is a :class:`~hgclr.models.flat.FlatModel`.
    """

    def __init__(self, config: HGCLRConfig) -> None:
        super().__init__(config)
        self.projection = ProjectionHead(
            config.text_encoder.hidden_size, bias=config.contrastive_bias, dropout=config.contrastive_dropout
        )
        fraction = config.keep_fraction or 1.0
        self.keep = (
            KeepByThreshold(config.keep_threshold)
            if config.keep_threshold is not None
            else KeepByFraction(fraction, config.keep_at_least)
        )
        self.keep_at_random = KeepAtRandom(fraction, config.keep_at_least)
        if config.compact_positives and not absolute_positions(self.encoder):
            raise InputError(
                f"compact positives keep every token's position, and a {config.text_encoder.model_type} encoder"
                " also looks at distances in the shortened sequence",
                remedy="set model.compact_positives to false, or choose an encoder of the BERT or RoBERTa kind",
            )
        self.post_init()

    @classmethod
    def from_encoder(
        cls,
        encoder: str | PreTrainedConfig,
        taxonomy: Taxonomy,
        tokenizer: PreTrainedTokenizerBase,
        **settings: Any,
    ) -> Self:
        """Put a new model on an encoder and tokenise the label names; see :meth:`TextClassifier.from_encoder`."""
        names = name_tokens(taxonomy.names, tokenizer)
        model = super().from_encoder(encoder, taxonomy, tokenizer, label_name_length=names.shape[1], **settings)
        if model.name_tokens is not None:
            model.name_tokens.copy_(names)
        return model

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
        move = None
        if self.config.positives == "adversarial":
            move = self.adversarial_move(words, attention_mask, labels)  # r, (B, L, H)
        vectors = self.encode_both(words, weights, attention_mask, move)  # h and ĥ, (2B, H)
        logits, positive_logits = self.classifier(vectors).chunk(2)  # (B, K) each

        reduction = self.config.classification_loss
        loss_original = classification_loss(logits, labels, reduction)
        loss_positive = classification_loss(positive_logits, labels, reduction)
        projected, positive_projected = self.projection(vectors).chunk(2)  # c and ĉ, (B, H) each
        loss_contrastive = nt_xent(
            projected,
            positive_projected,
            self.config.contrastive_temperature,
            negative_weights(labels, self.config.negatives),
        )
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
            What the word embeddings are multiplied by, w, (B, L), and the share of real tokens kept, ().
        """
        real = attention_mask.bool()
        if self.config.positives in ("dropout", "adversarial"):
            return real.to(words.dtype), torch.ones((), device=real.device)
        special = torch.zeros_like(real)
        if self.config.keep_special_tokens:
            special = is_special(input_ids, self.config.special_token_ids or []) & real
        if self.config.positives == "random":
            kept = self.keep_at_random(real, special)
            return kept.to(words.dtype), kept.sum() / real.sum()
        candidates = real & ~special
        probability = self.token_probability(words, candidates, labels, noise)  # P_i, (B, L)
        kept = self.keep(probability, candidates)
        weights = keep_weights(probability, kept).masked_fill(special, 1.0)
        return weights, (kept | special).sum() / real.sum()

    def adversarial_move(self, words: Tensor, attention_mask: Tensor, labels: Tensor) -> Tensor:
        """Return r, the step by which the word embeddings would be classified worse, (B, L, H): one more pass."""

        def loss(moved: Tensor) -> Tensor:
            logits = self.classifier(self.encode(attention_mask, inputs_embeds=moved))
            return classification_loss(logits, labels, "sum")  # a text's direction is the same in every reduction

        return adversarial_move(words, loss, self.config.adversarial_size)

    def encode_both(self, words: Tensor, weights: Tensor, attention_mask: Tensor, move: Tensor | None = None) -> Tensor:
        """Return the vectors of texts and of their positive samples, (2B, H).

        The choice of tokens needs word embeddings and label features only, so that text and positive sample go through
        the encoder together, as one batch of 2B; compact positive samples are shorter and go by themselves.

        Args:
            words: word embeddings, (B, L, H).
            weights: what those of the positive samples are multiplied by, (B, L).
            attention_mask: (B, L).
            move: what is added to these, (B, L, H).
        """
        if self.config.compact_positives:
            shorter, places, mask = compact(words, weights)
            positive = self.encode(mask, inputs_embeds=shorter, position_ids=places + first_position(self.encoder))
            return torch.cat([self.encode(attention_mask, inputs_embeds=words), positive])
        positive = words * weights.unsqueeze(-1)
        both = torch.cat([words, positive if move is None else positive + move])  # (2B, L, H)
        return self.encode(attention_mask.repeat(2, 1), inputs_embeds=both)
