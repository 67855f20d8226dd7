"""HiAGM: a text's features on every node of the label tree (Zhou et al., ACL 2020).

Text propagation (TP) sends what a linear layer makes of the text along the edges of the tree; multi-label attention
(LA) sends label embeddings along them and lets each label look for its part of the text.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from hgclr.models.base import NUMBER, HierarchicalOutput, HierarchicalPreTrainedModel
from hgclr.models.configuration import HierarchicalConfig, check
from hgclr.nn.draws import drawn_for_labels
from hgclr.nn.gathering import world_size
from hgclr.nn.label_rows import LabelRows
from hgclr.nn.objective import classification_loss
from hgclr.nn.tree_encoders import BiTreeLSTM, HierarchyGCN
from hgclr.taxonomy import Taxonomy
from hgclr.taxonomy.changes import TreeChanges

if TYPE_CHECKING:
    import datasets

__all__ = [
    "HiAGMLAForSequenceClassification",
    "HiAGMPreTrainedModel",
    "HiAGMSettings",
    "HiAGMTPForSequenceClassification",
    "edge_prior",
    "recursive_regularisation",
    "structure_encoder",
]

PIECE = 2**22
"""Weights of edges compared at a time: sixteen megabytes in single precision."""


class HiAGMSettings(HierarchicalConfig):
    """Configure HiAGM and what is built on it.

    Args:
        structure_encoder: HiAGM and what is built on it pass messages along the tree by a ``gcn`` or a ``tree-lstm``.
        node_width: size of a label node there.
        structure_dropout: dropout there.
        recursive_regularisation: weight of the distance between the classifier's rows of parent and child.
    """

    structure_encoder: Literal["gcn", "tree-lstm"] = "gcn"
    node_width: int = 300
    structure_dropout: float = 0.05
    recursive_regularisation: float = 1e-6

    def validate_hiagm(self) -> None:
        """Refuse values that no model can be built from."""
        check(self, "share", "structure_dropout")
        check(self, "count", "node_width")
        check(self, "not negative", "recursive_regularisation")


def structure_encoder(config: HiAGMSettings, width: int) -> HierarchyGCN | BiTreeLSTM:
    """Return a new structure encoder for nodes of a width."""
    kinds: dict[str, type[HierarchyGCN | BiTreeLSTM]] = {"gcn": HierarchyGCN, "tree-lstm": BiTreeLSTM}
    return kinds[config.structure_encoder](config.taxonomy, width, dropout=config.structure_dropout)


class HiAGMPreTrainedModel(HierarchicalPreTrainedModel):
    """What both kinds of HiAGM share: the structure encoder, its prior, the wide classifier, the loss.

    Every label gets a feature of the text of its own, of ``node_width`` d numbers, and the classifier sees the features
    of all labels at once: ``logits = W flatten(v) + b`` with v (K, d) and W (K, K d), which grows with the square of
    the number of labels.

    A classifier that sums up K d features moves far in a step: it takes the encoder's learning rate, not ten times it.
    """

    config: HiAGMSettings
    head_rate = 1.0
    less_memory = "lower model.node_width, or choose hgclr, which grows with the number of labels, not with its square"

    def __init__(self, config: HiAGMSettings) -> None:
        super().__init__(config)
        self.structure = structure_encoder(config, config.node_width)
        self.classifier = nn.Linear(config.label_count * config.node_width, config.label_count)

    @torch.no_grad()
    def _init_weights(self, module: Any) -> None:
        """Let the structure encoder draw its own weights; all others come from N(0, 0.02)."""
        if isinstance(module, HierarchyGCN | BiTreeLSTM):
            module.reset_parameters()
        else:
            super()._init_weights(module)  # type: ignore[no-untyped-call]

    def prepare(self, documents: "datasets.Dataset") -> None:
        """Start the edges down the tree at the prior of the training documents; see :func:`edge_prior`."""
        self.structure.set_prior(edge_prior(documents, self.config.taxonomy))

    def classification(self, logits: Tensor, labels: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return binary cross-entropy plus recursive regularisation of the classifier, and both by name.

        The method adds ``recursive_regularisation`` times the regularisation to a cross-entropy that is the mean over
        documents and labels. Where ours is a sum, the regularisation is taken as many times, so that their ratio stays.
        """
        reduction = self.config.classification_loss
        loss = classification_loss(logits, labels, reduction)
        terms = {"loss_original": loss.detach()}
        if self.config.recursive_regularisation:
            parents = torch.tensor(self.config.label_parents, device=logits.device)
            distance = recursive_regularisation(self.classifier.weight, parents)
            added = self.config.recursive_regularisation * self.beside_mean(logits) * distance
            loss = loss + added
            terms["loss_recursive"] = added.detach()
        return loss, terms

    def beside_mean(self, logits: Tensor) -> int:
        """Return how many times the mean over documents and labels the configured cross-entropy of (B, K) logits is."""
        times = {"mean": 1, "document": logits.shape[1], "sum": logits.numel() * world_size()}
        return times[self.config.classification_loss]

    def output(self, features: Tensor, labels: Tensor | None) -> HierarchicalOutput:
        """Classify by the features of all labels together, (B, K, d)."""
        logits = self.classifier(features.flatten(1))  # (B, K)
        loss, terms = (None, None) if labels is None else self.classification(logits, labels)
        return HierarchicalOutput(loss=loss, logits=logits, terms=terms)

    def label_entries(self, rows: LabelRows, names: Tensor) -> dict[str, Tensor]:
        """Return what depends on the labels as another label tree has it: each label's row sees the nodes of all."""
        entries = super().label_entries(rows, names)
        entries["classifier.weight"] = rows.column_blocks(entries["classifier.weight"])
        return entries

    def start_labels(self, changes: TreeChanges, tokenizer: PreTrainedTokenizerBase, rates: Tensor) -> None:  # noqa: ARG002
        """Start the edges down to new labels at their share among the documents of all children of the parent."""
        parents = torch.from_numpy(changes.new.parents.copy())
        below = parents >= 0
        families = torch.zeros_like(rates).index_add_(0, parents[below], rates[below])
        added = torch.tensor([label for label in changes.added if parents[label] >= 0], dtype=torch.int64)
        for structure in self.modules():
            if isinstance(structure, HierarchyGCN | BiTreeLSTM):
                structure.down[added] = (rates[added] / families[parents[added]]).to(structure.down.dtype)

    def state_bytes(self) -> int:
        """Return what training keeps; the classifier's gradients by both losses are there before they are added."""
        regularised = self.config.recursive_regularisation != 0
        return super().state_bytes() + NUMBER * self.classifier.weight.numel() * regularised

    def batch_bytes(self, batch_size: int, length: int) -> int:
        """Return what a batch leaves behind: 7 numbers for each text, label and feature, 16 with a tree-LSTM."""
        copies = 16 if self.config.structure_encoder == "tree-lstm" else 7
        nodes = batch_size * self.config.label_count * self.config.node_width
        return super().batch_bytes(batch_size, length) + NUMBER * copies * nodes


