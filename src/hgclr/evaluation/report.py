"""Evaluation report of a model on a data folder: HTML page, plots and JSON."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hgclr.data.folder import DataFolder, Document
from hgclr.decisions.settings import Decisions
from hgclr.evaluation.report_data import RESAMPLES, Collector, Example
from hgclr.files import write_files
from hgclr.inference.classifier import HierarchicalClassifier, sampled
from hgclr.metrics.scores import LabelScores, by_frequency, frequency_thirds
from hgclr.presentation import COLOURS, INK, MUTED, PALE, Plot, check_report, draw, legend_above, render_page
from hgclr.provenance import machine

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

logger = logging.getLogger(__name__)
PAGE, FILE = "report.html", "report.json"
KIND, VERSION = "hgclr report", 1
CONFUSIONS = 30
"""Maximum number of confused siblings in the report."""
WORST = 20
"""Maximum number of worst labels in the report."""
ENOUGH = 5
"""Minimum gold documents of a label in the list of worst labels."""
FEW = 10
"""Minimum pairs in a bin for its frequency to be drawn."""
TILES = ("micro_f1", "macro_f1", "hierarchical_f1", "precision", "recall", "subset_accuracy")
"""The scores at the top of the page, in large type."""
RULES = {
    "threshold": "each label separately; a child may lack its parent",
    "closure": "each label separately, with all its ancestors",
    "drop-orphans": "only labels whose ancestors are all predicted",
    "best-path": "one path from the top",
    "top-k-paths": "the k best paths, none the beginning of another",
}
Counts = NDArray[np.int64]
Content = Mapping[str, Any]


class Headline(NamedTuple):
    """A score: its key (that of the bootstrap, if it has an interval), its title, and its place in the JSON."""

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
    """Return a score in per cent with two decimals, without the per cent sign."""
    return f"{100 * value:.2f}"


def shown_difference(difference: float) -> str:
    """Return a difference of scores in points, with its sign."""
    return _signed(f"{100 * difference:+.2f}")


def _signed(number: str) -> str:
    """Return a number with a typographic minus sign, and without a sign if it is 0."""
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
"""The scores at the start of a report; the page template explains them."""


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
    pseudo_labels: Mapping[str, int] | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Score a classifier, write ``report.html``, ``report.json`` and the plots, and return the content of the JSON.

    The documents are read once, with constant memory. Label frequencies are counted in the train split, if the data
    folder has one.

    Args:
        classifier: the model.
        folder: the documents, read with the classifier's label tree.
        split: its split.
        output: the folder of the report; other files in it stay.
        name: name of the model.
        decisions: by default the model's.
        limit: size of a random sample of the documents, the same every time.
        command: the command line, shown in the report.
        pseudo_labels: the unlabelled texts of each label that the model learned from, if any.
        resamples: number of resamples for confidence intervals and comparisons.
        seed: seed of the resamples; only reports with the same resamples can be compared.
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
    counts = None
    if "train" in folder.splits:
        counts, bad = np.zeros(len(folder.taxonomy), dtype=np.int64), 0
        for row in folder.scan("train"):
            if isinstance(row, Document):
                counts[list(row.labels)] += 1
            else:  # such as a label that the model does not know
                bad += 1
        if bad:
            logger.warning("%s: label frequencies leave out %d bad rows", folder.split_path("train"), bad)
    content = report_content(
        collected,
        model=name,
        data=str(folder.path),
        split=split,
        command=command,
        training_counts=counts,
        pseudo_labels=pseudo_labels,
    )
    plots = draw_plots(content)
    files = {PAGE: report_page(content, plots).encode(), FILE: json_file(content)}
    for plot in plots:
        files |= plot.files()
    write_files(output, files)
    return content


def json_file(content: Content) -> bytes:
    """Return the bytes of a JSON file with one line per key of the content."""
    lines = (f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in content.items())
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


def report_content(
    collected: Collector,
    *,
    model: str,
    data: str,
    split: str,
    command: str,
    training_counts: Counts | None = None,
    pseudo_labels: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """Return the content of report.json, in plain Python types.

    ``training_counts`` are the training documents of each label, (K,), if known.
    """
    resampled, ids, gold = collected.bootstrap.resampled(), collected.taxonomy.ids, collected.scores.per_label().gold
    confusions = [
        {
            "gold": ids[confusion.gold],
            "predicted": ids[confusion.predicted],
            "documents": confusion.documents,
            "share": confusion.documents / int(gold[confusion.gold]),
            "reverse": collected.confusions.documents(confusion.predicted, confusion.gold),
        }
        for confusion in collected.confusions.most(CONFUSIONS)
    ]
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
        "confusions": confusions,
        "worst_labels": _worst(collected),
        "labels": _labels(collected, training_counts),
        "pseudo_labels": pseudo_labels,
        "resampled": resampled.to_json(),
        "command": command,
        "machine": machine(),
    }


def worst_labels(scores: LabelScores, number: int = WORST) -> list[int]:
    """Return the labels, by index, with the largest ``(1 - F1) · gold documents``.

    Labels with an F1 above the mean are left out, or large good labels would fill the list; so are labels with fewer
    than :data:`ENOUGH` gold documents, unless all labels have fewer.
    """
    enough = scores.gold >= ENOUGH
    if not enough.any():
        enough = scores.gold > 0
    if not enough.any():
        return []
    # Not below the mean but at most the mean, because all labels may have the same F1.
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
    if not taxonomy.is_tree:
        every = range(len(taxonomy))
        columns["parents"] = [[taxonomy.ids[parent] for parent in taxonomy.parents_of(label)] for label in every]
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


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
    """Return the page for the content of report.json and its plots."""
    labels = content["labels"]
    place = {label["id"]: index for index, label in enumerate(labels)}
    columns = {"names": "name", "gold": "gold", "predicted": "predicted", "right": "true_positives"}
    tree_data = {
        **{name: [label[key] for label in labels] for name, key in columns.items()},
        "parents": [-1 if label["parent"] is None else place[label["parent"]] for label in labels],
    }
    return render_page(
        "evaluation/templates/report.html",
        content=content,
        plots={plot.name: plot for plot in plots},
        headlines=HEADLINES,
        tiles=TILES,
        enough=ENOUGH,
        rules=RULES,
        decision_facts=decision_facts(content),
        # A name must not end the script element, so "<" is escaped.
        tree_data=json.dumps(tree_data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c"),
        path=path_finder(content),
        label=lambda identifier: labels[place[identifier]],
        score=shown_score,
        several=sum(len(label.get("parents", ())) > 1 for label in labels),
    )


def path_finder(content: Content) -> Callable[[str], list[str]]:
    """Return a function from the id of a label to the names on its path."""
    labels = {label["id"]: label for label in content["labels"]}

    def path(identifier: str | None) -> list[str]:
        names: list[str] = []
        while identifier is not None:
            names.insert(0, labels[identifier]["name"])
            identifier = labels[identifier]["parent"]
        return names

    return path


def decision_facts(content: Content) -> list[tuple[str, str]]:
    """Return the decisions as pairs of name and text: rule, thresholds, abstention, calibration."""
    decisions = content["decisions"]
    rule, thresholds, calibration = decisions["rule"], decisions["thresholds"], decisions["calibration"]
    text = f"{rule}: {RULES[rule]}"
    if rule == "top-k-paths":
        text += f", k = {decisions['paths']:,}"
    if rule in ("best-path", "top-k-paths"):
        text += ", ending at any label" if decisions["allow_inner_nodes"] else ", ending at a leaf"
    if isinstance(thresholds, Mapping):
        low, middle, high = np.quantile(list(thresholds.values()), [0, 0.5, 1]).tolist()
        shown = f"one for each label, from {low:.3f} to {high:.3f}, median {middle:.3f}"
    else:
        shown = f"{thresholds:g} for all labels"
    facts = [("Decoding rule", text), ("Thresholds", shown)]
    if (limit := decisions["abstain_below"]) is not None:
        facts.append(("Abstained", f"labels less probable than {limit:.1%}, and all below them"))
    facts.append(("Calibration", f"{calibration['method']}, one for each level" if calibration else "none"))
    return facts


def draw_plots(content: Content) -> list[Plot]:
    """Draw every plot of a report; the same content gives the same bytes."""
    return [
        draw("reliability", lambda figure: _reliability(figure, content), (9.3, 4.8)),
        draw("risk-coverage", lambda figure: _risk_coverage(figure.subplots(), content)),
        draw("threshold-curve", lambda figure: _thresholds(figure.subplots(), content)),
    ]


def _reliability(figure: Figure, content: Content) -> str:
    """Plot the share of right labels by predicted probability, and the number of pairs in each bin."""
    from matplotlib.ticker import FuncFormatter, NullLocator, PercentFormatter

    above, below = figure.subplots(2, sharex=True, height_ratios=(3, 1))
    above.plot([0, 1], [0, 1], color="#999999", linewidth=0.8, linestyle=(0, (4, 4)), label="perfect")
    calibration = content["calibration"]
    levels = calibration["levels"]
    if 1 < len(levels) <= len(COLOURS):
        for level, colour in zip(levels, COLOURS, strict=False):
            name = f"level {level['depth']}"
            above.plot(*_points(level["bins"]), color=colour, linewidth=1.2, marker="o", markersize=3, label=name)
    above.plot(*_points(calibration["bins"]), color=INK, linewidth=2, marker="o", markersize=4.5, label="all labels")
    above.set(title="Calibration", ylabel="share that is right", xlim=(0, 1), ylim=(0, 1))
    above.grid()
    legend_above(above, 8)
    bins = calibration["bins"]
    below.bar(
        [(part["lower"] + part["upper"]) / 2 for part in bins],
        [part["count"] for part in bins],
        width=0.92 / len(bins),
        color=PALE,
    )
    below.set(yscale="log", ylabel="pairs", xlabel="predicted probability")
    below.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    below.yaxis.set_minor_locator(NullLocator())
    below.grid(axis="y")
    for axes in (above, below):
        axes.xaxis.set_major_formatter(PercentFormatter(1))
    above.yaxis.set_major_formatter(PercentFormatter(1))
    figure.align_ylabels()
    points = ", ".join(f"{said:.0%}: {right:.0%}" for said, right in zip(*_points(bins), strict=True))
    return f"Share of right labels by predicted probability. {points}"


def _points(bins: Sequence[Content]) -> tuple[list[float], list[float]]:
    """Return mean probability and frequency of the bins that have enough pairs."""
    filled = [part for part in bins if part["count"] >= FEW]
    return [part["mean_probability"] for part in filled], [part["frequency"] for part in filled]


def _risk_coverage(axes: Axes, content: Content) -> str:
    """Plot the share of wrong labels over the share of labels kept, most probable labels first."""
    from matplotlib.ticker import PercentFormatter

    curve = content["risk_coverage"]
    coverage = [point["coverage"] for point in curve["points"]]
    risk = [point["risk"] for point in curve["points"]]
    axes.plot(coverage, risk, color=COLOURS[0], linewidth=2)
    axes.fill_between(coverage, risk, color=COLOURS[0], alpha=0.12, linewidth=0)
    top = max([*risk, 0.01]) * 1.15
    named = -top  # risk of the last point with a text; texts need some distance
    for chosen in curve["chosen"]:
        if chosen["abstain_below"] and chosen["coverage"] < 1 and chosen["risk"] <= top:
            place, text = (chosen["coverage"], chosen["risk"]), f"{chosen['abstain_below']:.0%} sure"
            axes.plot(*place, marker="o", markersize=5, color=COLOURS[1])
            if chosen["risk"] >= named + 0.07 * top:
                axes.annotate(text, place, (-6, 6), textcoords="offset points", ha="right", fontsize=8)
                named = chosen["risk"]
    axes.set(
        title="Errors by share of labels kept",
        xlabel="labels kept, of all that the decoding rule predicts",
        ylabel="wrong labels among them",
        xlim=(0, 1),
        ylim=(0, top),
    )
    axes.xaxis.set_major_formatter(PercentFormatter(1))
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=None if top > 0.05 else 1))
    axes.grid()
    return "Share of wrong labels over the share of labels kept; the table below has the numbers"


def _thresholds(axes: Axes, content: Content) -> str:
    """Plot Micro- and Macro-F1 over one threshold for all labels, and those with the model's thresholds."""
    curve, scores, own = content["threshold_curve"], content["scores"], content["decisions"]["thresholds"]
    thresholds, words = [point["threshold"] for point in curve], []
    for key, name, value, colour in (
        ("micro_f1", "Micro-F1", scores["micro"]["f1"], COLOURS[0]),
        ("macro_f1", "Macro-F1", scores["macro"]["f1"], COLOURS[1]),
    ):
        values = [100 * point[key] for point in curve]
        axes.plot(thresholds, values, color=colour, linewidth=2, marker="o", markersize=3.5, label=name)
        if isinstance(own, float | int):
            axes.plot(own, 100 * value, color=colour, marker="D", markersize=7, markeredgecolor="white")
        else:
            axes.axhline(100 * value, color=colour, linewidth=1, linestyle=(0, (4, 3)))
        words.append(f"{name} is best, {max(values):.1f}, at {thresholds[values.index(max(values))]:.2f}")
    mark: Any = {"marker": "D", "linestyle": ""} if isinstance(own, float | int) else {"linestyle": (0, (4, 3))}
    axes.plot([], [], color=MUTED, label="the model's thresholds", **mark)
    axes.set(title="One threshold for all labels", xlabel="threshold", ylabel="F1", xlim=(0, 1))
    axes.margins(y=0.12)
    axes.grid()
    legend_above(axes, 3)
    return f"F1 over the threshold. {'; '.join(words)}"
