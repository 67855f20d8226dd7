"""Bulk prediction of labels for files, on all cores or on a Ray cluster."""

from __future__ import annotations

from hgclr.bulk.run import BulkResult, predict_files

__all__ = ["BulkResult", "predict_files"]
