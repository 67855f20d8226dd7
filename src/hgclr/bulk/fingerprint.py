"""Tell one model from another by what is in its folder."""

from __future__ import annotations

import hashlib
from pathlib import Path

from hgclr.decisions.settings import FILE as DECISIONS
from hgclr.inference.manifest import FILE as MANIFEST
from hgclr.inference.manifest import READ

__all__ = ["fingerprint"]


def fingerprint(folder: Path) -> str:
    """Return the SHA-256 of everything in a model's folder that its probabilities are computed from.

    How it decides is not among that: the decisions that are really taken are compared by themselves.
    """
    whole = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.is_file() and path.suffix.lower() in READ and path.name not in (DECISIONS, MANIFEST):
            with path.open("rb") as file:
                whole.update(f"{path.name}\0{hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return whole.hexdigest()
