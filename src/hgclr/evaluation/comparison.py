"""Comparison of reports with the first of them: differences, paired tests, and an HTML page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hgclr.errors import InputError, refuse_broken
from hgclr.evaluation.report import (
    FILE,
    HEADLINES,
    KIND,
    VERSION,
    Headline,
    decision_facts,
    json_file,
    path_finder,
    shown_difference,
    shown_score,
)
from hgclr.files import read_bytes, write_files
from hgclr.metrics.intervals import Resampled, ScoreDifference, paired_difference
from hgclr.presentation import COLOURS, check_report, draw, legend_above, render_page

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAGE = "comparison.html"
NEEDED = {"model", "data", "split", "documents", "documents_digest", "decisions", "scores", "intervals", "ranking"}
NEEDED |= {"calibration", "labels", "resampled"}
REMEDY, AGAIN = "give a folder that hgclr evaluate --output wrote", "evaluate the model again"
DRAWN = {"micro_f1": "Micro-F1", "macro_f1": "Macro-F1", "hierarchical_f1": "Hierarchical F1"}
CHANGES = 15
"""Maximum number of labels in the list of gains and in that of losses."""
PLAUSIBLE = 0.05
"""The p-value from which a difference may be chance."""


def read_report(place: str | Path) -> dict[str, Any]:
    """Return the content of the report.json in a folder, or of the file itself.

    Raises:
        InputError: if there is no report, or this version cannot read it.
    """
    path = Path(place)
    if path.is_dir():
        path = path / FILE
    try:
        content = json.loads(read_bytes(path))
    except OSError as error:
        raise InputError(f"no report: {error.strerror}", path=path, remedy=REMEDY) from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"not JSON: {error}", path=path, remedy=AGAIN) from None
    if not isinstance(content, dict) or content.get("kind") != KIND:
        raise InputError("not a report", path=path, remedy=REMEDY)
    if content.get("version") != VERSION:
        what = f"the report has version {content.get('version')!r}; version {VERSION} is needed"
        raise InputError(what, path=path, remedy=AGAIN)
    if missing := sorted(NEEDED - content.keys()):
        raise InputError(f"broken: {missing[0]!r} is missing", path=path, remedy=AGAIN)
    if not isinstance(content["decisions"], dict):
        raise InputError(f"broken: 'decisions' is {content['decisions']!r:.80}", path=path, remedy=AGAIN)
    return content


@dataclass(frozen=True, slots=True)
class LabelChange:
    """A label, its gold documents, and its F1 in the first report and in another one."""

    id: str
    gold: int
    first: float
    other: float

    @property
    def change(self) -> float:
        """The gain of the other report: the difference in F1 times the gold documents of the label."""
        return (self.other - self.first) * self.gold


@dataclass(frozen=True)
class Comparison:
    """Reports on the same documents.

    Args:
        names: of the reports.
        contents: of each report.json.
        tests: for every report but the first, its differences from the first by name of the score; see
            :func:`~hgclr.metrics.intervals.paired_difference`.
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
    """Compare reports with the first of them, by a paired bootstrap test on their resamples.

    Args:
        reports: folders of reports, or their report.json.

    Raises:
        InputError: if there are fewer than two, one is not a report, or documents, label tree or resamples differ.
    """
    if len(reports) < 2:
        raise InputError("a comparison needs at least two reports", remedy="give the folders of both")
    contents = [read_report(place) for place in reports]
    with refuse_broken(lambda error: InputError(f"a report is broken: {error!r:.200}", remedy=AGAIN)):
        resampled = [Resampled.from_json(content["resampled"]) for content in contents]
        for place, content, samples in zip(reports[1:], contents[1:], resampled[1:], strict=True):
            both = f"{reports[0]} and {place}"
            _check_documents(contents[0], content, both)
            kinds = [
                f"{len(next(iter(each.samples.values())))} of seed {each.seed}" for each in (resampled[0], samples)
            ]
            if kinds[0] != kinds[1]:
                raise InputError(
                    f"{both} have different resamples: {kinds[0]} and {kinds[1]}",
                    remedy="write both reports with the same number of resamples and seed",
                )
        tests = tuple(paired_difference(other, resampled[0]) for other in resampled[1:])
        folders = [path.parent if path.suffix == ".json" else path for path in map(Path, reports)]
        names = [folder.resolve().name for folder in folders]
        if len(set(names)) < len(names):
            names = [f"{number}: {folder}" for number, folder in enumerate(folders, 1)]
        comparison = Comparison(tuple(names), tuple(contents), tests)
        comparison.to_json(), score_lines(comparison), level_lines(comparison)  # a broken report fails here
    return comparison


