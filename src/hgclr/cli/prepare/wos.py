"""``hgclr data prepare wos``: to be written."""

from __future__ import annotations


def wos() -> None:
    """To be written."""
