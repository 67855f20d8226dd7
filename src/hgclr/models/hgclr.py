"""HGCLR: a text encoder that learns the label tree in training (Wang et al., ACL 2022)."""

import logging
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedTokenizerBase
from transformers import initialization as init

from hgclr.errors import InputError, refuse_broken
from hgclr.models.base import HGCLRConfig, HierarchicalOutput, LabelRows
from hgclr.models.flat import FlatForSequenceClassification, name_tokens
from hgclr.models.pretrained import load_pretrained, load_weights
from hgclr.nn.fast import (
    NAME_TOKENS,
    PLAIN,
    BlockAttention,
    attention_span,
    name_embedding_in_blocks,
    token_probability_in_blocks,
)
from hgclr.nn.label_encoder import (
    Graphormer,
    LabelEmbedding,
    TreeAttention,
    TreeConvolution,
    is_special,
    name_embedding,
)
from hgclr.nn.objective import ProjectionHead, classification_loss, nt_xent
from hgclr.nn.positive_samples import (
    TokenLabelAttention,
    adversarial_move,
    keep_at_random,
    keep_by_fraction,
    keep_by_threshold,
    keep_weights,
    token_probability,
)
from hgclr.taxonomy import Taxonomy

logger = logging.getLogger(__name__)
HEADS = 8
"""Attention heads between labels in the paper; the maximum if the text encoder defines none."""
REMEDY = "train one with hgclr train --preset hgclr, and give its model or its training-model"


