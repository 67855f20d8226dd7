"""A run of a second, whose best epoch is not its last: a resumed one that forgets the best ends with other weights."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from hgclr.training import RunConfig, trainer


def make_run(encoder: str, data: Path, output: Path, **changes: object) -> RunConfig:
    """A run of three epochs of two steps, the best of which is the second."""
    run: dict = {
        "data": {"path": data, "limit": 24, "test_limit": 2, "label_documents": False},
        "model": {"encoder": encoder},
        "training": {"epochs": 3, "learning_rate": 5e-2, "batch_size": 12, "precision": "fp32", "seed": 1},
        "output": output,
    }
    run["training"]["calibrate"] = False
    for place, value in changes.items():
        section, _, name = place.partition("__")
        run[section][name] = value
    return RunConfig.model_validate(run)


def die_after_checkpoint_in(output: Path) -> None:
    """Let this process, a fork, be killed as soon as a run in ``output`` has a whole checkpoint."""
    mark_complete = trainer.mark_complete

    def mark_and_die(checkpoint: Path) -> None:
        mark_complete(checkpoint)
        if checkpoint.is_relative_to(output):
            os.kill(os.getpid(), signal.SIGKILL)

    trainer.mark_complete = mark_and_die
