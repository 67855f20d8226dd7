"""A text encoder with a linear head: the baseline, and what every trained model is deployed as."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn
from transformers import (
    MODEL_MAPPING,
    AutoConfig,
    AutoModel,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils.generic import ModelOutput

from hgclr.config import HGCLRConfig
from hgclr.encoders import encoder_load_error, resolve_encoder
from hgclr.errors import InputError
from hgclr.models.positions import position_count
from hgclr.nn.objective import classification_loss
from hgclr.taxonomy import Taxonomy

__all__ = ["ClassifierOutput", "FlatModel"]


@dataclass
class ClassifierOutput(ModelOutput):
    """What every model returns: logits (B, K), and in training the loss with its terms."""

    loss: Tensor | None = None
    logits: Tensor | None = None
    loss_original: Tensor | None = None
    loss_positive: Tensor | None = None
    loss_contrastive: Tensor | None = None
    kept: Tensor | None = None


class FlatModel(PreTrainedModel):
    """Classify a text by ``p = sigmoid(W_c h + b_c)``, h the encoder's vector of the text (Eqs. 2 and 16).

    Example:
        >>> model = FlatModel.from_encoder("all-MiniLM-L6-v2", taxonomy, tokenizer)  # doctest: +SKIP
        >>> model(input_ids, attention_mask).logits.shape  # doctest: +SKIP
        torch.Size([2, 141])
    """

    config: HGCLRConfig
    config_class = HGCLRConfig
    base_model_prefix = "encoder"
    supports_gradient_checkpointing = True
    accepts_loss_kwargs = False  # else Trainer would not divide the loss under gradient accumulation
    _supports_sdpa = True
    # A training model can be loaded as a flat one: its label side is left out without a word.
    _keys_to_ignore_on_load_unexpected = [r"^(label_encoder|token_label_attention|projection|name_tokens)"]  # noqa: RUF012

    def __init__(self, config: HGCLRConfig) -> None:
        super().__init__(config)
        self.encoder = AutoModel.from_config(config.text_encoder, **_without_pooler(config.text_encoder))
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.classifier = nn.Linear(config.text_encoder.hidden_size, config.label_count)  # W_c, b_c
        self.post_init()

    @classmethod
    def from_encoder(
        cls, encoder: str, taxonomy: Taxonomy, tokenizer: PreTrainedTokenizerBase, **settings: Any
    ) -> Self:
        """Put a new model on a pretrained encoder.

        Args:
            encoder: a name from the catalogue, a folder, or a hub name.
            taxonomy: the label tree.
            tokenizer: the encoder's tokenizer; its special tokens are noted in the configuration.
            settings: choices of the method, see :class:`~hgclr.config.HGCLRConfig`.

        Raises:
            InputError: if the encoder cannot be loaded or does not fit the settings.
        """
        location = resolve_encoder(encoder)
        try:
            encoder_config = AutoConfig.from_pretrained(location)
            pretrained = AutoModel.from_pretrained(location, **_without_pooler(encoder_config))
        except (OSError, ValueError) as error:
            raise encoder_load_error(encoder, error) from error
        model = cls.from_encoder_config(encoder_config, taxonomy, tokenizer, **settings)
        model.encoder = pretrained
        return model

    @classmethod
    def from_encoder_config(
        cls, encoder_config: PreTrainedConfig, taxonomy: Taxonomy, tokenizer: PreTrainedTokenizerBase, **settings: Any
    ) -> Self:
        """Build a model with random weights, the encoder's included; see :meth:`from_encoder`."""
        config = HGCLRConfig(encoder_config=encoder_config, **settings)
        config.set_taxonomy(taxonomy)
        config.problem_type = "multi_label_classification"
        config.special_token_ids = sorted(set(tokenizer.all_special_ids) - {tokenizer.unk_token_id})
        model = cls(config)
        model.config.max_length = min(config.max_length, position_count(model.encoder))
        return model

    def set_base_rates(self, rates: Tensor) -> None:
        """Start the head's bias at the labels' log odds in the training set, (K,)."""
        with torch.no_grad():
            self.classifier.bias.copy_(torch.logit(rates))

    def encode(self, attention_mask: Tensor, **inputs: Tensor) -> Tensor:
        """Return text vectors h, (B, H), from ``input_ids`` (B, L) or ``inputs_embeds`` (B, L, H)."""
        hidden = self.encoder(attention_mask=attention_mask, **inputs).last_hidden_state  # (B, L, H)
        if self.config.pooling == "cls":
            pooled = hidden[:, 0]
        else:
            real = attention_mask.unsqueeze(-1).to(hidden.dtype)  # (B, L, 1)
            pooled = (hidden * real).sum(1) / real.sum(1)
        vectors: Tensor = self.dropout(pooled)
        return vectors

    def forward(self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor | None = None) -> ClassifierOutput:
        """Classify texts.

        Args:
            input_ids: (B, L).
            attention_mask: 1 on real tokens, (B, L).
            labels: gold labels as 0/1, (B, K); with them, the loss is returned too.
        """
        logits = self.classifier(self.encode(attention_mask, input_ids=input_ids))  # (B, K)
        if labels is None:
            return ClassifierOutput(logits=logits)
        loss = classification_loss(logits, labels, self.config.classification_loss)
        return ClassifierOutput(loss=loss, logits=logits, loss_original=loss.detach())

    def to_flat(self) -> FlatModel:
        """Return the deployable model: the same encoder and head (shared, not copied), nothing else."""
        flat = FlatModel(self.config)
        flat.encoder, flat.classifier = self.encoder, self.classifier
        flat.train(self.training)
        return flat


def _without_pooler(config: Any) -> dict[str, bool]:
    """Return the argument that leaves the unused pooler out, where the encoder's class takes it."""
    if getattr(config, "is_encoder_decoder", False):
        raise InputError(
            f"a {config.model_type} model is an encoder-decoder",
            remedy="choose an encoder such as bert-base-uncased",
        )
    model_class: Any = MODEL_MAPPING.get(type(config), None)
    known = isinstance(model_class, type) and "add_pooling_layer" in inspect.signature(model_class).parameters
    return {"add_pooling_layer": False} if known else {}
