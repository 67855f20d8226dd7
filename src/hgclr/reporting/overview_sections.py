"""The first parts of a report's page: what it comes to in plain words, all scores, levels, frequencies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from hgclr.html_page import Html, bullets, notice, paragraph, table
from hgclr.reporting.headlines import HEADLINES, shown_score

__all__ = ["frequency_section", "level_section", "plain_words", "score_section"]

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
