"""The models: one forward contract, chosen by name."""

from __future__ import annotations

from transformers import AutoConfig, AutoModelForSequenceClassification

from hgclr.config import HGCLRConfig
from hgclr.models.flat import ClassifierOutput, FlatModel
from hgclr.models.hgclr import HGCLRModel

__all__ = ["ARCHITECTURES", "ClassifierOutput", "FlatModel", "HGCLRModel"]

ARCHITECTURES: dict[str, type[FlatModel]] = {"flat": FlatModel, "hgclr": HGCLRModel}

# So that transformers' own loaders and pipelines know our models by their configuration.
AutoConfig.register(HGCLRConfig.model_type, HGCLRConfig)
AutoModelForSequenceClassification.register(HGCLRConfig, FlatModel)
