"""``hgclr data prepare nyt``: to be written."""

from __future__ import annotations


def nyt() -> None:
    """To be written."""
