"""Prediction: the classifier, and the backends that compute its logits."""

from __future__ import annotations

from hgclr.inference.classifier import HierarchicalClassifier, PredictedLabel, Prediction

__all__ = ["HierarchicalClassifier", "PredictedLabel", "Prediction"]
