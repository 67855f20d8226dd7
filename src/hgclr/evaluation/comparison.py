"""Put reports side by side: differences to the first, and whether chance explains them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from hgclr.errors import InputError, refuse_broken
from hgclr.evaluation.headlines import HEADLINES, Headline
from hgclr.evaluation.report_content import ANEW, read_report
from hgclr.metrics.intervals import Resampled, ScoreDifference, paired_difference

__all__ = ["PLAUSIBLE", "Comparison", "ComparisonLine", "LabelChange", "compare", "level_lines", "score_lines"]

CHANGES = 15
"""Labels that are listed as those that gained, and that lost, most."""
PLAUSIBLE = 0.05
"""The p-value from which on a difference may well be chance."""


@dataclass(frozen=True, slots=True)
class LabelChange:
    """A label, its gold documents, and its F1 in the first report and in another one."""

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
        labels = []
        for other, name in enumerate(self.names[1:], 1):
            gained, lost = ([asdict(each) for each in side] for side in self.changes(other))
            labels.append({"report": name, "gained": gained, "lost": lost})
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
            "labels": labels,
        }


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
    with refuse_broken(lambda error: InputError(f"a report is broken: {error!r:.200}", remedy=ANEW)):
        resampled = [_resampled(content, place) for content, place in zip(contents, reports, strict=True)]
        for place, content, samples in zip(reports[1:], contents[1:], resampled[1:], strict=True):
            both = f"{reports[0]} and {place}"
            _check_tree(contents[0], content, both)
            _check_documents(contents[0], content, both)
            _check_resamples(resampled[0], samples, both)
        tests = tuple(paired_difference(other, resampled[0]) for other in resampled[1:])
        comparison = Comparison(_names(reports), tuple(contents), tests)
        comparison.to_json(), list(score_lines(comparison)), list(level_lines(comparison))  # all that is shown is there
    return comparison


def _resampled(content: dict[str, Any], place: str | Path) -> Resampled:
    try:
        return Resampled.from_json(content["resampled"])
    except InputError as error:
        raise InputError(error.what, path=place, remedy=error.remedy) from None


def _check_tree(first: dict[str, Any], other: dict[str, Any], both: str) -> None:
    one, two = (
        {label["id"]: (label["name"], label["parent"]) for label in content["labels"]} for content in (first, other)
    )
    if list(one.items()) == list(two.items()):
        return
    if only := [label for label in one if label not in two]:
        difference = f"{only[0]!r} is only in the first"
    elif changed := [label for label in one if one[label] != two[label]]:
        difference = f"{changed[0]!r} has another name or parent"
    elif only := [label for label in two if label not in one]:
        difference = f"{only[0]!r} is only in the second"
    else:
        difference = "the labels come in another order"
    raise InputError(
        f"{both} have different label trees: {difference}",
        remedy="compare models that were trained with the same tree",
    )


def _check_documents(first: dict[str, Any], other: dict[str, Any], both: str) -> None:
    if first["documents_digest"] != other["documents_digest"]:
        sizes = "; ".join(
            f"{content['data']} {content['split']}, {content['documents']:,}" for content in (first, other)
        )
        raise InputError(
            f"{both} were not made from the same documents in the same order ({sizes})",
            remedy="evaluate both models on the same split of the same data",
        )


def _check_resamples(first: Resampled, other: Resampled, both: str) -> None:
    kinds = [f"{len(next(iter(each.samples.values())))} of seed {each.seed}" for each in (first, other)]
    if kinds[0] != kinds[1]:
        raise InputError(
            f"{both} have different resamples: {kinds[0]} and {kinds[1]}",
            remedy="write both reports with the same number of resamples and seed",
        )


def _names(reports: Sequence[str | Path]) -> tuple[str, ...]:
    """Return the folders' names, or the whole paths where names repeat."""
    folders = [path.parent if path.suffix == ".json" else path for path in map(Path, reports)]
    for names in (tuple(folder.resolve().name for folder in folders), tuple(map(str, folders))):
        if len(set(names)) == len(names):
            return names
    return tuple(f"{number}: {path}" for number, path in enumerate(folders, 1))


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
class ComparisonLine:
    """One score: its name, the value of the first report, and what is said of the others."""

    name: str
    first: str
    others: tuple[Cells, ...]


def score_lines(comparison: Comparison) -> list[ComparisonLine]:
    """Return a line for each of the scores that a report begins with."""
    return [_line(score, comparison) for score in HEADLINES]


def level_lines(comparison: Comparison) -> list[ComparisonLine]:
    """Return two lines for each level of the tree: Micro- and Macro-F1."""
    return [
        _line(
            Headline(f"{kind}_f1_level_{depth}", f"level {depth}, {name}", f"scores.levels.{depth - 1}.{kind}.f1"),
            comparison,
        )
        for depth in range(1, len(comparison.contents[0]["scores"]["levels"]) + 1)
        for kind, name in (("micro", "Micro-F1"), ("macro", "Macro-F1"))
    ]


def _line(score: Headline, comparison: Comparison) -> ComparisonLine:
    first, *others = (score.value(content) for content in comparison.contents)
    cells = []
    for value, tests in zip(others, comparison.tests, strict=True):
        test = tests.get(score.key)
        verdict: Literal["better", "worse"] | None = None
        if test is not None and test.p_value < PLAUSIBLE:
            verdict = "better" if test.difference > 0 else "worse"
        p_value = "" if test is None else f"{test.p_value:.3f}"
        cells.append(Cells(score.shown(value), score.shown_difference(value - first), p_value, verdict))
    return ComparisonLine(score.name, score.shown(first), tuple(cells))
