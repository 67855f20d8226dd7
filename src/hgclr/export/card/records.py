"""What a model card tells of training and of scores, from the files that training and evaluation left."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from hgclr.errors import InputError

__all__ = ["Score", "TrainingRecord", "read_scores", "read_training"]

logger = logging.getLogger(__name__)

FILE = "metrics.json"


@dataclass(frozen=True)
class Score:
    """Scores of one split.

    Args:
        of: what was scored, such as "this folder".
        data: name of the data.
        split: which split of it.
        documents: how many there were.
        micro, macro: F1 as fractions.
    """

    of: str
    data: str
    split: str
    documents: int
    micro: float
    macro: float

    @classmethod
    def from_json(cls, scores: Mapping[str, Any], *, of: str, data: str, split: str) -> Self:
        """Take what :meth:`hgclr.evaluation.metrics.MultiLabelScores.to_json` gives.

        Raises:
            KeyError, TypeError, ValueError: if it is something else.
        """
        micro, macro = (float(scores[name]["f1"]) for name in ("micro", "macro"))
        # Of a path only the name: the rest says something of one machine alone.
        return cls(of, Path(data).name, str(split), int(scores["documents"]), micro, macro)


@dataclass(frozen=True)
class TrainingRecord:
    """How a model was trained.

    Args:
        encoder: name of the text encoder it started from; None if it was trained on from another model.
        architecture: which system, such as ``hgclr``.
        data: name of the data folder.
        documents: in each split.
        scores: on dev and test, at the end of training.
    """

    encoder: str | None
    architecture: str
    data: str
    documents: Mapping[str, int]
    scores: tuple[Score, ...]


def read_training(model: str | Path, labels: int) -> TrainingRecord | None:
    """Return what ``metrics.json`` beside a model's folder tells; None if there is none, or it is of another model.

    Args:
        model: the folder ``model`` of a run.
        labels: how many the model has.
    """
    path = Path(model).resolve().parent / FILE
    if not Path(model).is_dir() or not path.is_file():
        return None
    try:
        metrics = json.loads(path.read_text(encoding="utf-8"))
        if metrics["labels"] != labels:
            raise ValueError(f"it is of a model with {metrics['labels']} labels, this one has {labels}")
        settings, data = metrics["run"]["model"], str(metrics["run"]["data"]["path"])
        return TrainingRecord(
            None if settings.get("start") else Path(settings["encoder"]).name,
            str(settings["architecture"]),
            Path(data).name,
            {str(split): int(count) for split, count in metrics["documents"].items()},
            tuple(
                Score.from_json(metrics[split], of="after training", data=data, split=split)
                for split in ("dev", "test")
                if split in metrics
            ),
        )
    except (AttributeError, KeyError, OSError, TypeError, ValueError) as error:
        logger.warning("the model card leaves out %s: %s", path, error)
        return None


def read_scores(path: Path) -> Score:
    """Read the scores that ``hgclr evaluate --json`` wrote, or the ``report.json`` of ``hgclr evaluate --report``.

    Raises:
        InputError: if the file cannot be read, or is something else.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return Score.from_json(
            content["scores"], of=Path(content["model"]).name, data=content["data"], split=content["split"]
        )
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", path=path) from None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"no scores of hgclr evaluate: {type(error).__name__} {error}",
            path=path,
            remedy="give what hgclr evaluate --json wrote, or the report.json of --report",
        ) from None
