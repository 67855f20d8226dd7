"""What people look at: pages that are one HTML file, and figures that look alike."""

from __future__ import annotations

from hgclr.presentation.figures import COLOURS, INK, MUTED, PALE, PLOT_STYLE, legend_above, render
from hgclr.presentation.pages import (
    Html,
    Section,
    facts,
    folding_tree,
    notice,
    page,
    paragraph,
    picture,
    render_page,
    table,
    tiles,
)

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
    "paragraph",
    "picture",
    "render",
    "render_page",
    "table",
    "tiles",
]
