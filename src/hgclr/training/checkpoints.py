"""Checkpoints that survive a kill: only one that was written to its end is resumed from."""

from __future__ import annotations

import logging
from pathlib import Path

__all__ = ["latest_complete", "mark_complete"]

logger = logging.getLogger(__name__)

_MARK = "COMPLETE"


def mark_complete(checkpoint: Path) -> None:
    """Note in the folder that everything before this was written."""
    (checkpoint / _MARK).touch()


def latest_complete(folder: Path) -> Path | None:
    """Return the newest checkpoint that was finished, or None; name the broken ones that are passed over."""
    numbered = [(int(path.name.rpartition("-")[2]), path) for path in folder.glob("checkpoint-*")]
    for _, path in sorted(numbered, reverse=True):
        if (path / _MARK).exists():
            return path
        logger.warning("%s was not written to its end; looking for an older one", path)
    return None
