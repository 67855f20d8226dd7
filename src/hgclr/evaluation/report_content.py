"""All that a report says, in plain Python types: what report.json holds and pages are made from."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hgclr.decisions.settings import FORMER_KEYS
from hgclr.errors import InputError
from hgclr.evaluation.report_data import Collector, Example
from hgclr.files import read_bytes
from hgclr.metrics.frequency import by_frequency, frequency_thirds
from hgclr.metrics.scores import LabelScores
from hgclr.taxonomy import Taxonomy

__all__ = ["ANEW", "ENOUGH", "FILE", "read_report", "report_content", "worst_labels"]

FILE = "report.json"
KIND, VERSION = "hgclr report", 1
NEEDED = {"model", "data", "split", "documents", "documents_digest", "decisions", "scores", "intervals", "ranking"}
NEEDED |= {"calibration", "labels", "resampled"}
REMEDY, ANEW = "give a folder that hgclr evaluate --output wrote", "evaluate the model anew"
CONFUSIONS = 30
"""Confusions of siblings that are listed."""
WORST = 20
"""Labels that are listed as the worst."""
ENOUGH = 5
"""Gold documents of a label from which on its scores say something."""
Counts = NDArray[np.int64]


def report_content(
    collected: Collector,
    *,
    model: str,
    data: str,
    split: str,
    command: str,
    machine: dict[str, Any],
    training_counts: Counts | None = None,
) -> dict[str, Any]:
    """Return the content of a report.

    Args:
        collected: what was counted.
        model, data, split: what was scored on what.
        command: the command that does this.
        machine: what it ran on, see :func:`hgclr.hardware.machine`.
        training_counts: training documents of each label, (K,), where they are known.
    """
    resampled = collected.bootstrap.resampled()
    return {
        "kind": KIND,
        "version": VERSION,
        "model": model,
        "data": data,
        "split": split,
        "documents": collected.documents,
        "documents_digest": collected.digest(),
        "decisions": collected.decisions.to_json(),
        "scores": collected.scores.to_json(),
        "intervals": {name: asdict(interval) for name, interval in resampled.intervals().items()},
        "ranking": collected.ranking.to_json(),
        "calibration": collected.calibration.to_json(),
        "consistent_calibration": collected.consistent_calibration.to_json(),
        "frequency": None if training_counts is None else _frequency(collected, training_counts),
        "rules": collected.rules.to_json(),
        "threshold_curve": collected.threshold_curve.to_json(),
        "risk_coverage": collected.risk_coverage.to_json(),
        "confusions": _confusions(collected),
        "worst_labels": _worst(collected),
        "labels": _labels(collected, training_counts),
        "resampled": resampled.to_json(),
        "command": command,
        "machine": machine,
    }


def worst_labels(scores: LabelScores, number: int = WORST) -> list[int]:
    """Return the labels that cost most, by index: those with the largest ``(1 - F1) · gold documents``.

    Only labels with a lower F1 than the mean count, for else large labels that do well would fill the list; and only
    those with :data:`ENOUGH` gold documents, or with any where no label has so many.
    """
    enough = scores.gold >= ENOUGH
    if not enough.any():
        enough = scores.gold > 0
    if not enough.any():
        return []
    # A label may be the only one, or as good as all others: still the worst, unless nothing is wrong with it.
    below = enough & (scores.f1 <= scores.f1[enough].mean()) & (scores.f1 < 1)
    labels = np.flatnonzero(below)
    lost = (1 - scores.f1[labels]) * scores.gold[labels]
    order: list[int] = labels[np.argsort(-lost, kind="stable")[:number]].tolist()
    return order


def _labels(collected: Collector, training_counts: Counts | None) -> list[dict[str, Any]]:
    """Return tree, counts and scores of all labels, in the order of the taxonomy."""
    taxonomy, scores = collected.taxonomy, collected.scores.per_label()
    columns: dict[str, Sequence[object]] = {
        "id": taxonomy.ids,
        "name": taxonomy.names,
        "parent": [None if parent < 0 else taxonomy.ids[parent] for parent in taxonomy.parents.tolist()],
        "training": [None] * len(taxonomy) if training_counts is None else training_counts.tolist(),
        "gold": scores.gold.tolist(),
        "predicted": scores.predicted.tolist(),
        "true_positives": scores.true_positives.tolist(),
        "precision": scores.precision.tolist(),
        "recall": scores.recall.tolist(),
        "f1": scores.f1.tolist(),
    }
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _frequency(collected: Collector, counts: Counts) -> list[dict[str, Any]]:
    """Return the scores of head, middle and tail, and of labels without training documents, where there are any."""
    groups = by_frequency(collected.scores, counts, frequency_thirds)
    return [{"group": name, **scores} for name, scores in groups.items()]


def _confusions(collected: Collector) -> list[dict[str, Any]]:
    ids, gold = collected.taxonomy.ids, collected.scores.per_label().gold
    return [
        {
            "gold": ids[confusion.gold],
            "predicted": ids[confusion.predicted],
            "documents": confusion.documents,
            "share": confusion.documents / int(gold[confusion.gold]),
            "reverse": collected.confusions.documents(confusion.predicted, confusion.gold),
        }
        for confusion in collected.confusions.most(CONFUSIONS)
    ]


def _worst(collected: Collector) -> list[dict[str, Any]]:
    taxonomy, scores = collected.taxonomy, collected.scores.per_label()
    return [
        {
            "id": taxonomy.ids[label],
            "lost": float((1 - scores.f1[label]) * scores.gold[label]),
            "missed": int(scores.gold[label] - scores.true_positives[label]),
            "false": int(scores.predicted[label] - scores.true_positives[label]),
            "missed_examples": _examples(taxonomy, collected.examples.missed[label]),
            "false_examples": _examples(taxonomy, collected.examples.false[label]),
        }
        for label in worst_labels(scores)
    ]


def _examples(taxonomy: Taxonomy, examples: Iterable[Example]) -> list[dict[str, Any]]:
    def ids(labels: Iterable[int]) -> list[str]:
        return [taxonomy.ids[label] for label in labels]

    return [
        {"text": example.text, "gold": ids(example.gold), "predicted": ids(example.predicted)} for example in examples
    ]


def read_report(place: str | Path) -> dict[str, Any]:
    """Return what report.json holds.

    Args:
        place: the folder of a report, or its report.json.

    Raises:
        InputError: if there is no report, or none that this version can read.
    """
    path = Path(place)
    if path.is_dir():
        path = path / FILE
    try:
        content = json.loads(read_bytes(path))
    except OSError as error:
        raise InputError(f"no report: {error.strerror}", path=path, remedy=REMEDY) from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"broken: {error}", path=path, remedy=ANEW) from None
    if not isinstance(content, dict) or content.get("kind") != KIND:
        raise InputError("not a report", path=path, remedy=REMEDY)
    if content.get("version") != VERSION:
        what = f"a report of version {content.get('version')!r}, where {VERSION} is needed"
        raise InputError(what, path=path, remedy=ANEW)
    if missing := sorted(NEEDED - content.keys()):
        raise InputError(f"broken: {missing[0]!r} is missing", path=path, remedy=ANEW)
    if not isinstance(content["decisions"], dict):
        raise InputError(f"broken: 'decisions' is {content['decisions']!r:.80}", path=path, remedy=ANEW)
    decisions = {FORMER_KEYS.get(key, key): value for key, value in content["decisions"].items()}
    return {**content, "decisions": decisions}
