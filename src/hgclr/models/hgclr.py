"""HGCLR: train a text encoder so that it absorbs the label tree (Wang et al., ACL 2022)."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedTokenizerBase
from transformers import initialization as init

from hgclr.config import HGCLRConfig
from hgclr.errors import InputError
from hgclr.models.base import HierarchicalOutput, absolute_positions, first_position
from hgclr.models.flat import FlatForSequenceClassification
from hgclr.models.label_names import is_special, name_embeddings, name_tokens
from hgclr.nn.contrast import (
    KeepAtRandom,
    KeepByFraction,
    KeepByThreshold,
    ProjectionHead,
    TokenLabelAttention,
    adversarial_move,
    classification_loss,
    compact,
    gold_probability,
    keep_weights,
    negative_weights,
    nt_xent,
)
from hgclr.nn.label_attention import TreeAttention
from hgclr.nn.label_encoder import Graphormer, LabelEmbedding, TreeConvolution
from hgclr.taxonomy import Taxonomy

__all__ = ["HGCLRForSequenceClassification", "LabelSide", "load_training_model"]

logger = logging.getLogger(__name__)
HEADS = 8
"""Attention heads between labels in the paper, and at most, where the text encoder has none of its own."""


def make_label_encoder(config: HGCLRConfig, width: int) -> LabelEmbedding:
    """Return the label encoder, whose features are ``width`` wide.

    Raises:
        InputError: if the heads do not divide the width.
        MissingExtraError: if the label encoder is from torch_geometric and that is not installed.
    """
    if config.label_encoder == "graphormer":
        return _graphormer(config, width)
    if config.label_encoder == "none":
        return LabelEmbedding(config.taxonomy, width, label_embedding=config.label_embedding)
    return TreeConvolution(config.taxonomy, width, kind=config.label_encoder, label_embedding=config.label_embedding)


def make_token_label_attention(config: HGCLRConfig, width: int) -> TokenLabelAttention:
    """Return the attention between word embeddings and label features, both ``width`` wide."""
    _check_heads("token_label_heads", config.token_label_heads, width)
    return TokenLabelAttention(
        width,
        width,
        heads=config.token_label_heads,
        scale_by=config.attention_scale,
        bias=config.attention_bias,
        probabilities=config.guidance == "probabilities",
    )


def _graphormer(config: HGCLRConfig, width: int) -> Graphormer:
    heads = config.label_heads or getattr(config.text_encoder, "num_attention_heads", None)
    if heads is None:
        heads = max(number for number in range(1, HEADS + 1) if width % number == 0)
    _check_heads("label_heads", heads, width)
    graphormer = Graphormer(
        config.taxonomy,
        width,
        layers=config.label_layers,
        heads=heads,
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
    if config.label_span is None and graphormer.structure.span < config.label_count:
        logger.warning(
            "%d labels are too many for attention between all: each attends to the %d around it and the path above"
            " (model.label_span, docs/concepts/method.md)",
            config.label_count,
            graphormer.structure.span,
        )
    return graphormer


def _check_heads(name: str, heads: int, width: int) -> None:
    if width % heads:
        raise InputError(f"{name} is {heads}, which does not divide the width {width}", remedy=f"set model.{name}")


class LabelSide(FlatForSequenceClassification):
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


class HGCLRForSequenceClassification(LabelSide):
    """Train encoder and head on each text and on a positive sample of it, and pull the two together.

    ``L = L_C + L̂_C + λ L_con`` (Eq. 19): classification of the text, classification of its positive sample, NT-Xent
    between them. With e the word embeddings of the text, those of its positive sample are ``w ∘ e + r``: the weights w
    are 1 or, where a token is dropped, 0, and r is 0 but in adversarial samples.

    The label side chooses the tokens of hierarchy-guided samples. It is needed for training only; without labels the
    model is a :class:`~hgclr.models.flat.FlatForSequenceClassification`.
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
        """Put a new model on an encoder and tokenise the label names; see :meth:`HierarchicalPreTrainedModel.from_encoder`."""
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
    ) -> HierarchicalOutput:
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
        return HierarchicalOutput(
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


REMEDY = "give the folder training-model that hgclr train wrote for the architecture hgclr"


def load_training_model(folder: Path, **settings: Any) -> HGCLRForSequenceClassification:
    """Load an HGCLR model with its label side, in evaluation mode.

    Args:
        folder: ``training-model`` of a run.
        settings: values that take the place of those in the model's configuration.

    Raises:
        InputError: if there is no such model, it has no label side, or its labels choose no tokens.
    """
    if not (folder / "config.json").is_file():
        raise InputError("no model here", path=folder, remedy=REMEDY)
    try:
        config = HGCLRConfig.from_pretrained(folder, **settings)
        if config.architectures != [HGCLRForSequenceClassification.__name__]:
            named = (config.architectures or ["model"])[0]
            raise InputError(f"this {named} has no label side", path=folder, remedy=REMEDY)
        if config.positives != "hierarchy":
            raise InputError(f"its positive samples are made by {config.positives}, not by labels", path=folder)
        loaded: Any = HGCLRForSequenceClassification.from_pretrained(
            folder, config=config, use_safetensors=True, output_loading_info=True
        )
    except (OSError, ValueError) as error:
        reason = str(error).strip().split("\n", maxsplit=1)[0].rstrip(".")
        raise InputError(f"no model could be loaded: {reason}", path=folder, remedy=REMEDY) from error
    model: HGCLRForSequenceClassification
    model, found = loaded
    if found["missing_keys"]:  # which transformers would fill with random numbers
        raise InputError(f"the weights lack {min(found['missing_keys'])}", path=folder, remedy=REMEDY)
    model.eval()
    return model
