"""Why a text has its labels: the words that carry each, and whether those words alone would do."""

from __future__ import annotations

from hgclr.explaining.assembling import Method, explain
from hgclr.explaining.attention import AttentionRelevance
from hgclr.explaining.explanation import ExplainedLabel, Explanation, Stability

__all__ = ["AttentionRelevance", "ExplainedLabel", "Explanation", "Method", "Stability", "explain"]
