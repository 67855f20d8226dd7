"""HiAGM: features of a text on every node of the label tree (Zhou et al., ACL 2020).

Text propagation (TP) sends a linear projection of the text along the edges of the tree; multi-label attention (LA)
sends label embeddings along them, and each label attends to the text. Below the models: the two structure encoders,
which send messages along the edges of the label tree, up and down.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from huggingface_hub.dataclasses import strict
from torch import Tensor, nn
from transformers import AutoConfig, PreTrainedTokenizerBase

from hgclr.errors import InputError
from hgclr.models.base import HGCLRConfig, HierarchicalOutput, HierarchicalPreTrainedModel, LabelRows, LabelSized
from hgclr.paper.models import BaselineSettings
from hgclr.taxonomy import Taxonomy
from hgclr.taxonomy.changes import TreeChanges

if TYPE_CHECKING:
    import datasets


@strict
class BaselineConfig(BaselineSettings, HGCLRConfig):
    """The configuration of HiAGM, HTCInfoMax and HiMatch."""

    model_type = "hgclr-baseline"


AutoConfig.register(BaselineConfig.model_type, BaselineConfig)


def structure_encoder(config: BaselineConfig, width: int) -> "HierarchyGCN | BiTreeLSTM":
    """Return a new structure encoder for nodes with ``width`` features."""
    kind = HierarchyGCN if config.structure_encoder == "gcn" else BiTreeLSTM
    return kind(config.taxonomy, width, dropout=config.structure_dropout)


class HiAGMPreTrainedModel(HierarchicalPreTrainedModel):
    """The common part of both kinds of HiAGM: the structure encoder, its prior, the wide head, the loss.

    Every label has its own vector of the text with ``node_width`` d features, and the head sees the vectors of all
    labels: ``logits = W flatten(v) + b`` with v (K, d) and W (K, K d), which grows with the square of the number of
    labels. A head that sums K d features changes much in a step, so it has the encoder's learning rate, not ten times
    it.
    """

    config: BaselineConfig
    config_class = BaselineConfig
    head_rate = 1.0

    def __init__(self, config: BaselineConfig) -> None:
        super().__init__(config)
        self.structure = structure_encoder(config, config.node_width)
        self.classifier = nn.Linear(config.label_count * config.node_width, config.label_count)

    @torch.no_grad()
    def _init_weights(self, module: Any) -> None:
        """Draw new weights from N(0, 0.02), except those of the structure encoder."""
        if isinstance(module, HierarchyGCN | BiTreeLSTM):
            module.reset_parameters()
        else:
            super()._init_weights(module)  # type: ignore[no-untyped-call]

    def prepare(self, documents: "datasets.Dataset") -> None:
        """Set the edges down the tree to the prior of the training documents; see :func:`edge_prior`."""
        self.structure.set_prior(edge_prior(documents, self.config.taxonomy))

    @property
    def regularisation(self) -> float:
        return self.config.recursive_regularisation

    def output(self, features: Tensor, labels: Tensor | None) -> HierarchicalOutput:
        """Classify by the features of all labels together, (B, K, d)."""
        logits = self.classifier(features.flatten(1))  # (B, K)
        loss, terms = (None, None) if labels is None else self.classification(logits, labels)
        return HierarchicalOutput(loss=loss, logits=logits, terms=terms)

    def label_entries(self, rows: LabelRows, names: Tensor) -> dict[str, Tensor]:
        """Return the label entries for another label tree; the head has rows and blocks of columns for labels."""
        entries = super().label_entries(rows, names)
        entries["classifier.weight"] = rows.column_blocks(entries["classifier.weight"])
        return entries

    def start_labels(self, changes: TreeChanges, tokenizer: PreTrainedTokenizerBase, rates: Tensor) -> None:  # noqa: ARG002
        """Set the edges down to new labels to their share of the documents of all children of the parent."""
        parents = torch.from_numpy(changes.new.parents.copy())
        below = parents >= 0
        families = torch.zeros_like(rates).index_add_(0, parents[below], rates[below])
        added = torch.tensor([label for label in changes.added if parents[label] >= 0], dtype=torch.int64)
        for structure in self.modules():
            if isinstance(structure, HierarchyGCN | BiTreeLSTM):
                structure.down[added] = (rates[added] / families[parents[added]]).to(structure.down.dtype)


class HiAGMTPForSequenceClassification(HiAGMPreTrainedModel):
    """HiAGM-TP, text propagation: a linear layer computes a vector of the text for every label."""

    def __init__(self, config: BaselineConfig) -> None:
        super().__init__(config)
        self.transformation = nn.Linear(config.text_encoder.hidden_size, config.label_count * config.node_width)
        self.feature_dropout = nn.Dropout(config.feature_share)
        self.post_init()

    def propagate(self, vectors: Tensor) -> Tensor:
        """Return the labels' features, (B, K, d), from text vectors, (B, H)."""
        nodes = self.feature_dropout(self.transformation(vectors)).unflatten(1, (self.config.label_count, -1))
        features: Tensor = self.structure(nodes)
        return features

    def forward(self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor | None = None) -> HierarchicalOutput:
        return self.output(self.propagate(self.encode(attention_mask, input_ids=input_ids)), labels)

    def label_entries(self, rows: LabelRows, names: Tensor) -> dict[str, Tensor]:
        """Return the label entries for another label tree; the linear layer has d rows for each label."""
        parameters = self.transformation.named_parameters()
        blocks = {f"transformation.{name}": rows.row_blocks(value) for name, value in parameters}
        return super().label_entries(rows, names) | blocks


