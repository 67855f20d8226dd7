"""Documents in: data folders, their checks and statistics, and the token cache.

Everything here raises :class:`~hgclr.errors.InputError`, with file and row, for data that cannot be used.
"""

from __future__ import annotations

from hgclr.data.folder import DataFolder, Document

__all__ = ["DataFolder", "Document"]
