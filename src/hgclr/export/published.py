"""Turn a checkpoint of the published program into a model of ours, for prediction and for training on."""

from __future__ import annotations

import logging
import math
from collections.abc import Container, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from hgclr.config import method_settings
from hgclr.errors import InputError
from hgclr.export.check import new_folder, refuse_used
from hgclr.export.published_files import check_same_labels, read_checkpoint, read_labels
from hgclr.models import HGCLRForSequenceClassification
from hgclr.models.base import load_encoder_config, load_tokenizer, save
from hgclr.taxonomy import Taxonomy

__all__ = ["import_published", "read_published"]

logger = logging.getLogger(__name__)
SETTING_NAMES = {
    "lamb": "contrastive_weight",
    "thre": "keep_threshold",
    "tau": "gumbel_temperature",
}  # λ, γ, Gumbel-softmax
"""Arguments of the published program, and our settings that they become."""
LAYERS = "graph_encoder.hir_layers"
WEIGHT_NAMES = {  # ours: published; whatever follows is called the same
    "encoder.": "bert.",
    "classifier.": "classifier.",
    "projection.": "contrastive_lossfct.transform.",
    "label_encoder.label_embedding.": "graph_encoder.id_embedding.",
    "label_encoder.structure.spatial": "graph_encoder.distance_embedding.weight",
    "label_encoder.structure.edge": "graph_encoder.edge_embedding.weight",
}
LAYER_NAMES = {  # the same within each layer
    "query.": "hir_attn.self.q_proj.",
    "key.": "hir_attn.self.k_proj.",
    "value.": "hir_attn.self.v_proj.",
    "output.": "hir_attn.self.out_proj.",
    "norm.": "hir_attn.layer_norm.",
    "feed_forward.": "output_layer.",
    "feed_forward_norm.": "output_layer_norm.",
}
CONVOLUTION_NAMES = {  # the same in a GCN or GAT, by the version of torch_geometric; before 2.0 a GCN is transposed
    "lin.weight": ("lin.weight", "lin_src.weight", "lin_l.weight", "weight"),
    "att_src": ("att_src", "att_l"),
    "att_dst": ("att_dst", "att_r"),
    "bias": ("bias",),
}
UNUSED = (  # in a published checkpoint, but without effect on its results
    "token_classifier.*",
    f"{LAYERS}.*.hir_attn.lin_r.weight",  # the same tensor as lin_l or lin_src
    f"{LAYERS}.*.hir_attn.lin_dst.weight",
    f"{LAYERS}.*.cross_attn.v_proj.*",
    f"{LAYERS}.*.cross_attn.out_proj.*",
    f"{LAYERS}.*.cross_layer_norm.*",
    f"{LAYERS}.*.classifier.*",
    f"{LAYERS}.*.output_layer.*",  # but for those in LAYER_NAMES
    f"{LAYERS}.*.output_layer_norm.*",
    "bert.embeddings.position_ids",  # 0, 1, 2, …, which BERT of that time saved
    "graph_encoder.label_name",  # from here on, the label tree in several forms
    "graph_encoder.label_id",
    "graph_encoder.edge_mat",
    "graph_encoder.distance_mat",
    "graph_encoder.edge_list",
)
REMEDY = "--encoder and --data-path must be those it was trained with"


@dataclass(frozen=True)
class ImportedModel:
    """What an import leaves behind: two folders, the label tree, and the settings of the checkpoint."""

    model: Path
    training_model: Path
    taxonomy: Taxonomy
    settings: dict[str, float | str]


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
    refuse_used(output)
    model, tokenizer = read_published(checkpoint, data_path, encoder)
    with new_folder(output) as folder:
        save(model.deployed(), tokenizer, folder / "model")
        save(model, tokenizer, folder / "training-model")
    settings = {name: getattr(model.config, name) for name in (*SETTING_NAMES.values(), "edge_padding")}
    return ImportedModel(output / "model", output / "training-model", model.config.taxonomy, settings)


def read_published(
    checkpoint: Path, data_path: Path, encoder: str
) -> tuple[HGCLRForSequenceClassification, PreTrainedTokenizerBase]:
    """Return the model of a published checkpoint, under the ``published`` preset, and its tokenizer.

    Its logits are those of the published program, and so are its loss terms given the same noise. A padding row of the
    edge table that is not 0 is kept, as ``edge_padding: drawn``. Where that program took wrong distances
    (:func:`~hgclr.export.published_files.check_same_labels`), ours are the right ones. Both give a warning.

    Arguments and errors are those of :func:`import_published`.
    """
    published, arguments = read_checkpoint(checkpoint)
    settings = _settings(arguments, published, checkpoint)
    encoder_config, tokenizer = _load_encoder(encoder)
    taxonomy, name_tokens = read_labels(data_path, tokenizer, encoder_config.max_position_embeddings)
    model = HGCLRForSequenceClassification.from_encoder_config(
        encoder_config, taxonomy, tokenizer, label_name_length=name_tokens.shape[1], **settings
    )
    try:
        weights = _convert(published, dict(model.named_parameters()), taxonomy, model.config.label_layers)
    except InputError as error:
        raise InputError(error.what, path=checkpoint, remedy=error.remedy) from None
    check_same_labels(published, taxonomy, name_tokens, tokenizer, data_path)
    if padding := _edge_padding(published):
        weights["label_encoder.structure.padding"] = torch.tensor(padding)
    model.load_state_dict({**weights, "name_tokens": name_tokens})
    if effect := model.padding_effect():
        logger.warning("%s: %s; with edge_padding: zero it trains on as the paper means it", checkpoint, effect)
    return model.eval(), tokenizer


