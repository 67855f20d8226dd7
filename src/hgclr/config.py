"""The presets, and the method's settings with every value checked.

The defaults of :class:`~hgclr.models.HGCLRConfig` are the ``default`` preset, but for the pooling, which that takes
from the encoder; ``paper`` follows the text of Wang et al. (ACL 2022), ``published`` follows the program its authors
released. Where the two differ is listed in ``docs/concepts/method.md``.
"""

import dataclasses
import difflib
from typing import Any

from huggingface_hub.errors import StrictDataclassError
from transformers import PreTrainedConfig

from hgclr.errors import InputError
from hgclr.models import HGCLRConfig

__all__ = ["PRESETS", "HGCLRConfig", "method_settings"]

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
