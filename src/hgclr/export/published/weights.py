"""What the weights of the authors' published program are called, and which of ours they are.

Two rows of its tables are not taken. The last of ``id_embedding`` is padding. So is row 0 of ``edge_embedding``, which
the published program adds up 15 times for the empty path from a label to itself and divides by 1e-8: where a library
version left that row unset, the diagonal of its label attention is off by millions. Here that path has no edges and
its sum is 0, as is the case there wherever the row is 0. Row 0 of ``distance_embedding``, the distance of a label to
itself, is taken; the published program never trained it, ours does.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

from torch import Tensor

from hgclr.errors import InputError
from hgclr.taxonomy import Taxonomy

__all__ = ["convert", "edge_padding"]

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
