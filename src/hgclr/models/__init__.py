"""The models: one forward contract, chosen by name."""

from __future__ import annotations

from pathlib import Path

from transformers import AutoConfig, AutoModelForSequenceClassification

from hgclr.config import HGCLRConfig
from hgclr.models.base import ClassifierOutput, TextClassifier
from hgclr.models.flat import FlatModel
from hgclr.models.hgclr import HGCLRModel

__all__ = ["ARCHITECTURES", "ClassifierOutput", "FlatModel", "HGCLRModel", "TextClassifier", "load_deployed"]

ARCHITECTURES: dict[str, type[TextClassifier]] = {"flat": FlatModel, "hgclr": HGCLRModel}

# So that transformers' own loaders and pipelines know our models by their configuration; of several classes they take
# the one that it names.
AutoConfig.register(HGCLRConfig.model_type, HGCLRConfig)
AutoModelForSequenceClassification.register(HGCLRConfig, tuple(ARCHITECTURES.values()))


def load_deployed(folder: str | Path) -> TextClassifier:
    """Load a model to predict with; what a training model holds beyond that is left out.

    Raises:
        OSError, ValueError: if there is no such model.
    """
    config = HGCLRConfig.from_pretrained(folder)
    by_name = {model.__name__: model for model in ARCHITECTURES.values()}
    named = by_name.get((config.architectures or [""])[0], FlatModel)
    model: TextClassifier = named.deployed_class.from_pretrained(folder, use_safetensors=True)
    model.eval()
    return model
