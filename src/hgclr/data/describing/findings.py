"""Say in sentences what a check found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from hgclr.data.checking import LONG, SHORT, CheckReport

__all__ = ["Finding", "excerpt", "findings"]

LABELS, BRANCHES = 10, 5
"""How many labels, and how many branches, the largest first, a sentence names."""
EXCERPT = 60
"""Characters of a text that are shown."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that the owner of the data should know.

    Args:
        kind: a warning is most likely a mistake, a note may be as it should be.
        text: the sentence, without a full stop.
    """

    kind: Literal["warning", "note"]
    text: str


def findings(report: CheckReport) -> list[Finding]:
    """Return what is worth knowing about a folder, what weighs most first; bad rows and empty splits apart."""
    found = [
        *(
            Finding("warning", f"{_count(count, 'text is', 'texts are')} in both {first} and {second}")
            for (first, second), count in report.shared_texts.items()
        ),
        *_conflicts(report),
        *_labels(report),
    ]
    if report.documents:
        short = sum(split.short_texts for split in report.splits.values())
        long = sum(split.long_texts for split in report.splits.values())
        if short:
            share = _share(short, report.documents)
            found.append(
                Finding("note", f"{_count(short, 'text has', 'texts have')} fewer than {SHORT} words ({share})")
            )
        if long:
            share = _share(long, report.documents)
            texts = _count(long, "text has", "texts have")
            found.append(Finding("note", f"{texts} more than {LONG} words ({share}); most encoders read {LONG} tokens"))
    return found


def _conflicts(report: CheckReport) -> list[Finding]:
    if not report.conflicting_texts:
        return []
    first = report.first_conflicts[0]
    number = _count(report.conflicting_texts, "text has", "texts have")
    example = f"{excerpt(first.text)!r} ({'; '.join(first.sides())})"
    such_as = ", such as" if report.conflicting_texts > 1 else ":"
    return [Finding("warning", f"{number} different labels in different documents{such_as} {example}")]


def _labels(report: CheckReport) -> list[Finding]:
    found = []
    if unseen := report.unseen_labels:
        others = " or ".join(name for name in report.splits if name != "train")
        number = _count(len(unseen), "label has", "labels have")
        found.append(Finding("warning", f"{number} documents in {others}, but none in train: {_some(unseen, LABELS)}"))
    if branches := sorted(report.unused_branches, key=lambda branch: -branch.labels):
        number = _count(len(branches), "branch of the tree has", "branches of the tree have")
        names = [f"{one.path} ({one.labels:,} labels)" if one.labels > 1 else one.path for one in branches]
        labels = _count(sum(one.labels for one in branches), "label", "labels")
        found.append(Finding("warning", f"{number} no document in any split ({labels}): {_some(names, BRANCHES)}"))
    if constant := report.constant_labels:
        number = _count(len(constant), "label is", "labels are")
        found.append(Finding("warning", f"{number} on every document of train: {_some(constant, LABELS)}"))
    return found


def excerpt(text: str) -> str:
    """Return the start of a text, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= EXCERPT else line[: EXCERPT - 1].rstrip() + "…"


def _some(names: Sequence[str], shown: int) -> str:
    return ", ".join(names[:shown]) + (", …" if len(names) > shown else "")


def _count(count: int, one: str, several: str) -> str:
    return f"{count:,} {one if count == 1 else several}"


def _share(count: int, total: int) -> str:
    share = count / total
    return "less than 0.1 %" if share < 0.001 else f"{100 * share:.1f} %"
