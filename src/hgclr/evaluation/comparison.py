"""Put reports side by side: differences to the first, and whether chance explains them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from hgclr.errors import InputError
from hgclr.evaluation.report_content import HEADLINES, read_report, shown_difference, shown_score
from hgclr.metrics.intervals import Resampled, ScoreDifference, paired_difference

__all__ = ["PLAUSIBLE", "Comparison", "LabelChange", "Line", "compare", "level_lines", "score_lines"]

CHANGES = 15
"""Labels that are listed as those that gained, and that lost, most."""


@dataclass(frozen=True, slots=True)
class LabelChange:
    """How a label fares in another report than the first.

    Args:
        id: of the label.
        gold: its documents.
        first: its F1 in the first report.
        other: its F1 in the other one.
    """

    id: str
    gold: int
    first: float
    other: float

    @property
    def change(self) -> float:
        """What the other report gains, in documents: the difference in F1 times the documents of the label."""
        return (self.other - self.first) * self.gold


@dataclass(frozen=True)
class Comparison:
    """Reports on the same documents.

    Args:
        names: how to call them.
        contents: what each report.json holds.
        tests: for every report but the first, by the name of the score, by how much it is larger than in the first, as
            :func:`~hgclr.metrics.intervals.paired_difference` has it.
    """

    names: tuple[str, ...]
    contents: tuple[dict[str, Any], ...]
    tests: tuple[dict[str, ScoreDifference], ...]

    def changes(self, other: int) -> tuple[list[LabelChange], list[LabelChange]]:
        """Return the labels that gained most and those that lost most in report ``other``, counted from 0."""
        columns = zip(self.contents[0]["labels"], self.contents[other]["labels"], strict=True)
        changes = [LabelChange(one["id"], one["gold"], one["f1"], two["f1"]) for one, two in columns]
        gained = sorted((each for each in changes if each.change > 0), key=lambda each: -each.change)
        lost = sorted((each for each in changes if each.change < 0), key=lambda each: each.change)
        return gained[:CHANGES], lost[:CHANGES]

    def to_json(self) -> dict[str, Any]:
        """Return all of it in plain Python types."""
        return {
            "kind": "hgclr comparison",
            "version": 1,
            "documents": self.contents[0]["documents"],
            "reports": [
                {"name": name, **{key: content[key] for key in ("model", "data", "split", "decisions")}}
                for name, content in zip(self.names, self.contents, strict=True)
            ],
            "scores": {score.key: [score.value(content) for content in self.contents] for score in HEADLINES},
            "intervals": [content["intervals"] for content in self.contents],
            "differences_to_first": [
                {name: asdict(difference) for name, difference in tests.items()} for tests in self.tests
            ],
            "labels": [
                {"report": self.names[other], **self._changes_json(other)} for other in range(1, len(self.contents))
            ],
        }

    def _changes_json(self, other: int) -> dict[str, Any]:
        gained, lost = self.changes(other)
        return {"gained": [asdict(each) for each in gained], "lost": [asdict(each) for each in lost]}


def compare(reports: Sequence[str | Path]) -> Comparison:
    """Compare reports with the first of them, by a paired bootstrap test on the resamples that they hold.

    Args:
        reports: folders of reports, or their report.json.

    Raises:
        InputError: if there are fewer than two, one is no report, or they do not share documents, label tree and
            resamples.
    """
    if len(reports) < 2:
        raise InputError("a comparison needs two reports or more", remedy="give the folders of both")
    contents = [read_report(place) for place in reports]
    resampled = [_resampled(content, place) for content, place in zip(contents, reports, strict=True)]
    for place, content, samples in zip(reports[1:], contents[1:], resampled[1:], strict=True):
        both = f"{reports[0]} and {place}"
        _check_tree(contents[0], content, both)
        _check_documents(contents[0], content, both)
        _check_resamples(resampled[0], samples, both)
    tests = tuple(paired_difference(other, resampled[0]) for other in resampled[1:])
    return Comparison(_names(reports), tuple(contents), tests)


def _check_tree(first: dict[str, Any], other: dict[str, Any], both: str) -> None:
    trees = [
        {label["id"]: (label["name"], label["parent"]) for label in content["labels"]} for content in (first, other)
    ]
    if list(trees[0].items()) != list(trees[1].items()):
        raise InputError(
            f"{both} have different label trees: {_tree_difference(*trees)}",
            remedy="compare models that were trained with the same tree",
        )


def _check_documents(first: dict[str, Any], other: dict[str, Any], both: str) -> None:
    if first["documents_digest"] != other["documents_digest"]:
        sizes = [f"{content['data']} {content['split']}, {content['documents']:,}" for content in (first, other)]
        raise InputError(
            f"{both} were not made from the same documents in the same order ({sizes[0]}; {sizes[1]})",
            remedy="evaluate both models on the same split of the same data",
        )


def _check_resamples(first: Resampled, other: Resampled, both: str) -> None:
    kinds = [f"{len(next(iter(each.samples.values())))} of seed {each.seed}" for each in (first, other)]
    if kinds[0] != kinds[1]:
        raise InputError(
            f"{both} have different resamples: {kinds[0]} and {kinds[1]}",
            remedy="write both reports with the same number of resamples and seed",
        )


def _tree_difference(first: dict[str, Any], other: dict[str, Any]) -> str:
    """Return the first thing that differs, in words."""
    for label in first:
        if label not in other:
            return f"{label!r} is only in the first"
        if first[label] != other[label]:
            return f"{label!r} has another name or parent"
    for label in other:
        if label not in first:
            return f"{label!r} is only in the second"
    return "the labels come in another order"


def _resampled(content: dict[str, Any], place: str | Path) -> Resampled:
    try:
        return Resampled.from_json(content["resampled"])
    except InputError as error:
        raise InputError(error.what, path=place, remedy=error.remedy) from None


def _names(reports: Sequence[str | Path]) -> tuple[str, ...]:
    """Return the folders' names, or the whole paths where names repeat."""
    folders = [path.parent if path.suffix == ".json" else path for path in map(Path, reports)]
    names = tuple(folder.resolve().name for folder in folders)
    if len(set(names)) == len(names):
        return names
    paths = tuple(map(str, folders))
    if len(set(paths)) == len(paths):
        return paths
    return tuple(f"{number}: {path}" for number, path in enumerate(paths, 1))


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


def _cells(value: str, difference: str, test: ScoreDifference | None) -> Cells:
    if test is None:
        return Cells(value, difference, "", None)
    clear = test.p_value < PLAUSIBLE
    return Cells(
        value, difference, f"{test.p_value:.3f}", ("better" if test.difference > 0 else "worse") if clear else None
    )
