"""The baseline of the speed benchmarks: HGCLR computed as in the authors' published program.

It was written from a description of that program and contains none of its code. It has the same costs: two encoder
passes, every text padded to 512 tokens, eager attention, a dense K x K x 15 table of paths filled by Python loops, and
a test loop that counts label by label in Python. It uses the weights of an HGCLR model under the ``published`` preset,
so that both compute the same loss from the same noise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hgclr.models import HGCLRForSequenceClassification
from hgclr.taxonomy import Taxonomy

__all__ = ["PublishedStyle", "pad_to_512", "score_label_by_label"]

LENGTH = 512
LONGEST_PATH = 15


def pad_to_512(rows: Sequence[dict[str, Any]], labels: int, pad_token: int) -> dict[str, Tensor]:
    """Return a batch in which every text has 512 tokens."""
    ids = torch.full((len(rows), LENGTH), pad_token)
    mask = torch.zeros(len(rows), LENGTH, dtype=torch.long)
    gold = torch.zeros(len(rows), labels)
    for number, row in enumerate(rows):
        tokens = torch.as_tensor(row["input_ids"])
        ids[number, : len(tokens)] = tokens
        mask[number, : len(tokens)] = 1
        gold[number, row["labels"]] = 1.0
    return {"input_ids": ids, "attention_mask": mask, "labels": gold}


class PublishedStyle(nn.Module):
    """The published training step, with the weights of an HGCLR model.

    Args:
        model: HGCLR under the ``published`` preset; its encoder is set to eager attention.
    """

    def __init__(self, model: HGCLRForSequenceClassification) -> None:
        super().__init__()
        self.model = model
        self.model.encoder.set_attn_implementation("eager")
        distances, edges = path_tables(model.config.taxonomy)
        self.register_buffer("distances", distances)  # (K, K)
        self.register_buffer("edges", edges)  # (K, K, 15); edge c is stored as c + 1, 0 means no edge

    def forward(self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor, noise: Tensor | None = None) -> Tensor:
        """Return the loss of a batch of (B, 512) tokens."""
        model, config = self.model, self.model.config
        words = model.encoder.get_input_embeddings()(input_ids)
        features = self.label_features()
        query = model.token_label_attention.query(words).unflatten(-1, (config.token_label_heads, -1))
        key = model.token_label_attention.key(features).unflatten(-1, (config.token_label_heads, -1))
        scores = torch.einsum("blhd,khd->bhlk", query, key) * query.shape[-1] ** -0.5
        scores = scores.softmax(-1).mean(1)  # (B, L, K)
        if noise is None:
            noise = -torch.empty_like(scores).exponential_().log()
        sampled = (scores + noise).softmax(-1)
        probability = (sampled * labels.unsqueeze(1)).sum(-1)  # (B, L)
        kept = probability > config.keep_threshold
        weights = (probability + (1 - probability).detach()) * kept

        first = model.encode(attention_mask, inputs_embeds=words)
        second = model.encode(attention_mask, inputs_embeds=words * weights.unsqueeze(-1))
        loss = F.binary_cross_entropy_with_logits(model.classifier(first), labels)
        loss = loss + F.binary_cross_entropy_with_logits(model.classifier(second), labels)
        projected = F.normalize(torch.cat([model.projection(first), model.projection(second)]), dim=-1)
        similarity = projected @ projected.T
        similarity.fill_diagonal_(-torch.inf)
        partner = torch.arange(len(projected)).roll(len(first))
        return loss + config.contrastive_weight * F.cross_entropy(similarity, partner)

    def label_features(self) -> Tensor:
        """Return the label features; edge weights of paths are gathered from the dense table."""
        graphormer = self.model.label_encoder
        (layer,) = graphormer.layers
        features = self.model.name_embeddings() + graphormer.label_embedding.weight
        weights = torch.cat([torch.zeros(1), graphormer.structure.edge])
        bias = graphormer.structure.spatial[self.distances]
        bias = bias + weights[self.edges].sum(-1) / self.distances.clamp(min=1)
        query, key, value = (
            part(features).unflatten(-1, (layer.heads, -1)).transpose(0, 1)
            for part in (layer.query, layer.key, layer.value)
        )
        attention = (query @ key.transpose(1, 2) * query.shape[-1] ** -0.5 + bias).softmax(-1)
        attention = F.dropout(attention, layer.dropout.p, self.training)
        mixed = layer.output((attention @ value).transpose(0, 1).flatten(1))
        return layer.norm(F.dropout(mixed, layer.dropout.p, self.training) + features)


def path_tables(taxonomy: Taxonomy) -> tuple[Tensor, Tensor]:
    """Return distances, (K, K), and the edges of every path, (K, K, 15), filled pair by pair."""
    parents = taxonomy.parents.tolist()
    upward = []
    for label in range(len(parents)):
        nodes = [label]
        while nodes[-1] != -1:
            nodes.append(parents[nodes[-1]])
        upward.append(nodes)
    distances = torch.zeros(len(parents), len(parents), dtype=torch.long)
    edges = torch.zeros(len(parents), len(parents), LONGEST_PATH, dtype=torch.long)
    for i, from_i in enumerate(upward):
        for j, from_j in enumerate(upward):
            meeting = next(node for node in from_i if node in from_j)
            path = from_i[: from_i.index(meeting)] + from_j[: from_j.index(meeting)]
            if len(path) > LONGEST_PATH:
                raise ValueError(f"a path has {len(path)} edges; the published table holds at most {LONGEST_PATH}")
            distances[i, j] = len(path)
            for place, edge in enumerate(path):
                edges[i, j, place] = edge + 1
    return distances, edges


@torch.no_grad()
def score_label_by_label(
    model: HGCLRForSequenceClassification, batches: Iterator[dict[str, Tensor]]
) -> dict[str, float]:
    """Return Micro- and Macro-F1, counted document by document and label by label in Python."""
    labels = model.config.label_count
    true, predicted, gold = [0] * labels, [0] * labels, [0] * labels
    for batch in batches:
        vectors = model.encode(batch["attention_mask"], input_ids=batch["input_ids"])
        probabilities = torch.sigmoid(model.classifier(vectors)).tolist()
        for row, answers in zip(probabilities, batch["labels"].tolist(), strict=True):
            for label in range(labels):
                given = row[label] > 0.5
                wanted = answers[label] == 1.0
                true[label] += given and wanted
                predicted[label] += given
                gold[label] += wanted
    f1 = [2 * t / (p + g) if p + g else 0.0 for t, p, g in zip(true, predicted, gold, strict=True)]
    return {"micro_f1": 2 * sum(true) / max(1, sum(predicted) + sum(gold)), "macro_f1": sum(f1) / labels}
