"""The look of all figures, and figures as the content of files."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["COLOURS", "INK", "MUTED", "PALE", "PLOT_STYLE", "legend_above", "render"]

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
