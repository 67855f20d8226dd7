"""Figure 3 as one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from html import escape
from itertools import groupby

from hgclr.reproduction.figures.kept_text import KeptTokens, Piece

__all__ = ["kept_tokens_html"]

LEVELS = 5
"""Steps in which the share of draws that keep a token is shown."""
LISTED = 8
"""Words named as kept most and least often."""

STYLE = """
:root { color-scheme: light dark; --ink: #1b1b1f; --quiet: #5c5c66; --paper: #ffffff; --card: #f5f5f7; --line: #d9d9df;
  --kept: #a3162a; --shade: 163 22 42; }
@media (prefers-color-scheme: dark) { :root { --ink: #ececf0; --quiet: #a2a2ae; --paper: #16161a; --card: #212127;
  --line: #3a3a44; --kept: #ff9aa6; --shade: 255 120 140; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 54rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.6 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 .5rem; }
h2 { font-size: 1rem; margin: 0 0 .25rem; }
p { margin: .25rem 0; }
.quiet, dt { color: var(--quiet); font-size: .875rem; }
article { background: var(--card); border: 1px solid var(--line); border-radius: .6rem; margin: 1.5rem 0;
  padding: 1rem 1.25rem; break-inside: avoid; }
ul.paths { margin: 0 0 .5rem; padding: 0; list-style: none; font-weight: 600; }
dl { margin: 0; }
dt { margin-top: .75rem; }
dd { margin: .1rem 0 0; overflow-wrap: anywhere; }
.draw { color: var(--quiet); }
mark { background: none; color: var(--kept); font-weight: 700; text-decoration: underline;
  text-decoration-thickness: 2px; text-underline-offset: .2em; }
.share span { border-bottom: 0 solid var(--kept); padding-bottom: 1px; }
.share .s0 { color: var(--quiet); }
.share .s1 { background: rgb(var(--shade) / .07); border-bottom-width: 1px; }
.share .s2 { background: rgb(var(--shade) / .14); border-bottom-width: 2px; }
.share .s3 { background: rgb(var(--shade) / .22); border-bottom-width: 3px; }
.share .s4 { background: rgb(var(--shade) / .32); border-bottom-width: 4px; font-weight: 600; }
.share { line-height: 1.9; }
@media print { body { max-width: none; padding: 0; } article { background: none; } }
"""


def kept_tokens_html(documents: Sequence[KeptTokens], *, model: str, rule: str, seed: int) -> str:
    """Return the page: for every document its labels, its draws, and how often each token is kept.

    Kept tokens are coloured, bold and underlined; shares are told by shade and by the thickness of a line, and in
    numbers where the pointer rests. The page follows the reader's choice of light or dark.

    Args:
        documents: at least one, all with as many draws.
        model: how to call the model.
        rule: which tokens it keeps, in words.
        seed: that decided the draws.
    """
    draws = len(documents[0].kept)
    scale = " ".join(
        f'<span class="s{level}">{100 * level // LEVELS}–{100 * (level + 1) // LEVELS} %</span>'
        for level in range(LEVELS)
    )
    articles = "\n".join(_article(number, document) for number, document in enumerate(documents, 1))
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Tokens kept in positive samples</title>
<style>{STYLE}</style>
</head>
<body>
<h1>Tokens kept in positive samples</h1>
<p>A positive sample is the text with the tokens that its labels choose. The choice is drawn anew at every step of
training: <mark>kept tokens</mark> are coloured and underlined, dropped ones grey.</p>
<p class="quiet">Model: {escape(model)}. It keeps {escape(rule)}. Seed {seed}.</p>
<p class="quiet share">Share of {draws} draws that keep a token: {scale}</p>
{articles}
</body>
</html>
"""


def _article(number: int, document: KeptTokens) -> str:
    """Return the part about one document."""
    paths = "\n".join(f"<li>{escape(path)}</li>" for path in document.paths)
    cut = (
        f'<p class="quiet">Longer than the model reads: only the first {document.length} tokens are shown.</p>\n'
        if document.cut
        else ""
    )
    rows = []
    for draw in range(document.shown):
        rows.append(f"<dt>Draw {draw + 1}: {document.counts[draw]} of {document.length} tokens kept</dt>")
        rows.append(f'<dd class="draw">{_marked(document, partial(_kept, draw=draw))}</dd>')
    rows.append(f"<dt>{len(document.kept)} draws: {escape(document.summary())}</dt>")
    rows.append(f'<dd class="share">{_marked(document, _share)}</dd>')
    return f"""<article>
<h2>Document {number}</h2>
<ul class="paths">
{paths}
</ul>
{cut}<dl>
{chr(10).join(rows)}
</dl>
{_extremes(document)}</article>"""


def _marked(document: KeptTokens, tags: Callable[[Piece], tuple[str, str]]) -> str:
    """Return the text with each piece between its tags; pieces of a word with the same tags share one pair."""
    parts, position = [], 0
    for (_, (opening, closing)), group in groupby(document.pieces(), key=lambda piece: (piece.word, tags(piece))):
        pieces = list(group)
        start, stop = pieces[0].start, pieces[-1].stop
        parts.append(escape(document.text[position:start]))
        parts.append(f"{opening}{escape(document.text[start:stop])}{closing}")
        position = stop
    return "".join(parts) + (" …" if document.cut else escape(document.text[position:]))


def _kept(piece: Piece, draw: int) -> tuple[str, str]:
    return ("<mark>", "</mark>") if piece.kept[draw] else ("", "")


def _share(piece: Piece) -> tuple[str, str]:
    level = min(LEVELS - 1, int(piece.share * LEVELS))
    return f'<span class="s{level}" title="{piece.share:.0%}">', "</span>"


def _extremes(document: KeptTokens) -> str:
    """Return the words kept more and less often than the rest, the most telling first; nothing if all are alike."""
    words = document.word_shares()
    often = [item for item in words if item[1] > document.fraction]
    seldom = [item for item in reversed(words) if item[1] < document.fraction]
    if not often or not seldom:
        return ""
    most, least = (
        ", ".join(f"{escape(word)} {share:.0%}" for word, share in some[:LISTED]) for some in (often, seldom)
    )
    return f'<p class="quiet">Most often: {most}.<br>Least often: {least}.</p>\n'
