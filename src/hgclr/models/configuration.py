"""The settings that every system has. Those of one system are declared beside it, as a subclass of this configuration.

All systems together make :class:`~hgclr.models.HGCLRConfig`, the one class that is saved as ``config.json``: a folder
of one system can then be loaded as another, and a setting's key stays where it is.
"""

# No "from __future__ import annotations" where settings are declared: what it makes of their types is not checked.

from collections.abc import Callable
from typing import Any, ClassVar, Literal

from transformers import AutoConfig, PreTrainedConfig
from transformers.configuration_utils import SubConfigSpec

from hgclr.errors import InputError
from hgclr.taxonomy import Taxonomy

__all__ = ["HierarchicalConfig", "check"]

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


def check(config: PreTrainedConfig, kind: str, *names: str) -> None:
    """Refuse settings outside a range of :data:`RANGES`.

    Raises:
        InputError: with the setting, its value and what to give instead.
    """
    fits, remedy = RANGES[kind]
    for name in names:
        if not fits(value := getattr(config, name)):
            raise InputError(f"{name} is {value}", remedy=remedy)


class HierarchicalConfig(PreTrainedConfig):
    """Configure what all systems share: the text encoder, the label tree, the classifier.

    Args:
        encoder_config: configuration of the text encoder, of any kind that ``AutoModel`` knows.
        label_parents: index of each label's parent, -1 for a top label. Ids stand in ``id2label``.
        label_names: each label's name for people and for the name embedding; names may repeat.
        special_token_ids: the tokenizer's special tokens, the unknown token left out.
        threshold: probability from which a label is predicted.
        max_length: tokens of a text that are read, special tokens included.
        cut_length: of these only so many from the start, so that what is cut off a long text is also the special token
            at its end: 510 in the published program, whose texts of more than 510 tokens have no [SEP]. ``None`` cuts
            nothing more, so that a long text ends with its special token.
        pooling: ``cls`` takes the first token's vector as the text's (the paper), ``mean`` averages all,
            ``max`` takes the largest value of each feature (TextRCNN). ``auto``, for a new model only, is what the
            encoder was trained with: see :func:`~hgclr.encoders.encoder_pooling`.
        classifier_dropout: dropout before the linear head.
        classifier_start: before training, the rows of a linear head on a pretrained encoder are ``random`` (the paper)
            or point to where the encoder puts the labels' ``names``.
        classification_loss: binary cross-entropy as ``sum`` over documents and labels (paper), ``mean`` over both
            (published), or summed over labels and averaged over documents (``document``), which depends neither on
            the batch size nor, much, on the number of labels.
        flat_regularisation: weight of the distance between a flat model's rows of parent and child, beside a mean
            cross-entropy; 1e-6 in the released TextRCNN.
        textrcnn_features: what a new TextRCNN has for each word: the features of its ``convolutions``, or the
            ``states`` of its GRU, 150 in each direction (HTCInfoMax as released).
    """

    model_type = "hgclr"
    sub_configs_defaults: ClassVar = {"encoder_config": SubConfigSpec(config_class=AutoConfig, model_type="bert")}
    keys_to_ignore_at_inference: ClassVar = ["terms"]

    encoder_config: dict[str, Any] | PreTrainedConfig | None = None
    label_parents: list[int] | None = None
    label_names: list[str] | None = None
    special_token_ids: list[int] | None = None
    threshold: float = 0.5
    max_length: int = 512
    cut_length: int | None = None
    pooling: Literal["auto", "cls", "mean", "max"] = "cls"
    classifier_dropout: float = 0.1
    classifier_start: Literal["random", "names"] = "names"
    classification_loss: Literal["sum", "mean", "document"] = "document"
    flat_regularisation: float = 0.0
    textrcnn_features: Literal["convolutions", "states"] = "convolutions"

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)  # type: ignore[no-untyped-call]
        if self.architectures:  # up to version 0.1 a model was FlatModel, HGCLRModel and so on
            self.architectures = [
                name.removesuffix("Model") + "ForSequenceClassification" if name.endswith("Model") else name
                for name in self.architectures
            ]

    def validate_shared(self) -> None:
        """Refuse values that no model can be built from."""
        check(self, "share", "classifier_dropout")
        check(self, "count", "max_length")
        check(self, "not negative", "flat_regularisation")
        check(self, "count or null", "cut_length")
        check(self, "probability", "threshold")

    @property
    def text_encoder(self) -> Any:
        """The encoder's configuration, whose class depends on the encoder."""
        return self.encoder_config

    @property
    def label_count(self) -> int:
        """How many labels there are, K."""
        return len(self.id2label or {})

    @property
    def taxonomy(self) -> Taxonomy:
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
