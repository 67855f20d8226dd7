"""Score a model on a data folder and write the report: a page, its plots, and all of it as JSON."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hgclr.data.folder import DataFolder, Document
from hgclr.decisions.settings import Decisions
from hgclr.errors import require_extra
from hgclr.evaluation.report_data import RESAMPLES, Collector, Example
from hgclr.evaluation.report_plots import Plot, draw_plots
from hgclr.files import check_output, write_files
from hgclr.hardware import machine
from hgclr.inference.classifier import HierarchicalClassifier, sampled
from hgclr.metrics.scores import LabelScores, by_frequency, frequency_thirds
from hgclr.presentation import render_page

logger = logging.getLogger(__name__)
PAGE, FILE = "report.html", "report.json"
KIND, VERSION = "hgclr report", 1
CONFUSIONS = 30
"""Confusions of siblings that are listed."""
WORST = 20
"""Labels that are listed as the worst."""
ENOUGH = 5
"""Gold documents of a label from which on its scores say something."""
TILES = ("micro_f1", "macro_f1", "hierarchical_f1", "precision", "recall", "subset_accuracy")
"""The scores that stand first, in large type."""
RULES = {
    "threshold": "every label by itself; children may lack their parents",
    "closure": "every label by itself, and all labels above it",
    "drop-orphans": "only labels whose ancestors are all given",
    "top-down": "the same as drop-orphans, by its name in the literature",
    "best-path": "one path from the top",
    "top-k-paths": "the k best paths, none the beginning of another",
}
Counts = NDArray[np.int64]
Content = Mapping[str, Any]


class Headline(NamedTuple):
    """A score: its name for programs (with an interval, the bootstrap's), for people, and its place in the JSON."""

    key: str
    name: str
    place: str
    percent: bool = True

    def value(self, content: Content) -> float:
        found: Any = content
        for key in self.place.split("."):
            found = found[int(key) if isinstance(found, list) else key]
        return float(found)

    def shown(self, value: float) -> str:
        return shown_score(value) if self.percent else f"{value:.4f}"

    def shown_difference(self, difference: float) -> str:
        return shown_difference(difference) if self.percent else _signed(f"{difference:+.4f}")


def shown_score(value: float) -> str:
    """Return a score in per cent with two decimals, without the sign."""
    return f"{100 * value:.2f}"


def shown_difference(difference: float) -> str:
    """Return a difference of scores in points, with its sign."""
    return _signed(f"{100 * difference:+.2f}")


def _signed(number: str) -> str:
    """Return a number with a sign that is as wide as a digit, and none if it is 0."""
    return number.replace("-", "−") if number.strip("+-0.") else number.lstrip("+-")


HEADLINES = (
    Headline("micro_f1", "Micro-F1", "scores.micro.f1"),
    Headline("macro_f1", "Macro-F1", "scores.macro.f1"),
    Headline("hierarchical_f1", "Hierarchical F1", "scores.hierarchical.f1"),
    Headline("precision", "Precision", "scores.micro.precision"),
    Headline("recall", "Recall", "scores.micro.recall"),
    Headline("subset_accuracy", "Exact documents", "scores.subset_accuracy"),
    Headline("macro_present_f1", "Macro-F1, present labels", "scores.macro_present.f1"),
    Headline("c_micro_f1", "C-Micro-F1", "scores.path_constrained.micro.f1"),
    Headline("c_macro_f1", "C-Macro-F1", "scores.path_constrained.macro.f1"),
    Headline("p_micro_f1", "P-Micro-F1", "scores.paths.micro.f1"),
    Headline("p_macro_f1", "P-Macro-F1", "scores.paths.macro.f1"),
    Headline("inconsistency_rate", "Orphans", "scores.inconsistency_rate"),
    Headline("hamming_loss", "Hamming loss", "scores.hamming_loss"),
    Headline("r_precision", "R-precision", "ranking.r_precision"),
    *(Headline(f"precision_at_{k}", f"Precision@{k}", f"ranking.precision_at.{k}") for k in (1, 3, 5)),
    *(Headline(f"ndcg_at_{k}", f"nDCG@{k}", f"ranking.ndcg_at.{k}") for k in (3, 5)),
    Headline("hierarchical_auc", "hF1-AUC", "ranking.hierarchical_auc"),
    Headline("ece", "Calibration error", "calibration.ece"),
    Headline("brier", "Brier score", "calibration.brier", percent=False),
)
"""The scores that a report begins with; what they say is in the template of the page."""


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
    decisions = decisions or classifier.decisions
    collected = Collector(decisions, resamples=resamples, seed=seed)
    for documents, logits, gold in classifier.scored_windows(sampled(folder, split, limit), progress=progress):
        collected.update([document.text for document in documents], decisions.probabilities(logits), gold)
    counts = _training_counts(folder)
    content = report_content(
        collected, model=name, data=str(folder.path), split=split, command=command, training_counts=counts
    )
    plots = draw_plots(content)
    files = {PAGE: report_page(content, plots).encode(), FILE: json_file(content)}
    for plot in plots:
        files |= plot.files()
    write_files(output, files)
    return Report(output / PAGE, content)


def check_report(folder: Path) -> None:
    """Refuse a place where nothing can be written, and an installation without matplotlib, before any work is done."""
    require_extra("matplotlib", extra="report", capability="Writing a report")
    check_output(folder)


def json_file(content: Content) -> bytes:
    """Return a JSON file with one line for each part: thousands of numbers on lines of their own help nobody."""
    lines = (f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in content.items())
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


def _training_counts(folder: DataFolder) -> Counts | None:
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


def report_content(
    collected: Collector, *, model: str, data: str, split: str, command: str, training_counts: Counts | None = None
) -> dict[str, Any]:
    """Return all that a report says, in plain Python types: what report.json holds and pages are made from.

    ``training_counts`` are the training documents of each label, (K,), where they are known.
    """
    resampled = collected.bootstrap.resampled()
    frequency = None
    if training_counts is not None:
        groups = by_frequency(collected.scores, training_counts, frequency_thirds)
        frequency = [{"group": name, **scores} for name, scores in groups.items()]
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
        "frequency": frequency,
        "rules": collected.rules.to_json(),
        "threshold_curve": collected.threshold_curve.to_json(),
        "risk_coverage": collected.risk_coverage.to_json(),
        "confusions": _confusions(collected),
        "worst_labels": _worst(collected),
        "labels": _labels(collected, training_counts),
        "resampled": resampled.to_json(),
        "command": command,
        "machine": machine(),
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
        **{
            name: getattr(scores, name).tolist()
            for name in ("gold", "predicted", "true_positives", "precision", "recall", "f1")
        },
    }
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


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

    def ids(labels: Iterable[int]) -> list[str]:
        return [taxonomy.ids[label] for label in labels]

    def plain(examples: Iterable[Example]) -> list[dict[str, Any]]:
        return [{"text": one.text, "gold": ids(one.gold), "predicted": ids(one.predicted)} for one in examples]

    return [
        {
            "id": taxonomy.ids[label],
            "lost": float((1 - scores.f1[label]) * scores.gold[label]),
            "missed": int(scores.gold[label] - scores.true_positives[label]),
            "false": int(scores.predicted[label] - scores.true_positives[label]),
            "missed_examples": plain(collected.examples.missed[label]),
            "false_examples": plain(collected.examples.false[label]),
        }
        for label in worst_labels(scores)
    ]


