"""The flat model, a text encoder with a linear head, which is also the deployed form of HGCLR; vectors of names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from hgclr.data.folder import label_texts
from hgclr.models.base import HGCLRConfig, HierarchicalOutput, HierarchicalPreTrainedModel
from hgclr.nn.fast import name_blocks
from hgclr.taxonomy.changes import TreeChanges

SLOPE = 5.0
"""Logit of a leaf for a text that equals its name."""
INNER = 0.5
"""Weight of all inner labels on the longest path together, if its leaf has the weight 1."""
LONGEST = 64
"""Limit on the tokens of a label's name or description, special tokens included."""


class FlatForSequenceClassification(HierarchicalPreTrainedModel):
    """Classify a text by ``p = sigmoid(W_c h + b_c)``, h the encoder's vector of the text (Eqs. 2 and 16).

    Example:
        >>> model = FlatForSequenceClassification.from_encoder("bert-base-uncased", tree, tokenizer)  # doctest: +SKIP
        >>> model(input_ids, attention_mask).logits.shape  # doctest: +SKIP
        torch.Size([2, 141])
    """

    def __init__(self, config: HGCLRConfig) -> None:
        super().__init__(config)
        self.classifier = nn.Linear(config.text_encoder.hidden_size, config.label_count)  # W_c, b_c
        self.post_init()

    def forward(self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor | None = None) -> HierarchicalOutput:
        """Classify texts.

        Args:
            input_ids: (B, L).
            attention_mask: 1 on real tokens, (B, L).
            labels: gold labels as 0/1, (B, K); with them, the loss is returned too.
        """
        logits = self.classifier(self.encode(attention_mask, input_ids=input_ids))  # (B, K)
        if labels is None:
            return HierarchicalOutput(logits=logits)
        loss, terms = self.classification(logits, labels)
        return HierarchicalOutput(loss=loss, logits=logits, terms=terms)

    @property
    def regularisation(self) -> float:
        return self.config.flat_regularisation

    @torch.no_grad()
    def start_from_names(self, tokenizer: PreTrainedTokenizerBase, length: float = 1.0) -> None:
        """Initialise each row of the head in the direction of the label's name, ``w_k = length u_k``.

        A pretrained encoder maps a name near texts on its subject, so labels with few documents start above chance.
        """
        self.classifier.weight.copy_(length * name_directions(self, tokenizer))

    @torch.no_grad()
    def classify_by_names(self, tokenizer: PreTrainedTokenizerBase) -> None:
        """Set the head from names and descriptions alone, without documents.

        ``p_k = sigmoid(5 h · v_k / m)``: v_k is the direction of the k-th name, or the mean direction of the name and
        the alternative names, or the mean of that and the direction of the description; m is the mean length of the
        names' vectors. An inner label's v_k is its own direction plus that of the mean of all labels below it, times
        0.5 / (depth of the tree - 1): paths are compared by the sum of their logits, so with the full length the inner
        labels of a deep tree would outvote the leaf. These sigmoids are similarities, not probabilities: use them
        through :class:`~hgclr.decisions.settings.LeafSoftmax`. There is no bias: vectors of long texts are short, so a
        bias that suits short texts would reject all labels of long ones.
        """
        tree, vectors = self.config.taxonomy, text_vectors(self, tokenizer, label_texts(self.config.taxonomy))
        names = F.normalize(vectors, dim=-1)  # (K, H)
        if others := [(label, text) for label, texts in enumerate(tree.alternatives) for text in texts]:
            directions = F.normalize(text_vectors(self, tokenizer, [text for _, text in others]), dim=-1)
            names.index_add_(0, torch.tensor([label for label, _ in others]), directions)
            names = F.normalize(names, dim=-1)
        if described := [label for label, text in enumerate(tree.descriptions) if text]:
            texts = text_vectors(self, tokenizer, [tree.descriptions[label] for label in described])
            names[described] = F.normalize(names[described] + F.normalize(texts, dim=-1), dim=-1)
        below, count = torch.zeros_like(names), torch.zeros(len(tree), 1)
        for level in reversed(tree.levels[1:] if tree.is_tree else ()):  # sums over all labels below each
            parents = torch.from_numpy(tree.parents[level])
            labels = torch.from_numpy(level.copy())
            below.index_add_(0, parents, below[labels] + names[labels])
            count.index_add_(0, parents, count[labels] + 1)
        if not tree.is_tree:  # a label counts once, however many paths lead to it
            for label in range(len(tree)):
                above = torch.from_numpy(tree.closure(list(tree.parents_of(label))))
                below[above] += names[label]
                count[above] += 1
        inner = INNER / max(tree.depth - 1, 1) * F.normalize(names + F.normalize(below, dim=-1), dim=-1)
        rows = torch.where(count > 0, inner, names)
        self.classifier.weight.copy_(SLOPE / vectors.norm(dim=-1).mean() * rows)
        self.classifier.bias.zero_()

    @torch.no_grad()
    def start_labels(self, changes: TreeChanges, tokenizer: PreTrainedTokenizerBase, rates: Tensor) -> None:  # noqa: ARG002
        """Initialise the rows of new labels and of the parts of split labels.

        A new label n under p gets ``w_n = w_p + r u_n`` (``r u_n`` at the top), with u_n the direction of its name. A
        part of a split label o gets ``w_o + r (u_n - mean of u over the parts)``.

        r is the least-squares estimate over the kept labels of the same depth, or of all depths if that has none: the
        mean of ``u_j · (w_j - w_p)``, or 0 if that is negative, so that names unknown to the encoder have no effect.
        """
        if not changes.added and not changes.split:
            return
        tree, weight = changes.new, self.classifier.weight
        directions = name_directions(self, tokenizer)  # u, (K, H)
        kept = torch.zeros(len(tree) + 1, dtype=torch.bool)
        kept[[pair.new for pair in (*changes.kept, *changes.renamed, *changes.moved)]] = True
        kept[-1] = True  # the virtual root, whose row is 0
        parents = torch.from_numpy(tree.parents.copy())
        rows = F.pad(weight, (0, 0, 0, 1))  # (K + 1, H)
        agreement = (directions * (weight - rows[parents])).sum(1)
        telling = kept[:-1] & kept[parents]
        added, parts = set(changes.added), {label for _, labels in changes.split for label in labels}
        for level in tree.levels:
            here = torch.from_numpy(level.copy())
            here = here[telling[here]]
            chosen = agreement[here] if len(here) else agreement[telling]
            scale = chosen.mean().clamp(min=0) if len(chosen) else agreement.new_zeros(())  # r
            for label in level.tolist():
                if label in added:
                    rows[label] = rows[parents[label]] + scale * directions[label]
                elif label in parts:
                    others = sorted({part for old in changes.sources[label] for part in changes.targets[old]})
                    rows[label] = rows[label] + scale * (directions[label] - directions[others].mean(0))
        weight.copy_(rows[:-1])


