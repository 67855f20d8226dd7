"""The configuration of every model: the settings of all systems, and what encoder and label tree fill in."""

# No "from __future__ import annotations" where settings are declared: what it makes of their types is not checked.

from typing import Any, ClassVar

from huggingface_hub.dataclasses import strict
from transformers import AutoConfig, PreTrainedConfig
from transformers.configuration_utils import SubConfigSpec

from hgclr.config import HGCLRSettings, HiMatchSettings
from hgclr.errors import InputError
from hgclr.taxonomy import Taxonomy

__all__ = ["HGCLRConfig"]


@strict
class HGCLRConfig(HiMatchSettings, HGCLRSettings, PreTrainedConfig):
    """Configure a hierarchical text classifier: the settings of all systems, typed, checked and saved with the model.

    Args:
        encoder_config: configuration of the text encoder, of any kind that ``AutoModel`` knows.
        label_parents: index of each label's parent, -1 for a top label. Ids stand in ``id2label``.
        label_names: each label's name for people and for the name embedding; names may repeat.
        label_name_length: tokens in the longest label name, the width of the stored name tokens.
        text_column: the column that the texts stood in before ``hgclr data import``; ``hgclr predict`` takes it in
            tables without a column ``text``.
        special_token_ids: the tokenizer's special tokens, the unknown token left out.

    Example:
        >>> from hgclr.config import PRESETS
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
    text_column: str | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)  # type: ignore[no-untyped-call]
        if self.architectures:  # up to version 0.1 a model was FlatModel, HGCLRModel and so on
            self.architectures = [
                name.removesuffix("Model") + "ForSequenceClassification" if name.endswith("Model") else name
                for name in self.architectures
            ]

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
