"""Messages along the edges of the label tree, up and down at once (HiAGM's Hierarchy-GCN)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from hgclr.taxonomy import Taxonomy

__all__ = ["HierarchyGCN"]


class HierarchyGCN(nn.Module):
    """Give each label what its children and its parent hold, through gates of its own (Zhou et al., ACL 2020).

    With node features h (K, d) and the tree's edges p → c::

        in_p  = (Σ_c a_c h_c + b_p) · σ(h_p · w_in + g_p)        a_c = 1 at the start
        out_c = (a'_c h_p + b'_c) · σ(h_c · w_out + g'_c)        a'_c = P(c | p) at the start, see set_prior
        loop  = h · σ(h · w_loop)
        new h = ReLU(dropout(in) + dropout(out) + dropout(loop))

    A tree has one edge above each label, so that the paper's adjacency matrices, masked to the edges, are two vectors
    with an entry per child; those of top labels have no edge and take no part. b and b' are (K, d), g and g' (K,): each
    node has its own. In the released program g' is memory that nobody initialised; here all four start at 0.

    Args:
        taxonomy: the label tree.
        width: size d of a node.
        dropout: on each of the three messages.
    """

    child: Tensor
    parent: Tensor

    def __init__(self, taxonomy: Taxonomy, width: int, *, dropout: float) -> None:
        super().__init__()
        labels = len(taxonomy)
        self._edges = np.stack([np.flatnonzero(taxonomy.parents >= 0), taxonomy.parents[taxonomy.parents >= 0]])
        for name, ends in zip(("child", "parent"), self._edges, strict=True):
            self.register_buffer(name, torch.empty(len(ends), dtype=torch.int64), persistent=False)
        self.up = nn.Parameter(torch.empty(labels))  # a, the paper's A_in
        self.up_bias = nn.Parameter(torch.empty(labels, width))
        self.up_gate = nn.Linear(width, 1, bias=False)
        self.up_gate_bias = nn.Parameter(torch.empty(labels))
        self.down = nn.Parameter(torch.empty(labels))  # a', the paper's A_out
        self.down_bias = nn.Parameter(torch.empty(labels, width))
        self.down_gate = nn.Linear(width, 1, bias=False)
        self.down_gate_bias = nn.Parameter(torch.empty(labels))
        self.loop_gate = nn.Linear(width, 1, bias=False)
        self.dropout = nn.Dropout(dropout)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw new weights; before the prior is known, all edges count 1."""
        for buffer, ends in zip((self.child, self.parent), self._edges, strict=True):
            buffer.copy_(torch.from_numpy(ends))
        for edges in (self.up, self.down):
            nn.init.ones_(edges)
        for gate in (self.up_gate, self.down_gate, self.loop_gate):
            nn.init.xavier_uniform_(gate.weight)
        for bias in (self.up_bias, self.up_gate_bias, self.down_bias, self.down_gate_bias):
            nn.init.zeros_(bias)

    @torch.no_grad()
    def set_prior(self, prior: Tensor) -> None:
        """Start the edges down at P(label | its parent), (K,); what stands there for top labels does not matter."""
        self.down.copy_(prior)

    def forward(self, nodes: Tensor) -> Tensor:
        """Return new node features, (B, K, d), from node features, (B, K, d)."""
        below = nodes[:, self.child] * self.up[self.child].unsqueeze(-1)  # (B, E, d)
        above = nodes[:, self.parent] * self.down[self.child].unsqueeze(-1)  # (B, E, d)
        up = self.up_bias.expand_as(nodes).index_add(1, self.parent, below)
        down = self.down_bias.expand_as(nodes).index_add(1, self.child, above)
        up = up * torch.sigmoid(self.up_gate(nodes) + self.up_gate_bias.unsqueeze(-1))
        down = down * torch.sigmoid(self.down_gate(nodes) + self.down_gate_bias.unsqueeze(-1))
        loop = nodes * torch.sigmoid(self.loop_gate(nodes))
        return torch.relu(self.dropout(up) + self.dropout(down) + self.dropout(loop))
