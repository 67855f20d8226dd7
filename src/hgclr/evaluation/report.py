"""Score a model on a data folder and write the report."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hgclr.data.folder import DataFolder, Document
from hgclr.decisions.settings import Decisions
from hgclr.evaluation.report_content import FILE, HEADLINES, report_content
from hgclr.evaluation.report_data import RESAMPLES, Collector
from hgclr.evaluation.report_plots import Plot, check_output, draw_plots, json_file
from hgclr.evaluation.report_sections import (
    LABEL_STYLE,
    confusion_section,
    decision_facts,
    frequency_section,
    level_section,
    plain_words,
    probability_section,
    rule_section,
    score_section,
    sureness_section,
    threshold_section,
    tree_script,
    tree_section,
    tree_style,
    worst_section,
)
from hgclr.files import write_files
from hgclr.hardware import machine
from hgclr.inference.backends import windows
from hgclr.inference.classifier import HierarchicalClassifier
from hgclr.presentation import Html, Section, facts, page, tiles

__all__ = ["report", "report_page"]

TILES = ("micro_f1", "macro_f1", "hierarchical_f1", "precision", "recall", "subset_accuracy")
STYLE = """
td .quiet, th .quiet { font-weight: 400; } th .name { white-space: nowrap; }
td .meaning { display: block; min-width: 15rem; }
"""
Content = Mapping[str, Any]


def report_page(content: Content, plots: Sequence[Plot]) -> str:
    """Return the page.

    Args:
        content: as in report.json.
        plots: from :func:`~hgclr.reporting.plots.draw_plots`.
    """
    drawn = {plot.name: plot for plot in plots}
    sections = [
        Section("In plain words", plain_words(content)),
        Section("All scores", score_section(content)),
        Section("Level by level", level_section(content)),
        Section("Frequent and rare labels", frequency_section(content)),
        Section("The label tree", tree_section(content)),
        Section("Confused siblings", confusion_section(content)),
        Section("Labels to look at first", worst_section(content)),
        Section("Can the probabilities be trusted?", probability_section(content, drawn)),
        Section("Leaving out what is unsure", sureness_section(content, drawn)),
        Section("Thresholds", threshold_section(content, drawn)),
        Section("Decoding rules", rule_section(content)),
        Section("How this was made", provenance(content)),
    ]
    return page(
        f"How well {content['model']} does",
        sections,
        lead=_lead(content),
        style=STYLE + tree_style() + LABEL_STYLE,
        script=tree_script(),
    )


def _lead(content: Content) -> Html:
    """Return what was scored and how it decided, and the first scores in large type."""
    headlines = {score.key: score for score in HEADLINES}
    first = [headlines[key] for key in TILES]
    scored = [
        ("Data", f"{content['data']}, {content['split']}: {content['documents']:,} documents"),
        ("Label tree", f"{len(content['labels']):,} labels in {len(content['scores']['levels'])} levels"),
        *decision_facts(content),
    ]
    large = tiles((f"{100 * score.value(content):.1f}", score.name) for score in first)
    return Html(f"{facts(scored)}\n{large}")


def provenance(content: Content) -> Html:
    """Return command, commit, versions and machine."""
    machine = content["machine"]
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items() if version)
    commit = machine["commit"] or "unknown"
    memory = f", {machine['memory_bytes'] / 2**30:.0f} GiB" if machine["memory_bytes"] else ""
    pairs = [
        ("Command", content["command"]),
        ("Commit", f"{commit}, with changes" if machine["modified"] else commit),
        ("Versions", f"Python {machine['python']}, {packages}"),
        ("Machine", f"{machine['processor']}, {machine['threads']} threads{memory}, {machine['platform']}"),
        ("Documents", f"SHA-256 of texts and labels in their order: {content['documents_digest']}"),
    ]
    return facts((name, value) for name, value in pairs if value)


logger = logging.getLogger(__name__)
PAGE = "report.html"


@dataclass(frozen=True, slots=True)
class Report:
    """A report that was written.

    Args:
        page: its HTML page.
        content: what report.json holds.
    """

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
        command: the command that does this, for the record.
        resamples: of the documents, for confidence intervals and comparisons.
        seed: chooses the resamples. Only reports with the same resamples can be compared.
        progress: called with the number of documents scored since the last call.

    Raises:
        InputError: if there is no such split, a document is bad, or the report cannot be written.
        MissingExtraError: if matplotlib is not installed.
    """
    output = Path(output)
    check_output(output)
    collected = Collector(decisions or classifier.decisions, resamples=resamples, seed=seed)
    for documents in windows(folder.documents(split), classifier.window):
        gold = np.zeros((len(documents), len(classifier.taxonomy)), dtype=np.bool_)
        for row, document in enumerate(documents):
            gold[row, list(document.labels)] = True
        texts = [document.text for document in documents]
        collected.update(texts, classifier.predict_proba(texts), gold)
        if progress is not None:
            progress(len(documents))
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
