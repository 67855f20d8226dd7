"""The label side: features from names and structure, mixed by attention over the label tree (paper, section 4.2)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hgclr.taxonomy import Taxonomy

__all__ = ["Graphormer", "GraphormerLayer", "StructuralBias"]


class _TreeTables(NamedTuple):
    """Each label's ancestor 1, 2, 4, … steps up, (K + 1,) each; lowest common ancestors and distances, (K, K)."""

    jumps: list[Tensor]
    ancestor: Tensor
    distance: Tensor


class StructuralBias(nn.Module):
    """Bias the attention between two labels by their place in the tree (Eq. 4).

    ``bias_ij = b_φ(i,j) + c_ij`` with the distance ``D = φ(i,j)`` and ``c_ij = 1/D Σ w_e`` over the edges e of the
    path from i to j. Distances go through a virtual root above the top labels, and an edge belongs to its child.
    With S_i the sum of the edge weights from the root to i, ``Σ w_e = S_i + S_j - 2 S_lca(i,j)``: no table of paths.
    A label has distance 0 and no edges to itself.

    Args:
        taxonomy: the label tree; the parameters are sized from it, so depth and distance have no limit.
        spatial: learn b, one scalar per distance.
        edge: learn w, one scalar per edge.
    """

    def __init__(self, taxonomy: Taxonomy, *, spatial: bool, edge: bool) -> None:
        super().__init__()
        self.taxonomy = taxonomy
        self.spatial = nn.Parameter(torch.empty(2 * taxonomy.depth + 1)) if spatial else None  # b
        self.edge = nn.Parameter(torch.empty(len(taxonomy))) if edge else None  # w
        self._tables: _TreeTables | None = None

    def forward(self) -> Tensor | None:
        """Return the bias, (K, K), or None if both parts are off."""
        weights = self.spatial if self.spatial is not None else self.edge
        if weights is None:
            return None
        _, ancestor, distance = self._tree(weights.device)  # (K, K) both
        bias = torch.zeros_like(distance, dtype=weights.dtype)
        if self.spatial is not None:
            bias = bias + self.spatial[distance]
        if self.edge is not None:
            total = self.root_sums()  # S, (K,)
            shared = F.pad(total, (0, 1))[ancestor]  # S_lca; index -1, the virtual root, meets the padding: 0
            bias = bias + (total[:, None] + total[None, :] - 2 * shared) / distance.clamp(min=1)
        return bias

    def root_sums(self) -> Tensor:
        """Return S, each label's sum of edge weights from the root, (K,), by pointer doubling in O(log depth) steps."""
        assert self.edge is not None
        total = F.pad(self.edge, (0, 1))  # row K is the virtual root: no edge above it, and its own parent
        for jump in self._tree(total.device).jumps:
            total = total + total[jump]
        return total[:-1]

    def _tree(self, device: torch.device) -> _TreeTables:
        """Return what is looked up in every step, computed once per device."""
        if self._tables is None or self._tables.ancestor.device != device:
            labels, root = np.arange(len(self.taxonomy)), len(self.taxonomy)
            jumps = [np.append(np.where(self.taxonomy.parents < 0, root, self.taxonomy.parents), root)]
            for _ in range(int(self.taxonomy.depth).bit_length() - 1):
                jumps.append(jumps[-1][jumps[-1]])
            self._tables = _TreeTables(
                [torch.from_numpy(jump).to(device) for jump in jumps],
                torch.from_numpy(self.taxonomy.lca(labels[:, None], labels)).to(device),
                torch.from_numpy(self.taxonomy.distance(labels[:, None], labels)).to(device),
            )
        return self._tables


class GraphormerLayer(nn.Module):
    """Mix label features by self-attention with a structural bias (Eqs. 4 and 5).

    ``L = LayerNorm(softmax(Q Kᵀ / √d + bias) V + F)``, the bias shared by all heads.

    Args:
        width: size d of a label feature.
        heads: attention heads.
        scale_by: divide the logits by the root of the whole ``width`` or of one ``head``.
        bias: biases in the projections.
        output_projection: project the attention's output before the residual.
        dropout: on the attention weights and on the output.
        feed_forward: add a GELU feed-forward part with its own residual and LayerNorm (all layers but the last).
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
        self.heads, self.dropout = heads, dropout
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

    def forward(self, features: Tensor, bias: Tensor | None) -> Tensor:
        """Return new label features.

        Args:
            features: (K, H).
            bias: (K, K) or None.
        """
        query, key, value = (self._split(part(features)) for part in (self.query, self.key, self.value))
        mixed = F.scaled_dot_product_attention(  # (heads, K, H/heads)
            query,
            key,
            value,
            attn_mask=bias,
            dropout_p=self.dropout if self.training else 0.0,
            scale=self.scale,
        )
        mixed = mixed.transpose(0, 1).flatten(1)  # (K, H)
        features = self.norm(F.dropout(self.output(mixed), self.dropout, self.training) + features)
        if self.feed_forward is not None and self.feed_forward_norm is not None:
            features = self.feed_forward_norm(self.feed_forward(features) + features)
        return features

    def _split(self, projected: Tensor) -> Tensor:
        heads: Tensor = projected.unflatten(-1, (self.heads, -1))
        return heads.transpose(0, 1)  # (heads, K, H/heads)


class Graphormer(nn.Module):
    """Encode the label tree: ``f_i = label_emb(y_i) + name_emb(y_i)`` (Eq. 3) through Graphormer layers.

    Args:
        taxonomy: the label tree.
        width: size of a label feature.
        layers: number of layers; every layer shares the structural bias.
        label_embedding: learn a vector per label.
        spatial: see :class:`StructuralBias`.
        edge: see :class:`StructuralBias`.
        heads, scale_by, bias, output_projection, dropout, layer_norm_eps: see :class:`GraphormerLayer`.
    """

    def __init__(
        self,
        taxonomy: Taxonomy,
        width: int,
        *,
        layers: int,
        heads: int,
        label_embedding: bool,
        spatial: bool,
        edge: bool,
        scale_by: str,
        bias: bool,
        output_projection: bool,
        dropout: float,
        layer_norm_eps: float,
    ) -> None:
        super().__init__()
        self.label_embedding = nn.Embedding(len(taxonomy), width) if label_embedding else None
        self.structure = StructuralBias(taxonomy, spatial=spatial, edge=edge)
        self.layers = nn.ModuleList(
            GraphormerLayer(
                width,
                heads,
                scale_by=scale_by,
                bias=bias,
                output_projection=output_projection,
                dropout=dropout,
                feed_forward=number < layers - 1,
                layer_norm_eps=layer_norm_eps,
            )
            for number in range(layers)
        )

    def forward(self, names: Tensor | None) -> Tensor:
        """Return label features L, (K, H), from name embeddings, (K, H) or None."""
        features = names
        if self.label_embedding is not None:
            learned = self.label_embedding.weight
            features = learned if features is None else features + learned
        if features is None:
            raise ValueError("label features need a name embedding, a label embedding, or both")
        bias = self.structure()
        for layer in self.layers:
            features = layer(features, bias)
        return features
