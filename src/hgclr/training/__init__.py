"""Training: settings, the in-memory core, the trainer, runs.

Names are imported when they are first used: the settings of a run can be read and checked without torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hgclr.training.core import Fitted as Fitted
    from hgclr.training.core import fit as fit
    from hgclr.training.run import TrainingResult as TrainingResult
    from hgclr.training.run import train as train
    from hgclr.training.settings import LoraSettings as LoraSettings
    from hgclr.training.settings import RunConfig as RunConfig
    from hgclr.training.settings import TrainingSettings as TrainingSettings
    from hgclr.training.trainer import HierarchicalTrainer as HierarchicalTrainer

_HOMES = {
    "Fitted": "core",
    "HierarchicalTrainer": "trainer",
    "LoraSettings": "settings",
    "RunConfig": "settings",
    "TrainingResult": "run",
    "TrainingSettings": "settings",
    "fit": "core",
    "train": "run",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'hgclr.training' has no attribute {name!r}")
    return getattr(importlib.import_module(f"hgclr.training.{_HOMES[name]}"), name)