class HiAGMTPForSequenceClassification(HiAGMPreTrainedModel):
    """Propagate the text through the tree (HiAGM-TP): a linear layer gives every label a feature of the text."""

    def __init__(self, config: HiAGMSettings) -> None:
        super().__init__(config)
        self.transformation = nn.Linear(config.text_encoder.hidden_size, config.label_count * config.node_width)
        self.post_init()

    def propagate(self, vectors: Tensor) -> Tensor:
        """Return the labels' features, (B, K, d), from text vectors, (B, H)."""
        nodes = self.dropout(self.transformation(vectors)).unflatten(1, (self.config.label_count, -1))
        features: Tensor = self.structure(nodes)
        return features

    def forward(self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor | None = None) -> HierarchicalOutput:
        """Classify texts, with labels with the loss."""
        return self.output(self.propagate(self.encode(attention_mask, input_ids=input_ids)), labels)

    def label_entries(self, rows: LabelRows, names: Tensor) -> dict[str, Tensor]:
        """Return what depends on the labels as another label tree has it: d rows of the linear layer for each."""
        parameters = self.transformation.named_parameters()
        blocks = {f"transformation.{name}": rows.row_blocks(value) for name, value in parameters}
        return super().label_entries(rows, names) | blocks


class HiAGMLAForSequenceClassification(HiAGMPreTrainedModel):
    """Let every label attend to the text (HiAGM-LA): its feature is the part of the text that it looks at."""

    def __init__(self, config: HiAGMSettings) -> None:
        super().__init__(config)
        self.label_embedding = nn.Embedding(config.label_count, config.node_width)
        hidden_size = config.text_encoder.hidden_size
        self.token_projection = (
            nn.Identity() if hidden_size == config.node_width else nn.Linear(hidden_size, config.node_width)
        )
        self.post_init()

    def label_features(self) -> Tensor:
        """Return the labels after the structure encoder, (K, d); they depend on no document."""
        with drawn_for_labels():
            features: Tensor = self.structure(self.label_embedding.weight.unsqueeze(0)).squeeze(0)
        return features

    def texts(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return the vectors of the tokens, of a node's width, (B, L, d)."""
        vectors: Tensor = self.dropout(self.token_projection(self.hidden(attention_mask, input_ids=input_ids)))
        return vectors

    def attend(self, labels: Tensor, texts: Tensor, attention_mask: Tensor) -> Tensor:
        """Return what each label sees of each text, ``softmax(labels textsᵀ) texts``, (B, K, d).

        Args:
            labels: label features, (K, d).
            texts: vectors of the tokens, (B, L, d).
            attention_mask: 1 on real tokens, (B, L); padding is not seen.
        """
        scores = labels @ texts.transpose(1, 2)  # (B, K, L)
        scores = scores.masked_fill(attention_mask.unsqueeze(1) == 0, torch.finfo(scores.dtype).min)
        return scores.softmax(-1) @ texts

    def forward(self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor | None = None) -> HierarchicalOutput:
        """Classify texts, with labels with the loss."""
        texts = self.texts(input_ids, attention_mask)
        return self.output(self.attend(self.label_features(), texts, attention_mask), labels)

    def label_entries(self, rows: LabelRows, names: Tensor) -> dict[str, Tensor]:
        """Return what depends on the labels, their embedding among it, as another label tree has it."""
        return super().label_entries(rows, names) | {"label_embedding.weight": rows.rows(self.label_embedding.weight)}

    def batch_bytes(self, batch_size: int, length: int) -> int:
        """Return what a batch leaves behind: 3 numbers for each text, label and feature, and as many for each token."""
        seen = self.config.label_count * (batch_size * self.config.node_width + batch_size * length)
        return HierarchicalPreTrainedModel.batch_bytes(self, batch_size, length) + NUMBER * 3 * seen


def edge_prior(documents: "datasets.Dataset", taxonomy: Taxonomy) -> Tensor:
    """Return P(label | its parent) in documents with a column ``labels`` of label indices, (K,), 1 for top labels.

    With n(p, c) the documents that carry both, ``P(c | p) = n(p, c) / Σ n(p, ·)`` over the children of p; all children
    alike where none was seen with its parent.
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


def recursive_regularisation(weight: Tensor, parents: Tensor) -> Tensor:
    """Return ``Σ ½ ‖w_parent − w_child‖²`` over the edges of the tree (Gopal and Yang, KDD 2013), ().

    HiAGM's classifier has K rows of K d weights. The difference of two such matrices is kept neither for the backward
    pass nor as a whole.

    Args:
        weight: a row per label, (K, D).
        parents: index of each label's parent, -1 for a top label, (K,).
    """
    distance: Tensor = _Distance.apply(weight, parents)
    return distance


class _Distance(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, parents: Tensor) -> Tensor:
        ctx.save_for_backward(weight, parents)
        total = weight.new_zeros(())
        for parent, child in _edges(parents, weight.shape[1]):
            total += (weight[parent] - weight[child]).square_().sum()
        return total / 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        weight, parents = ctx.saved_tensors
        to_weight = torch.zeros_like(weight)
        for parent, child in _edges(parents, weight.shape[1]):
            apart = (weight[parent] - weight[child]).mul_(gradient)
            to_weight.index_add_(0, parent, apart)
            to_weight.index_add_(0, child, apart, alpha=-1)
        return to_weight, None


def _edges(parents: Tensor, width: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the two ends of the edges, as many at a time as keep their weights within a piece."""
    children = torch.nonzero(parents >= 0)[:, 0]
    for child in children.split(max(1, PIECE // width)):
        if len(child):
            yield parents[child], child
