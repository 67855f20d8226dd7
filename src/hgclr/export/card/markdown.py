"""Markdown from names that are data: whatever is in a label's name is shown, and nothing of it is markup."""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["escape", "table"]

# What starts markup, a table cell, an address or a mention within a line; what only counts at its beginning may stay.
MARKUP = re.compile(r"([\\`*_\[\]<>#|~&$@:]|(?<=www)\.)", re.IGNORECASE)


def escape(text: str) -> str:
    """Return a text that Markdown shows as it is, on one line.

    Example:
        >>> escape("R&D | *new*")
        'R\\\\&D \\\\| \\\\*new\\\\*'
    """
    return MARKUP.sub(r"\\\1", " ".join(text.split()))


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table; cells must be Markdown already."""
    return [_row(header), _row(["---"] * len(header)), *map(_row, rows)]


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
