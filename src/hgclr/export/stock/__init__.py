"""Trained models as folders of transformers' own classes, which need nothing of ours to be loaded."""

from __future__ import annotations

from hgclr.export.stock.exporting import StockExport, export_stock

__all__ = ["StockExport", "export_stock"]
