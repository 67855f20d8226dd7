"""Crash-safe checkpoints, and the callbacks that decide when to write one and when to stop.

The file ``COMPLETE`` of a checkpoint, written last, has the size and SHA-256 of every other file. A checkpoint without
it, or with other files, is ignored. So a killed run resumes to the same weights.
"""

from __future__ import annotations

import logging
import math
import re
import shutil
import time
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer import OPTIMIZER_NAME, SCHEDULER_NAME, TRAINER_STATE_NAME
from transformers.trainer_callback import ExportableState
from transformers.utils import SAFE_WEIGHTS_NAME

from hgclr.errors import InputError, require_extra
from hgclr.files import atomic_file, flush, json_bytes, read_json, sha256
from hgclr.nn.gathering import world_size
from hgclr.training.distributed import from_first_rank

logger = logging.getLogger(__name__)
MARK = "COMPLETE"
NAME = re.compile(r"checkpoint-(\d+)")
DOOMED = ".deleted"
"""Suffix of a checkpoint's name while it is being deleted."""
NEEDED = (SAFE_WEIGHTS_NAME, OPTIMIZER_NAME, SCHEDULER_NAME, TRAINER_STATE_NAME, "rng_state")
"""Prefixes of files without which the Trainer would silently start again."""
SECONDS_BETWEEN = 600
"""Seconds between checkpoints within an epoch."""


def mark_complete(checkpoint: Path) -> None:
    """Flush the files of a checkpoint to disk, then write ``COMPLETE``."""
    files = {}
    for path in sorted(path for path in checkpoint.iterdir() if path.is_file() and path.name != MARK):
        flush(path)
        files[path.name] = {"size": path.stat().st_size, "sha256": sha256(path)}
    flush(checkpoint)
    with atomic_file(checkpoint / MARK) as temporary:
        temporary.write_bytes(json_bytes({"files": files}))
    flush(checkpoint.parent)


def problem(checkpoint: Path) -> str | None:
    """Return the fault of a checkpoint, as a verb phrase, or None if it is complete."""
    if not checkpoint.is_dir():
        return "is missing"
    if not (checkpoint / MARK).is_file():
        return "is incomplete"
    try:
        files = dict(read_json(checkpoint / MARK)["files"])
        for name, noted in files.items():
            path = checkpoint / name
            if not path.is_file():
                return f"lacks {name}"
            if path.stat().st_size != noted["size"] or sha256(path) != noted["sha256"]:
                return f"has a changed {name}"
    except (InputError, OSError, TypeError, KeyError, ValueError):
        return f"has a damaged {MARK}"
    lacking = [start for start in NEEDED if not any(name.startswith(start) for name in files)]
    return f"lacks {lacking[0]}" if lacking else None


def find_checkpoint(folder: Path) -> Path | None:
    """Return the newest complete checkpoint, or None; log the ones that are skipped.

    One is also skipped if the best checkpoint until then is incomplete: the run would end with other weights.
    """
    for checkpoint in sorted(_checkpoints(folder), key=_step, reverse=True):
        if (wrong := problem(checkpoint)) is not None:
            logger.warning("skipping %s, which %s", checkpoint, wrong)
            continue
        best = folder / Path(read_json(checkpoint / TRAINER_STATE_NAME)["best_model_checkpoint"] or checkpoint).name
        if best == checkpoint or (wrong := problem(best)) is None:
            return checkpoint
        logger.warning("skipping %s, because the best checkpoint until then, %s, %s", checkpoint, best.name, wrong)
    return None


def delete_old(newest: Path, best: Path | None, limit: int | None) -> None:
    """Delete checkpoints beyond ``limit``, except the newest and the best; later and half-deleted ones first."""
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
    """Rename a checkpoint, so that no run resumes from it, and delete it."""
    doomed = checkpoint.with_name(checkpoint.name + DOOMED)
    shutil.rmtree(doomed, ignore_errors=True)
    checkpoint.replace(doomed)
    flush(checkpoint.parent)
    shutil.rmtree(doomed, ignore_errors=True)


def _checkpoints(folder: Path) -> list[Path]:
    return [path for path in folder.glob("checkpoint-*") if NAME.fullmatch(path.name) and path.is_dir()]


def _step(checkpoint: Path) -> int:
    return int(checkpoint.name.rpartition("-")[2])


class EarlyStop(TrainerCallback, ExportableState):
    """Stop when no watched dev score has improved for ``patience`` evaluations.

    The paper watches Macro-F1, the published program Macro- and Micro-F1. Counter and best scores survive a resume.
    """

    def __init__(self, patience: int, metrics: list[str]) -> None:
        self.patience, self.metrics = patience, metrics
        self.best: dict[str, float] = {}
        self.waited = 0

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        metrics = kwargs["metrics"]
        better = [name for name in self.metrics if metrics[f"eval_{name}"] > self.best.get(name, -math.inf)]
        for name in better:
            self.best[name] = metrics[f"eval_{name}"]
        self.waited = 0 if better else self.waited + 1
        if self.waited >= self.patience:
            control.should_training_stop = True

    def state(self) -> dict[str, Any]:
        return {
            "args": {"patience": self.patience, "metrics": self.metrics},
            "attributes": {"best": self.best, "waited": self.waited},
        }


class BestCheckpoint(TrainerCallback):
    """Look for the best checkpoint beside the others, because the run folder may have been moved."""

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if state.best_global_step:
            state.best_model_checkpoint = str(Path(str(args.output_dir)) / f"checkpoint-{state.best_global_step}")


class TimedCheckpoints(TrainerCallback):
    """Write checkpoints also within long epochs, by the clock of the first rank."""

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.written = time.monotonic()

    on_save = on_train_begin

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if float(state.epoch or 0).is_integer() or (world_size() > 1 and state.global_step % 10):
            return  # dev is scored after the last step of an epoch; several ranks agree only every tenth step
        if from_first_rank(time.monotonic() - self.written >= SECONDS_BETWEEN):
            control.should_save = True


def tensorboard(folder: Path) -> TrainerCallback:
    """Return a callback that writes the log into ``folder`` for TensorBoard."""
    require_extra("tensorboard", extra="tensorboard", capability="Logging for TensorBoard")
    from torch.utils.tensorboard import SummaryWriter
    from transformers.integrations.integration_utils import TensorBoardCallback

    return TensorBoardCallback(SummaryWriter(str(folder)))
