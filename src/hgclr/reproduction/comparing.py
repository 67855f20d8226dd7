"""Whether what lies in a folder was made with the same settings as are wanted now."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Difference", "first_difference"]

PATHS = ("path", "taxonomy", "word_vectors", "start")
"""Settings whose value may be spelled in several ways."""


class Difference(NamedTuple):
    """A setting with two values."""

    place: str
    before: Any
    now: Any


def first_difference(
    old: Mapping[str, Any], new: Mapping[str, Any], *, shared: bool = False, place: str = ""
) -> Difference | None:
    """Return the first setting that differs, or None.

    Args:
        old: what lies there.
        new: what is wanted.
        shared: pass over what one of the two does not know: it came with another version of the program.
        place: name of the sections that these are in.
    """
    for name in sorted({*old, *new}):
        before, now, where = old.get(name), new.get(name), f"{place}.{name}" if place else name
        if shared and (name not in old or name not in new):
            continue
        if isinstance(before, dict) and isinstance(now, dict):
            if (inside := first_difference(before, now, shared=shared, place=where)) is not None:
                return inside
        elif before != now and not _same_path(name, before, now):
            return Difference(where, before, now)
    return None


def _same_path(name: str, old: object, new: object) -> bool:
    """Tell whether two spellings of a path mean the same place."""
    known = name in PATHS and isinstance(old, str) and isinstance(new, str)
    return known and Path(str(old)).resolve() == Path(str(new)).resolve()
