"""HGCLR: train a text encoder so that it absorbs the label tree (Wang et al., ACL 2022)."""

import logging
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedTokenizerBase
from transformers import initialization as init

from hgclr.errors import InputError, refuse_broken
from hgclr.models.base import HGCLRConfig, HierarchicalOutput
from hgclr.models.flat import FlatForSequenceClassification, is_special, name_embeddings, name_tokens
from hgclr.models.pretrained import absolute_positions, first_position, load_pretrained, load_weights
from hgclr.nn.draws import drawn_for_labels
from hgclr.nn.label_encoder import Graphormer, LabelEmbedding, TreeAttention, TreeConvolution
from hgclr.nn.label_rows import LabelRows
from hgclr.nn.objective import ProjectionHead, classification_loss, nt_xent
from hgclr.nn.positive_samples import (
    TokenLabelAttention,
    adversarial_move,
    compact,
    gold_probability,
    keep_at_random,
    keep_by_fraction,
    keep_by_threshold,
    keep_weights,
)
from hgclr.taxonomy import Taxonomy

__all__ = ["HGCLRForSequenceClassification", "load_training_model"]

logger = logging.getLogger(__name__)
HEADS = 8
"""Attention heads between labels in the paper, and at most, where the text encoder has none of its own."""
REMEDY = "give the folder training-model that hgclr train wrote for the architecture hgclr"


