"""Model settings with their types, ranges and presets; without torch, so that mistakes show at once.

A model is saved with its settings as :class:`~hgclr.models.HGCLRConfig`. The defaults are those of the presets
``default`` and ``hgclr``, whose pooling is the encoder's. ``paper`` follows the text of Wang et al. (ACL 2022),
``published`` its authors' program; ``docs/concepts/hgclr.md`` lists the differences.
"""

# No "from __future__ import annotations" where settings are declared: their types would be unchecked strings.

import difflib
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, Literal

from huggingface_hub.dataclasses import strict
from huggingface_hub.errors import StrictDataclassError

from hgclr.errors import InputError
from hgclr.registry import extensions, resolve

RANGES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "share": (lambda value: 0 <= value < 1, "give a share from 0 to below 1"),
    "share or null": (lambda value: value is None or 0 <= value < 1, "give a share from 0 to below 1, or null"),
    "part": (lambda value: value is None or 0 < value <= 1, "give a share up to 1"),
    "probability": (lambda value: 0 < value < 1, "give a probability between 0 and 1"),
    "positive": (lambda value: value > 0, "give a positive number"),
    "not negative": (lambda value: value >= 0, "give 0 or more"),
    "count": (lambda value: value >= 1, "give a whole number from 1"),
    "count or null": (lambda value: value is None or value >= 1, "give a whole number from 1, or null"),
}


def check(settings: object, kind: str, *names: str) -> None:
    """Refuse settings outside a range of :data:`RANGES`."""
    fits, remedy = RANGES[kind]
    for name in names:
        if not fits(value := getattr(settings, name)):
            raise InputError(f"{name} is {value}", remedy=remedy)


def setting(default: Any, meaning: str) -> Any:
    """Declare a setting; ``hgclr settings`` shows its meaning."""
    return field(default=default, metadata={"meaning": meaning})


@dataclass(kw_only=True, repr=False, eq=False)
class SharedSettings:
    """Settings of all architectures: how a text is read, and the head."""

    threshold: float = setting(0.5, "probability from which a label is predicted")
    max_length: int = setting(512, "tokens of a text that are read, special tokens included")
    cut_length: int | None = setting(
        None, "cut texts once more, to so many tokens, final special token included: 510 in the published program"
    )
    pooling: Literal["auto", "cls", "mean", "max"] = setting(
        "cls",
        "vector of a text: the first token's (`cls`, the paper), the `mean` of all tokens, or the largest value of each"
        " feature (`max`). `auto`, for a new model only, is the pooling that the encoder was trained with",
    )
    classifier_dropout: float = setting(0.1, "dropout before the head")
    classifier_start: Literal["random", "names"] = setting(
        "names",
        "rows of the head before training: `random` (paper), or where a pretrained encoder puts the labels' `names`",
    )
    classification_loss: Literal["sum", "mean", "document"] = setting(
        "document",
        "binary cross-entropy: `sum` over documents and labels (paper), `mean` over both (published), or summed over"
        " labels and averaged over documents (`document`), which does not depend on the batch size",
    )
    flat_regularisation: float = setting(
        0.0,
        "flat models: weight of the distance between the head's rows of parent and child, beside a mean cross-entropy",
    )

    def validate_shared(self) -> None:
        check(self, "share", "classifier_dropout")
        check(self, "count", "max_length")
        check(self, "not negative", "flat_regularisation")
        check(self, "count or null", "cut_length")
        check(self, "probability", "threshold")


