"""The models: one forward contract, chosen by name."""

from __future__ import annotations

from hgclr.models.flat import ClassifierOutput, FlatModel
from hgclr.models.hgclr import HGCLRModel

__all__ = ["ARCHITECTURES", "ClassifierOutput", "FlatModel", "HGCLRModel"]

ARCHITECTURES: dict[str, type[FlatModel]] = {"flat": FlatModel, "hgclr": HGCLRModel}
