"""Data folders, their import, checks and statistics, and the token cache."""

from __future__ import annotations

from hgclr.data.folder import DataFolder, Document

__all__ = ["DataFolder", "Document"]
