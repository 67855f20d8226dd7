"""Settings and commands for the record, without the paths of this machine."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

PATHS = ("path", "taxonomy", "start", "label_changes")
"""Settings whose value may be spelled in several ways."""


def portable(value: Any) -> Any:
    """Return settings with only the last part of absolute paths, the rest of which says nothing on another machine."""
    if isinstance(value, dict):
        return {name: portable(inside) for name, inside in value.items()}
    if isinstance(value, list):
        return [portable(inside) for inside in value]
    if isinstance(value, str) and Path(value).is_absolute():
        return Path(value).name
    return value


def command_line(words: Sequence[str]) -> str:
    """Return a command for the record; of absolute paths in it, also in ``--set a.path=/b/c``, only the last part.

    Example:
        >>> command_line(["hgclr", "train", "/home/me/run.yaml", "--set", "data.path=/data/wos"])
        'hgclr train run.yaml --set data.path=wos'
    """
    parts = (word.partition("=") for word in words)
    return shlex.join(portable(name) + equals + portable(value) for name, equals, value in parts)


class SettingDifference(NamedTuple):
    """A setting with two values, and its place, as in ``model.preset``."""

    place: str
    before: Any
    now: Any


def first_difference(
    old: Mapping[str, Any], new: Mapping[str, Any], *, shared: bool = False, place: str = ""
) -> SettingDifference | None:
    """Return the first setting that differs, or None; ``place`` is the name of the sections that these are in.

    ``shared`` passes over what one of the two does not know: it came with another version of the program.
    """
    for name in sorted({*old, *new}):
        before, now, where = old.get(name), new.get(name), f"{place}.{name}" if place else name
        if shared and (name not in old or name not in new):
            continue
        if isinstance(before, dict) and isinstance(now, dict):
            if (inside := first_difference(before, now, shared=shared, place=where)) is not None:
                return inside
        elif name in PATHS and isinstance(before, str) and isinstance(now, str):
            if Path(before).resolve() != Path(now).resolve():
                return SettingDifference(where, before, now)
        elif before != now:
            return SettingDifference(where, before, now)
    return None
