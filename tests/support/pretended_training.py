"""Stand in for training, where a test is about what is run and what is made of the scores."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from hgclr.training import RunConfig

Scores = Mapping[tuple[str, int], tuple[float, float]]

MACHINE = {"processor": "test", "threads": 1, "packages": {}, "commit": "abc", "modified": False}


TUNED = 1.1
"""How many times as good decisions are after tuning."""


def metrics(run: RunConfig, micro: float, macro: float, **others: Any) -> dict[str, Any]:
    """Return the metrics of a run with these scores on test, and half of them on dev; more where decisions are tuned.

    On test, level 1 has Macro-F1 0.9 times that of all labels, level 2 has 0.8 times; labels seen 1 to 5 times 0.5
    times, and those that are not in train have none.
    """

    def scores(factor: float) -> dict[str, Any]:
        return {
            "micro": {"f1": factor * micro},
            "macro": {"f1": factor * macro},
            "levels": [{"depth": depth, "macro": {"f1": factor * macro * (1 - depth / 10)}} for depth in (1, 2)],
            "by_frequency": {
                "unseen": {"labels": 1, "macro_gold": None},
                "1-5": {"labels": 2, "macro_gold": {"f1": factor * macro / 2}},
            },
        }

    tuned = {
        "dev": {"after": {"micro_f1": TUNED * micro / 2, "macro_f1": TUNED * macro / 2}},
        "rule": "closure",
        "thresholds": "level",
    }
    return {
        "run": run.model_dump(mode="json"),
        "recipe": {"epochs": 4},
        "precision": "fp32",
        "documents": {"train": run.data.limit or 10, "dev": 5, "test": 5},
        "label_documents": 9 if run.uses_label_documents else 0,
        "labels": 9,
        "history": [{"epoch": 1.0, "macro_f1": 0.2, "kept": 0.25}, {"epoch": 2.0, "macro_f1": 0.3, "kept": 0.35}],
        "seconds": 12.5,
        "cpu_seconds": 10.2,
        "machine": MACHINE,
        "dev": scores(0.5),
        "dev_at_0.5": scores(0.5),
        "test": scores(TUNED if run.tunes_decisions or run.training.effort == "names" else 1.0),
        "test_at_0.5": scores(1.0),
        **({"tuned": tuned} if run.tunes_decisions else {}),
        **others,
    }


class PretendedTraining:
    """Write metrics instead of training, and remember the runs."""

    def __init__(
        self,
        score: Callable[[RunConfig], tuple[float, float]] = lambda _: (0.8, 0.6),
        kept: Callable[[RunConfig], float] | None = None,
    ) -> None:
        self.score, self.kept, self.runs = score, kept, list[RunConfig]()

    def __call__(self, run: RunConfig, *, resume: bool, **watching: Any) -> None:
        """Do as ``hgclr.training.train`` does, without training."""
        self.runs.append(run)
        history = {} if self.kept is None else {"history": [{"epoch": 1.0, "kept": self.kept(run)}]}
        made = metrics(run, *self.score(run), **history)
        for name in ("model", "training-model", "checkpoints"):
            (run.output / name).mkdir(parents=True)
        (run.output / "metrics.json").write_text(json.dumps(made))

    @property
    def names(self) -> list[str]:
        """The folders of the runs, in their order."""
        return [run.output.name for run in self.runs]
