"""Draw figure 5: maps of label vectors side by side, coloured by parent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hgclr.errors import require_extra
from hgclr.files import write_files
from hgclr.plot_style import INK, MUTED, STYLE, render
from hgclr.reproduction.figures.label_map import LabelMap
from hgclr.reproduction.figures.label_measures import Measure
from hgclr.reproduction.figures.name_placing import place_names
from hgclr.reproduction.figures.style import distinct_colours, shortened
from hgclr.taxonomy import Taxonomy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_label_maps", "write_label_maps"]

PANEL, HEAD, FOOT = 4.7, 0.75, 0.45
"""Inches: the side of a map, the space for its title and numbers, the space for the caption."""
MARKERS = "os^DvPXp<>"
"""Children of a parent share a shape as well as a colour: for eyes and printers that do not tell colours apart."""
NAMED = 30
"""Top labels up to which their names stand on the map."""
LISTED = 40
"""Parents below the top up to which a legend is of use."""

Look = tuple[str, str]  # colour and shape


def write_label_maps(maps: Mapping[str, LabelMap], folder: Path, report: Mapping[str, Any] | None = None) -> list[Path]:
    """Write ``figure5.png``, ``figure5.svg`` and ``figure5.json`` into a folder, and return their paths.

    Args:
        maps: the maps of one label tree, by the name to show.
        folder: made if it is not there; other files in it stay.
        report: what the JSON shall say beside the numbers, such as where the models came from.

    Raises:
        MissingExtraError: if matplotlib is not installed.
    """
    figure = draw_label_maps(maps)
    numbers = {**(report or {}), "maps": {name: one.to_json() for name, one in maps.items()}}
    return write_files(
        folder,
        {
            "figure5.png": render(figure, "png"),
            "figure5.svg": render(figure, "svg"),
            "figure5.json": (json.dumps(numbers, indent=2, ensure_ascii=False) + "\n").encode(),
        },
    )


def draw_label_maps(maps: Mapping[str, LabelMap]) -> Figure:
    """Draw the maps side by side, each under its name and its numbers.

    Raises:
        MissingExtraError: if matplotlib is not installed.
    """
    require_extra("matplotlib", extra="paper", capability="Drawing a figure")
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    taxonomy = next(iter(maps.values())).taxonomy
    looks = _looks(taxonomy)
    listed = _listed(taxonomy, looks)
    width = PANEL * len(maps)
    longest = max((len(shortened(taxonomy.names[node])) for node in listed), default=0)
    columns = max(1, int(width / (0.35 + 0.06 * longest)))  # inches: mark and space, a character
    legend = 0.15 * -(-len(listed) // columns) + 0.12 if listed else 0.0
    height = PANEL + HEAD + FOOT + legend
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(width, height))
        FigureCanvasAgg(figure)  # measures the names
        for column, (name, one) in enumerate(maps.items()):
            left, bottom = (column + 0.02) / len(maps), (FOOT + legend) / height
            axes = figure.add_axes((left, bottom, 0.96 / len(maps), PANEL / height))
            axes.set(xticks=[], yticks=[])
            axes.margins(0.09)
            _draw(axes, one, looks)
            axes.text(0, 1.1, name, transform=axes.transAxes, fontsize=12, fontweight="bold")
            axes.text(0, 1.015, _numbers(one), transform=axes.transAxes, fontsize=8, linespacing=1.4)
        if listed:
            figure.legend(
                handles=[_handle(taxonomy.names[node], looks[node]) for node in listed],
                loc="upper left",
                bbox_to_anchor=(0.01, (FOOT + legend) / height),
                ncols=columns,
                fontsize=7,
                frameon=False,
                handletextpad=0.2,
            )
        figure.text(0.01, 0.1 / height, _caption(taxonomy, looks), fontsize=7, color=MUTED, linespacing=1.4)
    return figure


def _looks(taxonomy: Taxonomy) -> dict[int, Look]:
    """Return the colour and shape of every parent's children; a top label without children has its own."""
    parents = np.unique(taxonomy.parents[taxonomy.parents >= 0])
    nodes = [*taxonomy.levels[0].tolist(), *(node for node in parents.tolist() if taxonomy.parents[node] >= 0)]
    colours = distinct_colours(len(nodes))
    return {node: (colours[place], MARKERS[place % len(MARKERS)]) for place, node in enumerate(nodes)}


