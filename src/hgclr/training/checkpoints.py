"""Checkpoints that count only as a whole: marked once all of one is on the disk, unmarked before it is deleted.

The mark is a file with the size and SHA-256 of every other file; it is written last, and a checkpoint without one, or
with one that does not fit, is none. So wherever a run is killed, it goes on to the same weights as if it had not been.
"""

from __future__ import annotations

import logging
import re
import shutil
from pathlib import Path

from transformers.trainer import OPTIMIZER_NAME, SCHEDULER_NAME, TRAINER_STATE_NAME
from transformers.utils import SAFE_WEIGHTS_NAME

from hgclr.errors import InputError
from hgclr.files import atomic_file, flush, json_bytes, read_json, sha256

__all__ = ["delete_checkpoint", "delete_old", "find_checkpoint", "mark_complete", "problem"]

logger = logging.getLogger(__name__)
MARK = "COMPLETE"
NAME = re.compile(r"checkpoint-(\d+)")
DOOMED = ".deleted"
"""What a checkpoint's name ends in from when its deletion begins."""
NEEDED = (SAFE_WEIGHTS_NAME, OPTIMIZER_NAME, SCHEDULER_NAME, TRAINER_STATE_NAME, "rng_state")
"""How the names of files begin without which the Trainer would begin anew where it should go on."""


def mark_complete(checkpoint: Path) -> None:
    """Flush what was written to the disk, and then note in the folder what that is."""
    files = {}
    for path in _files(checkpoint):
        flush(path)
        files[path.name] = {"size": path.stat().st_size, "sha256": sha256(path)}
    flush(checkpoint)
    with atomic_file(checkpoint / MARK) as temporary:  # a full disk is told as such, not as bad input
        temporary.write_bytes(json_bytes({"files": files}))
    flush(checkpoint.parent)


def problem(checkpoint: Path) -> str | None:
    """Return what is wrong with a checkpoint, or None if it is whole."""
    if not checkpoint.is_dir():
        return "is not there"
    if not (checkpoint / MARK).is_file():
        return "was not written to its end"
    try:
        files = dict(read_json(checkpoint / MARK)["files"])
        for name, noted in files.items():
            path = checkpoint / name
            if not path.is_file():
                return f"lacks {name}"
            if path.stat().st_size != noted["size"] or sha256(path) != noted["sha256"]:
                return f"has another {name} than was written"
    except (InputError, OSError, TypeError, KeyError, ValueError):
        return f"has a broken {MARK}, or one of an earlier version"
    lacking = [start for start in NEEDED if not any(name.startswith(start) for name in files)]
    return f"lacks {lacking[0]}" if lacking else None


def find_checkpoint(folder: Path) -> Path | None:
    """Return the newest checkpoint to go on from, or None; name those that are passed over.

    One is passed over also if the best until then is not whole: the run would end with other weights.
    """
    for checkpoint in sorted(_checkpoints(folder), key=_step, reverse=True):
        if (wrong := problem(checkpoint)) is not None:
            logger.warning("%s %s: looking for an older checkpoint", checkpoint, wrong)
            continue
        best = folder / Path(read_json(checkpoint / TRAINER_STATE_NAME)["best_model_checkpoint"] or checkpoint).name
        if best == checkpoint or (wrong := problem(best)) is None:
            return checkpoint
        logger.warning("%s, the best one until %s, %s: looking for an older checkpoint", best, checkpoint.name, wrong)
    return None


def delete_old(newest: Path, best: Path | None, limit: int | None) -> None:
    """Delete all checkpoints beyond ``limit``, but never the newest and the best one.

    Those after the newest, which were not whole, and what is left of deletions cut short go first.
    """
    for path in newest.parent.glob(f"checkpoint-*{DOOMED}"):
        shutil.rmtree(path, ignore_errors=True)
    if limit is None:
        return
    others = sorted((path for path in _checkpoints(newest.parent) if path not in (newest, best)), key=_step)
    later = [path for path in others if _step(path) > _step(newest)]
    earlier = others[: len(others) - len(later)]
    room = max(0, limit - len({newest, best or newest}))
    for path in later + earlier[: len(earlier) - room]:
        delete_checkpoint(path)


def delete_checkpoint(checkpoint: Path) -> None:
    """Delete a checkpoint; from the first moment on nothing takes it for one."""
    doomed = checkpoint.with_name(checkpoint.name + DOOMED)
    shutil.rmtree(doomed, ignore_errors=True)
    checkpoint.replace(doomed)
    flush(checkpoint.parent)
    shutil.rmtree(doomed, ignore_errors=True)


def _checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints in a folder, whole or not; whatever else is in it is none of ours."""
    return [path for path in folder.glob("checkpoint-*") if NAME.fullmatch(path.name) and path.is_dir()]


def _step(checkpoint: Path) -> int:
    return int(checkpoint.name.rpartition("-")[2])


def _files(checkpoint: Path) -> list[Path]:
    return sorted(path for path in checkpoint.iterdir() if path.is_file() and path.name != MARK)
