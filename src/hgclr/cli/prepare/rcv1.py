"""``hgclr data prepare rcv1``: to be written."""

from __future__ import annotations


def rcv1() -> None:
    """To be written."""
