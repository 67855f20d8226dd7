"""Pages, each one HTML file that loads nothing from elsewhere, and plots with one look."""

from __future__ import annotations

import base64
import struct
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hgclr.presentation.plots import (
    COLOURS,
    INK,
    MUTED,
    PALE,
    PLOT_SIZE,
    Plot,
    check_report,
    dashed,
    draw,
    legend_above,
)

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = [
    "COLOURS",
    "INK",
    "MUTED",
    "PALE",
    "PLOT_SIZE",
    "Plot",
    "check_report",
    "dashed",
    "draw",
    "legend_above",
    "picture",
    "render_page",
]


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
            ``presentation/templates/base.html`` and may use the macros of ``parts.html`` there, and :func:`picture`.
        values: the values that the template shows. Text is escaped; ``n|fmt(",")`` formats as Python does.
    """
    return _environment().get_template(template).render(**values) + "\n"


def picture(plot: Plot, caption: str = "", *, kind: Literal["png", "svg"] = "svg") -> str:
    """Return a plot as an element of a page, for templates.

    A PNG is shown in half its size in pixels, to be sharp on fine screens.
    """
    content, size = plot.svg, None
    if kind == "png":
        content = plot.png
        width, height = struct.unpack(">II", content[16:24])  # the header comes first in every PNG
        size = width // 2, height // 2
    media = {"png": "image/png", "svg": "image/svg+xml"}[kind]
    source = f"data:{media};base64,{base64.b64encode(content).decode()}"
    parts: Any = _environment().get_template("presentation/templates/parts.html").module
    element: str = parts.picture(source, size, plot.alt, caption)
    return element
