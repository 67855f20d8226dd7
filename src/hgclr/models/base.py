"""Base of all models: the configuration, a text encoder and a linear head."""

# No "from __future__ import annotations": transformers reads the configuration's class from an annotation, and strict
# dataclasses do not check types that are strings.

import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import torch
import torch.nn.functional as F
from huggingface_hub.dataclasses import strict
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.configuration_utils import SubConfigSpec
from transformers.utils.generic import ModelOutput

from hgclr.config import HGCLRSettings
from hgclr.encoders import encoder_load_error, encoder_pooling
from hgclr.errors import InputError, refuse_broken
from hgclr.files import atomic_folder
from hgclr.models.pretrained import load_encoder_config, load_from_encoder, new_encoder, position_count, without_pooler
from hgclr.nn.fast import in_length_groups
from hgclr.nn.gathering import world_size
from hgclr.nn.objective import classification_loss, recursive_regularisation
from hgclr.taxonomy import Taxonomy
from hgclr.taxonomy.changes import TreeChanges

if TYPE_CHECKING:
    import datasets


@strict
class HGCLRConfig(HGCLRSettings, PreTrainedConfig):
    """The configuration of a flat or HGCLR model: typed and checked settings, saved with the model.

    Args:
        encoder_config: configuration of the text encoder, of any kind that ``AutoModel`` knows.
        label_parents: index of each label's main parent, -1 for a top label; ids are in ``id2label``.
        label_names: each label's name, for people and for the name embedding; names may repeat.
        label_descriptions: each label's description, or "", for label documents; None if no label has one.
        label_alternatives, label_codes, label_more_parents: the other fields of the label tree; None if no label has
            one.
        label_name_length: tokens in the longest label name, the width of the stored name tokens.
        special_token_ids: the tokenizer's special tokens without the unknown token.
        text_column: name of the text column of the imported table; ``hgclr predict`` reads it in tables without a
            column ``text``.

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
    label_descriptions: list[str] | None = None
    label_alternatives: list[list[str]] | None = None
    label_codes: list[str] | None = None
    label_more_parents: list[list[int]] | None = None
    label_name_length: int = 0
    special_token_ids: list[int] | None = None
    text_column: str | None = None

    @property
    def text_encoder(self) -> Any:
        return self.encoder_config

    @property
    def label_count(self) -> int:
        return len(self.id2label or {})

    @property
    def taxonomy(self) -> Taxonomy:
        if self.id2label is None or self.label_parents is None:
            raise InputError("the configuration has no label tree", remedy="call set_taxonomy")
        by_index = {int(index): label for index, label in self.id2label.items()}
        ids = [by_index[index] for index in range(len(by_index))]
        return Taxonomy(
            ids,
            self.label_parents,
            self.label_names,
            self.label_descriptions,
            alternatives=self.label_alternatives,
            codes=self.label_codes,
            more_parents=self.label_more_parents,
        )

    def set_taxonomy(self, taxonomy: Taxonomy) -> None:
        """Store the label tree: ids in ``id2label``, the other fields beside them."""
        self.id2label = dict(enumerate(taxonomy.ids))
        self.label2id = {label: index for index, label in enumerate(taxonomy.ids)}
        self.label_parents = [int(parent) for parent in taxonomy.parents]
        self.label_names = list(taxonomy.names)
        self.label_descriptions = list(taxonomy.descriptions) if any(taxonomy.descriptions) else None
        self.label_alternatives = [*map(list, taxonomy.alternatives)] if any(taxonomy.alternatives) else None
        self.label_codes = list(taxonomy.codes) if any(taxonomy.codes) else None
        self.label_more_parents = None if taxonomy.is_tree else [*map(list, taxonomy.more_parents)]


class LabelRows:
    """Compute the rows and columns of new labels from those of old labels; the trees share at least one label.

    With S(n) the old labels that became n, and T(o) the new labels that o became:

    - :meth:`rows`, for parameters of the label itself: ``new_n = mean of old_o over S(n)``; if S(n) is empty, the
      parent's row, and for a top label the mean of all top labels with a source;
    - :meth:`columns`, for parameters in a sum over labels: ``new_n = Σ old_o / |T(o)| over S(n)``, 0 if S(n) is empty.
      So new labels change no sum, and the parts of a split label add up to the old one.

    A label in both trees keeps its values bit by bit.
    """

    def __init__(self, changes: TreeChanges) -> None:
        self.changes = changes
        pairs = [(old, new) for new, came in enumerate(changes.sources) for old in came]
        self._old, self._new = (torch.tensor(column) for column in zip(*pairs, strict=True))
        self._share = 1 / torch.tensor([float(len(changes.sources[new])) for _, new in pairs])
        self._part = 1 / torch.tensor([float(len(changes.targets[old])) for old, _ in pairs])
        self._parents = torch.from_numpy(changes.new.parents.copy())
        added = np.zeros(len(changes.new), dtype=bool)
        added[list(changes.added)] = True
        self._fresh = [torch.from_numpy(level[added[level]]) for level in changes.new.levels]
        known_top = changes.new.levels[0][~added[changes.new.levels[0]]]
        self._typical = torch.from_numpy(known_top if len(known_top) else np.flatnonzero(~added))

    def rows(self, old: Tensor) -> Tensor:
        """Return rows of the new labels, (K', …), from rows of the old ones, (K, …)."""
        new = self._sum(old, self._share)
        top, *below = self._fresh
        new[top] = new[self._typical].mean(0)
        for level in below:  # the row of a new parent is already set
            new[level] = new[self._parents[level]]
        return new

    def columns(self, old: Tensor) -> Tensor:
        """Return columns of the new labels, (K', …), from columns of the old ones, (K, …)."""
        return self._sum(old, self._part)

    def row_blocks(self, old: Tensor) -> Tensor:
        """Return :meth:`rows` if each label has d of them, (K' d, …) from (K d, …)."""
        return self.rows(old.unflatten(0, (len(self.changes.old), -1))).flatten(0, 1)

    def column_blocks(self, old: Tensor) -> Tensor:
        """Return :meth:`columns` if each label has d columns of a matrix, (n, K' d) from (n, K d)."""
        blocks = old.unflatten(1, (len(self.changes.old), -1)).transpose(0, 1)
        return self.columns(blocks).transpose(0, 1).flatten(1)

    def tokens(self, old: Tensor, names: Tensor) -> Tensor:
        """Return the name tokens of the new labels, (K', T), from those of the old labels and of the new names.

        A label with an unchanged name keeps its tokens: in imported checkpoints they may differ from the tokenizer's.
        """
        width = max(old.shape[1], names.shape[1])
        old, tokens = (F.pad(part, (0, width - part.shape[1]), value=-1) for part in (old, names))
        for new, came in enumerate(self.changes.sources):
            if len(came) == 1 and self.changes.old.names[came[0]] == self.changes.new.names[new]:
                tokens[new] = old[came[0]]
        return tokens

    def _sum(self, old: Tensor, weights: Tensor) -> Tensor:
        weighted = old[self._old] * weights.to(old.dtype).view(-1, *[1] * (old.dim() - 1))
        return old.new_zeros(len(self.changes.new), *old.shape[1:]).index_add_(0, self._new, weighted)


class LabelSized:
    """A module that has parameters or buffers with an entry for each label."""

    def label_entries(self, rows: LabelRows) -> dict[str, Tensor]:
        """Return these entries by name, for the new label tree."""
        raise NotImplementedError


@dataclass
class HierarchicalOutput(ModelOutput):
    """Output of every model: logits (B, K); with labels the loss, and its terms by name, for the log."""

    loss: Tensor | None = None
    logits: Tensor | None = None
    terms: dict[str, Tensor] | None = None


class HierarchicalPreTrainedModel(PreTrainedModel):
    """A text encoder, layers of the architecture, and a linear head.

    An architecture is a subclass, named in :mod:`hgclr.models` or by an extension (:mod:`hgclr.registry`). It adds its
    layers, the last of them a linear layer ``classifier`` with K outputs, calls ``post_init`` and implements
    ``forward(input_ids, attention_mask, labels=None)``. If it has more settings, its ``config_class`` is a subclass of
    ``HGCLRConfig`` with them. It may override:

    - ``deployed_class`` and ``training_parts``, if it has layers for training only;
    - :meth:`prepare`, if it needs the training set before the first step;
    - :meth:`label_entries`, :meth:`changed_config`, :meth:`start_labels`, for a changed label tree.
    """

    config: HGCLRConfig
    base_model_prefix = "encoder"
    supports_gradient_checkpointing = True
    accepts_loss_kwargs = False  # with True, Trainer would not divide the loss under gradient accumulation
    _supports_sdpa = True

    deployed_class: ClassVar[type[Any] | None] = None
    """The class with the same logits but without the layers for training; None: this class."""
    training_parts: ClassVar[tuple[str, ...]] = ()
    """Names of the layers and buffers for training; ``deployed_class`` loads without them and without a warning."""
    head_rate: ClassVar[float] = 10.0
    """Default learning rate of the layers on top of the encoder, as a multiple of the encoder's."""
    length_groups = False
    """Train batches in groups of similar length, which is faster on a CPU."""
    classifier: nn.Linear

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)  # type: ignore[no-untyped-call]
        if cls.deployed_class is not None and cls.training_parts:
            known = cls.deployed_class._keys_to_ignore_on_load_unexpected or []
            parts = rf"^({'|'.join(cls.training_parts)})\b"
            cls.deployed_class._keys_to_ignore_on_load_unexpected = [*known, parts]

    def __init__(self, config: HGCLRConfig) -> None:
        super().__init__(config)
        if config.pooling == "auto":
            raise InputError("pooling: auto is only for new models", remedy="set pooling to cls, mean or max")
        self.encoder: Any = new_encoder(config.text_encoder)
        self.dropout = nn.Dropout(config.classifier_dropout)

    @classmethod
    def from_encoder(
        cls, encoder: str | PreTrainedConfig, taxonomy: Taxonomy, tokenizer: PreTrainedTokenizerBase, **settings: Any
    ) -> Self:
        """Return a new model on a pretrained encoder, or on an encoder with random weights.

        Args:
            encoder: a name from the catalogue, a folder, or a hub name; or the configuration of a new encoder.
            taxonomy: the label tree.
            tokenizer: the encoder's tokenizer; the configuration stores its special tokens.
            settings: fields of :class:`~hgclr.models.HGCLRConfig`.

        Raises:
            InputError: if the encoder cannot be loaded or does not fit the settings.
        """
        if isinstance(encoder, PreTrainedConfig):
            return cls.from_encoder_config(encoder, taxonomy, tokenizer, **settings)
        encoder_config = load_encoder_config(encoder)
        pretrained = load_from_encoder(AutoModel, encoder, **without_pooler(encoder_config))
        if settings.get("pooling", "auto") == "auto":
            settings["pooling"] = encoder_pooling(encoder)
        with refuse_broken(lambda error: encoder_load_error(encoder, error)):  # a bad configuration
            model = cls.from_encoder_config(encoder_config, taxonomy, tokenizer, **settings)
        model.encoder = pretrained
        return model

    @classmethod
    def from_encoder_config(
        cls, encoder_config: PreTrainedConfig, taxonomy: Taxonomy, tokenizer: PreTrainedTokenizerBase, **settings: Any
    ) -> Self:
        """Return a model with random weights, the encoder's included; ``pooling: auto`` becomes ``cls``."""
        if settings.get("pooling") == "auto":
            settings["pooling"] = "cls"
        config_class: Any = cls.config_class
        config: HGCLRConfig = config_class(encoder_config=encoder_config, **settings)
        config.set_taxonomy(taxonomy)
        config.problem_type = "multi_label_classification"
        config.special_token_ids = sorted(set(tokenizer.all_special_ids) - {tokenizer.unk_token_id})
        model = cls(config)
        model.config.max_length = min(config.max_length, position_count(model.encoder))
        return model

    def prepare(self, documents: "datasets.Dataset") -> None:
        """Prepare for training on documents with the columns ``input_ids`` and ``labels``; most models need nothing."""

    def set_base_rates(self, rates: Tensor) -> None:
        """Start the head's bias at the labels' log odds in the training set, (K,)."""
        with torch.no_grad():
            self.classifier.bias.copy_(torch.logit(rates))

    def hidden(self, attention_mask: Tensor, **inputs: Tensor) -> Tensor:
        """Return the vector of each token, (B, L, H), from ``input_ids`` or ``inputs_embeds``; undefined on padding."""
        states: Tensor = self.encoder(attention_mask=attention_mask, **inputs).last_hidden_state
        return states

    def pool(self, hidden: Tensor, attention_mask: Tensor) -> Tensor:
        """Return the vector of each text, (B, H), from the vectors of its tokens, (B, L, H).

        The mean and the maximum of a text without tokens are 0.
        """
        if self.config.pooling == "cls":
            return hidden[:, 0]
        real = attention_mask.unsqueeze(-1)  # (B, L, 1)
        if self.config.pooling == "max":
            largest = hidden.masked_fill(real == 0, torch.finfo(hidden.dtype).min).amax(1)
            return largest.masked_fill(real.sum(1) == 0, 0.0)
        return token_mean(hidden, attention_mask)

    def encode(self, attention_mask: Tensor, **inputs: Tensor) -> Tensor:
        """Return text vectors h, (B, H), with dropout, from ``input_ids`` (B, L) or ``inputs_embeds`` (B, L, H)."""

        def compute(mask: Tensor, **inputs: Tensor) -> Tensor:
            return self.pool(self.hidden(mask, **inputs), mask)

        grouped = self.length_groups and self.training
        vectors = in_length_groups(compute, attention_mask, **inputs) if grouped else compute(attention_mask, **inputs)
        dropped: Tensor = self.dropout(vectors)
        return dropped

    @property
    def regularisation(self) -> float:
        """Weight of recursive regularisation relative to a mean cross-entropy."""
        return 0.0

    def classification(self, logits: Tensor, labels: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return binary cross-entropy plus recursive regularisation of the classifier, and both by name.

        The weight of the regularisation is for a mean over documents and labels, and scaled for other reductions.
        """
        loss = classification_loss(logits, labels, self.config.classification_loss)
        terms = {"loss_original": loss.detach()}
        if self.regularisation:
            parents = torch.tensor(self.config.label_parents, device=logits.device)
            distance = recursive_regularisation(self.classifier.weight, parents)
            added = self.regularisation * self.beside_mean(logits) * distance
            loss = loss + added
            terms["loss_recursive"] = added.detach()
        return loss, terms

    def beside_mean(self, logits: Tensor) -> int:
        """Return the ratio of the configured cross-entropy of (B, K) logits to its mean over documents and labels."""
        times = {"mean": 1, "document": logits.shape[1], "sum": logits.numel() * world_size()}
        return times[self.config.classification_loss]

    def deployed(self) -> "HierarchicalPreTrainedModel":
        """Return the model to deploy: the same layers (shared, not copied) without those for training only."""
        with torch.device("meta"):
            model: HierarchicalPreTrainedModel = (self.deployed_class or type(self))(self.config)
        for name, _ in list(model.named_children()):
            setattr(model, name, getattr(self, name))
        model.train(self.training)
        return model

    def label_entries(self, rows: LabelRows, names: Tensor) -> dict[str, Tensor]:  # noqa: ARG002
        """Return all parameters and buffers that depend on the labels, by name, for another label tree.

        ``rows`` computes entries of new labels from those of old ones; ``names`` are the tokens of the new labels'
        names, (K', T), padded with -1. ``LabelSized`` modules return their entries.
        """
        entries = {f"classifier.{name}": rows.rows(value) for name, value in self.classifier.named_parameters()}
        for place, module in self.named_modules():
            if isinstance(module, LabelSized):
                entries |= {f"{place}.{name}": value for name, value in module.label_entries(rows).items()}
        return entries

    def changed_config(self, taxonomy: Taxonomy, names: Tensor) -> Any:  # noqa: ARG002
        """Return the configuration for another label tree with the tokens of its labels' names, (K', T)."""
        config = copy.deepcopy(self.config)
        config.set_taxonomy(taxonomy)
        return config

    def start_labels(self, changes: TreeChanges, tokenizer: PreTrainedTokenizerBase, rates: Tensor) -> None:
        """Change the entries of new labels, which :meth:`label_entries` has set, before training.

        ``rates`` are the labels' shares of the training documents, (K,).
        """


def token_mean(tokens: Tensor, attention_mask: Tensor) -> Tensor:
    """Return the mean over each text's real tokens, (B, d), of vectors (B, L, d)."""
    real = attention_mask.unsqueeze(-1).to(tokens.dtype)  # (B, L, 1)
    return (tokens * real).sum(1) / real.sum(1).clamp(min=1)


def load_tokenizer(encoder: str) -> PreTrainedTokenizerBase:
    """Load the encoder's tokenizer, set up for our models: padding on the right, and only ids and mask as inputs."""
    # As arguments of from_pretrained they are saved with the tokenizer; attributes set later are not.
    ours: dict[str, Any] = {"padding_side": "right", "model_input_names": ["input_ids", "attention_mask"]}
    tokenizer: PreTrainedTokenizerBase = load_from_encoder(AutoTokenizer, encoder, **ours)
    return tokenizer


def save(
    model: HierarchicalPreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    target: Path,
    write_more: Callable[[Path], None] | None = None,
) -> None:
    """Write model, tokenizer and the files of ``write_more`` to ``target`` atomically, without pickles."""
    with atomic_folder(target) as folder:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        if write_more is not None:
            write_more(folder)
