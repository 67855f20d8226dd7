"""Turn a checkpoint of the published program into a model of ours, for prediction and for training on."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from torch import Tensor
from transformers import AutoConfig, PreTrainedConfig, PreTrainedTokenizerBase

from hgclr.config import method_settings
from hgclr.encoders import encoder_load_error, resolve_encoder
from hgclr.errors import InputError
from hgclr.export.published_files import Checkpoint, check_same_labels, read_checkpoint, read_labels
from hgclr.files import atomic_folder
from hgclr.models import HGCLRForSequenceClassification
from hgclr.models.base import load_tokenizer, save
from hgclr.taxonomy import Taxonomy

__all__ = ["import_published", "read_published"]

logger = logging.getLogger(__name__)
TAKEN = {"lamb": "contrastive_weight", "thre": "keep_threshold", "tau": "gumbel_temperature"}  # λ, γ, Gumbel-softmax
"""Arguments of the published program, and our settings that they become."""


def read_settings(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return the ``published`` preset with the checkpoint's own numbers in it.

    ``contrast`` 0 left the contrastive loss out but the second pass in, which is λ = 0. What the checkpoint does not
    say is taken from the preset, with a warning.

    Raises:
        InputError: if the checkpoint was trained in a form that we have no counterpart for, or a number is none.
    """
    arguments = vars(checkpoint.arguments)
    absent = [name for name in (*TAKEN, "contrast", "graph", "layer") if name not in arguments]
    if absent:
        logger.warning("%s does not say %s: taken from the published preset", checkpoint.path, ", ".join(absent))
    _refuse_other_forms(checkpoint, arguments)
    overrides = {}
    for name, setting in TAKEN.items():
        if name in arguments:
            value = arguments[name]
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise InputError(f"the argument {name} is {value!r}, not a number", path=checkpoint.path)
            overrides[setting] = float(value)
    if not arguments.get("contrast", True):
        overrides["contrastive_weight"] = 0.0
    try:
        return method_settings("published", overrides)
    except InputError as error:
        raise InputError(error.what, path=checkpoint.path, remedy=error.remedy) from None


def _refuse_other_forms(checkpoint: Checkpoint, arguments: dict[str, Any]) -> None:
    attention = "graph_encoder.hir_layers.0.hir_attn."
    others = (
        (not arguments.get("graph", True), "without the label tree (graph 0)"),
        (arguments.get("layer", 1) != 1, f"with {arguments.get('layer')} layers in the label encoder"),
        (not arguments.get("multi", True), "for one label per text (multi off)"),
        (
            any(name.startswith(attention) for name in checkpoint.weights)
            and not any(name.startswith(f"{attention}self.") for name in checkpoint.weights),
            "with a GCN or GAT as label encoder",
        ),
    )
    for found, form in others:
        if found:
            raise InputError(
                f"the checkpoint was trained {form}, which cannot be imported",
                path=checkpoint.path,
                remedy="give one with the published defaults: one Graphormer layer on the label tree, multi-label",
            )


