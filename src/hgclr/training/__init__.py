"""Training: settings, the in-memory core, the trainer, runs."""

from __future__ import annotations

from hgclr.training.core import Fitted, fit
from hgclr.training.run import TrainingResult, train
from hgclr.training.settings import RunConfig, TrainingSettings
from hgclr.training.trainer import HierarchicalTrainer

__all__ = ["Fitted", "HierarchicalTrainer", "RunConfig", "TrainingResult", "TrainingSettings", "fit", "train"]
