"""The label side: features from names and structure, mixed by attention over the label tree (paper, section 4.2).

Nothing of size K x K is kept: attention goes piece by piece through stretches of a depth-first walk, and the backward
pass computes every piece anew. In trees too large for attention between all labels a label attends to its stretch, the
labels around it in the walk, and to the path above the stretch. A subtree is contiguous in the walk, so that the path
above the first label of a stretch holds every ancestor that any label of the stretch has outside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hgclr.errors import require_extra
from hgclr.nn.draws import draw_seed, keep_mask, kept_share
from hgclr.nn.label_rows import LabelRows, LabelSized
from hgclr.taxonomy import Taxonomy

__all__ = ["Graphormer", "GraphormerLayer", "LabelEmbedding", "TreeAttention", "TreeConvolution", "attention_span"]

WHOLE_TREE = 4096
"""Up to so many labels, each attends to all unless told otherwise."""
STRETCH = 256
"""In larger trees, labels that attend to each other."""
PIECE = 2**22
"""Attention weights computed at a time, over all heads: sixteen megabytes in single precision."""
SLOTS = 15
"""Edges on a path that the published program has room for; shorter paths are filled up with its padding row."""


def attention_span(labels: int, span: int | None) -> int:
    """Return how many labels of a tree attend to each other, from the setting or, if None, from the tree's size."""
    if span is None:
        return labels if labels <= WHOLE_TREE else STRETCH
    return min(span, labels)