_LAYER = "graph_encoder.hir_layers.0"
_NAMES = {  # ours: published; whatever follows is called the same
    "encoder.": "bert.",
    "classifier.": "classifier.",
    "projection.": "contrastive_lossfct.transform.",
    "label_encoder.label_embedding.": "graph_encoder.id_embedding.",
    "label_encoder.structure.spatial": "graph_encoder.distance_embedding.weight",
    "label_encoder.structure.edge": "graph_encoder.edge_embedding.weight",
    "label_encoder.layers.0.query.": f"{_LAYER}.hir_attn.self.q_proj.",
    "label_encoder.layers.0.key.": f"{_LAYER}.hir_attn.self.k_proj.",
    "label_encoder.layers.0.value.": f"{_LAYER}.hir_attn.self.v_proj.",
    "label_encoder.layers.0.output.": f"{_LAYER}.hir_attn.self.out_proj.",
    "label_encoder.layers.0.norm.": f"{_LAYER}.hir_attn.layer_norm.",
    "token_label_attention.query.": f"{_LAYER}.cross_attn.q_proj.",
    "token_label_attention.key.": f"{_LAYER}.cross_attn.k_proj.",
}
_UNUSED = (  # in a published checkpoint, but without effect on its results
    "token_classifier.*",
    f"{_LAYER}.cross_attn.v_proj.*",
    f"{_LAYER}.cross_attn.out_proj.*",
    f"{_LAYER}.cross_layer_norm.*",
    f"{_LAYER}.classifier.*",
    f"{_LAYER}.output_layer.*",
    f"{_LAYER}.output_layer_norm.*",
    "bert.embeddings.position_ids",  # 0, 1, 2, …, which BERT of that time saved
    "graph_encoder.label_name",  # from here on, the label tree in several forms
    "graph_encoder.label_id",
    "graph_encoder.edge_mat",
    "graph_encoder.distance_mat",
    "graph_encoder.edge_list",
)
_REMEDY = "--encoder and --data-path must be those it was trained with"


def convert(published: Mapping[str, Tensor], ours: Mapping[str, Tensor], taxonomy: Taxonomy) -> dict[str, Tensor]:
    """Return the published weights under our names and in our shapes.

    Args:
        published: weights by their published names.
        ours: weights of a model of ours for the same encoder and tree, for names and shapes.
        taxonomy: the label tree.

    Raises:
        InputError: if a weight is missing, unknown, or of another shape.
    """
    wanted = {name: _published_name(name) for name in ours}
    missing = [name for name in wanted.values() if name not in published]
    if missing:
        raise InputError(f"the checkpoint has no weight {_listed(missing)}", remedy=_REMEDY)
    known = set(wanted.values())
    unknown = [name for name in published if name not in known and not any(fnmatchcase(name, form) for form in _UNUSED)]
    if unknown:
        raise InputError(f"the checkpoint has the unknown weight {_listed(unknown)}", remedy=_REMEDY)
    return {name: _take(name, published[wanted[name]], weight, taxonomy) for name, weight in ours.items()}


def edge_padding(published: Mapping[str, Tensor]) -> float:
    """Return the edge weight that stands for "no edge"; anything but 0 spoilt the published diagonal."""
    return float(published["graph_encoder.edge_embedding.weight"][0, 0])


def _published_name(name: str) -> str:
    prefix = next(prefix for prefix in _NAMES if name.startswith(prefix))
    return _NAMES[prefix] + name.removeprefix(prefix)


def _take(name: str, published: Tensor, ours: Tensor, taxonomy: Taxonomy) -> Tensor:
    """Return one weight in our shape, after a check of the published one."""
    expected = tuple(ours.shape)
    rows: slice | tuple[slice, int] = slice(None)
    if name == "label_encoder.label_embedding.weight":
        expected = (expected[0] + 1, expected[1])
        rows = slice(-1)
    elif name == "label_encoder.structure.edge":
        expected = (expected[0] + 1, 1)
        rows = (slice(1, None), 0)
    elif name == "label_encoder.structure.spatial":
        if published.dim() == 2 and len(published) < len(ours):
            raise InputError(
                f"a tree of depth {taxonomy.depth} can have distances up to {len(ours) - 1},"
                f" but the checkpoint knows only those below {len(published)}",
                remedy=f"trees up to depth {(len(published) - 1) // 2} can be imported",
            )
        expected = (len(published), 1)
        rows = (slice(len(ours)), 0)
    if tuple(published.shape) != expected:
        raise InputError(
            f"{_published_name(name)} has the shape {tuple(published.shape)} in the checkpoint;"
            f" encoder and label tree ask for {expected}",
            remedy=_REMEDY,
        )
    return published[rows]


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


@dataclass(frozen=True)
class ImportedModel:
    """What an import leaves behind: two folders, the label tree, and the settings of the checkpoint."""

    model: Path
    training_model: Path
    taxonomy: Taxonomy
    settings: dict[str, float]


