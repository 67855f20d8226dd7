"""Every choice of the method, typed, validated and saved with the model.

The class defaults are the ``default`` preset, but for the pooling, which that takes from the encoder; ``paper`` follows
the text of Wang et al. (ACL 2022), ``published`` follows the program its authors released. Where the two differ is
listed in ``docs/concepts/method.md``.
"""

import dataclasses
import difflib
from typing import Any, ClassVar, Literal

from huggingface_hub.dataclasses import strict
from huggingface_hub.errors import StrictDataclassError
from transformers import AutoConfig, PreTrainedConfig
from transformers.configuration_utils import SubConfigSpec

from hgclr.errors import InputError
from hgclr.taxonomy import Taxonomy

__all__ = ["PRESETS", "HGCLRConfig", "method_settings"]


@strict
class HGCLRConfig(PreTrainedConfig):
    """Configure a hierarchical text classifier.

    Args:
        encoder_config: configuration of the text encoder, of any kind that ``AutoModel`` knows.
        label_parents: index of each label's parent, -1 for a top label. Ids stand in ``id2label``.
        label_names: each label's name for people and for the name embedding; names may repeat.
        label_name_length: tokens in the longest label name, the width of the stored name tokens.
        special_token_ids: the tokenizer's special tokens, the unknown token left out.
        threshold: probability from which a label is predicted.
        max_length: tokens of a text that are read, special tokens included.
        pooling: ``cls`` takes the first token's vector as the text's (the paper), ``mean`` averages all,
            ``max`` takes the largest value of each feature (TextRCNN). ``auto``, for a new model only, is what the
            encoder was trained with: see :func:`~hgclr.encoders.encoder_pooling`.
        classifier_dropout: dropout before the linear head.
        classifier_start: before training, the rows of a linear head on a pretrained encoder are ``random`` (the paper)
            or point to where the encoder puts the labels' ``names``.

        label_encoder: HGCLR's label features come from a ``graphormer`` (the paper), from one ``gcn`` or ``gat`` layer
            over the tree's edges, or are the embeddings themselves (``none``). What the published program calls no
            graph encoder is a ``graphormer`` without ``label_embedding``, ``spatial_encoding`` and ``edge_encoding``;
            its ``gcn`` and ``gat`` are without ``label_embedding`` too.
        label_embedding: add a learned vector per label to the label features.
        name_embedding: ``layer`` puts the name with its special tokens through the encoder's whole embedding layer
            (published), ``words`` averages the word embeddings of the name (paper), ``none`` leaves names out.
        spatial_encoding: bias label attention by a learned scalar per distance, b_φ(i,j).
        edge_encoding: bias label attention by the mean edge weight on the path, c_ij.
        label_layers: layers of the Graphormer.
        label_heads: its attention heads; ``None`` takes as many as the text encoder has (published), or, if that has
            none, up to 8.
        attention_scale: attention logits are divided by the square root of the whole ``width`` (paper) or of the
            width of one ``head`` (published).
        attention_bias: biases in the projections of both attentions.
        label_output_projection: project the label attention's output before the residual.
        label_dropout: dropout in the Graphormer.
        label_span: labels that attend to each other, neighbours in a depth-first walk of the tree, which also attend to
            the path above them; the size of the tree or more: all to all (the paper). ``None`` is all to all up to
            4,096 labels and 256 above, where the cost would grow with the square of the number of labels.

        positives: a positive sample is the text with the tokens that its labels choose (``hierarchy``, the paper), the
            text as it is, so that only dropout differs (``dropout``), the text with tokens chosen at ``random``, or
            the text with word embeddings moved along the gradient of the classification loss, to where that is
            larger (``adversarial``). Only ``hierarchy`` needs label features.
        adversarial_size: length of that move, in all a text's embeddings together.
        token_label_heads: heads of the token-label attention.
        guidance: the Gumbel-softmax takes the attention ``logits`` (paper) or the ``probabilities``, that is their
            softmax averaged over heads (published).
        gumbel_temperature: temperature of the Gumbel-softmax.
        keep_threshold: γ; a token stays in the positive sample if P_i > γ.
        keep_fraction: share of a text's tokens to keep instead, the most probable ones; scale-free. Of tokens chosen
            at ``random`` it is the share of all, special tokens included: what training with other positive samples
            logs as ``kept``.
        keep_at_least: with ``keep_fraction``, never keep fewer tokens than this (short texts are kept whole).
        keep_special_tokens: special tokens are always kept and do not count.
        compact_positives: dropped tokens leave the positive sample, the others keep their positions: faster, but not
            the paper's model, where they stay in the sequence with a zero word embedding and are attended to.

        classification_loss: binary cross-entropy as ``sum`` over documents and labels (paper), ``mean`` over both
            (published), or summed over labels and averaged over documents (``document``), which depends neither on
            the batch size nor, much, on the number of labels.
        contrastive_weight: λ, the weight of NT-Xent beside that classification loss.
        contrastive_temperature: τ of NT-Xent.
        negatives: the other documents of a batch count in NT-Xent ``all`` alike (the paper), only if their labels
            are not the same (``different``), or by how far their labels are in the tree (``distance``).
        contrastive_bias: biases in the projection head.
        contrastive_dropout: dropouts in the projection head.

        structure_encoder: HiAGM and what is built on it pass messages along the tree by a ``gcn`` or a ``tree-lstm``.
        node_width: size of a label node there.
        structure_dropout: dropout there.
        recursive_regularisation: weight of the distance between the classifier's rows of parent and child.
        joint_width: size of HiMatch's joint space of texts and labels.
        parent_margin, sibling_margin, random_margin: margins of HiMatch's losses.
        label_refresh: steps after which HiMatch encodes the labels' texts anew.

    Example:
        >>> config = HGCLRConfig(**PRESETS["paper"] | {"keep_threshold": 0.01})
        >>> config.guidance
        'logits'
    """

    model_type = "hgclr"
    sub_configs_defaults: ClassVar = {"encoder_config": SubConfigSpec(config_class=AutoConfig, model_type="bert")}
    keys_to_ignore_at_inference: ClassVar = ["terms"]

    encoder_config: dict[str, Any] | PreTrainedConfig | None = None
    label_parents: list[int] | None = None
    label_names: list[str] | None = None
    label_name_length: int = 0
    special_token_ids: list[int] | None = None
    threshold: float = 0.5
    max_length: int = 512
    pooling: Literal["auto", "cls", "mean", "max"] = "cls"
    classifier_dropout: float = 0.1
    classifier_start: Literal["random", "names"] = "names"

    label_encoder: Literal["graphormer", "gcn", "gat", "none"] = "graphormer"
    label_embedding: bool = True
    name_embedding: Literal["layer", "words", "none"] = "layer"
    spatial_encoding: bool = True
    edge_encoding: bool = True
    label_layers: int = 1
    label_heads: int | None = None
    attention_scale: Literal["width", "head"] = "head"
    attention_bias: bool = True
    label_output_projection: bool = True
    label_dropout: float = 0.1
    label_span: int | None = None

    positives: Literal["hierarchy", "dropout", "random", "adversarial"] = "hierarchy"
    adversarial_size: float = 1.0
    token_label_heads: int = 1
    guidance: Literal["logits", "probabilities"] = "logits"
    gumbel_temperature: float = 1.0
    keep_threshold: float | None = None  # γ
    keep_fraction: float | None = 0.5
    keep_at_least: int = 16
    keep_special_tokens: bool = True
    compact_positives: bool = False

    classification_loss: Literal["sum", "mean", "document"] = "document"
    contrastive_weight: float = 0.1  # λ
    contrastive_temperature: float = 1.0  # τ
    negatives: Literal["all", "different", "distance"] = "all"
    contrastive_bias: bool = True
    contrastive_dropout: float = 0.1

    structure_encoder: Literal["gcn", "tree-lstm"] = "gcn"
    node_width: int = 300
    structure_dropout: float = 0.05
    recursive_regularisation: float = 1e-6
    joint_width: int = 200
    parent_margin: float = 0.01
    sibling_margin: float = 0.1
    random_margin: float = 0.2
    label_refresh: int = 50

    def validate_ranges(self) -> None:
        """Refuse values that no model can be built from."""
        for name in ("classifier_dropout", "label_dropout", "contrastive_dropout", "structure_dropout"):
            _refuse(not 0 <= getattr(self, name) < 1, name, getattr(self, name), "give a share from 0 to below 1")
        for name in ("gumbel_temperature", "contrastive_temperature"):
            _refuse(getattr(self, name) <= 0, name, getattr(self, name), "give a positive number")
        for name in ("label_layers", "token_label_heads", "max_length", "node_width", "joint_width", "label_refresh"):
            _refuse(getattr(self, name) < 1, name, getattr(self, name), "give a whole number from 1")
        for name in ("label_heads", "label_span"):
            value = getattr(self, name)
            _refuse(value is not None and value < 1, name, value, "give a whole number from 1, or null")
        for name in ("contrastive_weight", "recursive_regularisation", "adversarial_size"):
            _refuse(getattr(self, name) < 0, name, getattr(self, name), "give 0 or more")
        _refuse(not 0 < self.threshold < 1, "threshold", self.threshold, "give a probability between 0 and 1")

    def validate_keeping(self) -> None:
        """Exactly one rule decides which tokens a positive sample keeps."""
        if (self.keep_threshold is None) == (self.keep_fraction is None):
            raise InputError(
                f"keep_threshold is {self.keep_threshold} and keep_fraction is {self.keep_fraction}",
                remedy="set one of them and the other to null",
            )
        if self.keep_fraction is not None:
            _refuse(not 0 < self.keep_fraction <= 1, "keep_fraction", self.keep_fraction, "give a share up to 1")

    def validate_positives(self) -> None:
        """Refuse positive samples that contradict how tokens are kept."""
        if self.positives == "random" and self.keep_fraction is None:
            raise InputError(
                "positives are random and keep_fraction is None",
                remedy="set keep_fraction, for example to the share that hierarchy-guided training logs as kept",
            )
        if self.compact_positives and self.positives in ("dropout", "adversarial"):
            raise InputError(
                f"compact_positives is true, and positives by {self.positives} drop no tokens",
                remedy="set compact_positives to false",
            )

    def validate_label_encoder(self) -> None:
        """Refuse label encoders without an input, or with more layers than they have."""
        if not self.label_embedding and self.name_embedding == "none":
            raise InputError(
                "label_embedding is false and name_embedding is none, which leaves no label features",
                remedy="set one of them otherwise",
            )
        if self.label_layers > 1 and self.label_encoder != "graphormer":
            raise InputError(
                f"label_layers is {self.label_layers} and label_encoder is {self.label_encoder}",
                remedy="set label_layers to 1, or label_encoder to graphormer, which alone has several",
            )

    @property
    def text_encoder(self) -> Any:
        """Return the encoder's configuration, whose class depends on the encoder."""
        return self.encoder_config

    @property
    def label_count(self) -> int:
        """Return K."""
        return len(self.id2label or {})

    @property
    def taxonomy(self) -> Taxonomy:
        """Return the label tree."""
        if self.id2label is None or self.label_parents is None:
            raise InputError("the configuration holds no label tree", remedy="build it with set_taxonomy")
        by_index = {int(index): label for index, label in self.id2label.items()}
        return Taxonomy([by_index[index] for index in range(len(by_index))], self.label_parents, self.label_names)

    def set_taxonomy(self, taxonomy: Taxonomy) -> None:
        """Store the label tree: ids in ``id2label``, parents and names beside them."""
        self.id2label = dict(enumerate(taxonomy.ids))
        self.label2id = {label: index for index, label in enumerate(taxonomy.ids)}
        self.label_parents = [int(parent) for parent in taxonomy.parents]
        self.label_names = list(taxonomy.names)


