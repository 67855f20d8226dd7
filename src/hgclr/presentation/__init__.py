"""What people look at: pages that are one HTML file, with nothing from outside, and figures that look alike."""

from __future__ import annotations

import base64
import io
import struct
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from jinja2 import Environment
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


def picture(content: bytes, *, alt: str, caption: str = "", kind: Literal["png", "svg"] = "png") -> Html:
    """Return a picture that is part of the page, on white in the dark, too.

    A PNG is shown in half its size in pixels, to be sharp on fine screens; ``alt`` is for those who cannot see it.
    """
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
