"""Convert a checkpoint of the published program to a model of hgclr, for prediction and further training.

The program's files are read as data; code in them is never run.
"""

from __future__ import annotations

import logging
import math
import re
import zipfile
from argparse import Namespace
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from hgclr.config import method_settings
from hgclr.errors import InputError
from hgclr.export.check import new_folder, refuse_used
from hgclr.files import check_archive
from hgclr.models import HGCLRForSequenceClassification
from hgclr.models.base import load_tokenizer, save
from hgclr.models.pretrained import load_encoder_config
from hgclr.taxonomy import Taxonomy

logger = logging.getLogger(__name__)
SETTING_NAMES = {
    "lamb": "contrastive_weight",
    "thre": "keep_threshold",
    "tau": "gumbel_temperature",
}  # λ, γ, Gumbel-softmax
"""Arguments of the published program, and the corresponding settings of hgclr."""
LAYERS = "graph_encoder.hir_layers"
WEIGHT_NAMES = {  # prefixes, ours: published; the rest of a name is the same
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
UNUSED = (  # in published checkpoints, but without effect on their results
    "token_classifier.*",
    f"{LAYERS}.*.hir_attn.lin_r.weight",  # the same tensor as lin_l or lin_src
    f"{LAYERS}.*.hir_attn.lin_dst.weight",
    f"{LAYERS}.*.cross_attn.v_proj.*",
    f"{LAYERS}.*.cross_attn.out_proj.*",
    f"{LAYERS}.*.cross_layer_norm.*",
    f"{LAYERS}.*.classifier.*",
    f"{LAYERS}.*.output_layer.*",  # except those in LAYER_NAMES
    f"{LAYERS}.*.output_layer_norm.*",
    "bert.embeddings.position_ids",  # saved by earlier versions of BERT
    "graph_encoder.label_name",  # this and the following: the label tree in several forms
    "graph_encoder.label_id",
    "graph_encoder.edge_mat",
    "graph_encoder.distance_mat",
    "graph_encoder.edge_list",
)
REMEDY = "give the --encoder and --data-path that it was trained with"
NAMES_FILE = "bert_value_dict.pt"
TREE_FILE = "slot.pt"


@dataclass(frozen=True)
class ImportedModel:
    """Two model folders, the label tree, and the settings of the checkpoint."""

    model: Path
    training_model: Path
    taxonomy: Taxonomy
    settings: dict[str, float | str]


def import_published(checkpoint: Path, data_path: Path, encoder: str, output: Path) -> ImportedModel:
    """Write a published checkpoint as ``model`` (for prediction) and ``training-model`` (for further training).

    Args:
        checkpoint: ``checkpoint_best_macro.pt`` or ``checkpoint_best_micro.pt`` of the published program.
        data_path: its data folder, with ``bert_value_dict.pt`` and ``slot.pt``.
        encoder: the BERT it was trained on, for configuration and tokenizer; the weights are the checkpoint's.
        output: a new or empty folder, written completely or not at all.

    Raises:
        InputError: if the files are damaged, do not belong together, or ask for code; if hgclr has no counterpart of
            the checkpoint's form; if ``output`` is not empty.
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
    """Return the model of a published checkpoint, with the preset ``published``, and its tokenizer.

    Its logits and, with the same noise, its loss terms equal those of the published program. A padding row of the edge
    table that is not 0 is kept, as ``edge_padding: drawn``. Wrong distances of that program are corrected, see
    :func:`~hgclr.paper.published.check_same_labels`. Both cases log a warning.

    Arguments and errors are those of :func:`import_published`.
    """
    published, arguments = read_checkpoint(checkpoint)
    settings = _settings(arguments, published, checkpoint)
    encoder_config, tokenizer = load_encoder_config(encoder), load_tokenizer(encoder)
    if encoder_config.model_type != "bert" or tokenizer.cls_token_id is None or tokenizer.sep_token_id is None:
        raise InputError(
            f"{encoder} is a {encoder_config.model_type} encoder; the published program uses BERT with [CLS] and [SEP]",
            remedy="give the encoder that the checkpoint was trained with, such as bert-base-uncased",
        )
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
        logger.warning("%s: %s; to continue training as in the paper, set edge_padding: zero", checkpoint, effect)
    return model.eval(), tokenizer


def _settings(arguments: Mapping[str, Any], weights: Mapping[str, Tensor], path: Path) -> dict[str, Any]:
    """Return the preset ``published`` with the checkpoint's values.

    ``contrast`` 0 omits the contrastive loss but not the second pass, which is λ = 0. Values that the checkpoint lacks
    come from the preset, with a warning.
    """
    absent = [name for name in (*SETTING_NAMES, "contrast", "graph", "layer") if name not in arguments]
    if absent:
        logger.warning("%s lacks %s: using the values of the preset published", path, ", ".join(absent))
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
    """Return row 0 of the edge table, which represents "no edge" and is never trained; 0 without a table."""
    edges = weights.get("graph_encoder.edge_embedding.weight")
    return float(edges.flatten()[0]) if edges is not None and edges.numel() else 0.0


def _label_encoder(arguments: Mapping[str, Any], weights: Mapping[str, Tensor], path: Path) -> dict[str, Any]:
    """Return the settings of the label encoder; its kind, a constant of the program, follows from the weights."""
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
            remedy="give a multi-label checkpoint with Graphormer layers, or with one layer of GCN or GAT",
        )
    if kind != "graphormer":
        return {"label_encoder": kind, "label_embedding": False}
    structure = dict.fromkeys(("label_embedding", "spatial_encoding", "edge_encoding"), graph)
    return {"label_layers": layers, **structure}


def _convert(
    published: Mapping[str, Tensor], ours: Mapping[str, Tensor], taxonomy: Taxonomy, layers: int
) -> dict[str, Tensor]:
    def listed(names: Sequence[str]) -> str:
        return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"

    wanted = {name: published_name(name, published, layers) for name in ours}
    if missing := [name for name in wanted.values() if name not in published]:
        raise InputError(f"the checkpoint lacks the weight {listed(missing)}", remedy=REMEDY)
    known = set(wanted.values())
    unknown = [name for name in published if name not in known and not any(fnmatchcase(name, form) for form in UNUSED)]
    if unknown:
        raise InputError(f"the checkpoint has the unknown weight {listed(unknown)}", remedy=REMEDY)
    return {name: _take(name, wanted[name], published[wanted[name]], weight, taxonomy) for name, weight in ours.items()}


def published_name(name: str, published: Container[str], layers: int = 1) -> str:
    """Return the published name of one of our parameters, for a checkpoint with these names and number of layers."""
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
                f"a label tree of depth {taxonomy.depth} has distances up to {len(ours) - 1},"
                f" but the checkpoint has only distances below {len(published)}",
                remedy=f"give a label tree of depth {(len(published) - 1) // 2} or less",
            )
        expected = (len(published), 1)
        rows = (slice(len(ours)), 0)
    if tuple(published.shape) != expected:
        raise InputError(
            f"{their_name} has the shape {tuple(published.shape)} in the checkpoint,"
            f" but {expected} for this encoder and label tree",
            remedy=REMEDY,
        )
    return published.T if their_name.endswith("hir_attn.weight") else published[rows]


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the weights by name and the program's arguments from a checkpoint, a dict of ``param`` and ``args``."""
    content = _load(path)
    weights = content.get("param") if isinstance(content, dict) else None
    if not isinstance(weights, dict) or not all(isinstance(weight, Tensor) for weight in weights.values()):
        raise InputError(
            "not a checkpoint of the published program: 'param' has no weights",
            path=path,
            remedy="give its checkpoint_best_macro.pt or checkpoint_best_micro.pt",
        )
    arguments = content.get("args", Namespace())
    if not isinstance(arguments, Namespace):
        raise InputError(f"'args' is a {type(arguments).__name__} instead of an argparse.Namespace", path=path)
    return weights, vars(arguments)


def read_labels(folder: Path, tokenizer: PreTrainedTokenizerBase, longest: int) -> tuple[Taxonomy, Tensor]:
    """Read the label tree and the tokens of the label names, in the order of the published ids.

    The published program's ids are numbers; here a label's id is the path of names to it. The second of two siblings
    with the same (lower-cased) name is renamed ``name (number)``; its name tokens stay. ``longest`` is the limit for a
    name with its special tokens, the encoder's number of positions.

    Returns:
        The tree, and [CLS], name tokens and [SEP] of each label, (K, T), padded with -1.
    """
    stored = _label_tokens(folder / NAMES_FILE)
    for label, tokens in enumerate(stored):
        outside = [token for token in tokens if not 0 <= token < len(tokenizer)]
        if outside or len(tokens) + 2 > longest:
            problem = f"has the token {outside[0]}" if outside else f"is {len(tokens)} tokens long"
            raise InputError(
                f"the name of label {label} {problem}, which the encoder cannot read",
                path=folder / NAMES_FILE,
                remedy="give the encoder of the data folder",
            )
    parents = _parents(folder / TREE_FILE, len(stored))
    names: list[str] = []
    seen: set[tuple[int, str]] = set()
    for label, (tokens, parent) in enumerate(zip(stored, parents, strict=True)):
        name = str(tokenizer.decode(tokens)).strip()
        if (parent, name) in seen:
            logger.warning("label %d has the same name as a sibling, %r; appending its number", label, name)
            name = f"{name} ({label})"
        seen.add((parent, name))
        names.append(name)
    try:
        tree = Taxonomy([str(label) for label in range(len(names))], parents, names)
        taxonomy = Taxonomy([tree.path_name(label) for label in range(len(tree))], parents, names)
    except InputError as error:
        raise InputError(error.what, path=folder / TREE_FILE, remedy=error.remedy) from None
    first, last = tokenizer.cls_token_id, tokenizer.sep_token_id
    rows = [torch.tensor([first, *tokens, last]) for tokens in stored]
    return taxonomy, nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-1)


