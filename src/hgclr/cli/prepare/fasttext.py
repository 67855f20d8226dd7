"""``hgclr data prepare fasttext``: to be written."""

from __future__ import annotations


def fasttext() -> None:
    """To be written."""
