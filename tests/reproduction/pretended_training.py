"""Stand in for training, where a test is about what is run and what is made of the scores."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from hgclr.training import RunConfig

Scores = Mapping[tuple[str, int], tuple[float, float]]

MACHINE = {"processor": "test", "threads": 1, "packages": {}, "commit": "abc", "modified": False}


def metrics(run: RunConfig, micro: float, macro: float, **others: Any) -> dict[str, Any]:
    """Return the metrics of a run with these scores on test, and half of them on dev."""

    def scores(factor: float) -> dict[str, Any]:
        return {"micro": {"f1": factor * micro}, "macro": {"f1": factor * macro}}

    return {
        "run": run.model_dump(mode="json"),
        "recipe": {"epochs": 4},
        "precision": "fp32",
        "documents": {"train": 10, "dev": 5, "test": 5},
        "labels": 9,
        "history": [{"epoch": 1.0, "kept": 0.25}, {"epoch": 2.0, "kept": 0.35}],
        "seconds": 12.5,
        "machine": MACHINE,
        "dev": scores(0.5),
        "test": scores(1.0),
        **others,
    }


class PretendedTraining:
    """Write metrics instead of training, and remember the runs."""

    def __init__(self, score: Callable[[RunConfig], tuple[float, float]] = lambda _: (0.8, 0.6)) -> None:
        self.score, self.runs = score, list[RunConfig]()

    def __call__(self, run: RunConfig, *, resume: bool, **watching: Any) -> None:
        """Do as ``hgclr.training.train`` does, without training."""
        self.runs.append(run)
        made = metrics(run, *self.score(run))
        for name in ("model", "training-model", "checkpoints"):
            (run.output / name).mkdir(parents=True)
        (run.output / "metrics.json").write_text(json.dumps(made))

    @property
    def names(self) -> list[str]:
        """The folders of the runs, in their order."""
        return [run.output.name for run in self.runs]
