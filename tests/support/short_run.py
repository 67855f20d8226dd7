"""A run of a second, whose best epoch is not its last: a resumed one that forgets the best ends with other weights."""

from __future__ import annotations

from pathlib import Path

from hgclr.training import RunConfig


def make_run(encoder: str, data: Path, output: Path, **changes: object) -> RunConfig:
    """A run of three epochs of two steps, the best of which is the second."""
    run: dict = {
        "data": {"path": data, "limit": 24, "test_limit": 2, "label_documents": False},
        "model": {"encoder": encoder},
        "training": {"epochs": 3, "learning_rate": 3e-2, "batch_size": 12, "precision": "fp32", "seed": 3},
        "output": output,
    }
    run["training"]["calibrate"] = False
    for place, value in changes.items():
        section, _, name = place.partition("__")
        run[section][name] = value
    return RunConfig.model_validate(run)
