"""The audit as one HTML file, with a list that can be narrowed by kind and by words."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from hgclr.auditing.results import Audit, Finding
from hgclr.html_page import Html, Section, notice, page, paragraph, table, tiles
from hgclr.inference.predictions import PredictedLabel

__all__ = ["audit_page", "percent"]

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
