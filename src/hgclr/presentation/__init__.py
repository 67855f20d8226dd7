"""Self-contained HTML pages, and matplotlib plots in one style; the same data gives the same bytes."""

from __future__ import annotations

import base64
import io
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hgclr.errors import require_extra
from hgclr.files import check_output

if TYPE_CHECKING:
    from jinja2 import Environment
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, MUTED, PALE = "#1a1a1a", "#666666", "#c9d4de"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""The palette of Okabe and Ito, which colour-blind readers can distinguish."""
PLOT_STYLE: Any = {  # Any, because matplotlib types every key separately
    "font.family": "DejaVu Sans",  # included in matplotlib, so plots are the same on every machine
    "font.size": 9,
    "text.color": INK,
    "text.parse_math": False,  # names may contain dollar signs
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
"""Settings for ``matplotlib.rc_context``."""
PLOT_SIZE = (9.3, 3.8)
"""Inches: as wide as a page."""


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot: its file name without suffix, its content, and its description."""

    name: str
    png: bytes
    svg: bytes
    alt: str

    def files(self) -> dict[str, bytes]:
        return {f"{self.name}.png": self.png, f"{self.name}.svg": self.svg}


def check_report(folder: Path, *, extra: str = "report") -> None:
    """Raise if the folder cannot be written or matplotlib is missing, before any work is done."""
    require_extra("matplotlib", extra=extra, capability="Writing a report")
    check_output(folder)


def draw(name: str, fill: Callable[[Figure], str], size: tuple[float, float] = PLOT_SIZE) -> Plot:
    """Return the plot that ``fill`` draws into an empty figure; ``fill`` returns its description."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    files = {}
    with mpl.rc_context(PLOT_STYLE):
        figure = Figure(figsize=size, layout="constrained")
        alt = fill(figure)
        for kind, metadata in (("png", {"Software": None}), ("svg", {"Date": None})):
            stream = io.BytesIO()
            figure.savefig(stream, format=kind, dpi=200, facecolor="white", metadata=metadata)
            files[kind] = stream.getvalue()
    return Plot(name, alt=alt, **files)


def legend_above(axes: Axes, columns: int) -> None:
    """Put the legend above the axes, right of the title, where it hides no data."""
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=columns, fontsize=8, borderaxespad=0.2)


def dashed(draw_line: Callable[..., object], place: float) -> None:
    """Draw a grey reference line, above the grid and below the data, with ``axes.axhline`` or ``axes.axvline``."""
    draw_line(place, color="#999999", linewidth=0.8, linestyle=(0, (4, 4)), zorder=1.5)


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
    """Return a page rendered from a template.

    Args:
        template: its path below the package, such as ``evaluation/templates/report.html``. It extends
            ``presentation/templates/base.html`` and may use the macros of ``parts.html`` there, and :func:`picture`.
        values: the variables of the template. Text is escaped; ``n|fmt(",")`` formats as in Python.
    """
    return _environment().get_template(template).render(**values) + "\n"


def excerpt(text: str, length: int) -> str:
    """Return the start of a text, on one line."""
    line = " ".join(text[: 4 * length].split())
    whole = len(line) <= length and len(text) <= 4 * length
    return line if whole else line[: length - 1].rstrip() + "…"


def picture(plot: Plot, caption: str = "", *, kind: Literal["png", "svg"] = "svg") -> str:
    """Return a plot as an HTML element, for templates.

    A PNG is shown at half its size in pixels, to be sharp on high-resolution screens.
    """
    content, size = plot.svg, None
    if kind == "png":
        content = plot.png
        width, height = struct.unpack(">II", content[16:24])  # from the header
        size = width // 2, height // 2
    media = {"png": "image/png", "svg": "image/svg+xml"}[kind]
    source = f"data:{media};base64,{base64.b64encode(content).decode()}"
    parts: Any = _environment().get_template("presentation/templates/parts.html").module
    element: str = parts.picture(source, size, plot.alt, caption)
    return element
