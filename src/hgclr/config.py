"""Model settings, typed and checked without torch, and the presets.

Models save their settings as :class:`~hgclr.models.HGCLRConfig`; extensions add settings of their architectures
(:mod:`hgclr.registry`). The defaults are the ``default`` preset, except that it takes the pooling from the encoder.
``paper`` follows the text of Wang et al. (ACL 2022), ``published`` the program its authors released;
``docs/concepts/method.md`` lists the differences.
"""

# No "from __future__ import annotations": strict dataclasses check only types that are not strings.

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
    """Settings of all models: how a text is read, and the head."""

    threshold: float = setting(0.5, "probability from which a label is predicted")
    max_length: int = setting(512, "tokens of a text that are read, special tokens included")
    cut_length: int | None = setting(
        None,
        "cut a text after so many of these tokens, the special token at its end included: 510 in the published"
        " program, whose texts of more than 510 tokens have no [SEP]. `null` keeps the special token at the end",
    )
    pooling: Literal["auto", "cls", "mean", "max"] = setting(
        "cls",
        "`cls` takes the first token's vector as the text's (paper), `mean` averages all, `max` takes the largest value"
        " of each feature (TextRCNN). `auto`, for a new model only, is the pooling that the encoder was trained with",
    )
    classifier_dropout: float = setting(0.1, "dropout before the linear head")
    classifier_start: Literal["random", "names"] = setting(
        "names",
        "before training, the rows of a head on a pretrained encoder are `random` (paper) or the directions of the"
        " labels' `names`",
    )
    classification_loss: Literal["sum", "mean", "document"] = setting(
        "document",
        "binary cross-entropy as `sum` over documents and labels (paper), `mean` over both (published), or summed"
        " over labels and averaged over documents (`document`), which does not depend on the batch size",
    )
    flat_regularisation: float = setting(
        0.0,
        "weight of the distance between a flat model's rows of parent and child; 1e-6 in the released TextRCNN",
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
        "HGCLR's label features come from a `graphormer` (paper), from one `gcn` or `gat` layer over the tree's edges,"
        " or are the embeddings (`none`). The published program without a graph encoder is a `graphormer` without"
        " `label_embedding`, `spatial_encoding` and `edge_encoding`; its `gcn` and `gat` have no `label_embedding`",
    )
    label_embedding: bool = setting(True, "add a learned vector per label to the label features")
    name_embedding: Literal["layer", "words", "none"] = setting(
        "layer",
        "`layer` puts the name with its special tokens through the encoder's whole embedding layer (published),"
        " `words` averages the word embeddings of the name (paper), `none` leaves names out",
    )
    spatial_encoding: bool = setting(True, "bias label attention by a learned scalar per distance, b_φ(i,j)")
    edge_encoding: bool = setting(True, "bias label attention by the mean edge weight on the path, c_ij")
    edge_padding: Literal["zero", "drawn"] = setting(
        "zero",
        "value of the slots, of 15, that a path of D edges leaves empty: `zero` (paper), or one scalar p, `drawn` from"
        " N(0, 0.02) and never trained (the published program with the transformers version that its authors pin)."
        " This adds (15 - D) p / (D + 1e-8) to each attention logit, which is 1.5e9 p between a label and itself: with"
        " p > 0 a label attends to itself alone, and b and c get no gradient, with p < 0 to all labels but itself."
        " It has no effect without `edge_encoding`",
    )
    self_distance: Literal["trained", "frozen"] = setting(
        "trained",
        "the scalar for the distance of a label to itself, b_0, is `trained` (paper) or keeps its initial value"
        " (`frozen`, published: there it is a padding row)",
    )
    label_layers: int = setting(1, "layers of the Graphormer")
    label_heads: int | None = setting(
        None,
        "its attention heads; `null` takes as many as the text encoder has (published), or, if that has none, up to 8",
    )
    attention_scale: Literal["width", "head"] = setting(
        "head",
        "attention logits are divided by the square root of the whole `width` (paper) or of the width of one `head`"
        " (published)",
    )
    attention_bias: bool = setting(True, "biases in the projections of both attentions")
    label_output_projection: bool = setting(True, "project the label attention's output before the residual")
    label_dropout: float = setting(0.1, "dropout in the Graphormer")
    label_span: int | None = setting(
        None,
        "labels that attend to each other, neighbours in a depth-first walk of the tree, which also attend to the"
        " path above them; the size of the tree or more: all to all (paper). `null` is all to all up to 4,096 labels"
        " and 256 above",
    )

    positives: Literal["hierarchy", "dropout", "random", "adversarial"] = setting(
        "hierarchy",
        "a positive sample has the tokens that the labels choose (`hierarchy`, paper), all tokens, so that only"
        " dropout differs (`dropout`), tokens chosen at `random`, or word embeddings moved along the gradient of the"
        " classification loss (`adversarial`). Only `hierarchy` needs label features",
    )
    adversarial_size: float = setting(1.0, "length of that move over all embeddings of a text")
    token_label_heads: int = setting(1, "heads of the token-label attention")
    guidance: Literal["logits", "probabilities"] = setting(
        "logits",
        "the Gumbel-softmax takes the attention `logits` (paper) or the `probabilities`, that is their softmax"
        " averaged over heads (published)",
    )
    gumbel_temperature: float = setting(1.0, "temperature of the Gumbel-softmax")
    keep_threshold: float | None = setting(None, "γ; a token stays in the positive sample if P_i > γ")  # γ
    keep_fraction: float | None = setting(
        0.5,
        "share of a text's tokens to keep instead, the most probable ones. With `random` positives it is the share of"
        " all tokens, special ones included, which training with other positives logs as `kept`",
    )
    keep_at_least: int = setting(16, "with `keep_fraction`, keep at least so many tokens (short texts whole)")
    keep_special_tokens: bool = setting(True, "special tokens are always kept and do not count")

    contrastive_weight: float = setting(0.1, "λ, the weight of NT-Xent beside the classification loss")  # λ
    contrastive_temperature: float = setting(1.0, "τ of NT-Xent")  # τ
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
        if (self.keep_threshold is None) == (self.keep_fraction is None):
            raise InputError(
                f"keep_threshold is {self.keep_threshold} and keep_fraction is {self.keep_fraction}",
                remedy="set one of them and the other to null",
            )
        if self.positives == "random" and self.keep_fraction is None:
            raise InputError(
                "positives are random and keep_fraction is None",
                remedy="set keep_fraction, for example to the share that hierarchy-guided training logs as kept",
            )
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


PRESETS: dict[str, dict[str, Any]] = {
    "default": {"pooling": "auto"},
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
