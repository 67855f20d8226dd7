"""Pages that are one HTML file: text, tables, pictures and trees, in light and dark, with nothing from outside."""

from __future__ import annotations

import base64
import io
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "COLOURS",
    "INK",
    "MUTED",
    "PALE",
    "PLOT_STYLE",
    "Html",
    "Section",
    "bullets",
    "facts",
    "fold",
    "folding_tree",
    "legend_above",
    "notice",
    "page",
    "paragraph",
    "picture",
    "render",
    "table",
    "tiles",
]

Tone = Literal["good", "note", "warning", "error"]
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
"""Tells the browser to fetch nothing."""
STYLE = """
:root { color-scheme: light dark; --ink: #1b1b1f; --quiet: #5c5c66; --paper: #ffffff; --card: #f5f5f7; --line: #d9d9df;
  --accent: #0b5cad; --good: #1d7a45; --note: #0b5cad; --warning: #8a5a00; --error: #a3162a; }
@media (prefers-color-scheme: dark) { :root { --ink: #ececf0; --quiet: #a2a2ae; --paper: #16161a; --card: #212127;
  --line: #3a3a44; --accent: #8ac2ff; --good: #7fd6a2; --note: #8ac2ff; --warning: #f0c060; --error: #ff9aa6; } }
* { box-sizing: border-box; }
html { scroll-behavior: smooth; }
body { margin: 0 auto; padding: 2.5rem 1.25rem 4rem; max-width: 60rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.6 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.75rem; line-height: 1.2; margin: 0 0 .5rem; letter-spacing: -.01em; }
h2 { font-size: 1.2rem; line-height: 1.3; margin: 0 0 .75rem; }
h3 { font-size: 1rem; margin: 1.5rem 0 .5rem; }
p { margin: .5rem 0; }
a { color: var(--accent); }
code { font: .9em ui-monospace, "DejaVu Sans Mono", monospace; }
nav { display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; margin: 1rem 0 0; font-size: .9rem; }
nav a { text-decoration: none; } nav a:hover { text-decoration: underline; }
section { margin: 2.75rem 0 0; scroll-margin-top: 1rem; }
footer { margin-top: 3rem; padding-top: 1rem; border-top: 1px solid var(--line); }
.quiet, footer, figcaption, caption { color: var(--quiet); font-size: .875rem; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(7.5rem, 1fr)); gap: .75rem; margin: 1.25rem 0; }
.tiles div { background: var(--card); border: 1px solid var(--line); border-radius: .6rem; padding: .75rem 1rem; }
.tiles b { display: block; font-size: 1.5rem; line-height: 1.25; font-weight: 650; font-variant-numeric: tabular-nums; }
.tiles span { color: var(--quiet); font-size: .8125rem; }
.wide { overflow-x: auto; margin: .75rem 0; }
table { border-collapse: collapse; min-width: 50%; font-variant-numeric: tabular-nums; overflow-wrap: normal; }
caption { text-align: left; padding: .5rem 0 0; caption-side: bottom; }
th, td { padding: .35rem .9rem .35rem 0; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
th { font-weight: 600; } thead th { color: var(--quiet); font-size: .8125rem; vertical-align: bottom; }
tbody th { font-weight: 500; }
.number { text-align: right; white-space: nowrap; }
dl { display: grid; grid-template-columns: minmax(9rem, auto) 1fr; gap: .35rem 1.25rem; margin: .75rem 0; }
dt { color: var(--quiet); } dd { margin: 0; }
figure { margin: 1rem 0 1.5rem; }
figure img { display: block; max-width: 100%; height: auto; background: #fff; border: 1px solid var(--line);
  border-radius: .6rem; padding: .5rem; }
figcaption { margin-top: .5rem; max-width: 46rem; }
.notice { border-left: 4px solid var(--tone); background: var(--card); border-radius: .25rem .6rem .6rem .25rem;
  padding: .6rem 1rem; margin: .6rem 0; }
.notice b { color: var(--tone); }
.good { --tone: var(--good); } .note { --tone: var(--note); }
.warning { --tone: var(--warning); } .error { --tone: var(--error); }
details, .leaf { margin: .1rem 0; } details > details, details > .leaf { margin-left: 1.25rem; }
summary { cursor: pointer; } .leaf { padding-left: 1.05rem; }
@media print { body { max-width: none; padding: 0; } nav { display: none; } section, figure { break-inside: avoid; } }
@media (max-width: 36rem) { dl { grid-template-columns: 1fr; } dd { margin-bottom: .5rem; } }
"""