def name_tokens(names: Sequence[str], tokenizer: PreTrainedTokenizerBase) -> Tensor:
    """Return the tokens of label names with special tokens, (K, T), padded with -1; long names are truncated."""
    encoded = tokenizer(list(names), add_special_tokens=True, truncation=True, max_length=LONGEST)["input_ids"]
    return nn.utils.rnn.pad_sequence([torch.tensor(ids) for ids in encoded], batch_first=True, padding_value=-1)


@torch.no_grad()
def text_vectors(model: Any, tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> Tensor:
    """Return a model's vectors, (n, H), of names or descriptions of labels."""
    training = model.training
    model.eval()
    vectors: Tensor = model.classifier.weight.new_empty(len(texts), model.classifier.in_features)
    for places, tokens in name_blocks(name_tokens(texts, tokenizer)):
        real = tokens >= 0
        ids = tokens.masked_fill(~real, int(tokenizer.pad_token_id))
        vectors[places] = model.encode(real.long().to(model.device), input_ids=ids.to(model.device))
    model.train(training)
    return vectors


def name_directions(model: Any, tokenizer: PreTrainedTokenizerBase) -> Tensor:
    """Return ``u_k = (n_k - n̄) / ‖n_k - n̄‖``, n_k the vector of the k-th label's name and n̄ their mean, (K, H)."""
    vectors = text_vectors(model, tokenizer, label_texts(model.config.taxonomy))
    return F.normalize(vectors - vectors.mean(0), dim=-1)
