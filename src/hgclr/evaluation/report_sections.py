"""The first parts of a report's page: what it comes to in plain words, all scores, levels, frequencies."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from hgclr.evaluation.report_content import ENOUGH, HEADLINES, shown_score
from hgclr.evaluation.report_plots import Plot
from hgclr.presentation import Html, bullets, fold, notice, paragraph, picture, table

__all__ = [
    "LABEL_STYLE",
    "LabelNames",
    "confusion_section",
    "decision_facts",
    "frequency_section",
    "level_section",
    "plain_words",
    "probability_section",
    "rule_section",
    "score_section",
    "sureness_section",
    "threshold_section",
    "tree_script",
    "tree_section",
    "tree_style",
    "worst_section",
]

Content = Mapping[str, Any]


def plain_words(content: Content) -> Html:
    """Return what the scores come to, for somebody who never heard of them."""
    return bullets(_sentences(content))


def _sentences(content: Content) -> Iterator[str]:
    scores = content["scores"]
    yield (
        f"Of 100 labels that the model gives, {_of_hundred(scores['micro']['precision'])} are right. Of 100 labels that"
        f" it should give, it finds {_of_hundred(scores['micro']['recall'])}."
    )
    yield f"{scores['subset_accuracy']:.0%} of the documents get exactly their labels, no more and no fewer."
    interval = content["intervals"]["micro_f1"]
    yield (
        f"Other documents of the same kind would give other scores: Micro-F1 most likely lies between"
        f" {100 * interval['low']:.1f} and {100 * interval['high']:.1f} (95% interval)."
    )
    if len(scores["levels"]) > 1:
        best, worst = (choose(scores["levels"], key=lambda level: level["micro"]["f1"]) for choose in (max, min))
        yield (
            f"It does best at level {best['depth']} of the tree (Micro-F1 {100 * best['micro']['f1']:.1f}) and worst at"
            f" level {worst['depth']} ({100 * worst['micro']['f1']:.1f}); level 1 is the top."
        )
    groups = {group["group"]: 100 * group["macro"]["f1"] for group in content["frequency"] or ()}
    if {"head", "tail"} <= groups.keys():
        yield (
            f"The labels with the most training documents have a mean F1 of {groups['head']:.1f}, those with the fewest"
            f" of {groups['tail']:.1f}."
        )
    if scores["inconsistency_rate"] > 0:
        yield (
            f"{scores['inconsistency_rate']:.1%} of the labels below the top are given without the label above them;"
            " a decoding rule other than “threshold” prevents that."
        )
    for chosen in content["risk_coverage"]["chosen"]:
        if chosen["sure"] and chosen["coverage"] < 1:
            yield (
                f"If only labels that it is at least {chosen['sure']:.0%} sure of were given, {chosen['coverage']:.0%}"
                f" of the labels would remain, and {_of_hundred(1 - chosen['risk'])} of 100 would be right."
            )
            break


def _of_hundred(share: float) -> str:
    return f"{100 * share:.0f}" if share < 0.995 or share == 1 else f"{100 * share:.1f}"


def score_section(content: Content) -> Html:
    """Return the table of all scores, with what each means."""
    intervals = content["intervals"]
    rows = []
    for score in HEADLINES:
        interval = intervals.get(score.key)
        between = f"{shown_score(interval['low'])} – {shown_score(interval['high'])}" if interval else ""
        meaning = score.meaning + (" Lower is better." if score.better == "smaller" else "")
        name = Html(f'<span class="name">{escape(score.name)}</span>')
        said = Html(f'<span class="meaning">{escape(meaning)}</span>')
        rows.append((name, said, score.shown(score.value(content)), between))
    return table(
        ("score", "what it says", "value", "95% interval"),
        rows,
        text_columns=2,
        caption="Scores are in per cent where nothing else is said. Intervals: from "
        f"{len(content['resampled']['samples']['micro_f1']):,} resamples of the documents.",
    )


def level_section(content: Content) -> Html:
    """Return the scores of each level of the tree."""
    rows = []
    for level, calibration in zip(content["scores"]["levels"], content["calibration"]["levels"], strict=True):
        depth = level["depth"]
        rows.append(
            (
                f"{depth}",
                f"{level['labels']:,}",
                f"{level['gold']:,}",
                f"{level['predicted']:,}",
                _with_interval(content, f"micro_f1_level_{depth}"),
                _with_interval(content, f"macro_f1_level_{depth}"),
                shown_score(level["micro"]["precision"]),
                shown_score(level["micro"]["recall"]),
                shown_score(calibration["ece"]),
            )
        )
    headings = ("level", "labels", "gold", "given", "Micro-F1", "Macro-F1", "precision", "recall", "calibration error")
    caption = "Level 1 is the top. Gold, given: how often a label should be given, and is. Below F1: its 95% interval."
    return table(headings, rows, caption=caption)


def _with_interval(content: Content, name: str) -> Html:
    interval = content["intervals"][name]
    between = f"{100 * interval['low']:.1f} – {100 * interval['high']:.1f}"
    return Html(f'{shown_score(interval["score"])}<br><span class="quiet">{between}</span>')


def frequency_section(content: Content) -> Html:
    """Return the scores of labels by how many training documents they have."""
    if content["frequency"] is None:
        text = "The data folder has no train split, so that the labels cannot be ordered by their training documents."
        return notice("note", text, "Left out")
    names = {
        "head": "head: the most frequent third",
        "middle": "middle third",
        "tail": "tail: the rarest third",
        "unseen": "unseen: no training document",
    }
    rows = []
    for group in content["frequency"]:
        counts = (
            f"{group['fewest']:,}" if group["fewest"] == group["most"] else f"{group['fewest']:,} – {group['most']:,}"
        )
        rows.append(
            (
                names[group["group"]],
                counts,
                f"{group['labels']:,}",
                f"{group['gold']:,}",
                shown_score(group["micro"]["f1"]),
                shown_score(group["macro"]["f1"]),
            )
        )
    headings = ("labels by frequency", "training documents", "labels", "gold", "Micro-F1", "Macro-F1")
    lead = (
        "Do rare labels suffer? The labels are put in order by their documents in the train split of the data folder."
    )
    return Html(
        f"{paragraph(lead)}\n{table(headings, rows, caption='Labels that are equally frequent stay together.')}"
    )


FRAME = """<div class="labels" id="label-tree">
<div class="controls">
<label>Find <input type="search" name="find" placeholder="part of a name" autocomplete="off"></label>
<label>Order <select name="order">
<option value="tree">as in the tree</option><option value="worst">lowest F1 first</option>
<option value="frequent">most documents first</option><option value="name">by name</option>
</select></label>
<label><input type="checkbox" name="present" checked> only labels that occur</label>
<span class="scale" aria-hidden="true">F1 0 <i></i> 100</span>
<span class="quiet" role="status"></span>
</div>
<div class="box">
<div class="row heads" aria-hidden="true"><span class="name" style="--level: 1">label</span><span>documents</span>
<span>precision</span><span>recall</span><span>F1</span></div>
<ul role="tree" aria-label="Labels with their scores"></ul>
</div>
<noscript><p>The tree needs JavaScript; report.json has the same scores of every label.</p></noscript>
<script type="application/json" id="label-tree-data">{data}</script>
</div>"""


def label_tree(labels: Sequence[Mapping[str, Any]]) -> Html:
    """Return the tree; its rows are made in the browser, by :func:`tree_script`, from numbers in the page.

    Args:
        labels: as in report.json.
    """
    place = {label["id"]: index for index, label in enumerate(labels)}
    data = {
        "names": [label["name"] for label in labels],
        "parents": [-1 if label["parent"] is None else place[label["parent"]] for label in labels],
        "gold": [label["gold"] for label in labels],
        "predicted": [label["predicted"] for label in labels],
        "right": [label["true_positives"] for label in labels],
    }
    # No name may end the script element: JSON can spell its angle bracket otherwise.
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return Html(FRAME.replace("{data}", text))


def tree_style() -> str:
    """Return the style sheet of the tree."""
    return Path(__file__).with_name("label_tree.css").read_text(encoding="utf-8")


def tree_script() -> str:
    """Return the program of the tree."""
    return Path(__file__).with_name("label_tree.js").read_text(encoding="utf-8")


LABEL_STYLE = """
.worst > details { border-bottom: 1px solid var(--line); padding: .45rem 0; margin: 0; }
.worst .figures { float: right; color: var(--quiet); font-size: .875rem; font-variant-numeric: tabular-nums; }
.worst .document { background: var(--card); border-radius: .6rem; padding: .7rem 1rem; margin: .6rem 0 .6rem 1.1rem; }
.worst .document p { margin: 0 0 .4rem; } .worst .document dl { margin: 0; font-size: .875rem; }
.worst h3 { margin: .8rem 0 0 1.1rem; font-size: .875rem; }
"""


class LabelNames:
    """Find the names of labels by id.

    Args:
        labels: as in report.json.
    """

    def __init__(self, labels: Sequence[Content]) -> None:
        self._labels = {label["id"]: label for label in labels}

    def __getitem__(self, identifier: str) -> Content:
        return self._labels[identifier]

    def name(self, identifier: str) -> str:
        """Return the name of a label."""
        return str(self._labels[identifier]["name"])

    def above(self, identifier: str) -> str:
        """Return the path to a label without itself, empty for a top label."""
        parent = self._labels[identifier]["parent"]
        return "" if parent is None else self.path(parent)

    def path(self, identifier: str) -> str:
        """Return the names from the top to a label."""
        names = [self.name(identifier)]
        while (parent := self._labels[identifier]["parent"]) is not None:
            identifier = parent
            names.append(self.name(identifier))
        return " › ".join(reversed(names))

    def path_html(self, identifier: str) -> Html:
        """Return the path to a label, with what is above it in grey."""
        above = self.above(identifier)
        start = f'<span class="quiet">{escape(above)} ›</span> ' if above else ""
        return Html(start + escape(self.name(identifier)))


def tree_section(content: Content) -> Html:
    """Return the label tree coloured by F1."""
    text = (
        "Click a label to open it; with the keyboard, move by the arrow keys. Documents: how many should have the"
        " label. A dash stands where a score is not defined, as for the precision of a label that is never given."
    )
    return Html(f"{paragraph(text)}\n{label_tree(content['labels'])}")


def confusion_section(content: Content) -> Html:
    """Return the siblings that are given in the place of each other."""
    if not content["confusions"]:
        return notice("good", "no document was given a sibling of a label that it should have", "None")
    names = LabelNames(content["labels"])
    rows = [
        (
            names.name(pair["gold"]),
            names.name(pair["predicted"]),
            names.above(pair["gold"]) or "at the top",
            f"{pair['documents']:,}",
            f"{pair['share']:.0%}",
            f"{pair['reverse']:,}",
        )
        for pair in content["confusions"]
    ]
    headings = ("should be", "was given instead", "below", "documents", "share of all", "vice versa")
    lead = (
        "Labels with the same parent that stand for each other most often. Where both ways are frequent, the two may be"
        " one label, or the annotators did not agree on the difference."
    )
    return Html(f"{paragraph(lead)}\n{table(headings, rows, text_columns=3)}")


def worst_section(content: Content) -> Html:
    """Return the labels that cost most, each with documents to look at."""
    if not content["worst_labels"]:
        return notice("good", "every label with enough documents is always right", "None")
    names = LabelNames(content["labels"])
    parts = []
    for number, worst in enumerate(content["worst_labels"]):
        label = names[worst["id"]]
        figures = (
            f"F1 {shown_score(label['f1'])} · {label['gold']:,} documents · {worst['missed']:,} missed"
            f" · {worst['false']:,} given wrongly"
        )
        summary = Html(f'{names.path_html(worst["id"])} <span class="figures">{figures}</span>')
        missed = _documents("Should have it and was not given it", worst["missed_examples"], names)
        false = _documents("Was given it and should not have it", worst["false_examples"], names)
        parts.append(fold(summary, Html(missed + false), unfolded=number == 0))
    lead = (
        "Labels below the mean F1, those first that cost most: documents of the label times what its F1 lacks. Labels"
        f" with fewer than {ENOUGH} documents are left out, where there are others. Open one to see documents."
    )
    return Html(f'{paragraph(lead)}\n<div class="worst">\n{"".join(parts)}\n</div>')


def _documents(heading: str, examples: Sequence[Content], names: LabelNames) -> str:
    if not examples:
        return ""
    parts = [f"<h3>{escape(heading)}</h3>"]
    for example in examples:
        gold = _paths(example["gold"], example["predicted"], names, "should be")
        given = _paths(example["predicted"], example["gold"], names, "was given")
        parts.append(f'<div class="document"><p>{escape(example["text"])}</p><dl>{gold}{given}</dl></div>')
    return "\n".join(parts)


def _paths(labels: Sequence[str], others: Sequence[str], names: LabelNames, heading: str) -> str:
    """Return the paths of a document, those on both sides marked as right."""
    marked = [f"{'✓' if label in others else '✗'} {names.path_html(label)}" for label in labels] or ["no label"]
    return f"<dt>{heading}</dt><dd>{'<br>'.join(marked)}</dd>"


Plots = Mapping[str, Plot]
RULES = {
    "threshold": "every label by itself; children may lack their parents",
    "closure": "every label by itself, and all labels above it",
    "drop-orphans": "only labels whose ancestors are all given",
    "min-parent": "the same, with no label more probable than its parent",
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
        text += ", down to a leaf or not" if decisions["allow_inner_nodes"] else ", down to a leaf"
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
        "A label that the model is not sure of can be left out, and its document be shown to a person: --abstain-below does so"
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
