"""Explanations as one HTML page: choose a label to see its words. It needs no script."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from hgclr.evaluation.explanation import METHODS, ExplainedLabel, Explanation, counted
from hgclr.presentation import Html, Section, notice, page, paragraph, table, tiles

__all__ = ["explanation_page"]

LEVELS = 4
LISTED = 5
"""Words that are listed with their numbers."""
EXCERPT = 60
STYLE = """
:root { --for: 11 92 173; --against: 176 84 0; }
@media (prefers-color-scheme: dark) { :root { --for: 90 165 255; --against: 255 150 60; } }
fieldset { border: 1px solid var(--line); border-radius: .6rem; padding: .25rem .75rem .5rem; margin: .75rem 0; }
legend { color: var(--quiet); font-size: .875rem; padding: 0 .35rem; }
.choice { display: flex; gap: .6rem; align-items: baseline; padding: .2rem .35rem; border-radius: .35rem;
  cursor: pointer; }
.choice:hover, .choice:has(:checked) { background: var(--card); }
.choice:has(:checked) b { text-decoration: underline; text-underline-offset: .2em; }
.choice:has(:focus-visible) { outline: 2px solid var(--accent); }
.choice span:last-child { margin-left: auto; white-space: nowrap; font-variant-numeric: tabular-nums; }
.text { white-space: pre-wrap; font-size: 1.0625rem; line-height: 2; }
.text span { border-radius: .2rem; padding: .1em 0; }
.text .unread { color: var(--quiet); font-style: italic; }
.lists { display: flex; flex-wrap: wrap; gap: 0 3rem; } .lists .wide { flex: 1 1 14rem; } .lists table { width: 100%; }
.marks span { padding: .1em .35em; }
.f1 { background: rgb(var(--for) / .10); } .f2 { background: rgb(var(--for) / .20); }
.f3 { background: rgb(var(--for) / .32); } .f4 { background: rgb(var(--for) / .45); font-weight: 600; }
.a1 { background: rgb(var(--against) / .12); } .a2 { background: rgb(var(--against) / .22); }
.a3 { background: rgb(var(--against) / .34); } .a4 { background: rgb(var(--against) / .48); font-weight: 600; }
.f1, .f2, .f3, .f4 { border-bottom: 2px solid rgb(var(--for)); }
.a1, .a2, .a3, .a4 { border-bottom: 2px dotted rgb(var(--against)); }
"""
# A browser that cannot choose, and paper, shows the words of all labels one below the other.
CHOOSING = """
@media screen { @supports selector(:has(*)) { .panel { display: none; } .panel h3 { display: none; }
%s } }
"""


def explanation_page(explanations: Sequence[Explanation], *, model: str) -> str:
    """Return the page.

    Args:
        explanations: of some texts, at least one.
        model: how to call the model.
    """
    most = max(len(explanation.labels) for explanation in explanations)
    shown = "\n".join(f".explained:has(.c{n}:checked) .p{n} {{ display: block; }}" for n in range(most))
    sections = [
        Section(_title(number, explanation, len(explanations)), Html(_body(number, explanation)))
        for number, explanation in enumerate(explanations, 1)
    ]
    methods = dict.fromkeys(explanation.method for explanation in explanations)
    lead = paragraph(
        Html(
            f"Model: {escape(model)}. {escape(' '.join(METHODS[method].capitalize() + '.' for method in methods))}<br>"
            '<span class="marks"><span class="f1">a little</span> <span class="f4">strongly</span> for the label, '
            '<span class="a1">a little</span> <span class="a4">strongly</span> against it</span>'
        )
    )
    return page("Why these labels", sections, lead=lead, style=STYLE + CHOOSING % shown)


def _title(number: int, explanation: Explanation, count: int) -> str:
    line = " ".join(explanation.text.split())
    short = line if len(line) <= EXCERPT else line[: EXCERPT - 1].rstrip() + "…"
    return short if count == 1 else f"{number}. {short}"


def _body(number: int, explanation: Explanation) -> str:
    choices = "\n".join(_choice(number, place, label) for place, label in enumerate(explanation.labels))
    panels = "\n".join(_panel(place, label, explanation) for place, label in enumerate(explanation.labels))
    return f"""<div class="explained">
