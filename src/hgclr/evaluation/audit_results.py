"""What an audit finds."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import Any

from hgclr.errors import InputError
from hgclr.evaluation.audit_scores import Kind
from hgclr.files import atomic_file
from hgclr.inference.classifier import PredictedLabel
from hgclr.presentation import Html, Section, notice, page, paragraph, table, tiles

__all__ = [
    "COLUMNS",
    "Audit",
    "ConfusedPair",
    "Contradiction",
    "DoubtfulLabel",
    "Finding",
    "audit_page",
    "check_output",
    "percent",
    "write_audit",
    "write_csv",
    "write_json",
]


@dataclass(frozen=True, slots=True)
class Contradiction:
    """A decision of the annotation that the model contradicts.

    Args:
        label: the label, with its probability.
        given: whether the document is given it; the model would decide otherwise.
        usual: the model's mean agreement with such decisions about this label.
        strength: of the contradiction; see :func:`~hgclr.auditing.scoring.contradictions`.
    """

    label: PredictedLabel
    given: bool
    usual: float
    strength: float

    def to_json(self) -> dict[str, Any]:
        """Return it in plain Python types."""
        numbers = {"usual": round(self.usual, 4), "strength": round(self.strength, 4)}
        return {**self.label.to_json(), "given": self.given, **numbers}


@dataclass(frozen=True, slots=True)
class Finding:
    """A document whose labels the model contradicts.

    Args:
        row: its place in the file: the line in a text file (a table's header is line 1), else counted from 1.
        text: the text.
        given: the ends of the paths that it is given.
        suggested: the ends of the paths that the model would give it.
        kind: in which way the two differ; see :func:`~hgclr.auditing.scoring.kinds`.
        level: the level, 1 for the top, at which they part: the first at which a label is another, missing or extra.
        common: the path down to the label after which ``other path`` parts, their lowest common ancestor; empty where
            paths have nothing in common, and for other kinds.
        score: how strong the contradiction is; see :func:`~hgclr.auditing.scoring.document_scores`.
        contradictions: the labels about which they differ, parents before their children.
    """

    row: int
    text: str
    given: tuple[PredictedLabel, ...]
    suggested: tuple[PredictedLabel, ...]
    kind: Kind
    level: int
    common: tuple[str, ...]
    score: float
    contradictions: tuple[Contradiction, ...]

    def to_json(self) -> dict[str, Any]:
        """Return it in plain Python types."""
        return {
            "row": self.row,
            "score": round(self.score, 4),
            "kind": self.kind,
            "level": self.level,
            "common": list(self.common),
            "text": self.text,
            "given": [label.to_json() for label in self.given],
            "suggested": [label.to_json() for label in self.suggested],
            "contradictions": [contradiction.to_json() for contradiction in self.contradictions],
        }


@dataclass(frozen=True, slots=True)
class ConfusedPair:
    """Two labels that annotation and model take for each other.

    Args:
        first, second: the labels, by id.
        paths: the names down to each.
        first_given: documents that are given the first, and the second is suggested.
        second_given: documents the other way round.
        examples: rows and texts of those that are contradicted most.
    """

    first: str
    second: str
    paths: tuple[tuple[str, ...], tuple[str, ...]]
    first_given: int
    second_given: int
    examples: tuple[tuple[int, str], ...]

    @property
    def documents(self) -> int:
        """Documents in all."""
        return self.first_given + self.second_given


@dataclass(frozen=True, slots=True)
class DoubtfulLabel:
    """A label whose documents are often contradicted.

    Args:
        id: the label.
        path: the names down to it.
        given: documents that are given it.
        wrong: those of them that surely should not be: the contradiction is at least 1, ten times at a top label.
        missing: documents that surely should be given it, and are not.
        usual: the model's mean agreement with its documents.
    """

    id: str
    path: tuple[str, ...]
    given: int
    wrong: int
    missing: int
    usual: float

    @property
    def error_rate(self) -> float:
        """The estimated share of its documents that should not be given it."""
        return self.wrong / self.given if self.given else 0.0


@dataclass(frozen=True)
class Audit:
    """The result.

    Args:
        data: the name of the data folder.
        file: what was audited.
        split: which split it is.
        documents: how many were looked at.
        kinds: how many are contradicted, by kind.
        findings: those that are contradicted most, the strongest first.
        pairs: labels that are confused most.
        labels: labels whose documents are contradicted most.
    """

    data: str
    file: str
    split: str
    documents: int
    kinds: Mapping[Kind, int]
    findings: tuple[Finding, ...]
    pairs: tuple[ConfusedPair, ...]
    labels: tuple[DoubtfulLabel, ...]

    @property
    def contradicted(self) -> int:
        """The number of documents that the model would label otherwise."""
        return sum(self.kinds.values())

    def to_json(self) -> dict[str, Any]:
        """Return everything in plain Python types."""
        return {
            "kind": "hgclr audit",
            "version": 1,
            "data": self.data,
            "file": self.file,
            "split": self.split,
            "documents": self.documents,
            "contradicted": self.contradicted,
            "kinds": dict(self.kinds),
            "findings": [finding.to_json() for finding in self.findings],
            "pairs": [{**asdict(pair), "documents": pair.documents} for pair in self.pairs],
            "labels": [{**asdict(label), "error_rate": round(label.error_rate, 4)} for label in self.labels],
        }


EXCERPT = 600
"""Characters of a text that are shown at once; the rest unfolds."""
PATHS = 8
"""Paths of a document that are shown for either side, those that differ first."""
SHORT = 100
"""Characters of an example in a table."""
STYLE = """
.narrow { display: flex; flex-wrap: wrap; gap: .5rem 1rem; align-items: center; margin: 1rem 0; }
.narrow select, .narrow input { font: inherit; color: inherit; background: var(--card); border: 1px solid var(--line);
  border-radius: .4rem; padding: .3rem .6rem; } .narrow input { flex: 1 1 14rem; min-width: 0; }
.found { border: 1px solid var(--line); border-radius: .6rem; padding: .7rem 1rem .8rem; margin: .8rem 0;
  background: var(--card); break-inside: avoid; } .found[hidden] { display: none; }
.found header { display: flex; flex-wrap: wrap; gap: .1rem 1rem; font-size: .8125rem; color: var(--quiet); }
.found header b { color: var(--ink); font-variant-numeric: tabular-nums; }
.found blockquote { margin: .35rem 0 .55rem; font-size: 1.05rem; line-height: 1.5; white-space: pre-line; }
.found blockquote details { display: inline; } .found blockquote summary { color: var(--accent); font-size: .875rem; }
.found dl { margin: 0; grid-template-columns: 6rem 1fr; gap: .15rem .75rem; font-size: .9375rem; }
.found del, .found ins { text-decoration: none; font-weight: 600; }
.found del { color: var(--error); } .found ins { color: var(--good); }
@media (max-width: 36rem) { .found dl { grid-template-columns: 1fr; gap: 0; } }
"""
SCRIPT = """
(() => {
  const kind = document.getElementById("kind"), words = document.getElementById("words");
  const state = document.getElementById("state"), found = [...document.querySelectorAll(".found")];
  const texts = found.map((one) => one.textContent.toLowerCase());
  const narrow = () => {
    const wanted = words.value.toLowerCase().split(/\\s+/).filter(Boolean);
    let shown = 0;
    found.forEach((one, place) => {
      const fits =
        (!kind.value || one.dataset.kind === kind.value) && wanted.every((word) => texts[place].includes(word));
      one.hidden = !fits;
      shown += fits;
    });
    state.textContent = shown === found.length ? "" : `${shown} of ${found.length}`;
  };
  kind.addEventListener("change", narrow);
  words.addEventListener("input", narrow);
})();
"""
FOOTER = (
    "The score is in orders of magnitude: how much less probable the model finds what the document is given than what"
    " documents are usually given, for extra and for missing labels together, top labels weighing most. The"
    " percentages are the model's probabilities of the labels at the ends of the paths. A model errs, too: a high score"
    " is a reason to look, not a verdict."
)


def audit_page(audit: Audit) -> str:
    """Return the page."""
    title = f"Label audit of {audit.data}, {audit.split}"
    share = audit.contradicted / audit.documents if audit.documents else 0.0
    lead = tiles(
        [
            (f"{audit.documents:,}", f"documents in {audit.split}"),
            (f"{audit.contradicted:,}", "that the model would label otherwise"),
            (f"{100 * share:.1f} %", "of all"),
            *((f"{count:,}", kind) for kind, count in audit.kinds.items() if len(audit.kinds) > 1),
        ]
    )
    if not audit.findings:
        nothing = notice("good", "the model would label every document as it is labelled", "No contradiction")
        return page(title, [Section("Documents", nothing)], lead=lead, footer=FOOTER)
    sections = [Section("Documents", _documents(audit))]
    if audit.pairs:
        sections.append(Section("Labels taken for each other", _pairs(audit)))
    if audit.labels:
        sections.append(Section("Labels with most errors", _labels(audit)))
    return page(title, sections, lead=lead, footer=FOOTER, style=STYLE, script=SCRIPT)


def _documents(audit: Audit) -> Html:
    kinds = [kind for kind in audit.kinds if any(finding.kind == kind for finding in audit.findings)]
    options = "".join(f"<option>{escape(kind)}</option>" for kind in kinds)
    which = f"The {len(audit.findings):,} of {audit.contradicted:,} documents that are contradicted most."
    narrow = (
        '<div class="narrow">'
        f'<select id="kind" aria-label="Kind"><option value="">all kinds</option>{options}</select>'
        '<input id="words" type="search" placeholder="words of labels or text" aria-label="Words">'
        '<span id="state" class="quiet" role="status"></span></div>'
    )
    parts = [
        paragraph(which if len(audit.findings) < audit.contradicted else "All of them.", quiet=True),
        narrow,
        *(_finding(number, finding) for number, finding in enumerate(audit.findings, 1)),
    ]
    return Html("\n".join(parts))


def _finding(number: int, finding: Finding) -> str:
    where = f"parts at level {finding.level}" if finding.kind == "other path" else f"level {finding.level}"
    differing = {contradiction.label.path for contradiction in finding.contradictions}
    return (
        f'<article class="found" data-kind="{escape(finding.kind)}"><header><span>{number}</span>'
        f"<b>{finding.score:.2f}</b><span>{escape(finding.kind)}, {where}</span>"
        f"<span>row {finding.row}</span></header>\n"
        f"<blockquote>{_text(finding.text)}</blockquote>\n"
        f"<dl><dt>given</dt><dd>{_paths(finding.given, differing, 'del')}</dd>"
        f"<dt>suggested</dt><dd>{_paths(finding.suggested, differing, 'ins')}</dd></dl></article>"
    )


def _text(text: str) -> str:
    if len(text) <= EXCERPT:
        return escape(text)
    return f"{escape(text[:EXCERPT])}… <details><summary>whole text</summary>{escape(text)}</details>"


def _paths(labels: Sequence[PredictedLabel], differing: set[tuple[str, ...]], tag: str) -> str:
    """Return paths with the names that only one side has marked, and the probability of each end."""
    if not labels:
        return '<span class="quiet">no label</span>'
    lines = []
    for label in sorted(labels, key=lambda label: label.path not in differing)[:PATHS]:
        names = [
            f"<{tag}>{escape(name)}</{tag}>" if label.path[:depth] in differing else escape(name)
            for depth, name in enumerate(label.path, 1)
        ]
        lines.append(f'{" › ".join(names)} <span class="quiet">{percent(label.probability)}</span>')
    if len(labels) > PATHS:
        lines.append(f'<span class="quiet">and {len(labels) - PATHS:,} more</span>')
    return "<br>".join(lines)


def _pairs(audit: Audit) -> Html:
    rows = [
        (
            " > ".join(pair.paths[0]),
            " > ".join(pair.paths[1]),
            Html("<br>".join(f"“{escape(_shortened(text))}”" for _, text in pair.examples)),
            f"{pair.documents:,}",
            f"{pair.first_given:,} / {pair.second_given:,}",
        )
        for pair in audit.pairs
    ]
    return table(
        ("label", "other label", "documents, the most contradicted", "all", "given this / other"),
        rows,
        text_columns=3,
        caption="Counted where two paths part and, where they go on, at their ends. All in one direction: annotators"
        " or model use one label for both; in both directions: the two are hard to tell apart.",
    )


def _labels(audit: Audit) -> Html:
    rows = [
        (
            " > ".join(label.path),
            f"{label.given:,}",
            f"{label.wrong:,}",
            f"{100 * label.error_rate:.0f} %",
            f"{label.missing:,}",
            percent(label.usual),
        )
        for label in audit.labels
    ]
    return table(
        ("label", "given", "surely wrong", "of given", "surely missing", "usual probability"),
        rows,
        caption="Surely: the contradiction at this label is 1 or more. In the order of the lower end of the 95 %"
        " interval of the share.",
    )


def _shortened(text: str) -> str:
    """Return the start of a text, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= SHORT else line[: SHORT - 1].rstrip() + "…"


def percent(probability: float) -> str:
    """Return a probability as people write it; nothing is quite impossible or certain."""
    if probability < 0.001:
        return "< 0.1 %"
    return "> 99.9 %" if probability > 0.999 else f"{100 * probability:.{0 if 0.1 <= probability <= 0.9 else 1}f} %"


COLUMNS = ("row", "text", "given", "suggested", "kind", "level", "score", "verdict")
"""Of the table; the last is empty, for the reviewer."""


def check_output(folder: Path) -> None:
    """Refuse a place where nothing can be written, before any work is done.

    Raises:
        InputError: if the place is a file.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError("the output is a file", path=folder, remedy="give a folder")


def write_audit(folder: Path, audit: Audit) -> list[Path]:
    """Write ``audit.html``, ``audit.csv`` and ``audit.json`` and return their paths; other files in the folder stay.

    Raises:
        InputError: if one cannot be written.
    """
    paths = [folder / "audit.html", folder / "audit.csv", folder / "audit.json"]
    _write(paths[0], audit_page(audit))
    write_csv(paths[1], audit)
    write_json(paths[2], audit)
    return paths


def write_csv(target: Path, audit: Audit, *, label_separator: str = "; ", path_separator: str = " > ") -> None:
    """Write the findings as a table, one document a row, the strongest contradiction first.

    The file begins with a byte order mark: without it, spreadsheets take UTF-8 for something else.

    Args:
        target: the file.
        audit: what was found.
        label_separator: between the paths of a document.
        path_separator: between the names of a path.

    Raises:
        InputError: if the file cannot be written.
    """

    def paths(labels: tuple[PredictedLabel, ...]) -> str:
        return label_separator.join(path_separator.join(label.path) for label in labels)

    try:
        with atomic_file(target) as temporary, temporary.open("w", encoding="utf-8-sig", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(COLUMNS)
            writer.writerows(
                (
                    finding.row,
                    finding.text,
                    paths(finding.given),
                    paths(finding.suggested),
                    finding.kind,
                    finding.level,
                    f"{finding.score:.4f}",
                    "",
                )
                for finding in audit.findings
            )
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", path=target) from error


def write_json(target: Path, audit: Audit) -> None:
    """Write everything that was found.

    Raises:
        InputError: if the file cannot be written.
    """
    _write(target, json.dumps(audit.to_json(), indent=2, ensure_ascii=False) + "\n")


def _write(target: Path, content: str) -> None:
    try:
        with atomic_file(target) as temporary:
            temporary.write_text(content, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", path=target) from error