class HiAGMLAForSequenceClassification(HiAGMPreTrainedModel):
    """HiAGM-LA, multi-label attention: the vector of a label is its attention over the text."""

    def __init__(self, config: BaselineConfig) -> None:
        super().__init__(config)
        self.label_embedding = nn.Embedding(config.label_count, config.node_width)
        self.label_dropout = nn.Dropout(config.label_embedding_dropout)
        hidden_size = config.text_encoder.hidden_size
        self.token_projection = (
            nn.Identity() if hidden_size == config.node_width else nn.Linear(hidden_size, config.node_width)
        )
        self.post_init()

    def label_features(self) -> Tensor:
        """Return the labels after the structure encoder, (K, d), independent of the documents."""
        labels = self.label_dropout(self.label_embedding.weight)
        features: Tensor = self.structure(labels.unsqueeze(0)).squeeze(0)
        return features

    def texts(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return the vectors of the tokens, projected to a node's width, (B, L, d)."""
        vectors: Tensor = self.dropout(self.token_projection(self.hidden(attention_mask, input_ids=input_ids)))
        return vectors

    def attend(self, labels: Tensor, texts: Tensor, attention_mask: Tensor) -> Tensor:
        """Return the attention of labels over texts without padding, ``softmax(labels textsᵀ) texts``, (B, K, d).

        ``labels`` are (K, d), vectors of the tokens ``texts`` (B, L, d), and the mask is 1 on real tokens, (B, L).
        """
        scores = labels @ texts.transpose(1, 2)  # (B, K, L)
        scores = scores.masked_fill(attention_mask.unsqueeze(1) == 0, torch.finfo(scores.dtype).min)
        return scores.softmax(-1) @ texts

    def forward(self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor | None = None) -> HierarchicalOutput:
        texts = self.texts(input_ids, attention_mask)
        return self.output(self.attend(self.label_features(), texts, attention_mask), labels)

    def label_entries(self, rows: LabelRows, names: Tensor) -> dict[str, Tensor]:
        """Return the label entries for another label tree, the label embedding included."""
        return super().label_entries(rows, names) | {"label_embedding.weight": rows.rows(self.label_embedding.weight)}


def edge_prior(documents: "datasets.Dataset", taxonomy: Taxonomy) -> Tensor:
    """Return P(label | its parent) in documents with a column ``labels`` of label indices, (K,), 1 for top labels.

    With n(p, c) the number of documents with both, ``P(c | p) = n(p, c) / Σ n(p, ·)`` over the children of p; uniform
    if no document has both.
    """
    parents = torch.from_numpy(taxonomy.parents.copy())
    below = parents >= 0
    counts = torch.zeros(len(taxonomy), dtype=torch.float64)
    for batch in documents.select_columns("labels").iter(batch_size=10_000):
        for row in batch["labels"]:
            labels = torch.as_tensor(row, dtype=torch.int64)
            counts[labels[torch.isin(parents[labels], labels)]] += 1
    siblings = torch.zeros(len(taxonomy), dtype=torch.float64).index_add_(0, parents[below], counts[below])
    number = torch.zeros_like(siblings).index_add_(0, parents[below], torch.ones_like(counts[below]))
    prior = torch.ones(len(taxonomy))
    above = parents[below]
    prior[below] = torch.where(siblings[above] > 0, counts[below] / siblings[above], 1 / number[above]).float()
    return prior


class _StructureEncoder(nn.Module, LabelSized):
    """A structure encoder with an edge up and one down for each label; entries of top labels are not used."""

    up: nn.Parameter  # a, the paper's A_in
    down: nn.Parameter  # a', the paper's A_out

    @torch.no_grad()
    def set_prior(self, prior: Tensor) -> None:
        """Set the edges down to P(label | its parent), (K,)."""
        self.down.copy_(prior)

    def label_entries(self, rows: LabelRows) -> dict[str, Tensor]:
        return {"up": rows.columns(self.up), "down": rows.rows(self.down)}


class HierarchyGCN(_StructureEncoder):
    """Send the features of children and parent to each label, through gates (Zhou et al., ACL 2020).

    With node features h (K, d) and the tree's edges p → c::

        in_p  = (Σ_c a_c h_c + b_p) · σ(h_p · w_in + g_p)        a_c = 1 at the start
        out_c = (a'_c h_p + b'_c) · σ(h_c · w_out + g'_c)        a'_c = P(c | p) at the start, see set_prior
        loop  = h · σ(h · w_loop)
        new h = ReLU(dropout(in) + dropout(out) + dropout(loop))

    A tree has one edge above each label, so the paper's adjacency matrices, masked to the edges, are two vectors with
    an entry per child. b and b' are (K, d), g and g' are (K,), all 0 at the start.
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
        """Draw new weights; until :meth:`set_prior`, all edges are 1."""
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
    """The gates of a tree LSTM."""

    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        self.nodes = nn.Linear(width, 4 * size)
        self.states = nn.Linear(size, 3 * size, bias=False)
        self.forget = nn.Linear(size, size, bias=False)

    def keep(self, nodes: Tensor, hidden: Tensor, memory: Tensor) -> Tensor:
        """Return the kept part of a neighbour's memory, ``σ(W_f x + U_f h) · c``, all (B, n, ·)."""
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
    """Encode the tree with two LSTMs, one from the leaves up and one from the top down (Zhou et al., ACL 2020).

    Both follow Tai et al. (ACL 2015). x are the node's features, and N its children (up) or its parent (down), whose
    states are weighted by a_n::

        ĥ = Σ_n a_n h_n
        i, o = σ(W x + U ĥ + b),  u = tanh(W x + U ĥ + b),  f_n = σ(W x + U a_n h_n + b)
        c = i u + Σ_n f_n a_n c_n,  h = o tanh(c)

    Each gate has its own weights and biases. The output is the concatenation of dropout(h) of both, each half of the
    width. a is trained, as in :class:`HierarchyGCN`. A whole level of the tree is computed at a time.
    """

    order: Tensor
    places: Tensor
    above: Tensor

    def __init__(self, taxonomy: Taxonomy, width: int, *, dropout: float) -> None:
        super().__init__()
        if width % 2:
            raise InputError(f"node_width is {width}, but a tree-lstm halves it", remedy="set an even node_width")
        tree = taxonomy.main_order
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
        """Return the states of the LSTM from the leaves up, (B, K, d/2), with labels in the order of levels."""
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
        """Return the states of the LSTM from the top down, (B, K, d/2), with labels in the order of levels."""
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