<fieldset><legend>Label: choose one to see its words</legend>
{choices}
</fieldset>
{_unexplained(explanation)}
{panels}
</div>
{_stability(explanation)}"""


def _choice(number: int, place: int, label: ExplainedLabel) -> str:
    *above, name = label.label.path
    path = f'<span class="quiet">{escape(" > ".join(above))} &gt; </span>' if above else ""
    status = "" if label.status == "given" else f' <span class="quiet">({label.status})</span>'
    checked = " checked" if place == 0 else ""
    return (
        f'<label class="choice"><input type="radio" name="text{number}" class="c{place}"{checked}>'
        f"<span>{path}<b>{escape(name)}</b>{status}</span><span>{label.label.probability:.0%}</span></label>"
    )


def _panel(place: int, label: ExplainedLabel, explanation: Explanation) -> str:
    """Return the text with the words of a label marked, and these words with their numbers."""
    tested = tiles(
        [
            (f"{label.label.probability:.0%}", "with the whole text"),
            (f"{label.only_kept:.0%}", f"with its {counted(len(label.kept), 'word')} only"),
            (f"{label.only_random:.0%}", "with as many random words"),
            (f"{label.without_kept:.0%}", f"without its {counted(len(label.kept), 'word')}"),
        ]
    )
    speaks_for, against = (
        _listed(heading, listed, label, explanation)
        for heading, listed in zip(
            ("speaks for it", "speaks against it"), explanation.strongest(label, LISTED), strict=True
        )
    )
    return f"""<div class="panel p{place}">
<h3>{escape(" > ".join(label.label.path))}</h3>
<p class="text">{_marked(label, explanation)}</p>
{_unread(explanation)}
<div class="lists">
{speaks_for}
{against}
</div>
<p class="quiet">{escape(_note(label, explanation))} How probable the label is:</p>
{tested}
</div>"""


def _listed(heading: str, listed: Sequence[int], label: ExplainedLabel, explanation: Explanation) -> Html:
    """Return words with their numbers; those that are kept have a mark."""
    rows = [
        (explanation.word(word) + (" •" if word in label.kept else ""), explanation.number(label.relevance[word]))
        for word in listed
    ]
    return table((heading, "relevance"), rows) if rows else Html("")


def _marked(label: ExplainedLabel, explanation: Explanation) -> str:
    parts, position = [], 0
    shades = explanation.shades(label, LEVELS)
    for place, (word, shade) in enumerate(zip(explanation.words, shades, strict=True)):
        parts.append(escape(explanation.text[position : word.start]))
        written = escape(explanation.text[word.start : word.stop])
        kind = f"{'f' if shade > 0 else 'a'}{abs(shade)}"
        parts.append(
            f'<span class="{kind}" title="{explanation.number(label.relevance[place])}">{written}</span>'
            if shade
            else written
        )
        position = word.stop
    rest = escape(explanation.text[position:])
    return "".join(parts) + (f'<span class="unread">{rest}</span>' if explanation.unread else rest)


def _unread(explanation: Explanation) -> str:
    if not explanation.unread:
        return ""
    return notice("note", f"the last {counted(explanation.unread, 'word')}; the model reads no further.", "Not read:")


def _unexplained(explanation: Explanation) -> str:
    if not explanation.unexplained:
        return ""
    return notice("note", f"{counted(explanation.unexplained, 'label')}, less probable.", "Left out:")


def _note(label: ExplainedLabel, explanation: Explanation) -> str:
    chance = explanation.chance(label, LEVELS)
    return f"• Its words: the {explanation.keep:.0%} of all that speak most for it." + (
        f" Chance would give each {chance}." if chance else ""
    )


def _stability(explanation: Explanation) -> str:
    """Return what the words that matter most for all labels together are given."""
    stability = explanation.stability
    kept = " ".join(explanation.word(word) for word in stability.kept)
    head = f"With {len(stability.kept)} of {counted(len(explanation.words), 'word')}:"
    if stability.same:
        return notice("good", f"the labels stay the same. The words: {kept}", head)
    changes = "; ".join(
        f"{what} {', '.join(' > '.join(label.path) for label in labels)}"
        for what, labels in (("lost", stability.lost), ("gained", stability.gained))
        if labels
    )
    return notice("warning", f"the labels change: {changes}. The words: {kept}", head)