def import_published(checkpoint: Path, data_path: Path, encoder: str, output: Path) -> ImportedModel:
    """Write a published checkpoint as ``model`` (for prediction) and ``training-model`` (for training on).

    Args:
        checkpoint: ``checkpoint_best_macro.pt`` or ``checkpoint_best_micro.pt`` of the published program.
        data_path: its data folder, with ``bert_value_dict.pt`` and ``slot.pt``.
        encoder: the BERT it was trained on, for configuration and tokenizer; the weights are the checkpoint's.
        output: a new or empty folder, which is written whole or not at all.

    Raises:
        InputError: if the files are not of this form, do not belong together, or ask for code; if the checkpoint was
            trained in a form that we have no counterpart for; if ``output`` is in use.
    """
    if any(output.iterdir()) if output.is_dir() else output.exists():
        raise InputError("the output is there already", path=output, remedy="give a new or empty folder")
    model, tokenizer = read_published(checkpoint, data_path, encoder)
    try:
        with atomic_folder(output) as folder:
            save(model.deployed(), tokenizer, folder / "model")
            save(model, tokenizer, folder / "training-model")
    except OSError as error:
        raise InputError(f"the model cannot be written: {error.strerror or error}", path=output) from error
    settings = {name: getattr(model.config, name) for name in TAKEN.values()}
    return ImportedModel(output / "model", output / "training-model", model.config.taxonomy, settings)


def read_published(
    checkpoint: Path, data_path: Path, encoder: str
) -> tuple[HGCLRForSequenceClassification, PreTrainedTokenizerBase]:
    """Return the model of a published checkpoint, under the ``published`` preset, and its tokenizer.

    Its logits are those of the published program, and so are its loss terms given the same noise. Where that program
    itself went wrong, by a spoilt diagonal (:mod:`hgclr.export.published.weights`) or by wrong distances
    (:func:`~hgclr.export.published.labels.check_same_labels`), ours are the right ones, with a warning.

    Arguments and errors are those of :func:`import_published`.
    """
    content = read_checkpoint(checkpoint)
    settings = read_settings(content)
    encoder_config, tokenizer = _load_encoder(encoder)
    taxonomy, name_tokens = read_labels(data_path, tokenizer, encoder_config.max_position_embeddings)
    model = HGCLRForSequenceClassification.from_encoder_config(
        encoder_config, taxonomy, tokenizer, label_name_length=name_tokens.shape[1], **settings
    )
    try:
        weights = convert(content.weights, dict(model.named_parameters()), taxonomy)
    except InputError as error:
        raise InputError(error.what, path=checkpoint, remedy=error.remedy) from None
    check_same_labels(content.weights, taxonomy, name_tokens, tokenizer, data_path)
    if edge_padding(content.weights) != 0:
        logger.warning(
            "%s was trained with a wrong diagonal in the label attention (a padding row was not 0);"
            " predictions stay the same, the loss in training is computed with the right diagonal",
            checkpoint,
        )
    model.load_state_dict({**weights, "name_tokens": name_tokens})
    return model.eval(), tokenizer


def _load_encoder(name: str) -> tuple[PreTrainedConfig, PreTrainedTokenizerBase]:
    """Return configuration and tokenizer of a BERT."""
    try:
        config: PreTrainedConfig = AutoConfig.from_pretrained(resolve_encoder(name))
    except (OSError, ValueError) as error:
        raise encoder_load_error(name, error) from error
    tokenizer = load_tokenizer(name)
    if config.model_type != "bert" or tokenizer.cls_token_id is None or tokenizer.sep_token_id is None:
        raise InputError(
            f"{name} is a {config.model_type} encoder; the published program uses BERT with [CLS] and [SEP]",
            remedy="give the encoder that the checkpoint was trained with, such as bert-base-uncased",
        )
    return config, tokenizer
