"""Reports on how well a model does, and comparisons of them."""

from __future__ import annotations

from hgclr.reporting.comparing import Comparison, compare
from hgclr.reporting.running import Report, report

__all__ = ["Comparison", "Report", "compare", "report"]
