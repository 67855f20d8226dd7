"""``hgclr data stats``: to be written."""

from __future__ import annotations


def stats() -> None:
    """To be written."""