class HGCLRForSequenceClassification(FlatForSequenceClassification):
    """Train encoder and head on each text and its positive sample, with a contrastive loss between the two.

    ``L = L_C + L̂_C + λ L_con`` (Eq. 19): classification of the text, classification of its positive sample, NT-Xent
    between them. The label side (label encoder and token-label attention) chooses the tokens of positive samples; only
    ``positives: hierarchy`` has it. Without gold labels, and when deployed, the model is a
    :class:`~hgclr.models.flat.FlatForSequenceClassification`.
    """

    config: HGCLRConfig
    deployed_class = FlatForSequenceClassification
    training_parts = ("label_encoder", "token_label_attention", "projection", "name_tokens")
    name_tokens: Tensor | None

    def __init__(self, config: HGCLRConfig) -> None:
        super().__init__(config)
        guided = config.positives == "hierarchy"
        if guided:
            width = self.encoder.get_input_embeddings().embedding_dim  # label features are compared with words
            self.label_encoder = make_label_encoder(config, width)
            _check_heads("token_label_heads", config.token_label_heads, width)
            self.token_label_attention = TokenLabelAttention(
                width,
                width,
                heads=config.token_label_heads,
                scale_by=config.attention_scale,
                bias=config.attention_bias,
                probabilities=config.guidance == "probabilities",
            )
        names = torch.full((config.label_count, config.label_name_length), -1) if guided else None
        self.register_buffer("name_tokens", names)
        self.projection = ProjectionHead(
            config.text_encoder.hidden_size, bias=config.contrastive_bias, dropout=config.contrastive_dropout
        )
        if guided and config.name_embedding == "layer" and not hasattr(self.encoder, "embeddings"):
            raise InputError(
                f"a {config.text_encoder.model_type} encoder has no embedding layer",
                remedy="set model.name_embedding to words",
            )
        self.post_init()

    @classmethod
    def from_encoder(
        cls, encoder: str | PreTrainedConfig, taxonomy: Taxonomy, tokenizer: PreTrainedTokenizerBase, **settings: Any
    ) -> Self:
        """Return a new model on an encoder, with the tokens of the label names."""
        names = name_tokens(taxonomy.names, tokenizer)
        model = super().from_encoder(encoder, taxonomy, tokenizer, label_name_length=names.shape[1], **settings)
        if model.name_tokens is not None:
            model.name_tokens.copy_(names)
        if effect := model.padding_effect():
            logger.warning("%s", effect)
        return model

    def padding_effect(self) -> str:
        """Describe the drawn ``edge_padding`` and its effect; empty if there is none."""
        return "".join(module.padding_effect() for module in self.modules() if isinstance(module, TreeAttention))

    @torch.no_grad()
    def _init_weights(self, module: Any) -> None:
        """Draw new weights from N(0, 0.02), those of graph convolutions as in torch_geometric."""
        if isinstance(module, TreeAttention):
            for weight in (module.spatial, module.edge, module.padding):
                if weight is not None:
                    init.normal_(weight, std=0.02)
        elif type(module).__module__.startswith("torch_geometric."):  # by name: the extra may not be installed
            for weight in module.parameters(recurse=False):
                limit = 0.0 if weight.ndim == 1 else (6 / sum(weight.shape[-2:])) ** 0.5  # a bias; else Glorot
                init.uniform_(weight, -limit, limit)
        elif module is self:
            if self.name_tokens is not None:
                init.constant_(self.name_tokens, -1)
        else:
            super()._init_weights(module)  # type: ignore[no-untyped-call]

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor | None = None, noise: Tensor | None = None
    ) -> HierarchicalOutput:
        """Classify texts; in training mode with labels, compute the objective (Eq. 19).

        Gumbel ``noise``, (B, L, K), is drawn if not given.
        """
        if labels is None or not self.training:
            return super().forward(input_ids, attention_mask, labels)
        config = self.config
        words = self.encoder.get_input_embeddings()(input_ids)  # e, (B, L, H) (Eq. 6)
        weights, kept = self.positive_weights(input_ids, words, attention_mask, labels, noise)  # (B, L), ()
        positive = words * weights.unsqueeze(-1)  # x̂, (B, L, H) (Eq. 10)
        if config.positives == "adversarial":
            positive = positive + self.adversarial_move(words, attention_mask, labels)

        # Choosing tokens needs no encoder output, so texts and positive samples are encoded as one batch of 2B.
        both, masks = torch.cat([words, positive]), attention_mask.repeat(2, 1)
        vectors = self.encode(masks, inputs_embeds=both)  # h and ĥ, (2B, H) (Eqs. 2 and 11)
        logits, positive_logits = self.classifier(vectors).chunk(2)  # W_c h + b_c, (B, K) each (Eq. 16)
        projected, positive_projected = self.projection(vectors).chunk(2)  # c and ĉ, (B, H) each (Eq. 12)

        loss_original = classification_loss(logits, labels, config.classification_loss)  # L_C (Eqs. 17 and 18)
        loss_positive = classification_loss(positive_logits, labels, config.classification_loss)  # L̂_C
        loss_contrastive = nt_xent(projected, positive_projected, config.contrastive_temperature)  # Eqs. 13 to 15
        return HierarchicalOutput(
            loss=loss_original + loss_positive + config.contrastive_weight * loss_contrastive,  # Eq. 19
            logits=logits,
            terms={
                "loss_original": loss_original.detach(),
                "loss_positive": loss_positive.detach(),
                "loss_contrastive": loss_contrastive.detach(),
                "kept": kept,
            },
        )

    def positive_weights(
        self, input_ids: Tensor, words: Tensor, attention_mask: Tensor, labels: Tensor, noise: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the weights of word embeddings in positive samples, 1 for a kept token, (B, L), and the share kept."""
        config, real = self.config, attention_mask.bool()
        if config.positives in ("dropout", "adversarial"):
            return real.to(words.dtype), torch.ones((), device=real.device)
        special = torch.zeros_like(real)
        if config.keep_special_tokens:
            special = is_special(input_ids, config.special_token_ids or []) & real
        if config.positives == "random":
            kept = keep_at_random(real, special, config.keep_fraction or 1.0, config.keep_at_least)
            return kept.to(words.dtype), kept.sum() / real.sum()
        candidates = real & ~special
        probability = self.token_probability(words, candidates, labels, noise)  # P_i, (B, L) (Eqs. 7 to 9)
        if config.keep_threshold is not None:
            kept = keep_by_threshold(probability, candidates, config.keep_threshold)  # P_i > γ (Eq. 10)
        else:
            kept = keep_by_fraction(probability, candidates, config.keep_fraction or 1.0, config.keep_at_least)
        weights = keep_weights(probability, kept).masked_fill(special, 1.0)  # Eqs. 20 and 21
        return weights, (kept | special).sum() / real.sum()

    def label_features(self) -> Tensor:
        """Return the label features L, (K, H) (Eqs. 3 to 5); they depend on no document."""
        features: Tensor = self.label_encoder(self.name_embeddings())
        return features

    def name_embeddings(self) -> Tensor | None:
        """Return the embeddings of the label names, (K, H), or None if the model does not use names."""
        tokens, kind = self.name_tokens, self.config.name_embedding
        if tokens is None or kind == "none":
            return None
        embed = name_embedding if tokens.numel() <= NAME_TOKENS else name_embedding_in_blocks
        return embed(self.encoder, tokens, kind, self.config.special_token_ids or [])

    def token_probability(
        self, words: Tensor, candidates: Tensor, labels: Tensor, noise: Tensor | None = None
    ) -> Tensor:
        """Return P_i, the probability that a candidate is sampled for a label of its text, (B, L); 0 for others."""
        compute = token_probability if self.config.label_count <= PLAIN else token_probability_in_blocks
        probability = compute(
            self.token_label_attention,
            words,
            self.label_features(),
            labels,
            temperature=self.config.gumbel_temperature,
            noise=noise,
        )
        return probability.masked_fill(~candidates, 0.0)

    def adversarial_move(self, words: Tensor, attention_mask: Tensor, labels: Tensor) -> Tensor:
        """Return the step of the word embeddings, (B, L, H), that raises the classification loss; costs a pass."""

        def loss(moved: Tensor) -> Tensor:
            logits = self.classifier(self.encode(attention_mask, inputs_embeds=moved))
            return classification_loss(logits, labels, "sum")  # the reduction does not change a text's direction

        return adversarial_move(words, loss, self.config.adversarial_size)

    def label_entries(self, rows: LabelRows, names: Tensor) -> dict[str, Tensor]:
        """Return the base's entries and those of the label side; new distances start with the largest old one's b."""
        entries = super().label_entries(rows, names)
        if self.name_tokens is None:
            return entries
        entries["name_tokens"] = rows.tokens(self.name_tokens, names)
        for name, value in self.label_encoder.named_parameters(prefix="label_encoder"):
            if name in ("label_encoder.label_embedding.weight", "label_encoder.structure.edge"):
                entries[name] = rows.rows(value)
            elif name == "label_encoder.structure.spatial":
                entries[name] = value[torch.arange(2 * rows.changes.new.depth + 1).clamp(max=len(value) - 1)]
        return entries

    def changed_config(self, taxonomy: Taxonomy, names: Tensor) -> HGCLRConfig:
        """Return the configuration for another label tree, with room for its labels' names, (K', T)."""
        config: HGCLRConfig = super().changed_config(taxonomy, names)
        known = 0 if self.name_tokens is None else self.name_tokens.shape[1]
        config.label_name_length = max(known, names.shape[1])
        return config


def make_label_encoder(config: HGCLRConfig, width: int) -> LabelEmbedding:
    """Return the label encoder with features of ``width``; raise an InputError if heads do not divide it."""
    tree, own = config.taxonomy, config.label_embedding
    if config.label_encoder == "none":
        return LabelEmbedding(tree, width, label_embedding=own)
    if config.label_encoder != "graphormer":
        return TreeConvolution(tree, width, kind=config.label_encoder, label_embedding=own)
    heads = config.label_heads or getattr(config.text_encoder, "num_attention_heads", None)
    if heads is None:
        heads = max(number for number in range(1, HEADS + 1) if width % number == 0)
    _check_heads("label_heads", heads, width)
    parts: dict[str, bool] = {
        "spatial": config.spatial_encoding,
        "edge": config.edge_encoding,
        "padding": config.edge_padding == "drawn",
        "frozen_self": config.self_distance == "frozen",
    }
    span = attention_span(len(tree), config.label_span)
    if config.label_span is None and span < len(tree):
        logger.warning(
            "%d labels are too many for full attention: each attends to %d neighbours and its ancestors"
            " (model.label_span, docs/concepts/hgclr.md)",
            len(tree),
            span,
        )
    plain = len(tree) <= PLAIN and span == len(tree)
    return Graphormer(
        TreeAttention(tree, **parts) if plain else BlockAttention(tree, span=span, **parts),
        width,
        layers=config.label_layers,
        label_embedding=own,
        heads=heads,
        scale_by=config.attention_scale,
        bias=config.attention_bias,
        output_projection=config.label_output_projection,
        dropout=config.label_dropout,
        layer_norm_eps=getattr(config.text_encoder, "layer_norm_eps", 1e-12),
    )


def _check_heads(name: str, heads: int, width: int) -> None:
    if width % heads:
        raise InputError(f"{name} {heads} does not divide the width {width}", remedy=f"set model.{name} to a divisor")


def load_training_model(folder: Path, **settings: Any) -> HGCLRForSequenceClassification:
    """Load an HGCLR model with its label side from the ``training-model`` of a run; ``settings`` override its own."""
    if not (folder / "config.json").is_file():
        raise InputError("the folder has no model", path=folder, remedy=REMEDY)
    with refuse_broken("cannot load the model", path=folder, remedy=REMEDY):
        config_class: Any = HGCLRForSequenceClassification.config_class
        config = load_pretrained(config_class, folder, **settings)
        if config.architectures != [HGCLRForSequenceClassification.__name__]:
            named = (config.architectures or ["model"])[0]
            raise InputError(f"this {named} has no label side", path=folder, remedy=REMEDY)
        if config.positives != "hierarchy":
            what = f"the model was trained with positives: {config.positives}, which has no label side"
            raise InputError(what, path=folder, remedy="train one with model.positives=hierarchy")
        model: HGCLRForSequenceClassification = load_weights(
            HGCLRForSequenceClassification, folder, config=config, use_safetensors=True
        )
    model.eval()
    return model
