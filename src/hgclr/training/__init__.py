"""Training: settings, the recipe, fitting in memory, the trainer, runs from a folder.

Names are imported on first use, so that settings can be read without torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hgclr.training.fitting import Fitted as Fitted
    from hgclr.training.fitting import fit as fit
    from hgclr.training.run import TrainingResult as TrainingResult
    from hgclr.training.run import train as train
    from hgclr.training.settings import LoraSettings as LoraSettings
    from hgclr.training.settings import RunConfig as RunConfig
    from hgclr.training.settings import TrainingSettings as TrainingSettings
    from hgclr.training.trainer import HierarchicalTrainer as HierarchicalTrainer

_HOMES = {
    "Fitted": "fitting",
    "HierarchicalTrainer": "trainer",
    "LoraSettings": "settings",
    "RunConfig": "settings",
    "TrainingResult": "run",
    "TrainingSettings": "settings",
    "fit": "fitting",
    "train": "run",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'hgclr.training' has no attribute {name!r}")
    return getattr(importlib.import_module(f"hgclr.training.{_HOMES[name]}"), name)
