"""The model card, ``README.md``: use, decisions, training and scores of a model, for people and for model hubs."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from huggingface_hub import EvalResult, ModelCard, ModelCardData

from hgclr.decisions.settings import Decisions
from hgclr.errors import InputError
from hgclr.files import read_bytes, read_json, write_files

logger = logging.getLogger(__name__)
TEMPLATE = Path(__file__).parent / "templates" / "card.md"
Kind = Literal["model", "stock", "sentence-transformers", "onnx", "onnx-int8"]
LIBRARIES: dict[Kind, str] = {"stock": "transformers", "sentence-transformers": "sentence-transformers"}
"""Libraries that load a folder; hgclr loads all others."""
TOP_LABELS = 12
"""Limit on the top labels that the card lists."""
# Characters that start markup, a table cell, a link or a mention within a line.
MARKUP = re.compile(r"([\\`*_\[\]<>#|~&$@:]|(?<=www)\.)", re.IGNORECASE)
HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")


@dataclass(frozen=True)
class CardScore:
    """Scores of one split: the scored model, such as "this folder", the data, and F1 as fractions."""

    of: str
    data: str
    split: str
    documents: int
    micro: float
    macro: float

    @classmethod
    def from_json(cls, scores: Mapping[str, Any], *, of: str, data: str, split: str) -> Self:
        """Read the form that :meth:`hgclr.metrics.scores.MultiLabelScores.to_json` writes."""
        micro, macro = (float(scores[name]["f1"]) for name in ("micro", "macro"))
        # Only the folder's name: the rest of the path is private to the machine.
        return cls(of, Path(data).name, str(split), int(scores["documents"]), micro, macro)

    def results(self) -> list[EvalResult]:
        """Return both scores in the form that hubs list."""
        values = {"Micro-F1": self.micro, "Macro-F1": self.macro}
        return [
            EvalResult(
                task_type="text-classification",
                dataset_type=self.data,
                dataset_name=self.data,
                dataset_split=self.split,
                metric_type="f1",
                metric_name=f"{name} ({self.of})",
                metric_value=round(value, 4),
            )
            for name, value in values.items()
        ]


@dataclass(frozen=True)
class TrainingRecord:
    """How a model was trained.

    Args:
        encoder: name of the text encoder it started from; None if training continued from another model.
        data: name of the data folder.
        documents: in each split.
        scores: on dev and test, with the tuned decisions.
        base_model: name of the encoder on a hub, if it came from there.
    """

    encoder: str | None
    architecture: str
    data: str
    documents: Mapping[str, int]
    scores: tuple[CardScore, ...]
    base_model: str | None = None


def read_training(model: str | Path, labels: int) -> TrainingRecord | None:
    """Read ``metrics.json`` beside a model folder; return None if it is missing or belongs to another model."""
    path = Path(model).resolve().parent / "metrics.json"
    if not Path(model).is_dir() or not path.is_file():
        return None
    try:
        metrics = read_json(path)
        if metrics["labels"] != labels:
            raise ValueError(f"it describes a model with {metrics['labels']} labels, this one has {labels}")
        settings, data = metrics["run"]["model"], str(metrics["run"]["data"]["path"])
        encoder = None if settings.get("start") else str(settings["encoder"])
        return TrainingRecord(
            None if encoder is None else Path(encoder).name,
            str(settings["architecture"]),
            Path(data).name,
            {str(split): int(count) for split, count in metrics["documents"].items()},
            tuple(
                CardScore.from_json(metrics[split], of="trained model", data=data, split=split)
                for split in ("dev", "test")
                if split in metrics
            ),
            encoder if encoder and HUB_NAME.fullmatch(encoder) and not Path(encoder).exists() else None,
        )
    except (AttributeError, InputError, KeyError, TypeError, ValueError) as error:
        logger.warning("the model card omits %s: %s", path, error)
        return None


def read_scores(path: Path) -> CardScore:
    """Read the scores that ``hgclr evaluate --json`` wrote, or the ``report.json`` of ``hgclr evaluate --output``."""
    try:
        content = json.loads(read_bytes(path))
        return CardScore.from_json(
            content["scores"], of=Path(content["model"]).name, data=content["data"], split=content["split"]
        )
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", path=path) from None
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise InputError(
            f"not a file of hgclr evaluate: {type(error).__name__} {error}",
            path=path,
            remedy="give the output of hgclr evaluate --json, or the report.json in its --output",
        ) from None


def model_card(
    kind: Kind,
    name: str,
    decisions: Decisions,
    max_length: int,
    *,
    training: TrainingRecord | None = None,
    scores: Sequence[CardScore] = (),
    licence: str | None = None,
    folded: bool = False,
) -> ModelCard:
    """Return a model card; its front matter has the fields that model hubs read.

    Args:
        kind: the form of the folder; ``model`` for a class of hgclr.
        name: a folder or hub name, for the title and the code of the card.
        scores: measured scores; those of ``training`` are added.
        folded: whether the bias of the head contains the thresholds.
    """
    scores = [*scores, *(training.scores if training else ())]
    fields = ModelCardData(
        base_model=training.base_model if training else None,
        eval_results=[result for score in scores for result in score.results()] or None,
        library_name=LIBRARIES.get(kind, "hgclr"),
        license=licence or "other",
        license_name=None if licence else "unspecified",
        model_name=name if scores else None,
        pipeline_tag="text-classification",
        tags=["hgclr", "hierarchical-text-classification", *(["onnx"] if kind.startswith("onnx") else [])],
    )
    taxonomy, summary, thresholds = decisions.taxonomy, decisions.summary(), decisions.decoder.thresholds
    top = [taxonomy.names[label] for label in taxonomy.levels[0].tolist()]
    card: ModelCard = ModelCard.from_template(
        fields,
        template_path=str(TEMPLATE),
        escape=escape,
        version=version("hgclr"),
        kind=kind,
        name=name,
        place=json.dumps(name, ensure_ascii=False),
        taxonomy=taxonomy,
        named=", ".join(map(escape, top[:TOP_LABELS])),
        unnamed=len(top) - TOP_LABELS,
        decisions=f"{summary[0].upper()}{summary[1:]}",
        median=float(np.median(thresholds)) if len(np.unique(thresholds)) > 1 else None,
        provenance={
            str(found): ", ".join(f"{name} {one}" for name, one in value.items())
            if isinstance(value, dict)
            else str(value)
            for found, value in decisions.provenance.items()
        },
        max_length=max_length,
        training=training,
        scores=scores,
        licence=licence,
        folded=folded,
    )
    return card


def escape(text: str) -> str:
    """Return a text on one line, with its Markdown markup escaped.

    Example:
        >>> escape("R&D | *new*")
        'R\\\\&D \\\\| \\\\*new\\\\*'
    """
    return MARKUP.sub(r"\\\1", " ".join(text.split()))


def write_card(folder: Path, card: ModelCard) -> None:
    """Write ``README.md`` into a model folder."""
    write_files(folder, {"README.md": f"{card.content}\n".encode()})
