"""Score a model on a data folder and write the report: a page, its plots, and all of it as JSON."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hgclr.data.folder import DataFolder, Document
from hgclr.decisions.settings import Decisions
from hgclr.evaluation.pages import report_page
from hgclr.evaluation.report_content import FILE, report_content
from hgclr.evaluation.report_data import RESAMPLES, Collector
from hgclr.evaluation.report_plots import check_report, draw_plots, json_file
from hgclr.files import write_files
from hgclr.hardware import machine
from hgclr.inference.classifier import HierarchicalClassifier
from hgclr.inference.outputs import sampled, scored_windows

__all__ = ["Report", "report"]

logger = logging.getLogger(__name__)
PAGE = "report.html"


@dataclass(frozen=True, slots=True)
class Report:
    """A report that was written: its HTML page, and what report.json holds."""

    page: Path
    content: dict[str, Any]


def report(
    classifier: HierarchicalClassifier,
    folder: DataFolder,
    split: str,
    output: str | Path,
    *,
    name: str,
    decisions: Decisions | None = None,
    limit: int | None = None,
    command: str = "",
    resamples: int = RESAMPLES,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> Report:
    """Score a classifier and write ``report.html``, ``report.json`` and the plots as PNG and SVG.

    The documents are read once, and memory does not grow with their number. For labels by frequency the labels of the
    train split are counted, where the data folder has one.

    Args:
        classifier: the model.
        folder: the documents, read with the classifier's own label tree.
        split: which of its splits.
        output: the folder of the report, made if it is not there; other files in it stay.
        name: how to call the model.
        decisions: how to decide; by default as the model does.
        limit: score a random sample of so many documents, the same one every time.
        command: the command that does this, for the record.
        resamples: of the documents, for confidence intervals and comparisons.
        seed: chooses the resamples. Only reports with the same resamples can be compared.
        progress: called with the number of documents scored since the last call.

    Raises:
        InputError: if there is no such split, a document is bad, or the report cannot be written.
        MissingExtraError: if matplotlib is not installed.
    """
    output = Path(output)
    check_report(output)
    collected = Collector(decisions or classifier.decisions, resamples=resamples, seed=seed)
    for documents, probabilities, gold in scored_windows(classifier, sampled(folder, split, limit), progress=progress):
        collected.update([document.text for document in documents], probabilities, gold)
    content = report_content(
        collected,
        model=name,
        data=str(folder.path),
        split=split,
        command=command,
        machine=machine(),
        training_counts=_training_counts(folder),
    )
    plots = draw_plots(content)
    files = {PAGE: report_page(content, plots).encode(), FILE: json_file(content)}
    for plot in plots:
        files |= plot.files()
    write_files(output, files)
    return Report(output / PAGE, content)


def _training_counts(folder: DataFolder) -> NDArray[np.int64] | None:
    """Return the training documents of each label, (K,), or None where there is no train split.

    Rows that cannot be used, as those with a label that the model does not know, are left out.
    """
    if "train" not in folder.splits:
        return None
    counts = np.zeros(len(folder.taxonomy), dtype=np.int64)
    bad = 0
    for row in folder.scan("train"):
        if isinstance(row, Document):
            counts[list(row.labels)] += 1
        else:
            bad += 1
    if bad:
        logger.warning("%s: %d rows are not counted for the labels' frequency", folder.split_path("train"), bad)
    return counts