def _load_encoder(name: str) -> tuple[PreTrainedConfig, PreTrainedTokenizerBase]:
    config, tokenizer = load_encoder_config(name), load_tokenizer(name)
    if config.model_type != "bert" or tokenizer.cls_token_id is None or tokenizer.sep_token_id is None:
        raise InputError(
            f"{name} is a {config.model_type} encoder; the published program uses BERT with [CLS] and [SEP]",
            remedy="give the encoder that the checkpoint was trained with, such as bert-base-uncased",
        )
    return config, tokenizer


def _settings(arguments: Mapping[str, Any], weights: Mapping[str, Tensor], path: Path) -> dict[str, Any]:
    """Return the ``published`` preset with the checkpoint's own numbers in it.

    ``contrast`` 0 left the contrastive loss out but the second pass in, which is λ = 0. What the checkpoint does not
    say is taken from the preset, with a warning.
    """
    absent = [name for name in (*SETTING_NAMES, "contrast", "graph", "layer") if name not in arguments]
    if absent:
        logger.warning("%s does not say %s: taken from the published preset", path, ", ".join(absent))
    overrides = _label_encoder(arguments, weights, path)
    overrides["edge_padding"] = "drawn" if _edge_padding(weights) else "zero"
    for name, setting in SETTING_NAMES.items():
        if name in arguments:
            value = arguments[name]
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise InputError(f"the argument {name} is {value!r}, not a number", path=path)
            overrides[setting] = float(value)
    if not arguments.get("contrast", True):
        overrides["contrastive_weight"] = 0.0
    try:
        return method_settings("published", overrides)
    except InputError as error:
        raise InputError(error.what, path=path, remedy=error.remedy) from None


def _edge_padding(weights: Mapping[str, Tensor]) -> float:
    """Return what stands for "no edge": row 0 of the edge table, which is never trained; 0 without such a table."""
    edges = weights.get("graph_encoder.edge_embedding.weight")
    return float(edges.flatten()[0]) if edges is not None and edges.numel() else 0.0


def _label_encoder(arguments: Mapping[str, Any], weights: Mapping[str, Tensor], path: Path) -> dict[str, Any]:
    """Return the settings of the label encoder: a constant of the program says which, and the weights show it."""
    first = f"{LAYERS}.0.hir_attn."
    parts = [name.removeprefix(first) for name in weights if name.startswith(first)]
    kind = "graphormer"
    if parts and not any(part.startswith("self.") for part in parts):
        kind = "gat" if any(part.startswith("att_") for part in parts) else "gcn"
    graph, layers = bool(arguments.get("graph", True)), arguments.get("layer", 1)
    if type(layers) is not int or layers < 1:
        raise InputError(f"the argument layer is {layers!r}, not a number of layers", path=path)
    form = ""
    if not arguments.get("multi", True):
        form = "for one label per text (multi off)"
    elif kind != "graphormer" and (layers > 1 or not graph):
        form = f"with {layers} layers of {kind.upper()}" if layers > 1 else f"with a {kind.upper()} and graph 0"
    if form:
        raise InputError(
            f"the checkpoint was trained {form}, which cannot be imported",
            path=path,
            remedy="give a multi-label one, with Graphormer layers or one layer of GCN or GAT on the label tree",
        )
    if kind != "graphormer":
        return {"label_encoder": kind, "label_embedding": False}
    structure = dict.fromkeys(("label_embedding", "spatial_encoding", "edge_encoding"), graph)
    return {"label_layers": layers, **structure}


def _convert(
    published: Mapping[str, Tensor], ours: Mapping[str, Tensor], taxonomy: Taxonomy, layers: int
) -> dict[str, Tensor]:
    """Return the published weights under the names and in the shapes of a model of ours."""
    wanted = {name: published_name(name, published, layers) for name in ours}
    missing = [name for name in wanted.values() if name not in published]
    if missing:
        raise InputError(f"the checkpoint has no weight {_listed(missing)}", remedy=REMEDY)
    known = set(wanted.values())
    unknown = [name for name in published if name not in known and not any(fnmatchcase(name, form) for form in UNUSED)]
    if unknown:
        raise InputError(f"the checkpoint has the unknown weight {_listed(unknown)}", remedy=REMEDY)
    return {name: _take(name, wanted[name], published[wanted[name]], weight, taxonomy) for name, weight in ours.items()}


def published_name(name: str, published: Container[str], layers: int = 1) -> str:
    """Return what a parameter of ours is called in a checkpoint with these names and so many layers."""
    if name.startswith("token_label_attention."):
        part, kind = name.split(".")[1:]
        return f"{LAYERS}.{layers - 1}.cross_attn.{part[0]}_proj.{kind}"  # query or key
    if name.startswith("label_encoder.convolution."):
        forms = CONVOLUTION_NAMES[name.removeprefix("label_encoder.convolution.")]
        names = [f"{LAYERS}.0.hir_attn.{form}" for form in forms]
        return next((found for found in names if found in published), names[0])
    if name.startswith("label_encoder.layers."):
        number, part = name.removeprefix("label_encoder.layers.").split(".", 1)
        return f"{LAYERS}.{number}.{_replace_prefix(part, LAYER_NAMES)}"
    return _replace_prefix(name, WEIGHT_NAMES)


def _replace_prefix(name: str, names: Mapping[str, str]) -> str:
    prefix = next(prefix for prefix in names if name.startswith(prefix))
    return names[prefix] + name.removeprefix(prefix)


def _take(name: str, their_name: str, published: Tensor, ours: Tensor, taxonomy: Taxonomy) -> Tensor:
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
            f"{their_name} has the shape {tuple(published.shape)} in the checkpoint;"
            f" encoder and label tree ask for {expected}",
            remedy=REMEDY,
        )
    return published.T if their_name.endswith("hir_attn.weight") else published[rows]


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