def _check_documents(first: dict[str, Any], other: dict[str, Any], both: str) -> None:
    """Raise if two reports have different documents or label trees."""
    one, two = ([(label["id"], label["name"], label["parent"]) for label in each["labels"]] for each in (first, other))
    if one != two:
        label = next(mine or its for mine, its in zip_longest(one, two) if mine != its)[0]
        raise InputError(
            f"{both} have different label trees; the first difference is at {label!r}",
            remedy="compare models that were trained with the same tree",
        )
    if first["documents_digest"] != other["documents_digest"]:
        sizes = "; ".join(
            f"{content['data']} {content['split']}, {content['documents']:,}" for content in (first, other)
        )
        raise InputError(
            f"{both} were not made from the same documents in the same order ({sizes})",
            remedy="evaluate both models on the same split of the same data",
        )


@dataclass(frozen=True, slots=True)
class Cells:
    """A score of another report, its difference from the first, and the p-value if the score was resampled.

    ``verdict`` is None if the difference may be chance.
    """

    value: str
    difference: str
    p_value: str
    verdict: Literal["better", "worse"] | None


@dataclass(frozen=True, slots=True)
class ComparisonLine:
    """One score: its name, the value of the first report, and the cells of the others."""

    name: str
    first: str
    others: tuple[Cells, ...]


def score_lines(comparison: Comparison) -> list[ComparisonLine]:
    """Return a line for each of `HEADLINES`."""
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


def write_comparison(output: str | Path, comparison: Comparison, *, command: str = "") -> Path:
    """Write ``comparison.html``, ``comparison.json`` and the plot; return the path of the page.

    Raises:
        InputError: if a file cannot be written.
        MissingExtraError: if matplotlib is not installed.
    """
    folder = Path(output)
    check_report(folder)
    rows = len(DRAWN) * len(comparison.names)
    plot = draw("comparison", lambda figure: _dots(figure, comparison), (9.3, 1.3 + 0.25 * rows))
    page = render_page(
        "evaluation/templates/comparison.html",
        comparison=comparison,
        plot=plot,
        command=command,
        headlines=HEADLINES,
        score_lines=score_lines(comparison),
        level_lines=level_lines(comparison),
        plausible=PLAUSIBLE,
        decision_facts=decision_facts,
        path=path_finder(comparison.contents[0]),
        score=shown_score,
        difference=shown_difference,
    )
    files = {PAGE: page.encode(), "comparison.json": json_file(comparison.to_json()), **plot.files()}
    write_files(folder, files)
    return folder / PAGE


def _dots(figure: Figure, comparison: Comparison) -> str:
    """Plot every score as a dot with its 95% interval."""
    axes = figure.subplots()
    step = 0.7 / len(comparison.names)
    words = []
    for number, (name, content) in enumerate(zip(comparison.names, comparison.contents, strict=True)):
        intervals = [content["intervals"][key] for key in DRAWN]
        places = [row + (number - (len(comparison.names) - 1) / 2) * step for row in range(len(DRAWN))]
        scores = [100 * interval["score"] for interval in intervals]
        reach = [
            [score - 100 * interval["low"] for score, interval in zip(scores, intervals, strict=True)],
            [100 * interval["high"] - score for score, interval in zip(scores, intervals, strict=True)],
        ]
        # If an interval ends at 0 or 100, rounding may put the score outside of it.
        reach = [[max(0.0, length) for length in side] for side in reach]
        axes.errorbar(
            scores,
            places,
            xerr=reach,
            fmt="o",
            color=COLOURS[number % len(COLOURS)],
            markersize=6,
            linewidth=2,
            capsize=3,
            label=name,
        )
        words += [f"{name}: {DRAWN[key]} {score:.1f}" for key, score in zip(DRAWN, scores, strict=True)]
    axes.set_yticks(range(len(DRAWN)), list(DRAWN.values()))
    axes.set_ylim(len(DRAWN) - 0.45, -0.55)
    axes.set(title="Scores with 95% intervals")
    axes.grid(axis="x")
    legend_above(axes, 4)
    return f"Dots with lines for the 95% intervals. {'; '.join(words)}"
