"""Open a model for a command."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hgclr.inference import HierarchicalClassifier

__all__ = ["open_classifier"]


def open_classifier(model: str) -> HierarchicalClassifier:
    """Load a model; torch and transformers, whose import takes seconds, only for one that needs them."""
    from hgclr.cli.console import quiet_libraries
    from hgclr.errors import require_extra
    from hgclr.inference import HierarchicalClassifier
    from hgclr.inference.finding import find_model
    from hgclr.inference.loading import is_onnx

    if not is_onnx(find_model(model)):
        require_extra("torch", extra="train", capability="A model that is no ONNX folder")
        quiet_libraries()
    return HierarchicalClassifier.from_pretrained(model)