class HGCLRForSequenceClassification(FlatForSequenceClassification):
    """Train encoder and head on each text and on a positive sample of it, and pull the two together.

    ``L = L_C + L̂_C + λ L_con`` (Eq. 19): classification of the text, classification of its positive sample, NT-Xent
    between them. With e the word embeddings of the text, those of its positive sample are ``w ∘ e + r``: the weights w
    are 1 or, where a token is dropped, 0, and r is 0 but in adversarial samples.

    The label side, that is label encoder and token-label attention, chooses the tokens of hierarchy-guided samples.
    Other positive samples need none, and none is built: no work for it, nothing without gradient in the optimiser. All
    of it is needed for training only; without labels the model is a
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
            width = self.encoder.get_input_embeddings().embedding_dim  # label features meet word embeddings
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
        kind = config.text_encoder.model_type
        if guided and config.name_embedding == "layer" and not hasattr(self.encoder, "embeddings"):
            raise InputError(
                f"a {kind} encoder has no embedding layer of its own", remedy="set model.name_embedding to words"
            )
        if config.compact_positives and not absolute_positions(self.encoder):
            raise InputError(
                f"compact positives keep every token's position, and a {kind} encoder"
                " also looks at distances in the shortened sequence",
                remedy="set model.compact_positives to false, or choose an encoder of the BERT or RoBERTa kind",
            )
        self.post_init()

    @classmethod
    def from_encoder(
        cls, encoder: str | PreTrainedConfig, taxonomy: Taxonomy, tokenizer: PreTrainedTokenizerBase, **settings: Any
    ) -> Self:
        """Put a new model on an encoder, as every model is, and tokenise the label names."""
        names = name_tokens(taxonomy.names, tokenizer)
        model = super().from_encoder(encoder, taxonomy, tokenizer, label_name_length=names.shape[1], **settings)
        if model.name_tokens is not None:
            model.name_tokens.copy_(names)
        if effect := model.padding_effect():
            logger.warning("%s", effect)
        return model

    def padding_effect(self) -> str:
        """Say what was drawn as ``edge_padding`` and what it does, or nothing if nothing was."""
        return "".join(module.padding_effect() for module in self.modules() if isinstance(module, TreeAttention))

    @torch.no_grad()
    def _init_weights(self, module: Any) -> None:
        """Draw new weights from N(0, 0.02), the structural scalars included; graph convolutions as their authors do."""
        if isinstance(module, TreeAttention):
            for weight in (module.spatial, module.edge, module.padding):
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

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor | None = None, noise: Tensor | None = None
    ) -> HierarchicalOutput:
        """Classify texts; in training mode with labels, compute the three-term objective.

        Gumbel ``noise``, (B, L, K), is drawn if not given.
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
        loss_contrastive = nt_xent(projected, positive_projected, self.config.contrastive_temperature)
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
        self, input_ids: Tensor, words: Tensor, attention_mask: Tensor, labels: Tensor, noise: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Choose the tokens of the positive samples.

        Returns:
            What the word embeddings are multiplied by, w, (B, L), and the share of real tokens kept, ().
        """
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
        probability = self.token_probability(words, candidates, labels, noise)  # P_i, (B, L)
        if config.keep_threshold is not None:
            kept = keep_by_threshold(probability, candidates, config.keep_threshold)
        else:
            kept = keep_by_fraction(probability, candidates, config.keep_fraction or 1.0, config.keep_at_least)
        weights = keep_weights(probability, kept).masked_fill(special, 1.0)
        return weights, (kept | special).sum() / real.sum()

    def label_features(self) -> Tensor:
        """Return the label features L, (K, H); they depend on no document."""
        with drawn_for_labels():
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
            sizes=candidates.sum(1).tolist(),
        )
        return sampled.new_zeros(candidates.shape).masked_scatter(candidates, sampled)

    def adversarial_move(self, words: Tensor, attention_mask: Tensor, labels: Tensor) -> Tensor:
        """Return r, the step by which the word embeddings would be classified worse, (B, L, H): one more pass."""

        def loss(moved: Tensor) -> Tensor:
            logits = self.classifier(self.encode(attention_mask, inputs_embeds=moved))
            return classification_loss(logits, labels, "sum")  # a text's direction is the same in every reduction

        return adversarial_move(words, loss, self.config.adversarial_size)

    def encode_both(self, words: Tensor, weights: Tensor, attention_mask: Tensor, move: Tensor | None = None) -> Tensor:
        """Return the vectors of texts and of their positive samples, (2B, H).

        The choice of tokens needs word embeddings and label features only, so that text and positive sample go through
        the encoder together, as one batch of 2B; compact positive samples are shorter and go by themselves. The word
        embeddings of the positive samples are ``words``, (B, L, H), times ``weights``, (B, L), plus ``move``, (B, L,
        H).
        """
        if self.config.compact_positives:
            shorter, places, mask = compact(words, weights)
            positive = self.encode(mask, inputs_embeds=shorter, position_ids=places + first_position(self.encoder))
            return torch.cat([self.encode(attention_mask, inputs_embeds=words), positive])
        positive = words * weights.unsqueeze(-1)
        both = torch.cat([words, positive if move is None else positive + move])  # (2B, L, H)
        return self.encode(attention_mask.repeat(2, 1), inputs_embeds=both)

    def label_entries(self, rows: LabelRows, names: Tensor) -> dict[str, Tensor]:
        """Return what depends on the labels, the tokens of their names among it, as another label tree has it."""
        entries = super().label_entries(rows, names)
        if self.name_tokens is not None:
            entries["name_tokens"] = rows.tokens(self.name_tokens, names)
        return entries

    def changed_config(self, taxonomy: Taxonomy, names: Tensor) -> HGCLRConfig:
        """Return the configuration for another label tree, with room for its labels' names, (K', T)."""
        config: HGCLRConfig = super().changed_config(taxonomy, names)
        known = 0 if self.name_tokens is None else self.name_tokens.shape[1]
        config.label_name_length = max(known, names.shape[1])
        return config


def make_label_encoder(config: HGCLRConfig, width: int) -> LabelEmbedding:
    """Return the label encoder, whose features are ``width`` wide; raises an InputError if heads do not divide it."""
    tree, own = config.taxonomy, config.label_embedding
    if config.label_encoder == "none":
        return LabelEmbedding(tree, width, label_embedding=own)
    if config.label_encoder != "graphormer":
        return TreeConvolution(tree, width, kind=config.label_encoder, label_embedding=own)
    heads = config.label_heads or getattr(config.text_encoder, "num_attention_heads", None)
    if heads is None:
        heads = max(number for number in range(1, HEADS + 1) if width % number == 0)
    _check_heads("label_heads", heads, width)
    graphormer = Graphormer(
        tree,
        width,
        layers=config.label_layers,
        label_embedding=own,
        spatial=config.spatial_encoding,
        edge=config.edge_encoding,
        edge_padding=config.edge_padding == "drawn",
        frozen_self=config.self_distance == "frozen",
        span=config.label_span,
        heads=heads,
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


def load_training_model(folder: Path, **settings: Any) -> HGCLRForSequenceClassification:
    """Load an HGCLR model with its label side from ``training-model`` of a run, in evaluation mode.

    ``settings`` take the place of those in the model's configuration.
    """
    if not (folder / "config.json").is_file():
        raise InputError("no model here", path=folder, remedy=REMEDY)
    with refuse_broken("no model could be loaded", path=folder, remedy=REMEDY):
        config_class: Any = HGCLRForSequenceClassification.config_class
        config = load_pretrained(config_class, folder, **settings)
        if config.architectures != [HGCLRForSequenceClassification.__name__]:
            named = (config.architectures or ["model"])[0]
            raise InputError(f"this {named} has no label side", path=folder, remedy=REMEDY)
        if config.positives != "hierarchy":
            raise InputError(f"its positive samples are made by {config.positives}, not by labels", path=folder)
        model: HGCLRForSequenceClassification = load_weights(
            HGCLRForSequenceClassification, folder, config=config, use_safetensors=True
        )
    model.eval()
    return model
