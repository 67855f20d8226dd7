"""The model card: README.md in a model's folder, for people and for model hubs."""

from __future__ import annotations

from hgclr.export.card.records import Score, TrainingRecord, read_scores, read_training
from hgclr.export.card.writing import ModelCard, write_card

__all__ = ["ModelCard", "Score", "TrainingRecord", "read_scores", "read_training", "write_card"]