def _label_tokens(path: Path) -> list[list[int]]:
    """Read ``bert_value_dict.pt``, ``{id: tokens of the label's name}``, into a list by id."""
    content = _load(path)
    if not isinstance(content, dict) or not content:
        raise InputError("not a dict of label names", path=path)
    absent = next((label for label in range(len(content)) if label not in content), None)
    if absent is not None:
        raise InputError(f"the id {absent} of {len(content)} labels is missing", path=path, remedy="number from 0")
    names = [content[label] for label in range(len(content))]
    for label, tokens in enumerate(names):
        if not isinstance(tokens, list) or not tokens or not all(type(token) is int for token in tokens):
            raise InputError(f"the name of label {label} is {tokens!r}, not a list of tokens", path=path)
    return names


def _parents(path: Path, labels: int) -> list[int]:
    """Read ``slot.pt``, ``{parent id: set of child ids}``, into each label's parent, -1 for a top label.

    A label with two parents is an error; the published program uses the last one.
    """
    content = _load(path)
    if not isinstance(content, dict) or not all(isinstance(below, set | list | tuple) for below in content.values()):
        raise InputError("not a dict of sets of labels", path=path)
    parents = [-1] * labels
    for parent, children in content.items():
        for label in (parent, *children):
            if type(label) is not int or not 0 <= label < labels:
                raise InputError(
                    f"{label!r} is not a label: {NAMES_FILE} has labels 0 to {labels - 1}",
                    path=path,
                    remedy=f"give a data folder with matching {NAMES_FILE} and {TREE_FILE}",
                )
        for child in children:
            if parents[child] not in (-1, parent):
                raise InputError(
                    f"label {child} has two parents, {parents[child]} and {parent}",
                    path=path,
                    remedy="remove it from one of the two sets",
                )
            parents[child] = parent
    return parents


