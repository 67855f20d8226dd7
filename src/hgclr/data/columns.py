"""Check the columns of a table before its rows are read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hgclr.errors import InputError

__all__ = ["require_columns"]


def require_columns(found: Sequence[str], wanted: Sequence[str], *, path: Path, line: int | None = None) -> None:
    """Refuse a table in which a wanted column is absent or stands twice.

    Args:
        found: the column names of the table.
        wanted: the columns that are needed.
        path: the file, for the message.
        line: the header's line, where there is one.

    Raises:
        InputError: naming the column and what the table has instead.
    """
    for column in wanted:
        times = found.count(column)
        if times == 1:
            continue
        what = f"column {column!r} stands {times} times in the header" if times else f"missing column {column!r}"
        raise InputError(
            f"{what} (the table has: {', '.join(map(repr, found)) or 'none'})",
            path=path,
            line=line,
            remedy="rename one of them" if times else "name the right column with --text-column or --label-column",
        )