def report_page(content: Content, plots: Sequence[Plot]) -> str:
    """Return the page of what report.json holds, with the plots of it."""
    return render_page(
        "evaluation/templates/report.html",
        content=content,
        plots={plot.name: plot for plot in plots},
        headlines=HEADLINES,
        tiles=TILES,
        enough=ENOUGH,
        rules=RULES,
        decision_facts=decision_facts(content),
        tree_data=_tree_data(content["labels"]),
        path=path_finder(content),
        label={label["id"]: label for label in content["labels"]}.__getitem__,
        score=shown_score,
    )


def path_finder(content: Content) -> Callable[[str], list[str]]:
    """Return a function from the id of a label to the names on the way to it from the top."""
    labels = {label["id"]: label for label in content["labels"]}

    def path(identifier: str | None) -> list[str]:
        names: list[str] = []
        while identifier is not None:
            names.insert(0, labels[identifier]["name"])
            identifier = labels[identifier]["parent"]
        return names

    return path


def decision_facts(content: Content) -> list[tuple[str, str]]:
    """Return how the model decided, as pairs of name and text: rule, thresholds, abstention, calibration."""
    decisions = content["decisions"]
    rule, thresholds, calibration = decisions["rule"], decisions["thresholds"], decisions["calibration"]
    text = f"{rule}: {RULES[rule]}"
    if rule == "top-k-paths":
        text += f", k = {decisions['paths']:,}"
    if rule in ("best-path", "top-k-paths"):
        text += ", down to a leaf or not" if decisions["allow_inner_nodes"] else ", down to a leaf"
    if isinstance(thresholds, Mapping):
        low, middle, high = np.quantile(list(thresholds.values()), [0, 0.5, 1]).tolist()
        shown = f"one for each label, from {low:.3f} to {high:.3f}, median {middle:.3f}"
    else:
        shown = f"{thresholds:g} for all labels"
    facts = [("Decoding rule", text), ("Thresholds", shown)]
    if (limit := decisions["abstain_below"]) is not None:
        facts.append(("Left out", f"labels that are less than {limit:.1%} sure, and all below them"))
    facts.append(("Calibration", f"{calibration['method']}, one for each level" if calibration else "none"))
    return facts


def _tree_data(labels: Sequence[Content]) -> str:
    """Return the numbers that label_tree.js makes the rows of the tree from."""
    place = {label["id"]: index for index, label in enumerate(labels)}
    columns = {"names": "name", "gold": "gold", "predicted": "predicted", "right": "true_positives"}
    data = {
        **{name: [label[key] for label in labels] for name, key in columns.items()},
        "parents": [-1 if label["parent"] is None else place[label["parent"]] for label in labels],
    }
    # No name may end the script element: JSON can spell its angle bracket otherwise.
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