def check_same_labels(
    weights: Mapping[str, Tensor],
    taxonomy: Taxonomy,
    name_tokens: Tensor,
    tokenizer: PreTrainedTokenizerBase,
    folder: Path,
) -> None:
    """Compare the labels of the data folder with those in the checkpoint, if it stores them.

    The published program has wrong distances where a parent has a larger number than its child. Ours are right, so the
    loss terms differ, which is a warning; any other difference is an `InputError`.
    """
    remedy = "give the data folder that the checkpoint was trained with"
    if (stored := weights.get("graph_encoder.label_name")) is not None:
        if stored.dim() != 2 or len(stored) != len(taxonomy):
            raise InputError("the checkpoint was trained with other labels", path=folder / NAMES_FILE, remedy=remedy)
        for label, (tokens, trained) in enumerate(zip(name_tokens.tolist(), stored.tolist(), strict=True)):
            ours = [token for token in tokens if token >= 0]
            theirs = [token for token in trained if token != tokenizer.pad_token_id]
            if ours != theirs:
                raise InputError(
                    f"the name of label {label} is {taxonomy.names[label]!r} here, but"
                    f" {tokenizer.decode(theirs[1:-1])!r} in the checkpoint",
                    path=folder / NAMES_FILE,
                    remedy=remedy,
                )
    other_tree = InputError(
        "the checkpoint was trained with another label tree", path=folder / TREE_FILE, remedy=remedy
    )
    if (stored := weights.get("graph_encoder.distance_mat")) is not None:
        labels = np.arange(len(taxonomy))
        if torch.equal(stored.flatten(), torch.from_numpy(taxonomy.distance(labels[:, None], labels)).flatten()):
            return
        if (taxonomy.parents <= labels).all():
            raise other_tree
        logger.warning(
            "the published program used wrong distances, because a parent has a larger number than its child;"
            " predictions stay the same, training uses the right distances"
        )
    elif (stored := weights.get("graph_encoder.edge_list")) is not None:  # of a GCN or GAT: child and parent, both ways
        edges = {(child, parent) for child, parent in enumerate(taxonomy.parents.tolist()) if parent >= 0}
        if {tuple(edge) for edge in stored.T.tolist()} != edges | {(parent, child) for child, parent in edges}:
            raise other_tree