class Stretch(NamedTuple):
    """Labels that follow each other in a depth-first walk, and what they attend to.

    ``labels`` (n,), ``context`` (m,): the stretch and the path above it; ``ancestor`` (n, m): lowest common ancestors,
    K for the virtual root; ``distance`` (n, m).
    """

    labels: Tensor
    context: Tensor
    ancestor: Tensor
    distance: Tensor

    def cut(self, parts: Sequence[Any]) -> tuple[Any, ...]:
        """Return the labels' queries and the context's keys and values, out of all labels'; the rest as it is."""
        query, key, value, *tables = parts
        return query[self.labels], key[self.context], value[self.context], *tables

    def pieces(self, heads: int) -> Iterator[Stretch]:
        """Yield parts with fewer labels, small enough to be computed at a time."""
        rows = max(1, PIECE // (heads * len(self.context)))
        for start in range(0, len(self.labels), rows):
            part = slice(start, start + rows)
            yield Stretch(self.labels[part], self.context, self.ancestor[part], self.distance[part])


class _Tree(NamedTuple):
    """Each label's ancestor 1, 2, 4, … steps up, (K + 1,) each; and the stretches of the walk."""

    jumps: list[Tensor]
    stretches: list[Stretch]


class TreeAttention(nn.Module, LabelSized):
    """Attend between labels with a bias by their place in the tree (Eq. 4).

    ``bias_ij = b_φ(i,j) + c_ij`` with the distance ``D = φ(i,j)`` and ``c_ij = 1/D Σ w_e`` over the edges e of the path
    from i to j. Distances go through a virtual root above the top labels, and an edge belongs to its child. With S_i
    the sum of the edge weights from the root to i, ``Σ w_e = S_i + S_j - 2 S_lca(i,j)``: no table of paths. A label has
    distance 0 and no edges to itself.

    Args:
        taxonomy: the label tree; the parameters are sized from it, so depth and distance have no limit.
        spatial: learn b, one scalar per distance.
        edge: learn w, one scalar per edge.
        padding: with ``edge``, fill paths up as the published program does, see :meth:`distance_bias`.
        frozen_self: b_0, for the distance of a label to itself, gets no gradient.
        span: labels in a stretch; None: by the size of the tree, see :func:`attention_span`.
    """

    padding: Tensor | None

    def __init__(
        self,
        taxonomy: Taxonomy,
        *,
        spatial: bool,
        edge: bool,
        padding: bool = False,
        frozen_self: bool = False,
        span: int | None = None,
    ) -> None:
        super().__init__()
        self.taxonomy, self.span = taxonomy, attention_span(len(taxonomy), span)
        self.frozen_self = frozen_self
        self.spatial = nn.Parameter(torch.empty(2 * taxonomy.depth + 1)) if spatial else None  # b
        self.edge = nn.Parameter(torch.empty(len(taxonomy))) if edge else None  # w
        self.register_buffer("padding", torch.zeros(()) if edge and padding else None)
        self._tree: _Tree | None = None

    def forward(self, query: Tensor, key: Tensor, value: Tensor, *, heads: int, scale: float, dropout: float) -> Tensor:
        """Return ``dropout(softmax(Q Kᵀ · scale + bias)) V`` by heads that share the bias; (K, H) in and out."""
        tree = self._on(query.device)
        sums = None if self.edge is None else self.root_sums()
        mixed: Tensor = _Attention.apply(  # type: ignore[no-untyped-call]
            tree.stretches, heads, scale, dropout, query, key, value, self.distance_bias(), sums
        )
        return mixed

    def distance_bias(self) -> Tensor | None:
        """Return what the bias between two labels has for their distance D, (2 depth + 1,), or None: b, and padding.

        The published program sums the edges of a path over 15 slots and divides by D + 1e-8. What stands in the slots
        without an edge, the scalar ``padding``, adds ``(15 - D) padding / (D + 1e-8)``: little between two labels, but
        1.5e9 times itself between a label and itself. That is finite in single precision and not in half precision, so
        that the result is single at least. Paths longer than 15, which that program cannot hold, have no padding.
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

    def padding_effect(self) -> str:
        """Say what ``padding`` is and what it does, or nothing if there is none."""
        if self.padding is None:
            return ""
        whom = "to themselves alone" if self.padding > 0 else "to all labels but themselves"
        return f"{self.padding:.3g} stands where a path has no edge (edge_padding: drawn), so that labels attend {whom}"

    def root_sums(self) -> Tensor:
        """Return S, (K + 1,), 0 for the root at the end, by pointer doubling: O(log depth) steps."""
        assert self.edge is not None
        total = F.pad(self.edge, (0, 1))  # entry K is the virtual root: no edge above it, and its own parent
        for jump in self._on(total.device).jumps:
            total = total + total[jump]
        return total

    def label_entries(self, rows: LabelRows) -> dict[str, Tensor]:
        """Return b and w as another label tree has them; distances that are new to it have the b of the largest."""
        entries = {} if self.edge is None else {"edge": rows.rows(self.edge)}
        if self.spatial is not None:
            distances = torch.arange(2 * rows.changes.new.depth + 1)
            entries["spatial"] = self.spatial[distances.clamp(max=len(self.spatial) - 1)]
        return entries

    def _on(self, device: torch.device) -> _Tree:
        """Return what is looked up in every step, computed once per device."""
        if self._tree is None or self._tree.jumps[0].device != device:
            root = len(self.taxonomy)
            jumps = [np.append(np.where(self.taxonomy.parents < 0, root, self.taxonomy.parents), root)]
            for _ in range(int(self.taxonomy.depth).bit_length() - 1):
                jumps.append(jumps[-1][jumps[-1]])
            self._tree = _Tree(
                [torch.from_numpy(jump).to(device) for jump in jumps],
                list(_stretches(self.taxonomy, self.span, device)),
            )
        return self._tree


def _stretches(taxonomy: Taxonomy, span: int, device: torch.device) -> Iterator[Stretch]:
    depths, root = np.append(taxonomy.depths, 0), len(taxonomy)
    for start in range(0, len(taxonomy), span):
        labels = taxonomy.walk[start : start + span]
        context = np.concatenate([labels, taxonomy.ancestors(int(labels[0]))])
        ancestor = taxonomy.lca(labels[:, None], context)
        # As Taxonomy.distance, without looking for the common ancestors a second time.
        distance = depths[labels][:, None] + depths[context] - 2 * depths[ancestor]
        yield Stretch(
            torch.tensor(labels, device=device),
            torch.tensor(context, device=device),
            torch.tensor(np.where(ancestor < 0, root, ancestor), dtype=torch.int32, device=device),
            torch.tensor(distance, dtype=torch.int32, device=device),
        )


def _bias(place: Stretch, spatial: Tensor | None, sums: Tensor | None) -> Tensor | None:
    """Return b_φ(i,j) + c_ij for the labels of a stretch and their context, (n, m), or None if both are off."""
    bias = None if spatial is None else _Look.apply(spatial, place.distance)  # type: ignore[no-untyped-call]
    if sums is not None:
        shared = _Look.apply(sums, place.ancestor)  # type: ignore[no-untyped-call]  # S_lca
        path = sums[place.labels][:, None] + sums[place.context] - 2 * shared
        mean = path / place.distance.clamp(min=1)  # c
        bias = mean if bias is None else bias + mean
    return bias


def _mix(place: Stretch, seed: int, parts: Sequence[Any], *, heads: int, scale: float, dropout: float) -> Tensor:
    """Return the attention of one piece, (n, H).

    ``parts`` are its queries, (n, H), its context's keys and values, (m, H), and b and S, if they are learned.
    """
    *vectors, spatial, sums = parts
    query, key, value = (part.unflatten(-1, (heads, -1)).transpose(0, 1) for part in vectors)
    logits = (query * scale) @ key.transpose(-1, -2)  # (heads, n, m)
    bias = _bias(place, spatial, sums)
    if bias is not None:
        logits = logits + bias
    weights = logits.softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))
    if dropout:
        mask = keep_mask(weights.shape, dropout, seed, weights.device).to(weights.dtype)
        weights = weights * mask.mul_(1 / kept_share(dropout))
    mixed: Tensor = (weights.to(value.dtype) @ value).transpose(0, 1).flatten(1)
    return mixed


class _Attention(torch.autograd.Function):
    """Compute all pieces and keep none: the backward pass computes each anew."""

    @staticmethod
    def forward(
        ctx: Any, stretches: Sequence[Stretch], heads: int, scale: float, dropout: float, *parts: Any
    ) -> Tensor:
        ctx.save_for_backward(*parts)
        ctx.pieces = [piece for stretch in stretches for piece in stretch.pieces(heads)]
        ctx.mix = partial(_mix, heads=heads, scale=scale, dropout=dropout)
        ctx.seed = draw_seed() if dropout else 0
        mixed = torch.empty_like(parts[2])
        for number, place in enumerate(ctx.pieces):
            mixed[place.labels] = ctx.mix(place, ctx.seed + number, place.cut(parts))
        return mixed

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        totals = [None if part is None else torch.zeros_like(part) for part in ctx.saved_tensors]
        for number, place in enumerate(ctx.pieces):
            parts = place.cut(ctx.saved_tensors)
            leaves: list[Any] = [None if part is None else part.detach().requires_grad_() for part in parts]
            with torch.enable_grad():
                mixed = ctx.mix(place, ctx.seed + number, leaves)
            given = [leaf for leaf in leaves if leaf is not None]
            gradients = iter(torch.autograd.grad(mixed, given, gradient[place.labels]))
            for total, rows in zip(totals, (place.labels, place.context, place.context, None, None), strict=True):
                if total is not None:
                    total.add_(next(gradients)) if rows is None else total.index_add_(0, rows, next(gradients))
        return None, None, None, None, *totals


class _Look(torch.autograd.Function):
    """Look scalars up in a table by an index of any shape; the gradient is a weighted count, the fastest way back."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(index)
        ctx.size = len(table)
        return table.index_select(0, index.flatten()).view(index.shape)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (index,) = ctx.saved_tensors
        return torch.bincount(index.flatten(), gradient.flatten(), minlength=ctx.size).to(gradient.dtype), None


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
        learned = self.label_embedding
        return {} if learned is None else {"label_embedding.weight": rows.rows(learned.weight)}


class GraphormerLayer(nn.Module):
    """Mix label features by self-attention with a structural bias (Eqs. 4 and 5).

    ``L = LayerNorm(softmax(Q Kᵀ / √d + bias) V + F)``, the bias shared by all heads, and d the whole ``width`` or that
    of one ``head`` (``scale_by``). All layers but the last also have a GELU feed-forward part with its own residual and
    LayerNorm. ``output_projection`` projects the attention's output before the residual; ``dropout`` is on the
    attention weights and on the output.
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
        if self._edges.device != features.device:  # computed from the tree, so that no checkpoint need hold it
            self._edges = self._edges.to(features.device)
        mixed: Tensor = self.convolution(features, self._edges)
        return mixed
