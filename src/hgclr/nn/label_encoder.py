"""The label side: features from names and structure, mixed by attention over the label tree (paper, section 4.2)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hgclr.errors import require_extra
from hgclr.nn.label_attention import TreeAttention
from hgclr.nn.label_rows import LabelRows, LabelSized
from hgclr.taxonomy import Taxonomy

__all__ = ["Graphormer", "GraphormerLayer", "LabelEmbedding", "TreeConvolution"]


class LabelEmbedding(nn.Module, LabelSized):
    """Give every label a vector: ``f_i = label_emb(y_i) + name_emb(y_i)`` (Eq. 3); encoders of the tree build on it.

    Without ``label_embedding`` the name embedding is all there is.
    """

    def __init__(self, taxonomy: Taxonomy, width: int, *, label_embedding: bool) -> None:
        super().__init__()
        self.label_embedding = nn.Embedding(len(taxonomy), width) if label_embedding else None

    def forward(self, names: Tensor | None) -> Tensor:
        """Return label features, (K, H), from name embeddings, (K, H) or None."""
        if self.label_embedding is None:
            if names is None:
                raise ValueError("label features need a name embedding, a label embedding, or both")
            return names
        learned: Tensor = self.label_embedding.weight
        return learned if names is None else names + learned

    def label_entries(self, rows: LabelRows) -> dict[str, Tensor]:
        """Return the learned vectors as another label tree has them."""
        learned = self.label_embedding
        return {} if learned is None else {"label_embedding.weight": rows.rows(learned.weight)}


class GraphormerLayer(nn.Module):
    """Mix label features by self-attention with a structural bias (Eqs. 4 and 5).

    ``L = LayerNorm(softmax(Q Kᵀ / √d + bias) V + F)``, the bias shared by all heads. All layers but the last also have
    a GELU feed-forward part with its own residual and LayerNorm.

    Args:
        width: size of a label feature.
        heads: attention heads.
        scale_by: d is the whole ``width`` or that of one ``head``.
        bias: biases in the projections.
        output_projection: project the attention's output before the residual.
        dropout: on the attention weights and on the output.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        scale_by: str,
        bias: bool,
        output_projection: bool,
        dropout: float,
        feed_forward: bool,
        layer_norm_eps: float,
    ) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = nn.Dropout(dropout)
        self.scale = (width if scale_by == "width" else width // heads) ** -0.5
        self.query = nn.Linear(width, width, bias=bias)
        self.key = nn.Linear(width, width, bias=bias)
        self.value = nn.Linear(width, width, bias=bias)
        self.output = nn.Linear(width, width, bias=bias) if output_projection else nn.Identity()
        self.norm = nn.LayerNorm(width, eps=layer_norm_eps)
        self.feed_forward = (
            nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(dropout))
            if feed_forward
            else None
        )
        self.feed_forward_norm = nn.LayerNorm(width, eps=layer_norm_eps) if feed_forward else None

    def forward(self, features: Tensor, structure: TreeAttention) -> Tensor:
        """Return new label features, (K, H), from label features, (K, H), and the attention between them."""
        mixed = structure(
            self.query(features),
            self.key(features),
            self.value(features),
            heads=self.heads,
            scale=self.scale,
            dropout=self.dropout.p if self.training else 0.0,
        )
        features = self.norm(self.dropout(self.output(mixed)) + features)
        if self.feed_forward is not None and self.feed_forward_norm is not None:
            features = self.feed_forward_norm(self.feed_forward(features) + features)
        return features


class Graphormer(LabelEmbedding):
    """Encode the label tree by Graphormer layers on the label embedding (Eqs. 3 to 5).

    All layers share the structural bias, see :class:`TreeAttention` for ``spatial``, ``edge``, ``edge_padding``
    (there ``padding``), ``frozen_self`` and ``span``. ``layer`` is what else :class:`GraphormerLayer` takes.
    """

    def __init__(
        self,
        taxonomy: Taxonomy,
        width: int,
        *,
        layers: int,
        label_embedding: bool,
        spatial: bool,
        edge: bool,
        edge_padding: bool = False,
        frozen_self: bool = False,
        span: int | None,
        **layer: Any,
    ) -> None:
        super().__init__(taxonomy, width, label_embedding=label_embedding)
        self.structure = TreeAttention(
            taxonomy, spatial=spatial, edge=edge, padding=edge_padding, frozen_self=frozen_self, span=span
        )
        self.layers = nn.ModuleList(
            GraphormerLayer(width, feed_forward=number < layers - 1, **layer) for number in range(layers)
        )

    def forward(self, names: Tensor | None) -> Tensor:
        """Return label features L, (K, H), from name embeddings, (K, H) or None."""
        features = super().forward(names)
        for layer in self.layers:
            features = layer(features, self.structure)
        return features


class TreeConvolution(LabelEmbedding):
    """Encode the label tree by one GCN or GAT layer on the label embedding.

    With N(i) the parent and the children of label i, and i itself:

    - ``gcn``: ``l_i = b + Σ_{j ∈ N(i)} W f_j / √(|N(i)| |N(j)|)``;
    - ``gat``: ``l_i = b + Σ_{j ∈ N(i)} α_ij W f_j``, ``α_i = softmax_j LeakyReLU(a_dst · W f_i + a_src · W f_j)``.

    As in the published program there is neither residual nor LayerNorm. The virtual root above the top labels is no
    node.

    Raises:
        MissingExtraError: if torch_geometric is not installed.
    """

    def __init__(self, taxonomy: Taxonomy, width: int, *, kind: str, label_embedding: bool) -> None:
        require_extra("torch_geometric", extra="paper", capability=f"the label encoder {kind}")
        from torch_geometric.nn import GATConv, GCNConv

        super().__init__(taxonomy, width, label_embedding=label_embedding)
        self.convolution = {"gcn": GCNConv, "gat": GATConv}[kind](width, width)
        children = np.flatnonzero(taxonomy.parents >= 0)
        up = np.stack([children, taxonomy.parents[children]])
        self._edges = torch.from_numpy(np.concatenate([up, up[::-1]], axis=1))  # from, to; (2, 2 E)

    def forward(self, names: Tensor | None) -> Tensor:
        """Return label features, (K, H), from name embeddings, (K, H) or None."""
        features = super().forward(names)
        if self._edges.device != features.device:  # computed from the tree, so that no checkpoint need hold it
            self._edges = self._edges.to(features.device)
        mixed: Tensor = self.convolution(features, self._edges)
        return mixed
