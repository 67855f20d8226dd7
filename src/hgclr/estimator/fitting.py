"""Train on texts in memory: write them as a data folder, run the training, load what it leaves, and clear up."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hgclr.data import DataFolder
from hgclr.encoders import TEXTRCNN, resolve_encoder
from hgclr.errors import InputError
from hgclr.estimator.deciding import Deciding
from hgclr.estimator.isolation import alone, quiet_libraries, shown_log
from hgclr.estimator.packing import pack
from hgclr.hardware import choose_precision
from hgclr.inference import HierarchicalClassifier
from hgclr.taxonomy import Taxonomy

__all__ = ["Fitted", "fit_model"]


@dataclass(frozen=True, eq=False)
class Fitted:
    """A trained model in memory, the files of its folder but for the weights, and its scores by epoch."""

    classifier: HierarchicalClassifier
    files: dict[str, bytes]
    history: list[dict[str, float]]


def fit_model(
    texts: Sequence[str],
    label_sets: Sequence[Sequence[int]],
    taxonomy: Taxonomy,
    *,
    model: dict[str, Any],
    training: dict[str, Any],
    deciding: Deciding,
    validation_fraction: float,
    output: str | Path | None,
    verbose: int,
) -> Fitted:
    """Train a model.

    Args:
        texts: the documents.
        label_sets: the indices of their labels, with all ancestors.
        taxonomy: the label tree.
        model: the section ``model`` of a run.
        training: its section ``training``, with the seed.
        deciding: how labels are to be decided.
        validation_fraction: share of the documents on which the best epoch is chosen.
        output: folder that keeps the run; None keeps nothing on disk.
        verbose: 1 logs a line for each epoch.

    Raises:
        InputError: if documents and settings do not fit together.
    """
    from hgclr.estimator.epoch_log import EpochLog
    from hgclr.training import RunConfig, train

    decisions = deciding.check(taxonomy, _ends_inside(label_sets, taxonomy))
    with tempfile.TemporaryDirectory(prefix="hgclr-", ignore_cleanup_errors=True) as name:
        temporary = Path(name)
        tree = {
            "data": {"path": str(temporary / "data")},
            "model": model,
            "training": training,
            "output": str(temporary / "run" if output is None else output),
        }
        run = RunConfig.build(tree)
        held_out = _held_out(len(texts), validation_fraction, run.training.seed, 2 if deciding.calibrate else 1)
        _write_data(temporary / "data", texts, label_sets, taxonomy, held_out)
        with shown_log(verbose), quiet_libraries():
            # What other fits need as well goes into the user's cache: the encoder, and what this machine can do.
            if run.model.encoder != TEXTRCNN:
                run.model.encoder = resolve_encoder(run.model.encoder)
            choose_precision(run.training.precision)
            with alone(temporary / "cache"):
                result = train(run, callbacks=[EpochLog()], score_test=False)
            classifier = HierarchicalClassifier.from_pretrained(result.model)
            if deciding.calibrate:
                decisions = deciding.find(classifier, DataFolder(temporary / "data"), decisions, run.training.seed)
            decisions.write(result.model)
            classifier.decisions = decisions
            return Fitted(classifier, pack(result.model, weights=False), result.metrics["history"])


def _held_out(documents: int, share: float, seed: int, least: int) -> set[int]:
    """Return the documents to validate on: a random share, but at least ``least``, and never all."""
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < 1:
        raise InputError(f"validation_fraction is {share!r}", remedy="give a share between 0 and 1")
    number = max(least, round(share * documents))
    if number >= documents:
        raise InputError(
            f"{documents} documents are too few: {number} are held out to choose the best epoch on",
            remedy=f"give more than {max(number, least)}, or a smaller validation_fraction",
        )
    return set(np.random.default_rng(seed).permutation(documents)[:number].tolist())


def _write_data(
    folder: Path, texts: Sequence[str], label_sets: Sequence[Sequence[int]], taxonomy: Taxonomy, held_out: set[int]
) -> None:
    folder.mkdir()
    taxonomy.write(folder / "taxonomy.json")
    with (
        (folder / "train.jsonl").open("w", encoding="utf-8") as train,
        (folder / "dev.jsonl").open("w", encoding="utf-8") as dev,
    ):
        for number, (text, labels) in enumerate(zip(texts, label_sets, strict=True)):
            row = {"text": text, "labels": [taxonomy.ids[label] for label in labels]}
            (dev if number in held_out else train).write(json.dumps(row) + "\n")


def _ends_inside(label_sets: Sequence[Sequence[int]], taxonomy: Taxonomy) -> bool:
    """Tell whether some document has a label with children and none of them."""
    parents, leaves = taxonomy.parents.tolist(), set(taxonomy.leaves.tolist())
    return any(not leaves.issuperset(set(labels) - {parents[label] for label in labels}) for labels in label_sets)
