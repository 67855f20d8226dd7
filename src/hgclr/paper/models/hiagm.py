"""HiAGM: a text's features on every node of the label tree (Zhou et al., ACL 2020).

Text propagation (TP) sends what a linear layer makes of the text along the edges of the tree; multi-label attention
(LA) sends label embeddings along them and lets each label look for its part of the text.
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from hgclr.models.base import NUMBER, HierarchicalOutput, HierarchicalPreTrainedModel
from hgclr.nn.draws import drawn_for_labels
from hgclr.nn.label_rows import LabelRows
from hgclr.paper.models import BaselineConfig
from hgclr.paper.models.structure_encoders import BiTreeLSTM, HierarchyGCN
from hgclr.taxonomy import Taxonomy
from hgclr.taxonomy.changes import TreeChanges

if TYPE_CHECKING:
    import datasets

__all__ = [
    "HiAGMLAForSequenceClassification",
    "HiAGMPreTrainedModel",
    "HiAGMTPForSequenceClassification",
    "edge_prior",
    "structure_encoder",
]


def structure_encoder(config: BaselineConfig, width: int) -> HierarchyGCN | BiTreeLSTM:
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

    config: BaselineConfig
    config_class = BaselineConfig
    head_rate = 1.0
    less_memory = "lower model.node_width, or choose hgclr, which grows with the number of labels, not with its square"

    def __init__(self, config: BaselineConfig) -> None:
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

    @property
    def regularisation(self) -> float:
        return self.config.recursive_regularisation

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
        """Return what depends on the labels as another label tree has it: d rows of the linear layer for each."""
        parameters = self.transformation.named_parameters()
        blocks = {f"transformation.{name}": rows.row_blocks(value) for name, value in parameters}
        return super().label_entries(rows, names) | blocks


class HiAGMLAForSequenceClassification(HiAGMPreTrainedModel):
    """Let every label attend to the text (HiAGM-LA): its feature is the part of the text that it looks at."""

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
        """Return the labels after the structure encoder, (K, d); they depend on no document."""
        with drawn_for_labels():
            labels = self.label_dropout(self.label_embedding.weight)
            features: Tensor = self.structure(labels.unsqueeze(0)).squeeze(0)
        return features

    def texts(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return the vectors of the tokens, of a node's width, (B, L, d)."""
        vectors: Tensor = self.dropout(self.token_projection(self.hidden(attention_mask, input_ids=input_ids)))
        return vectors

    def attend(self, labels: Tensor, texts: Tensor, attention_mask: Tensor) -> Tensor:
        """Return what each label sees of each text, ``softmax(labels textsᵀ) texts``, (B, K, d); padding is not seen.

        From label features, (K, d), vectors of the tokens, (B, L, d), and 1 on real tokens, (B, L).
        """
        scores = labels @ texts.transpose(1, 2)  # (B, K, L)
        scores = scores.masked_fill(attention_mask.unsqueeze(1) == 0, torch.finfo(scores.dtype).min)
        return scores.softmax(-1) @ texts

    def forward(self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor | None = None) -> HierarchicalOutput:
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
