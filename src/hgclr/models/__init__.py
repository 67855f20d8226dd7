"""The models: one forward contract, chosen by name."""

from __future__ import annotations

from pathlib import Path

from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, PreTrainedConfig

from hgclr.config import HGCLRConfig
from hgclr.models.base import ClassifierOutput, TextClassifier
from hgclr.models.flat import FlatModel
from hgclr.models.hgclr import HGCLRModel
from hgclr.models.hiagm import HiAGMLAModel, HiAGMTPModel
from hgclr.models.himatch import HiMatchModel
from hgclr.models.htcinfomax import HTCInfoMaxModel
from hgclr.models.sentence_transformers import MODULES, from_modules
from hgclr.models.stock import KEY, from_stock
from hgclr.models.textrcnn import TextRCNNConfig, TextRCNNModel

__all__ = [
    "ARCHITECTURES",
    "ClassifierOutput",
    "FlatModel",
    "HGCLRModel",
    "HTCInfoMaxModel",
    "HiAGMLAModel",
    "HiAGMTPModel",
    "HiMatchModel",
    "TextClassifier",
    "architecture_of",
    "load_deployed",
]

ARCHITECTURES: dict[str, type[TextClassifier]] = {
    "flat": FlatModel,
    "hgclr": HGCLRModel,
    "hiagm-tp": HiAGMTPModel,
    "hiagm-la": HiAGMLAModel,
    "htcinfomax": HTCInfoMaxModel,
    "himatch": HiMatchModel,
}

# So that transformers' own loaders and pipelines know our models by their configuration; of several classes they take
# the one that it names.
AutoConfig.register(HGCLRConfig.model_type, HGCLRConfig)
AutoModelForSequenceClassification.register(HGCLRConfig, tuple(ARCHITECTURES.values()))
AutoConfig.register(TextRCNNConfig.model_type, TextRCNNConfig)
AutoModel.register(TextRCNNConfig, TextRCNNModel)


def architecture_of(model: TextClassifier) -> str:
    """Return the name of a model's system."""
    return next(name for name, known in ARCHITECTURES.items() if type(model) is known)


def load_deployed(folder: str | Path) -> TextClassifier:
    """Load a model to predict with; what a training model holds beyond that is left out.

    One that ``hgclr export`` wrote in a class of transformers' own, or for sentence-transformers, becomes the model
    that it was written from.

    Raises:
        OSError, ValueError: if there is no such model.
    """
    model: TextClassifier
    if KEY in PreTrainedConfig.get_config_dict(folder)[0]:
        model = from_modules(folder) if (Path(folder) / MODULES).is_file() else from_stock(folder)
    else:
        config = HGCLRConfig.from_pretrained(folder)
        by_name = {model.__name__: model for model in ARCHITECTURES.values()}
        named = by_name.get((config.architectures or [""])[0], FlatModel)
        model = named.deployed_class.from_pretrained(folder, use_safetensors=True)
    model.eval()
    return model
