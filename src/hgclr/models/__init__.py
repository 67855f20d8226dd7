"""Models by architecture name, and loading of saved models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import AutoConfig, AutoModelForSequenceClassification, PreTrainedConfig

from hgclr.errors import InputError
from hgclr.models.base import HGCLRConfig, HierarchicalOutput, HierarchicalPreTrainedModel
from hgclr.models.flat import FlatForSequenceClassification
from hgclr.models.hgclr import HGCLRForSequenceClassification
from hgclr.models.pretrained import load_pretrained, load_weights
from hgclr.models.stock import KEY, MODULES, from_modules, from_stock
from hgclr.registry import merged, resolve

__all__ = [
    "FlatForSequenceClassification",
    "HGCLRConfig",
    "HGCLRForSequenceClassification",
    "HierarchicalOutput",
    "HierarchicalPreTrainedModel",
    "architecture",
    "architecture_of",
    "load_config",
    "load_deployed",
]

CORE: dict[str, type[HierarchicalPreTrainedModel]] = {
    "flat": FlatForSequenceClassification,
    "hgclr": HGCLRForSequenceClassification,
}


def register(config: type[HGCLRConfig], *models: type[HierarchicalPreTrainedModel]) -> None:
    """Register models, so that transformers' loaders and pipelines find them by their configuration."""
    for model in models:
        model.config_class = config
    AutoConfig.register(config.model_type, config)
    AutoModelForSequenceClassification.register(config, models)


register(HGCLRConfig, *CORE.values())


def architecture(name: str) -> type[HierarchicalPreTrainedModel]:
    """Return the class of an architecture of the core or of an extension."""
    if name in CORE:
        return CORE[name]
    known = merged("architectures")
    if name not in known:
        raise InputError(f"unknown architecture {name!r}", remedy=f"choose one of {', '.join([*CORE, *known])}")
    model: type[HierarchicalPreTrainedModel] = resolve(known[name])
    return model


def architecture_named(class_name: str) -> str | None:
    """Return the architecture of a class name, as stored in a configuration, or None."""
    classes = {model.__name__: name for name, model in CORE.items()}
    classes |= {reference.partition(":")[2]: name for name, reference in merged("architectures").items()}
    return classes.get(class_name)


def architecture_of(model: HierarchicalPreTrainedModel) -> str:
    """Return the name of a model's architecture."""
    return architecture_named(type(model).__name__) or type(model).__name__


def load_config(folder: str | Path, **settings: Any) -> HGCLRConfig:
    """Load the configuration of a saved model, in the configuration class of its architecture."""
    written = PreTrainedConfig.get_config_dict(folder)[0]
    name = architecture_named((written.get("architectures") or [""])[0])
    if (encoder := (written.get("encoder_config") or {}).get("model_type")) in (built := merged("encoders")):
        resolve(built[encoder])  # registers the encoder's configuration
    config: HGCLRConfig = load_pretrained(architecture(name or "flat").config_class, folder, **settings)
    return config


def load_deployed(folder: str | Path) -> HierarchicalPreTrainedModel:
    """Load a model for prediction, without layers for training; exports for other libraries become flat models.

    Raises:
        OSError, ValueError: if there is no such model.
    """
    model: HierarchicalPreTrainedModel
    if KEY in PreTrainedConfig.get_config_dict(folder)[0]:
        model = from_modules(folder) if (Path(folder) / MODULES).is_file() else from_stock(folder)
    else:
        config = load_config(folder)
        named = architecture(architecture_named((config.architectures or [""])[0]) or "flat")
        model = load_weights(named.deployed_class or named, folder, use_safetensors=True)
    model.eval()
    return model
