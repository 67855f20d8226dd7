"""The systems by name, their configuration, and how a saved model is loaded."""

from __future__ import annotations

from pathlib import Path

from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, PreTrainedConfig

from hgclr.models.base import HGCLRConfig, HierarchicalOutput, HierarchicalPreTrainedModel
from hgclr.models.flat import FlatForSequenceClassification
from hgclr.models.hgclr import HGCLRForSequenceClassification
from hgclr.models.hiagm import HiAGMLAForSequenceClassification, HiAGMTPForSequenceClassification
from hgclr.models.himatch import HiMatchForSequenceClassification
from hgclr.models.htcinfomax import HTCInfoMaxForSequenceClassification
from hgclr.models.pretrained import load_pretrained, load_weights
from hgclr.models.stock import KEY, MODULES, from_modules, from_stock
from hgclr.models.textrcnn import TextRCNNConfig, TextRCNNModel

__all__ = [
    "ARCHITECTURES",
    "FlatForSequenceClassification",
    "HGCLRConfig",
    "HGCLRForSequenceClassification",
    "HTCInfoMaxForSequenceClassification",
    "HiAGMLAForSequenceClassification",
    "HiAGMTPForSequenceClassification",
    "HiMatchForSequenceClassification",
    "HierarchicalOutput",
    "HierarchicalPreTrainedModel",
    "architecture_of",
    "load_deployed",
]

ARCHITECTURES: dict[str, type[HierarchicalPreTrainedModel]] = {
    "flat": FlatForSequenceClassification,
    "hgclr": HGCLRForSequenceClassification,
    "hiagm-tp": HiAGMTPForSequenceClassification,
    "hiagm-la": HiAGMLAForSequenceClassification,
    "htcinfomax": HTCInfoMaxForSequenceClassification,
    "himatch": HiMatchForSequenceClassification,
}


for _model in ARCHITECTURES.values():
    _model.config_class = HGCLRConfig

# So that transformers' own loaders and pipelines know our models by their configuration; of several classes they take
# the one that it names.
AutoConfig.register(HGCLRConfig.model_type, HGCLRConfig)
AutoModelForSequenceClassification.register(HGCLRConfig, tuple(ARCHITECTURES.values()))
AutoConfig.register(TextRCNNConfig.model_type, TextRCNNConfig)
AutoModel.register(TextRCNNConfig, TextRCNNModel)


def architecture_of(model: HierarchicalPreTrainedModel) -> str:
    """Return the name of a model's system."""
    return next(name for name, known in ARCHITECTURES.items() if type(model) is known)


def load_deployed(folder: str | Path) -> HierarchicalPreTrainedModel:
    """Load a model to predict with; what a training model holds beyond that is left out.

    One that ``hgclr export`` wrote in a class of transformers' own, or for sentence-transformers, becomes the model
    that it was written from.

    Raises:
        OSError, ValueError: if there is no such model.
    """
    model: HierarchicalPreTrainedModel
    if KEY in PreTrainedConfig.get_config_dict(folder)[0]:
        model = from_modules(folder) if (Path(folder) / MODULES).is_file() else from_stock(folder)
    else:
        config = load_pretrained(HGCLRConfig, folder)
        by_name = {model.__name__: model for model in ARCHITECTURES.values()}
        named = by_name.get((config.architectures or [""])[0], FlatForSequenceClassification)
        model = load_weights(named.deployed_class or named, folder, use_safetensors=True)
    model.eval()
    return model
