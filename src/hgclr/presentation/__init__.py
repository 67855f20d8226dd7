"""Pages, each one HTML file that loads nothing from elsewhere, and plots with one look."""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from hgclr.presentation.plots import (
    COLOURS,
    INK,
    MUTED,
    PALE,
    PLOT_SIZE,
    PLOT_STYLE,
    Plot,
    check_report,
    dashed,
    draw,
    legend_above,
    render,
)

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = [
    "COLOURS",
    "INK",
    "MUTED",
    "PALE",
    "PLOT_SIZE",
    "PLOT_STYLE",
    "Html",
    "Plot",
    "Section",
    "check_report",
    "dashed",
    "draw",
    "facts",
    "folding_tree",
    "legend_above",
    "notice",
    "page",
    "picture",
    "render",
    "render_page",
    "table",
    "tiles",
]

PARTS = "presentation/templates/parts.html"
Tone = Literal["good", "note", "warning", "error"]


class Html(str):
    """Text that is HTML already; every other text is escaped."""

    __slots__ = ()

    def __html__(self) -> Html:
        return self


class Section(NamedTuple):
    """A part of a page: its heading, which is also in the list of contents, and its content."""

    title: str
    body: Html


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parents[1]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["fmt"] = format
    environment.globals["picture"] = picture
    return environment


def render_page(template: str, **values: Any) -> str:
    """Return the page that a template makes of values.

    Args:
        template: its path below the package, such as ``evaluation/templates/report.html``. It extends
            ``presentation/templates/base.html`` and sets what that one asks for.
        values: what the template shows. Text is escaped, :class:`Html` is not; ``n|fmt(",")`` formats as Python does.
    """
    return _environment().get_template(template).render(**values) + "\n"


def page(title: str, sections: Sequence[Section], *, lead: str = "", footer: str = "") -> str:
    """Return a page of parts that are made already: a title, what is below it, sections, and what is at the end."""
    return render_page("presentation/templates/base.html", title=title, sections=sections, lead=lead, footer=footer)


def _part(name: str, *values: object) -> Html:
    return Html(getattr(_environment().get_template(PARTS).module, name)(*values))


def tiles(values: Iterable[tuple[str, str]]) -> Html:
    """Return the few numbers that matter most, large, each with its name below: pairs of value and name."""
    return _part("tiles", values)


def facts(pairs: Iterable[tuple[str, str]]) -> Html:
    """Return a list of names and what is to be said of each."""
    return _part("facts", pairs)


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], *, text_columns: int = 1, caption: str = "") -> Html:
    """Return a table; the first cell of a row is its heading, columns after the first ``text_columns`` are numbers."""
    return _part("table", headings, rows, text_columns, caption)


def notice(tone: Tone, text: str, head: str = "") -> Html:
    """Return a marked line: something good, a note, a warning or an error; ``head`` is its first word in bold."""
    return _part("notice", tone, text, head)


def picture(plot: Plot | bytes, *, alt: str = "", caption: str = "", kind: Literal["png", "svg"] | None = None) -> Html:
    """Return a plot as part of the page, as SVG unless ``kind`` says PNG.

    A PNG is shown in half its size in pixels, to be sharp on fine screens.
    """
    if isinstance(plot, Plot):
        kind = kind or "svg"
        content, alt = getattr(plot, kind), plot.alt
    else:
        kind, content = kind or "png", plot
    size = None
    if kind == "png":
        width, height = struct.unpack(">II", content[16:24])  # the header comes first in every PNG
        size = width // 2, height // 2
    media = {"png": "image/png", "svg": "image/svg+xml"}[kind]
    return _part("picture", f"data:{media};base64,{base64.b64encode(content).decode()}", size, alt, caption)


def folding_tree(nodes: Iterable[tuple[int, str]], *, unfolded: int = 0) -> Html:
    """Return a tree whose branches open and close.

    Args:
        nodes: depth and text of each, in the order of a depth-first walk; depths start at 0 and grow by 1 at most.
        unfolded: branches above this depth are open at first.
    """
    return _part("folding_tree", nodes, unfolded)
