"""The published program's training step, written slowly and literally from its description, one loop per symbol.

Shares nothing with ``hgclr.nn``: no prefix sums, no batched attention, no 2B pass. ``weights`` is a model's state
dict; ``encoder`` the text encoder itself (in evaluation mode, so that there is no dropout anywhere).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def linear(weights: dict[str, Tensor], name: str, vector: Tensor) -> Tensor:
    return weights[f"{name}.weight"] @ vector + weights[f"{name}.bias"]


def path_edges(parents: list[int], i: int, j: int) -> list[int]:
    """The edges between two labels, each named by its child; the virtual root is -1."""
    up_i, up_j = [i], [j]
    for up in (up_i, up_j):
        while up[-1] != -1:
            up.append(parents[up[-1]])
    meeting = next(node for node in up_i if node in up_j)
    return up_i[: up_i.index(meeting)] + up_j[: up_j.index(meeting)]


def name_feature(encoder, tokens: Tensor) -> Tensor:
    """Step 4: one label name, special tokens included, through the whole embedding layer; the mean over tokens."""
    return encoder.embeddings(tokens[tokens >= 0][None])[0].mean(0)


def label_features(weights: dict[str, Tensor], encoder, names: Tensor, parents: list[int], heads: int) -> Tensor:
    """Step 4: names plus label embedding, one self-attention with spatial and edge bias, residual, LayerNorm."""
    layer = "label_encoder.layers.0"
    count = len(parents)
    features = [
        name_feature(encoder, names[k]) + weights["label_encoder.label_embedding.weight"][k] for k in range(count)
    ]
    width = len(features[0]) // heads
    result = []
    for i in range(count):
        mixed = []
        for head in range(heads):
            part = slice(head * width, (head + 1) * width)
            query = linear(weights, f"{layer}.query", features[i])[part]
            logits, values = [], []
            for j in range(count):
                edges = path_edges(parents, i, j)
                bias = weights["label_encoder.structure.spatial"][len(edges)]
                if not edges:
                    bias = bias.detach()  # a padding row
                else:
                    bias = bias + sum(weights["label_encoder.structure.edge"][e] for e in edges) / len(edges)
                key = linear(weights, f"{layer}.key", features[j])[part]
                logits.append(query @ key / math.sqrt(width) + bias)
                values.append(linear(weights, f"{layer}.value", features[j])[part])
            attention = torch.stack(logits).softmax(0)
            mixed.append(sum(a * v for a, v in zip(attention, values, strict=True)))
        out = linear(weights, f"{layer}.output", torch.cat(mixed)) + features[i]
        mean, variance = out.mean(), out.var(unbiased=False)
        scale, shift = weights[f"{layer}.norm.weight"], weights[f"{layer}.norm.bias"]
        result.append((out - mean) / torch.sqrt(variance + 1e-12) * scale + shift)
    return torch.stack(result)


def token_weights(
    weights: dict[str, Tensor],
    words: Tensor,
    labels: Tensor,
    gold: list[int],
    noise: Tensor,
    heads: int,
    gamma: float,
    temperature: float,
) -> Tensor:
    """Steps 5 to 7 for one document: softmax over labels, mean over heads, Gumbel-softmax on top, threshold."""
    width = labels.shape[1] // heads
    result = []
    for i, word in enumerate(words):
        query = linear(weights, "token_label_attention.query", word)
        probabilities = torch.zeros(len(labels), dtype=labels.dtype)
        for head in range(heads):
            part = slice(head * width, (head + 1) * width)
            keys = [linear(weights, "token_label_attention.key", label)[part] for label in labels]
            logits = torch.stack([query[part] @ key / math.sqrt(width) for key in keys])
            probabilities = probabilities + logits.softmax(0) / heads
        sampled = ((probabilities + noise[i]) / temperature).softmax(0)
        p = sum(sampled[j] for j in gold)
        result.append(p + (1 - p).detach() if p > gamma else torch.zeros_like(p))
    return torch.stack(result)


def bce(logits: Tensor, gold: list[int]) -> Tensor:
    terms = [
        -torch.log(torch.sigmoid(x)) if k in gold else -torch.log(1 - torch.sigmoid(x)) for k, x in enumerate(logits)
    ]
    return sum(terms) / len(terms)


def training_step(
    weights: dict[str, Tensor],
    encoder,
    texts: list[list[int]],
    golds: list[list[int]],
    names: Tensor,
    parents: list[int],
    noise: Tensor,
    *,
    label_heads: int,
    token_heads: int,
    gamma: float,
    contrastive_weight: float,
    temperature: float = 1.0,
) -> dict[str, Tensor]:
    """Steps 1 to 9, document by document, two encoder passes."""
    labels = label_features(weights, encoder, names, parents, label_heads)
    hidden, hidden_positive, kept = [], [], []
    for b, text in enumerate(texts):
        ids = torch.tensor(text)
        words = encoder.get_input_embeddings().weight[ids]
        keep = token_weights(weights, words, labels, golds[b], noise[b], token_heads, gamma, temperature)
        kept.append(keep)
        hidden.append(encoder(input_ids=ids[None]).last_hidden_state[0, 0])
        hidden_positive.append(encoder(inputs_embeds=(words * keep[:, None])[None]).last_hidden_state[0, 0])
    logits = [linear(weights, "classifier", h) for h in hidden]
    logits_positive = [linear(weights, "classifier", h) for h in hidden_positive]
    original = sum(bce(x, g) for x, g in zip(logits, golds, strict=True)) / len(texts)
    positive = sum(bce(x, g) for x, g in zip(logits_positive, golds, strict=True)) / len(texts)

    projected = [
        linear(weights, "projection.4", torch.relu(linear(weights, "projection.1", h)))
        for h in hidden + hidden_positive
    ]
    contrastive = torch.zeros((), dtype=projected[0].dtype)
    for m, z in enumerate(projected):
        similarity = [z @ other / (z.norm() * other.norm()) for other in projected]
        partner = similarity[(m + len(texts)) % len(projected)]
        others = sum(torch.exp(s) for i, s in enumerate(similarity) if i != m)
        contrastive = contrastive - torch.log(torch.exp(partner) / others) / len(projected)
    return {
        "logits": torch.stack(logits),
        "loss_original": original,
        "loss_positive": positive,
        "loss_contrastive": contrastive,
        "loss": original + positive + contrastive_weight * contrastive,
        "kept": torch.cat([(keep != 0).float() for keep in kept]).mean(),
    }
