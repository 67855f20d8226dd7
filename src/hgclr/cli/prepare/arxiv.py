"""``hgclr data prepare arxiv``: to be written."""

from __future__ import annotations


def arxiv() -> None:
    """To be written."""
