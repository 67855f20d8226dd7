"""``hgclr data split``: to be written."""

from __future__ import annotations


def split() -> None:
    """To be written."""