@dataclass(kw_only=True, repr=False, eq=False)
class HGCLRSettings(SharedSettings):
    """Settings of HGCLR: the label encoder, the positive samples, the contrastive loss."""

    label_encoder: Literal["graphormer", "gcn", "gat", "none"] = setting(
        "graphormer",
        "encoder of the label tree: a `graphormer` (the paper), one `gcn` or `gat` layer, or `none`: the embeddings",
    )
    label_embedding: bool = setting(True, "add a learned vector per label to the label features")
    name_embedding: Literal["layer", "words", "none"] = setting(
        "layer",
        "embedding of a label name: the mean of its word embeddings (`words`, paper), the mean of the encoder's whole"
        " embedding `layer`, special tokens included (published), or `none`",
    )
    spatial_encoding: bool = setting(True, "bias label attention by a learned scalar per distance, b_φ(i,j)")
    edge_encoding: bool = setting(True, "bias label attention by the mean edge weight on the path, c_ij")
    edge_padding: Literal["zero", "drawn"] = setting(
        "zero",
        "value of the slots of a path without an edge: `zero` (paper), or `drawn` from N(0, 0.02) and never trained, as"
        " in the published program with the transformers version that it pins. See docs/concepts/hgclr.md",
    )
    self_distance: Literal["trained", "frozen"] = setting(
        "trained", "b_0, the scalar of a label's distance to itself, is `trained` (paper) or `frozen` (published)"
    )
    label_layers: int = setting(1, "layers of the Graphormer")
    label_heads: int | None = setting(
        None, "attention heads of the Graphormer; `null`: those of the text encoder (published), or up to 8"
    )
    attention_scale: Literal["width", "head"] = setting(
        "head", "divide attention logits by the root of the whole `width` (paper) or of one head's (`head`, published)"
    )
    attention_bias: bool = setting(True, "biases in the projections of both attentions")
    label_output_projection: bool = setting(True, "project the label attention's output before the residual")
    label_dropout: float = setting(0.1, "dropout in the Graphormer")
    label_span: int | None = setting(
        None,
        "labels that attend to each other: neighbours in a depth-first walk of the tree; they also attend to the path"
        " above them. `null`: all labels up to 4,096 labels (the paper), 256 in larger trees",
    )

    positives: Literal["hierarchy", "dropout", "random", "adversarial"] = setting(
        "hierarchy",
        "positive sample of a text: the tokens that its labels choose (`hierarchy`, the paper), the whole text under"
        " another `dropout`, `random` tokens, or word embeddings moved to a larger loss (`adversarial`)",
    )
    adversarial_size: float = setting(1.0, "length of the adversarial move, over all word embeddings of a text")
    token_label_heads: int = setting(1, "heads of the token-label attention")
    guidance: Literal["logits", "probabilities"] = setting(
        "logits",
        "input of the Gumbel-softmax: attention `logits` (paper), or `probabilities`, their softmax averaged over heads"
        " (published)",
    )
    gumbel_temperature: float = setting(1.0, "temperature of the Gumbel-softmax")
    keep_threshold: float | None = setting(None, "γ: a token stays in the positive sample if P_i > γ")
    keep_fraction: float | None = setting(
        0.5,
        "keep this share of a text's tokens instead, the most probable ones; with `random` positives it is a share of"
        " all tokens, special ones included, like the logged `kept`",
    )
    keep_at_least: int = setting(16, "with `keep_fraction`, keep at least so many tokens of a text")
    keep_special_tokens: bool = setting(True, "always keep special tokens, without counting them")

    contrastive_weight: float = setting(0.1, "λ: weight of NT-Xent beside the classification loss")
    contrastive_temperature: float = setting(1.0, "τ: temperature of NT-Xent")
    contrastive_bias: bool = setting(True, "biases in the projection head")
    contrastive_dropout: float = setting(0.1, "dropouts in the projection head")

    def validate_hgclr(self) -> None:
        check(self, "share", "label_dropout", "contrastive_dropout")
        check(self, "positive", "gumbel_temperature", "contrastive_temperature")
        check(self, "count", "label_layers", "token_label_heads")
        check(self, "count or null", "label_heads", "label_span")
        check(self, "not negative", "contrastive_weight", "adversarial_size")
        check(self, "part", "keep_fraction")

    def validate_hgclr_choices(self) -> None:
        threshold, fraction = self.keep_threshold, self.keep_fraction
        if (threshold is None) == (fraction is None):
            what = f"keep_threshold is {threshold} and keep_fraction is {fraction}"
            raise InputError(what, remedy="set one of them and the other to null")
        if self.positives == "random" and fraction is None:
            remedy = "set keep_fraction, for example to the share that hierarchy-guided training logs as kept"
            raise InputError("positives are random and keep_fraction is None", remedy=remedy)
        if not self.label_embedding and self.name_embedding == "none":
            what = "label_embedding is false and name_embedding is none, which leaves no label features"
            raise InputError(what, remedy="set one of them otherwise")
        if self.label_layers > 1 and self.label_encoder != "graphormer":
            what = f"label_layers is {self.label_layers} and label_encoder is {self.label_encoder}"
            raise InputError(what, remedy="set label_layers to 1, or label_encoder to graphormer")


PRESETS: dict[str, dict[str, Any]] = {
    "default": {"pooling": "auto"},
    "hgclr": {"pooling": "auto"},
    "paper": {
        "cut_length": None,
        "pooling": "cls",
        "classifier_start": "random",
        "name_embedding": "words",
        "label_heads": 8,
        "self_distance": "trained",
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
        "cut_length": 510,
        "pooling": "cls",
        "classifier_start": "random",
        "name_embedding": "layer",
        "label_heads": None,
        "self_distance": "frozen",
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


def setting_classes() -> list[type]:
    """Return the dataclasses that declare model settings: the core's and those of extensions."""
    return [HGCLRSettings, *(resolve(each.settings) for each in extensions() if each.settings is not None)]


def method_fields() -> dict[str, Any]:
    """Return the dataclass fields of all model settings by name."""
    return {field.name: field for kind in setting_classes() for field in fields(kind)}


@cache
def _strict(kind: type) -> Any:
    """Return a subclass whose values are checked; ``strict`` changes the class itself."""
    return strict(dataclass(kw_only=True)(type(kind.__name__, (kind,), {})))


def method_settings(preset: str, overrides: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of ``preset`` with ``overrides`` on top, each name and value checked.

    An override of ``keep_threshold`` or ``keep_fraction`` removes the other one of the preset.

    Raises:
        InputError: unknown preset or setting (with the nearest name), or a value out of range.
    """
    known = method_fields()
    if preset not in PRESETS:
        raise InputError(f"unknown preset {preset!r}", remedy=f"choose one of {', '.join(PRESETS)}")
    settings = dict(PRESETS[preset])
    for name, value in overrides.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(sorted(known))}"
            raise InputError(f"unknown model setting {name!r}", remedy=hint)
        whole = type(value) is int and known[name].type in (float, float | None)  # such as the 0 of a YAML file
        settings[name] = float(value) if whole else value
    for given, other in (("keep_threshold", "keep_fraction"), ("keep_fraction", "keep_threshold")):
        if overrides.get(given) is not None and other not in overrides:
            settings[other] = None
    for kind in setting_classes():
        own = {field.name for field in fields(kind)}
        try:
            _strict(kind)(**{name: value for name, value in settings.items() if name in own})
        except StrictDataclassError as error:
            if isinstance(error.__cause__, InputError):
                raise error.__cause__ from None
            raise InputError(f"model settings: {' '.join(str(error).split())}") from None
    return settings