PRESETS: dict[str, dict[str, Any]] = {
    "default": {"pooling": "auto"},
    "paper": {
        "pooling": "cls",
        "classifier_start": "random",
        "name_embedding": "words",
        "label_heads": 8,
        "attention_scale": "width",
        "attention_bias": False,
        "label_output_projection": False,
        "label_dropout": 0.0,
        "token_label_heads": 1,
        "guidance": "logits",
        "keep_threshold": 0.02,
        "keep_fraction": None,
        "keep_special_tokens": False,
        "classification_loss": "sum",
        "contrastive_weight": 0.1,
        "contrastive_bias": False,
        "contrastive_dropout": 0.0,
    },
    "published": {
        "pooling": "cls",
        "classifier_start": "random",
        "name_embedding": "layer",
        "label_heads": None,
        "attention_scale": "head",
        "attention_bias": True,
        "label_output_projection": True,
        "label_dropout": 0.1,
        "token_label_heads": 8,
        "guidance": "probabilities",
        "keep_threshold": 0.02,
        "keep_fraction": None,
        "keep_special_tokens": False,
        "classification_loss": "mean",
        "contrastive_weight": 0.05,
        "contrastive_bias": True,
        "contrastive_dropout": 0.1,
    },
}

# What a user chooses; the other fields describe the encoder and the tree and are filled in by us.
_METHOD_FIELDS = sorted(
    set(HGCLRConfig.__dataclass_fields__)
    - {field.name for field in dataclasses.fields(PreTrainedConfig)}
    - {"encoder_config", "label_parents", "label_names", "label_name_length", "special_token_ids"}
)


