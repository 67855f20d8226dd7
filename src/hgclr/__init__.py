"""Classification of texts into a label tree with hierarchy-guided contrastive learning (HGCLR, ACL 2022).

Names are imported on first use, so ``import hgclr`` is fast and works without torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hgclr.decisions.settings import Decisions as Decisions
    from hgclr.errors import HGCLRError as HGCLRError
    from hgclr.errors import InputError as InputError
    from hgclr.estimator import HGCLRClassifier as HGCLRClassifier
    from hgclr.evaluation.audit import audit as audit
    from hgclr.inference import HierarchicalClassifier as HierarchicalClassifier
    from hgclr.models import FlatForSequenceClassification as FlatForSequenceClassification
    from hgclr.models import HGCLRConfig as HGCLRConfig
    from hgclr.models import HGCLRForSequenceClassification as HGCLRForSequenceClassification
    from hgclr.taxonomy import Taxonomy as Taxonomy
    from hgclr.training import HierarchicalTrainer as HierarchicalTrainer
    from hgclr.training import fit as fit
    from hgclr.training import train as train

    __version__: str

_HOMES = {
    "Decisions": "hgclr.decisions.settings",
    "FlatForSequenceClassification": "hgclr.models",
    "HGCLRClassifier": "hgclr.estimator",
    "HGCLRConfig": "hgclr.models",
    "HGCLRError": "hgclr.errors",
    "HGCLRForSequenceClassification": "hgclr.models",
    "HierarchicalClassifier": "hgclr.inference",
    "HierarchicalTrainer": "hgclr.training",
    "InputError": "hgclr.errors",
    "Taxonomy": "hgclr.taxonomy",
    "audit": "hgclr.evaluation.audit",
    "fit": "hgclr.training",
    "train": "hgclr.training",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version("hgclr")
    if name not in _HOMES:
        raise AttributeError(f"module 'hgclr' has no attribute {name!r}")
    home = _HOMES[name]
    if home in ("hgclr.models", "hgclr.training"):
        from hgclr.errors import require_extra

        require_extra("torch", extra="train", capability=f"hgclr.{name}")
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
