"""Documents in: data folders, their checks, the token cache, and corpora that build themselves."""

from __future__ import annotations

from hgclr.data.folder import DataFolder, Document

__all__ = ["DataFolder", "Document"]
