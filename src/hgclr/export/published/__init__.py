"""Checkpoints of the program that the authors of HGCLR published."""

from __future__ import annotations

from hgclr.export.published.importing import ImportedModel, import_published, read_published

__all__ = ["ImportedModel", "import_published", "read_published"]
