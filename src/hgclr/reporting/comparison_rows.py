"""The lines of a comparison's tables, as text, for page and terminal alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hgclr.evaluation.intervals import Difference
from hgclr.reporting.comparing import Comparison
from hgclr.reporting.headlines import HEADLINES, shown_difference, shown_score

__all__ = ["PLAUSIBLE", "Cells", "Line", "level_lines", "score_lines"]

PLAUSIBLE = 0.05
"""The p-value from which on a difference may well be chance."""


@dataclass(frozen=True, slots=True)
class Cells:
    """What is said of a score in another report than the first.

    Args:
        value: the score.
        difference: to the first report.
        p_value: of the paired test, empty where the score was not resampled.
        verdict: ``better`` or ``worse`` where chance hardly explains the difference.
    """

    value: str
    difference: str
    p_value: str
    verdict: Literal["better", "worse"] | None


@dataclass(frozen=True, slots=True)
class Line:
    """One score: its name, the value of the first report, and what is said of the others."""

    name: str
    first: str
    others: tuple[Cells, ...]


def score_lines(comparison: Comparison) -> list[Line]:
    """Return a line for each of the scores that a report begins with."""
    lines = []
    for score in HEADLINES:
        first, *others = (score.value(content) for content in comparison.contents)
        cells = tuple(
            _cells(score.shown(value), score.shown_difference(value - first), tests.get(score.key))
            for value, tests in zip(others, comparison.tests, strict=True)
        )
        lines.append(Line(score.name, score.shown(first), cells))
    return lines


def level_lines(comparison: Comparison) -> list[Line]:
    """Return two lines for each level of the tree: Micro- and Macro-F1."""
    lines = []
    for depth in range(1, len(comparison.contents[0]["scores"]["levels"]) + 1):
        for kind in ("micro", "macro"):
            first, *others = (content["scores"]["levels"][depth - 1][kind]["f1"] for content in comparison.contents)
            cells = tuple(
                _cells(shown_score(value), shown_difference(value - first), tests.get(f"{kind}_f1_level_{depth}"))
                for value, tests in zip(others, comparison.tests, strict=True)
            )
            lines.append(Line(f"level {depth}, {kind.capitalize()}-F1", shown_score(first), cells))
    return lines


def _cells(value: str, difference: str, test: Difference | None) -> Cells:
    if test is None:
        return Cells(value, difference, "", None)
    clear = test.p_value < PLAUSIBLE
    return Cells(
        value, difference, f"{test.p_value:.3f}", ("better" if test.difference > 0 else "worse") if clear else None
    )
