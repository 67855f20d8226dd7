"""The label side: label features from names, embeddings and the tree (paper, section 4.2, Eqs. 3 to 5).

K labels, H features, T tokens in the longest label name. Trees too large for K x K attention:
:mod:`hgclr.nn.fast`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hgclr.errors import require_extra
from hgclr.taxonomy import Taxonomy

SLOTS = 15
"""The longest path, in edges, of the published program."""


def is_special(tokens: Tensor, special_token_ids: Sequence[int]) -> Tensor:
    """Return which tokens are special ones, bool, in the shape of the tokens."""
    return torch.isin(tokens, torch.tensor(special_token_ids, dtype=tokens.dtype, device=tokens.device))


def name_embedding(encoder: Any, tokens: Tensor, kind: str, special_token_ids: Sequence[int]) -> Tensor:
    """Return name_emb(y), (K, H), from the tokens of the label names, (K, T), padded with -1.

    ``words`` is the mean of the encoder's word embeddings without special tokens (paper). ``layer`` is the mean of its
    whole embedding layer, special tokens included (published).
    """
    real = tokens >= 0
    if kind == "layer":
        padding = getattr(encoder.config, "pad_token_id", None) or 0
        embedded = encoder.embeddings(tokens.masked_fill(~real, padding))  # (K, T, H)
    else:
        embedded = encoder.get_input_embeddings()(tokens.clamp(min=0))  # (K, T, H)
        real = real & ~is_special(tokens, special_token_ids)
    share = real / real.sum(1, keepdim=True).clamp(min=1)  # (K, T)
    return torch.einsum("kt,kth->kh", share.to(embedded.dtype), embedded)


class LabelEmbedding(nn.Module):
    """The features of labels without an encoder: ``f_i = label_emb(y_i) + name_emb(y_i)`` (Eq. 3)."""

    def __init__(self, taxonomy: Taxonomy, width: int, *, label_embedding: bool) -> None:
        super().__init__()
        self.label_embedding = nn.Embedding(len(taxonomy), width) if label_embedding else None

    def forward(self, names: Tensor | None) -> Tensor:
        """Return F, (K, H), from name embeddings, (K, H) or None."""
        if self.label_embedding is None:
            if names is None:
                raise ValueError("label features need a name embedding, a label embedding, or both")
            return names
        learned: Tensor = self.label_embedding.weight
        return learned if names is None else learned + names


class TreeAttention(nn.Module):
    """Self-attention between labels with a bias by their places in the tree (Eq. 4).

    ``A_ij = q_i k_jᵀ · scale + c_ij + b_φ(i,j)``. The path between labels i and j has ``D = φ(i,j)`` edges; it goes
    through a virtual root if their top labels differ. ``c_ij = 1/D Σ w_e`` is the mean weight of its edges; an edge
    belongs to its lower label. With S_i the sum of the weights from the root to i,
    ``Σ w_e = S_i + S_j - 2 S_lca(i,j)``.

    Args:
        taxonomy: the label tree. Its depth sets the number of distances.
        spatial: learn b, one scalar per distance.
        edge: learn w, one scalar per edge.
        padding: with ``edge``, fill up paths as the published program does, see :meth:`distance_bias`.
        frozen_self: b_0, for the distance of a label to itself, is not trained (published).
    """

    padding: Tensor | None

    def __init__(
        self, taxonomy: Taxonomy, *, spatial: bool, edge: bool, padding: bool = False, frozen_self: bool = False
    ) -> None:
        super().__init__()
        self.taxonomy, self.frozen_self = taxonomy, frozen_self
        self.spatial = nn.Parameter(torch.empty(2 * taxonomy.depth + 1)) if spatial else None  # b
        self.edge = nn.Parameter(torch.empty(len(taxonomy))) if edge else None  # w
        self.register_buffer("padding", torch.zeros(()) if edge and padding else None)
        self._tables: Any = None

    def forward(self, query: Tensor, key: Tensor, value: Tensor, *, scale: float, dropout: nn.Module) -> Tensor:
        """Return ``dropout(softmax(A)) V``, (heads, K, d), from queries, keys and values, (heads, K, d)."""
        distance, ancestor = self.tables(query.device)  # D and lca, (K, K)
        bias = self.bias(distance, self.distance_bias(), ancestor, self.root_sums())  # c + b, (K, K)
        return attend(query, key, value, bias, scale=scale, dropout=dropout)

    def bias(
        self,
        distance: Tensor,
        by_distance: Tensor | None,
        ancestor: Tensor,
        sums: Tensor | None,
        rows: Tensor | slice = slice(-1),
        columns: Tensor | slice = slice(-1),
    ) -> Tensor | float:
        """Return ``c_ij + b_φ(i,j)`` of labels ``rows`` with labels ``columns``, by default of all labels."""
        bias: Tensor | float = 0.0 if by_distance is None else look_up(by_distance, distance)  # b_φ(i,j)
        if sums is not None:
            path = sums[rows][:, None] + sums[columns] - 2 * look_up(sums, ancestor)  # Σ w_e
            bias = bias + path / distance.clamp(min=1)  # c_ij
        return bias

    def distance_bias(self) -> Tensor | None:
        """Return the bias for each distance D, (2 depth + 1,): b_D plus the effect of the padding.

        The published program sums the edges of a path over 15 slots and divides by D + 1e-8. The scalar in the slots
        without an edge, ``padding``, adds ``(15 - D) padding / (D + 1e-8)``: 1.5e9 times itself for D = 0, which
        overflows in half precision. Longer paths, an error in that program, have no padding.
        """
        spatial: Tensor | None = self.spatial
        if spatial is not None and self.frozen_self:
            spatial = torch.cat([spatial[:1].detach(), spatial[1:]])
        if self.padding is None:
            return spatial
        padding = self.padding.to(torch.promote_types(self.padding.dtype, torch.float32))
        distances = torch.arange(2 * self.taxonomy.depth + 1, device=padding.device)
        added = (SLOTS - distances).clamp(min=0) * padding / (distances.to(padding.dtype) + 1e-8)
        return added if spatial is None else spatial + added

    def root_sums(self) -> Tensor | None:
        """Return S, (K + 1,), the last entry 0 for the virtual root; None without edge weights."""
        if self.edge is None:
            return None
        sums = F.pad(self.edge, (0, 1))
        parents = self.taxonomy.parents
        for level in self.taxonomy.levels[1:]:
            child = torch.tensor(level, device=sums.device)
            sums = sums.index_add(0, child, sums[torch.tensor(parents[level], device=sums.device)])
        return sums

    def tables(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return the distance and the lowest common ancestor of each pair of labels, (K, K); K is the virtual root."""
        if self._tables is None or self._tables[0].device != device:
            labels = np.arange(len(self.taxonomy))
            self._tables = pair_tables(self.taxonomy, labels, labels, device)
        tables: tuple[Tensor, Tensor] = self._tables
        return tables

    def padding_effect(self) -> str:
        """Describe ``padding`` and its effect; empty without padding."""
        if self.padding is None:
            return ""
        whom = "only to itself" if self.padding > 0 else "to all labels but itself"
        return f"edge_padding: drawn pads paths with {self.padding:.3g}, so that each label attends {whom}"


