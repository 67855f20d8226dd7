"""``hgclr data prepare neuralclassifier``: to be written."""

from __future__ import annotations


def neuralclassifier() -> None:
    """To be written."""