def _load(path: Path) -> Any:
    """Load a file of ``torch.save`` without running code from it."""
    allowed: list[Callable[..., Any] | tuple[Callable[..., Any], str]]
    allowed = [Namespace, (_plain_dict, "collections.defaultdict")]
    if not path.is_file():
        raise InputError("no such file", path=path)
    others = torch.serialization.get_safe_globals()  # torch_geometric's defaultdict would take precedence
    torch.serialization.clear_safe_globals()
    try:
        if zipfile.is_zipfile(path):
            check_archive(path, path.stat().st_size)  # torch does not compress
        with torch.serialization.safe_globals(allowed):
            return torch.load(path, map_location="cpu", weights_only=True)
    except InputError:
        raise
    except Exception as error:  # a damaged file can raise anything
        if named := re.search(r"GLOBAL:? ([\w.]+)", str(error)):
            raise InputError(
                f"it asks for {named[1]}, but a checkpoint must be data, not code",
                path=path,
                remedy="save only tensors, numbers and plain containers",
            ) from error
        raise InputError(f"not a file of torch.save, or damaged ({type(error).__name__})", path=path) from error
    finally:
        torch.serialization.add_safe_globals(others)


def _plain_dict(_factory: object = None) -> dict[Any, Any]:
    """Replace ``defaultdict``, which torch's safe loader creates but does not fill."""
    return {}