def attend(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor | float, *, scale: float, dropout: nn.Module
) -> Tensor:
    """Return ``dropout(softmax(Q Kᵀ · scale + bias)) V``, (heads, n, d); the heads share the bias, (n, m)."""
    logits = (query * scale) @ key.transpose(-1, -2) + bias  # (heads, n, m)
    weights = logits.softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))
    mixed: Tensor = dropout(weights).to(value.dtype) @ value
    return mixed


def look_up(table: Tensor, index: Tensor) -> Tensor:
    """Return ``table[index]``, by index_select, whose gradient is three times as fast."""
    return table.index_select(0, index.flatten()).view(index.shape)


def pair_tables(taxonomy: Taxonomy, rows: Any, columns: Any, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return distances and lowest common ancestors of labels ``rows`` (n,) and ``columns`` (m,), (n, m) each."""
    depths, root = np.append(taxonomy.depths, 0), len(taxonomy)
    ancestor = taxonomy.lca(rows[:, None], columns)
    distance = depths[rows][:, None] + depths[columns] - 2 * depths[ancestor]
    ancestor = np.where(ancestor < 0, root, ancestor)
    return (
        torch.tensor(distance, dtype=torch.int32, device=device),
        torch.tensor(ancestor, dtype=torch.int32, device=device),
    )


class GraphormerLayer(nn.Module):
    """Mix label features by attention over the tree: ``L = LayerNorm(softmax(A) V + F)`` (Eqs. 4 and 5).

    The logits are divided by √d, d the whole ``width`` (paper) or that of one ``head`` (published). The published
    program has biases, an output projection and dropout. All layers but the last have a feed-forward part.
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
        self.query = nn.Linear(width, width, bias=bias)  # W_Q
        self.key = nn.Linear(width, width, bias=bias)  # W_K
        self.value = nn.Linear(width, width, bias=bias)
        self.output = nn.Linear(width, width, bias=bias) if output_projection else nn.Identity()
        self.norm = nn.LayerNorm(width, eps=layer_norm_eps)
        self.feed_forward, self.feed_forward_norm = None, None
        if feed_forward:
            self.feed_forward = nn.Sequential(
                nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(dropout)
            )
            self.feed_forward_norm = nn.LayerNorm(width, eps=layer_norm_eps)

    def forward(self, features: Tensor, structure: TreeAttention) -> Tensor:
        """Return new label features, (K, H), from label features F, (K, H)."""
        query, key, value = (
            project(features).unflatten(-1, (self.heads, -1)).transpose(0, 1)  # (heads, K, d)
            for project in (self.query, self.key, self.value)
        )
        mixed = structure(query, key, value, scale=self.scale, dropout=self.dropout)
        mixed = self.output(mixed.transpose(0, 1).flatten(1))  # (K, H)
        features = self.norm(self.dropout(mixed) + features)  # L
        if self.feed_forward is not None and self.feed_forward_norm is not None:
            features = self.feed_forward_norm(self.feed_forward(features) + features)
        return features


class Graphormer(LabelEmbedding):
    """Encode the label tree by Graphormer layers on F (Eqs. 3 to 5); all layers share the bias by the tree.

    ``layer`` are the other arguments of :class:`GraphormerLayer`.
    """

    def __init__(
        self, structure: TreeAttention, width: int, *, layers: int, label_embedding: bool, **layer: Any
    ) -> None:
        super().__init__(structure.taxonomy, width, label_embedding=label_embedding)
        self.structure = structure
        self.layers = nn.ModuleList(
            GraphormerLayer(width, feed_forward=number < layers - 1, **layer) for number in range(layers)
        )

    def forward(self, names: Tensor | None) -> Tensor:
        features = super().forward(names)
        for layer in self.layers:
            features = layer(features, self.structure)
        return features


class TreeConvolution(LabelEmbedding):
    """Encode the label tree by one GCN or GAT layer on F, instead of a Graphormer (table 3).

    With N(i) the parent and the children of label i, and i itself:

    - ``gcn``: ``l_i = b + Σ_{j ∈ N(i)} W f_j / √(|N(i)| |N(j)|)``;
    - ``gat``: ``l_i = b + Σ_{j ∈ N(i)} α_ij W f_j``, ``α_i = softmax_j LeakyReLU(a_dst · W f_i + a_src · W f_j)``.

    As in the published program there is no residual, no LayerNorm, and no virtual root.
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
        features = super().forward(names)
        self._edges = self._edges.to(features.device)  # not a buffer: checkpoints need not store it
        mixed: Tensor = self.convolution(features, self._edges)
        return mixed
