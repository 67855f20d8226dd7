"""The search for settings on dev: the paper's grid, or Optuna's trials over a space."""

from __future__ import annotations

from hgclr.reproduction.tuning.searching import TuningResult, tune
from hgclr.reproduction.tuning.space_files import read_space
from hgclr.reproduction.tuning.spaces import Search, default_space, grid
from hgclr.reproduction.tuning.trials import Turn, Watch

__all__ = ["Search", "TuningResult", "Turn", "Watch", "default_space", "grid", "read_space", "tune"]