def method_settings(preset: str, overrides: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of ``preset`` with ``overrides`` on top, each name and value checked.

    Giving one of ``keep_threshold`` and ``keep_fraction`` takes the preset's other one away.

    Raises:
        InputError: unknown preset or setting (with the nearest name), or a value out of range.
    """
    if preset not in PRESETS:
        raise InputError(f"unknown preset {preset!r}", remedy=f"choose one of {', '.join(PRESETS)}")
    for name in overrides:
        if name not in _METHOD_FIELDS:
            near = difflib.get_close_matches(name, _METHOD_FIELDS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(_METHOD_FIELDS)}"
            raise InputError(f"unknown model setting {name!r}", remedy=hint)
    settings = PRESETS[preset] | {name: _as_float(name, value) for name, value in overrides.items()}
    for given, other in (("keep_threshold", "keep_fraction"), ("keep_fraction", "keep_threshold")):
        if overrides.get(given) is not None and other not in overrides:
            settings[other] = None
    try:
        HGCLRConfig(**settings)
    except StrictDataclassError as error:
        cause = error.__cause__
        if isinstance(cause, InputError):
            raise cause from None
        raise InputError(f"model settings: {' '.join(str(error).split())}") from None
    return settings


def _as_float(name: str, value: Any) -> Any:
    """Take a whole number, such as the 0 of a YAML file, where a setting is a float."""
    wanted = HGCLRConfig.__dataclass_fields__[name].type
    return float(value) if type(value) is int and wanted in (float, float | None) else value


def _refuse(wrong: bool, name: str, value: object, remedy: str) -> None:
    if wrong:
        raise InputError(f"{name} is {value}", remedy=remedy)
