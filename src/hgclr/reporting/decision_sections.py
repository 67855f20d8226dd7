"""The parts of a report's page about decisions: probabilities, sureness, thresholds, decoding rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hgclr.html_page import Html, notice, paragraph, picture, table
from hgclr.reporting.headlines import shown_score
from hgclr.reporting.plots import Plot

__all__ = ["decision_facts", "probability_section", "rule_section", "sureness_section", "threshold_section"]

Content = Mapping[str, Any]
Plots = Mapping[str, Plot]

RULES = {
    "threshold": "every label by itself; children may lack their parents",
    "closure": "every label by itself, and all labels above it",
    "drop-orphans": "only labels whose ancestors are all given",
    "min-parent": "the same, with no label more probable than its parent",
    "top-down": "the same as drop-orphans, by its name in the literature",
    "best-path": "one path from the top",
    "top-k-paths": "the k best paths, none the beginning of another",
}
NOT_ON_TEST = (
    "To choose, run hgclr calibrate on dev: what is chosen on these documents looks better on them than it is."
)


def decision_facts(content: Content) -> list[tuple[str, str]]:
    """Return how the model decided: rule, thresholds, calibration, sureness."""
    decisions = content["decisions"]
    rule = decisions["rule"]
    text = f"{rule}: {RULES[rule]}"
    if rule == "top-k-paths":
        text += f", k = {decisions['paths']:,}"
    if rule in ("best-path", "top-k-paths"):
        text += ", down to a leaf or not" if decisions["stop_inside"] else ", down to a leaf"
    facts = [("Decoding rule", text), ("Thresholds", _thresholds(decisions["thresholds"]))]
    if decisions["sure"] is not None:
        facts.append(("Left out", f"labels that are less than {decisions['sure']:.1%} sure, and all below them"))
    calibration = decisions["calibration"]
    facts.append(("Calibration", f"{calibration['method']}, one for each level" if calibration else "none"))
    return facts


def _thresholds(thresholds: Any) -> str:
    if not isinstance(thresholds, Mapping):
        return f"{thresholds:g} for all labels"
    low, middle, high = np.quantile(list(thresholds.values()), [0, 0.5, 1]).tolist()
    return f"one for each label, from {low:.3f} to {high:.3f}, median {middle:.3f}"


def probability_section(content: Content, plots: Plots) -> Html:
    """Return the reliability diagram and calibration before and after probabilities are made consistent."""
    lead = (
        "Of the labels that the model finds 80% probable, four in five should be right. Points on the dashed line keep"
        " that promise; below it the model is too sure of itself, above it not sure enough."
    )
    rows = [
        (name, f"{scores['pairs']:,}", f"{100 * scores['ece']:.3f}", f"{scores['brier']:.5f}")
        for name, scores in (
            ("as the model gives them", content["calibration"]),
            ("no label more probable than its parent", content["consistent_calibration"]),
        )
    ]
    caption = "Error: mean distance between probability and frequency, in per cent (ECE). Lower is better for both."
    return Html(
        "\n".join(
            (
                paragraph(lead),
                _shown(plots["reliability"], "Below: pairs of document and label, on a logarithmic scale."),
                table(("probabilities", "pairs", "calibration error", "Brier score"), rows, caption=caption),
            )
        )
    )


def sureness_section(content: Content, plots: Plots) -> Html:
    """Return the risk-coverage curve, and what may be left to a person."""
    lead = (
        "A label that the model is not sure of can be left out, and its document be shown to a person: --sure does so"
        " and stops at the label above. Fewer labels are given then, and fewer of them are wrong."
    )
    if not content["risk_coverage"]["labels_given"]:
        return notice("note", "no label was given", "Left out")
    rows = []
    for chosen in content["risk_coverage"]["chosen"]:
        if chosen["sure"] is None:
            cells = ("not to be had", "", "")
        elif chosen["coverage"] == 1:
            cells = ("all labels", "100%", f"{chosen['risk']:.1%}")
        else:
            cells = (f"{chosen['sure']:.1%}", f"{chosen['coverage']:.1%}", f"{chosen['risk']:.1%}")
        rows.append((f"at most {chosen['wanted_risk']:.0%} wrong", *cells))
    headings = ("wanted", "labels at least so sure", "labels still given", "wrong ones among them")
    return Html(
        "\n".join(
            (
                paragraph(lead),
                _shown(plots["risk-coverage"]),
                table(headings, rows, caption="To choose, run hgclr calibrate --risk on dev."),
            )
        )
    )


def threshold_section(content: Content, plots: Plots) -> Html:
    """Return F1 over one threshold for all labels."""
    rule = content["decisions"]["rule"]
    lead = (
        f"With the decoding rule {rule} and one threshold for all labels. A flat curve means that the threshold matters"
        " little."
    )
    if rule in ("best-path", "top-k-paths"):
        lead += " This rule chooses among paths; a threshold only says whether a longer path is worth it."
    return Html(f"{paragraph(lead)}\n{_shown(plots['threshold-curve'], NOT_ON_TEST)}")


def rule_section(content: Content) -> Html:
    """Return all decoding rules side by side."""
    used, paths = content["decisions"]["rule"], content["decisions"]["paths"]
    rows = []
    for scores in content["rules"]:
        rule = scores["rule"]
        meaning = RULES[rule] + (f", k = {paths:,}" if rule == "top-k-paths" else "")
        mark = " <b>· in use</b>" if rule == used else ""
        numbers = (scores[key] for key in ("micro_f1", "macro_f1", "hierarchical_f1", "subset_accuracy"))
        rows.append(
            (
                Html(f'{rule}{mark}<br><span class="quiet">{meaning}</span>'),
                *map(shown_score, numbers),
                f"{scores['inconsistency_rate']:.1%}",
                f"{scores['labels_per_document']:.2f}",
            )
        )
    headings = ("rule", "Micro-F1", "Macro-F1", "hierarchical F1", "exact documents", "orphans", "labels a document")
    gold = content["scores"]["gold"] / max(1, content["documents"])
    lead = (
        "The same probabilities and thresholds, decided by each rule. Orphans are labels given without their parent."
        f" Documents have {gold:.2f} labels each."
    )
    return Html(f"{paragraph(lead)}\n{table(headings, rows, caption=NOT_ON_TEST)}")


def _shown(plot: Plot, caption: str = "") -> Html:
    return picture(plot.svg, alt=plot.alt, caption=caption, kind="svg")
