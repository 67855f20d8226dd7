"""scikit-learn estimator: fit, predict, pipelines, grid search, cross-validation."""

from __future__ import annotations

from hgclr.errors import require_extra

require_extra("sklearn", extra="sklearn", capability="HGCLRClassifier")

from hgclr.estimator.classifier import HGCLRClassifier  # noqa: E402 (scikit-learn is imported there)
from hgclr.estimator.labels import label_matrix, label_tree  # noqa: E402

__all__ = ["HGCLRClassifier", "label_matrix", "label_tree"]
