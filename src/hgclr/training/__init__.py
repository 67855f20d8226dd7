"""Training: settings, recipes, the trainer, checkpoints."""

from __future__ import annotations

from hgclr.training.run import TrainingResult, train
from hgclr.training.settings import RunConfig

__all__ = ["RunConfig", "TrainingResult", "train"]
