"""The parts of a report's page about single labels: the tree, confused siblings, the worst labels with documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from hgclr.html_page import Html, fold, notice, paragraph, table
from hgclr.reporting.content import ENOUGH
from hgclr.reporting.headlines import shown_score
from hgclr.reporting.label_tree import label_tree

__all__ = ["LABEL_STYLE", "LabelNames", "confusion_section", "tree_section", "worst_section"]

LABEL_STYLE = """
.worst > details { border-bottom: 1px solid var(--line); padding: .45rem 0; margin: 0; }
.worst .figures { float: right; color: var(--quiet); font-size: .875rem; font-variant-numeric: tabular-nums; }
.worst .document { background: var(--card); border-radius: .6rem; padding: .7rem 1rem; margin: .6rem 0 .6rem 1.1rem; }
.worst .document p { margin: 0 0 .4rem; } .worst .document dl { margin: 0; font-size: .875rem; }
.worst h3 { margin: .8rem 0 0 1.1rem; font-size: .875rem; }
"""

Content = Mapping[str, Any]


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
