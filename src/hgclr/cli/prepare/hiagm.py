"""``hgclr data prepare hiagm``: to be written."""

from __future__ import annotations


def hiagm() -> None:
    """To be written."""
