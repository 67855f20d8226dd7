"""Label encoders the paper compares with: one layer of message passing along the edges of the label tree (table 3)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from hgclr.errors import require_extra
from hgclr.nn.label_encoder import LabelEmbedding
from hgclr.taxonomy import Taxonomy

__all__ = ["TreeConvolution"]


class TreeConvolution(LabelEmbedding):
    """Encode the label tree by one GCN or GAT layer on the label embedding.

    With N(i) the parent and the children of label i, and i itself:

    - ``gcn``: ``l_i = b + Σ_{j ∈ N(i)} W f_j / √(|N(i)| |N(j)|)``;
    - ``gat``: ``l_i = b + Σ_{j ∈ N(i)} α_ij W f_j``, ``α_i = softmax_j LeakyReLU(a_dst · W f_i + a_src · W f_j)``, one
      head.

    As in the published program there is neither residual nor LayerNorm; it uses names only, here without
    ``label_embedding``. The virtual root above the top labels is no node.

    Args:
        taxonomy: the label tree.
        width: size of a label feature.
        kind: ``gcn`` or ``gat``.
        label_embedding: see :class:`LabelEmbedding`.

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
