"""HiAGM's structure encoders, which send messages along the edges of the label tree, up and down."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from hgclr.errors import InputError
from hgclr.nn.label_rows import LabelRows, LabelSized
from hgclr.taxonomy import Taxonomy

__all__ = ["BiTreeLSTM", "HierarchyGCN"]


class _StructureEncoder(nn.Module, LabelSized):
    """A structure encoder with an edge up and one down for each label but the top ones, whose entries do not matter."""

    up: nn.Parameter  # a, the paper's A_in
    down: nn.Parameter  # a', the paper's A_out

    @torch.no_grad()
    def set_prior(self, prior: Tensor) -> None:
        """Start the edges down at P(label | its parent), (K,)."""
        self.down.copy_(prior)

    def label_entries(self, rows: LabelRows) -> dict[str, Tensor]:
        return {"up": rows.columns(self.up), "down": rows.rows(self.down)}


class HierarchyGCN(_StructureEncoder):
    """Give each label what its children and its parent hold, through gates of its own (Zhou et al., ACL 2020).

    With node features h (K, d) and the tree's edges p → c::

        in_p  = (Σ_c a_c h_c + b_p) · σ(h_p · w_in + g_p)        a_c = 1 at the start
        out_c = (a'_c h_p + b'_c) · σ(h_c · w_out + g'_c)        a'_c = P(c | p) at the start, see set_prior
        loop  = h · σ(h · w_loop)
        new h = ReLU(dropout(in) + dropout(out) + dropout(loop))

    A tree has one edge above each label, so that the paper's adjacency matrices, masked to the edges, are two vectors
    with an entry per child. b and b' are (K, d), g and g' (K,), all 0 at the start: each node has its own.
    """

    child: Tensor
    parent: Tensor

    def __init__(self, taxonomy: Taxonomy, width: int, *, dropout: float) -> None:
        super().__init__()
        labels = len(taxonomy)
        self._edges = np.stack([np.flatnonzero(taxonomy.parents >= 0), taxonomy.parents[taxonomy.parents >= 0]])
        for name, ends in zip(("child", "parent"), self._edges, strict=True):
            self.register_buffer(name, torch.empty(len(ends), dtype=torch.int64), persistent=False)
        self.up = nn.Parameter(torch.empty(labels))
        self.up_bias = nn.Parameter(torch.empty(labels, width))
        self.up_gate = nn.Linear(width, 1, bias=False)
        self.up_gate_bias = nn.Parameter(torch.empty(labels))
        self.down = nn.Parameter(torch.empty(labels))
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

    def label_entries(self, rows: LabelRows) -> dict[str, Tensor]:
        biases = {name: rows.rows(value) for name, value in self.named_parameters() if name.endswith("_bias")}
        return super().label_entries(rows) | biases


class _Cell(nn.Module):
    """The gates of an LSTM, for a label whose neighbours' states have been gathered."""

    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        self.nodes = nn.Linear(width, 4 * size)
        self.states = nn.Linear(size, 3 * size, bias=False)
        self.forget = nn.Linear(size, size, bias=False)

    def keep(self, nodes: Tensor, hidden: Tensor, memory: Tensor) -> Tensor:
        """Return what is kept of a neighbour's memory, ``σ(W_f x + U_f h) · c``, all (B, n, ·)."""
        return torch.sigmoid(nodes[..., -memory.shape[-1] :] + self.forget(hidden)) * memory

    def forward(self, nodes: Tensor, hidden: Tensor | None, kept: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return h and c, (B, n, m), from ``W x``, (B, n, 4m), and the neighbours' h and kept c, (B, n, m) if any."""
        gates = nodes[..., : 3 * nodes.shape[-1] // 4]
        if hidden is not None:
            gates = gates + self.states(hidden)
        enter, leave, update = gates.chunk(3, dim=-1)
        memory = torch.sigmoid(enter) * torch.tanh(update)
        if kept is not None:
            memory = memory + kept
        return torch.sigmoid(leave) * torch.tanh(memory), memory


class BiTreeLSTM(_StructureEncoder):
    """Read the tree by two LSTMs, one from the leaves up and one from the top down (Zhou et al., ACL 2020).

    Both go by (Tai et al., ACL 2015), with the node's features x and N its children (up) or its parent (down), whose
    states count a_n times::

        ĥ = Σ_n a_n h_n
        i, o = σ(W x + U ĥ + b),  u = tanh(W x + U ĥ + b),  f_n = σ(W x + U a_n h_n + b)
        c = i u + Σ_n f_n a_n c_n,  h = o tanh(c)

    Weights and biases differ from gate to gate. The output is dropout(h) of both side by side, each half of the width.
    a is trained, as in :class:`HierarchyGCN`. A whole level of the tree is computed at a time.
    """

    order: Tensor
    places: Tensor
    above: Tensor

    def __init__(self, taxonomy: Taxonomy, width: int, *, dropout: float) -> None:
        super().__init__()
        if width % 2:
            raise InputError(
                f"node_width is {width}, and each half of a tree-lstm takes half of it", remedy="give an even number"
            )
        tree = taxonomy.order
        self.bounds = [(places.start, places.stop) for places in tree.spans]
        starts = np.array([0, *(start for start, _ in self.bounds)])[taxonomy.depths[tree.labels] - 1]
        self._tables = (tree.labels, tree.places, np.maximum(tree.parents - starts, 0))
        for name, table in zip(("order", "places", "above"), self._tables, strict=True):
            self.register_buffer(name, torch.empty(len(table), dtype=torch.int64), persistent=False)
        self.up = nn.Parameter(torch.empty(len(taxonomy)))
        self.up_cell = _Cell(width, width // 2)
        self.down = nn.Parameter(torch.empty(len(taxonomy)))
        self.down_cell = _Cell(width, width // 2)
        self.dropout = nn.Dropout(dropout)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        for buffer, table in zip((self.order, self.places, self.above), self._tables, strict=True):
            buffer.copy_(torch.from_numpy(table))
        for edges in (self.up, self.down):
            nn.init.ones_(edges)
        for cell in (self.up_cell, self.down_cell):
            for layer in (cell.nodes, cell.states, cell.forget):
                nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(cell.nodes.bias)

    def forward(self, nodes: Tensor) -> Tensor:
        nodes = nodes[:, self.order]  # level by level, from the top
        both = torch.cat([self.dropout(self.read_up(nodes)), self.dropout(self.read_down(nodes))], dim=-1)
        return both[:, self.places]

    def read_up(self, nodes: Tensor) -> Tensor:
        """Return the states of the LSTM that comes from the leaves, (B, K, d/2); labels here in the order of levels."""
        inputs, share = self.up_cell.nodes(nodes), self.up[self.order].unsqueeze(-1)
        states: list[Tensor] = []
        hidden = memory = None
        for level in range(len(self.bounds) - 1, -1, -1):
            start, end = self.bounds[level]
            own = inputs[:, start:end]
            below, kept = None, None
            if hidden is not None and memory is not None:
                children = slice(*self.bounds[level + 1])
                parent = self.above[children]
                hidden, memory = hidden * share[children], memory * share[children]
                kept = _sum_by(parent, self.up_cell.keep(own[:, parent], hidden, memory), end - start)
                below = _sum_by(parent, hidden, end - start)
            hidden, memory = self.up_cell(own, below, kept)
            states.append(hidden)
        return torch.cat(states[::-1], dim=1)

    def read_down(self, nodes: Tensor) -> Tensor:
        """Return the states of the LSTM that comes from the top, (B, K, d/2); labels here in the order of levels."""
        inputs, share = self.down_cell.nodes(nodes), self.down[self.order].unsqueeze(-1)
        states: list[Tensor] = []
        hidden = memory = kept = None
        for start, end in self.bounds:
            own = inputs[:, start:end]
            if hidden is not None and memory is not None:
                parent, scale = self.above[start:end], share[start:end]
                hidden = hidden[:, parent] * scale
                kept = self.down_cell.keep(own, hidden, memory[:, parent] * scale)
            hidden, memory = self.down_cell(own, hidden, kept)
            states.append(hidden)
        return torch.cat(states, dim=1)


def _sum_by(group: Tensor, values: Tensor, groups: int) -> Tensor:
    """Return the sums of (B, n, m) by group along the second axis, (B, groups, m)."""
    return values.new_zeros(len(values), groups, values.shape[-1]).index_add(1, group, values)