def _listed(taxonomy: Taxonomy, looks: Mapping[int, Look]) -> list[int]:
    """Return the parents for the legend: those whose names do not stand on the map, unless they are too many."""
    named = len(taxonomy.levels[0]) <= NAMED
    missing = [node for node in looks if taxonomy.parents[node] >= 0 or not named]
    return missing if len(missing) <= LISTED else []


def _draw(axes: Axes, one: LabelMap, looks: Mapping[int, Look]) -> None:
    """Draw one map: a line from each label to its father, small shapes below the top, large ones at the top."""
    from matplotlib.collections import LineCollection

    taxonomy, at = one.taxonomy, one.positions
    below = np.flatnonzero(taxonomy.parents >= 0)
    lines = np.stack([at[below], at[taxonomy.parents[below]]], axis=1)  # (n, 2, 2)
    colours = [looks[int(parent)][0] for parent in taxonomy.parents[below]]
    axes.add_collection(LineCollection(lines, colors=colours, linewidths=0.4, alpha=0.35, zorder=1))  # type: ignore[arg-type]
    for parent, (colour, marker) in looks.items():
        children = taxonomy.children(parent)
        axes.scatter(
            at[children, 0],
            at[children, 1],
            s=20,
            c=colour,
            marker=marker,
            linewidths=0.3,
            edgecolors="white",
            zorder=2,
        )
    top = taxonomy.levels[0].tolist()
    for node in top:
        colour, marker = looks[node]
        axes.scatter(at[node, 0], at[node, 1], s=110, c=colour, marker=marker, linewidths=1.1, edgecolors=INK, zorder=3)
    if len(top) <= NAMED:
        place_names(axes, at[top], [shortened(taxonomy.names[node]) for node in top], avoid=at)


def _numbers(one: LabelMap) -> str:
    """Return the two numbers of a map in words."""
    silhouette = "not defined: no two parents have two children"
    if one.silhouette is not None:
        silhouette = f"{one.silhouette.value:.3f}  ({_shuffled(one.silhouette, 3)})"
    others, chance = len(one.taxonomy) - 1, one.father_rank_by_chance
    rank = f"{one.father_rank.value:.1f} of {others:,}  ({_shuffled(one.father_rank, 1)}; any label: {chance:,.1f})"
    return f"silhouette by parent  {silhouette}\nmean rank of the father  {rank}".replace("-", "−")


def _shuffled(one: Measure, digits: int) -> str:
    return f"shuffled: {one.shuffled_mean:.{digits}f} ± {one.shuffled_sd:.{digits}f}"


def _handle(name: str, look: Look) -> Any:
    """Return the legend's entry for a parent."""
    from matplotlib.lines import Line2D

    return Line2D([], [], color=look[0], marker=look[1], linestyle="none", markersize=4.5, label=shortened(name))


def _caption(taxonomy: Taxonomy, looks: Mapping[int, Look]) -> str:
    """Return what the reader must know to read the maps."""
    unnamed = "" if len(looks) - len(taxonomy.levels[0]) <= LISTED else ", too many to name them"
    return (
        f"t-SNE of the {len(taxonomy):,} label vectors (rows of the linear head) by cosine distance. Large: top labels."
        " Small: the labels below, with a line to the father.\n"
        f"One colour and shape per father{unnamed}. Numbers: of the vectors, not of the map; shuffled: with fathers"
        " dealt out at random, mean ± standard deviation."
    )
