"""Settings and commands for the record, without the paths of this machine."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["command_line", "portable"]


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
