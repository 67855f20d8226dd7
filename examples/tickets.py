"""The tickets that the examples share, as documents and a label tree."""

from __future__ import annotations

import csv
from pathlib import Path

from hgclr import HierarchicalClassifier, Taxonomy, fit
from hgclr.models import FlatForSequenceClassification
from hgclr.models.base import load_tokenizer
from hgclr.training import TrainingSettings

Pair = tuple[str, list[str]]


def read_tickets() -> tuple[list[Pair], Taxonomy]:
    """Return the tickets as pairs of a text and its labels, and the tree of the labels."""
    with Path(__file__).with_name("tickets.csv").open(encoding="utf-8", newline="") as file:
        pairs = [(row["ticket"], row["topic"].split(" > ")) for row in csv.DictReader(file)]
    tops = sorted({labels[0] for _, labels in pairs})
    leaves = sorted({(labels[1], labels[0]) for _, labels in pairs})
    parents = [-1] * len(tops) + [tops.index(top) for _, top in leaves]
    return pairs, Taxonomy([*tops, *(leaf for leaf, _ in leaves)], parents)


def train_classifier(encoder: str, epochs: int) -> HierarchicalClassifier:
    """Return a classifier trained on all but the last 24 tickets; decisions are tuned on 12 of these."""
    pairs, taxonomy = read_tickets()
    tokenizer = load_tokenizer(encoder)
    model = FlatForSequenceClassification.from_encoder(encoder, taxonomy, tokenizer)
    settings = TrainingSettings(epochs=epochs, seed=0)
    fitted = fit(model, tokenizer, pairs[:-24], pairs[-24:-12], settings=settings)
    return HierarchicalClassifier.from_model(model, tokenizer, fitted.decisions)