class Html(str):
    """Text that is HTML already; every other text is escaped."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a page with a heading.

    Args:
        title: the heading, and the entry in the list of contents.
        body: its content, from the functions here.
    """

    title: str
    body: Html


def page(
    title: str,
    sections: Sequence[Section],
    *,
    lead: str = "",
    footer: str = "",
    style: str = "",
    script: str = "",
) -> str:
    """Return a whole page: title, lead, list of contents, sections, footer.

    Args:
        title: heading and name of the page.
        sections: its parts, in order.
        lead: what stands below the title: a sentence, or parts from the functions here.
        footer: what stands at the end, such as how the page was made.
        style: a style sheet beside the page's own, for parts that are not made by the functions here.
        script: a program that runs when all is there.
    """
    contents = " ".join(f'<a href="#part{n}">{escape(part.title)}</a>' for n, part in enumerate(sections, 1))
    parts = "\n".join(
        f'<section id="part{n}">\n<h2>{escape(part.title)}</h2>\n{part.body}\n</section>'
        for n, part in enumerate(sections, 1)
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>{escape(title)}</title>
<style>{STYLE}{style}</style>
</head>
<body>
<header>
<h1>{escape(title)}</h1>
{lead if isinstance(lead, Html) or not lead else paragraph(lead)}
<nav aria-label="Contents">{contents if len(sections) > 1 else ""}</nav>
</header>
<main>
{parts}
</main>
{f"<footer>{_text(footer)}</footer>" if footer else ""}
{f"<script>{script}</script>" if script else ""}
</body>
</html>
"""


def paragraph(text: str, *, quiet: bool = False) -> Html:
    """Return a paragraph, in small grey type if it is ``quiet``."""
    kind = ' class="quiet"' if quiet else ""
    return Html(f"<p{kind}>{_text(text)}</p>")


def bullets(items: Iterable[str]) -> Html:
    """Return a list of sentences."""
    lines = "\n".join(f"<li>{_text(item)}</li>" for item in items)
    return Html(f"<ul>\n{lines}\n</ul>")


def fold(summary: str, body: Html, *, unfolded: bool = False) -> Html:
    """Return a part of which only the summary is seen until it is opened."""
    return Html(f"<details{' open' * unfolded}><summary>{_text(summary)}</summary>\n{body}\n</details>")


def tiles(values: Iterable[tuple[str, str]]) -> Html:
    """Return the few numbers that matter most, large, each with its name below: pairs of value and name."""
    cells = "\n".join(f"<div><b>{_text(value)}</b><span>{_text(name)}</span></div>" for value, name in values)
    return Html(f'<div class="tiles">\n{cells}\n</div>')


def facts(pairs: Iterable[tuple[str, str]]) -> Html:
    """Return a list of names and what is to be said of each."""
    rows = "\n".join(f"<dt>{_text(name)}</dt><dd>{_text(value)}</dd>" for name, value in pairs)
    return Html(f"<dl>\n{rows}\n</dl>")


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], *, text_columns: int = 1, caption: str = "") -> Html:
    """Return a table; the first cell of a row is its heading.

    Args:
        headings: of the columns.
        rows: their cells.
        text_columns: how many columns, from the left, are text; the others are numbers and aligned right.
        caption: what stands below it.
    """

    def cell(tag: str, content: str, column: int, scope: str = "") -> str:
        kind = "" if column < text_columns else ' class="number"'
        return f"<{tag}{scope}{kind}>{_text(content)}</{tag}>"

    head = "".join(cell("th", heading, column, ' scope="col"') for column, heading in enumerate(headings))
    lines = []
    for first, *others in rows:
        cells = cell("th", first, 0, ' scope="row"')
        lines.append(f"<tr>{cells}{''.join(cell('td', content, n) for n, content in enumerate(others, 1))}</tr>")
    below = f"<caption>{_text(caption)}</caption>" if caption else ""
    body = "\n".join(lines)
    return Html(
        f'<div class="wide"><table>{below}\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>'
    )


def notice(tone: Tone, text: str, head: str = "") -> Html:
    """Return a marked line: something good, a note, a warning or an error; ``head`` is its first word in bold."""
    start = f"<b>{_text(head)}</b> " if head else ""
    return Html(f'<div class="notice {tone}">{start}{_text(text)}</div>')


def picture(content: bytes, *, alt: str, caption: str = "", kind: Literal["png", "svg"] = "png") -> Html:
    """Return a picture that is part of the page, on white in the dark, too.

    Args:
        content: the file; a PNG is shown in half its size in pixels, to be sharp on fine screens.
        alt: what it shows, for those who cannot see it.
        caption: what stands below it.
        kind: what the file is.
    """
    media = {"png": "image/png", "svg": "image/svg+xml"}[kind]
    size = ""
    if kind == "png":
        width, height = struct.unpack(">II", content[16:24])  # the header comes first in every PNG
        size = f' width="{width // 2}" height="{height // 2}"'
    source = f"data:{media};base64,{base64.b64encode(content).decode()}"
    below = f"<figcaption>{_text(caption)}</figcaption>" if caption else ""
    return Html(f'<figure><img src="{source}"{size} alt="{escape(alt)}">{below}</figure>')


def folding_tree(nodes: Iterable[tuple[int, str]], *, unfolded: int = 0) -> Html:
    """Return a tree whose branches open and close.

    Args:
        nodes: depth and text of each, in the order of a depth-first walk; depths start at 0 and grow by 1 at most.
        unfolded: branches above this depth are open at first.
    """
    listed = list(nodes)
    parts: list[str] = []
    open_branches: list[int] = []
    for (depth, text), following in zip(listed, [*(depth for depth, _ in listed[1:]), 0], strict=False):
        while open_branches and open_branches[-1] >= depth:
            open_branches.pop()
            parts.append("</details>")
        if following > depth:
            open_branches.append(depth)
            parts.append(f"<details{' open' * (depth < unfolded)}><summary>{_text(text)}</summary>")
        else:
            parts.append(f'<div class="leaf">{_text(text)}</div>')
    parts += ["</details>"] * len(open_branches)
    return Html("\n".join(parts))


def _text(content: str) -> str:
    """Return a text escaped, HTML as it is."""
    return content if isinstance(content, Html) else escape(content)


INK, MUTED, PALE = "#1a1a1a", "#666666", "#c9d4de"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Okabe and Ito's, for all kinds of colour vision."""
PLOT_STYLE: Any = {  # matplotlib types its keys one by one
    "font.family": "DejaVu Sans",  # comes with matplotlib, so that every machine sets the same type
    "font.size": 9,
    "text.color": INK,
    "text.parse_math": False,  # a dollar sign in a name is a dollar sign
    "axes.edgecolor": "#bbbbbb",
    "axes.labelcolor": MUTED,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": "#e8e8ec",
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "legend.frameon": False,
    "svg.hashsalt": "hgclr",
}
"""Matplotlib settings, for ``matplotlib.rc_context``."""


def render(figure: Figure, kind: Literal["png", "svg"]) -> bytes:
    """Return the figure as the content of a file; the same figure gives the same bytes."""
    import matplotlib as mpl

    stream = io.BytesIO()
    metadata = {"Date": None} if kind == "svg" else {"Software": None}
    with mpl.rc_context(PLOT_STYLE):
        figure.savefig(stream, format=kind, dpi=200, facecolor="white", metadata=metadata)
    return stream.getvalue()


def legend_above(axes: Axes, columns: int) -> None:
    """Put the legend above the axes, on the right of the title, where it never hides data."""
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=columns, fontsize=8, borderaxespad=0.2)
