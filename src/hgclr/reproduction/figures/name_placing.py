"""Put names beside points so that they hide as little as may be."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["place_names"]

Floats = NDArray[np.float64]

SIDES = [(x, y) for x, y in product((1, 0, -1), (0, 1, -1)) if (x, y) != (0, 0)]
DISTANCES = (8.0, 13.0, 20.0, 28.0)
"""From a point to its name, in points of type."""


def place_names(axes: Axes, points: Floats, names: Sequence[str], *, avoid: Floats) -> None:
    """Write each name beside its point, with a thin line to it where it had to go farther away.

    Names are placed one after the other, each where it covers the least of the names before it and of ``avoid``, and
    stays within the axes. The axes' figure must have a canvas that can measure text.

    Args:
        axes: with its limits settled.
        points: (n, 2), in the coordinates of the data.
        names: n names.
        avoid: points that should stay visible, (m, 2).
    """
    from matplotlib.patheffects import withStroke

    figure: Any = axes.get_figure(root=True)
    renderer, pixels_per_point = figure.canvas.get_renderer(), figure.dpi / 72
    frame = axes.get_window_extent()
    # The points that are named count more than the others, being larger.
    dots = axes.transData.transform(np.concatenate([avoid, *[points] * 3]))
    taken: list[Floats] = []
    for point, name in zip(points, names, strict=True):
        text = axes.annotate(
            name,
            point,
            (0, 0),
            textcoords="offset points",
            fontsize=8,
            fontweight="bold",
            zorder=5,
            ha="center",
            va="center",
            path_effects=[withStroke(linewidth=2.5, foreground="white")],
        )
        extent = text.get_window_extent(renderer)
        half = np.array([extent.width, extent.height]) / 2 + (4, 1)  # pixels of space around
        origin = axes.transData.transform(point)
        best = None
        for distance, side in product(DISTANCES, SIDES):
            centre = origin + np.array(side) * (distance * pixels_per_point + half * (1, 0.6))
            box = np.array([centre - half, centre + half])
            cost = _cost(box, taken, dots, np.array([frame.min, frame.max])) + distance / 10
            if best is None or cost < best[0]:
                best = cost, box, (centre - origin) / pixels_per_point, distance
        if best is not None:
            taken.append(best[1])
            text.set_position(tuple(best[2]))
            if best[3] > DISTANCES[1]:
                axes.annotate(
                    "",
                    point,
                    tuple(best[2]),
                    textcoords="offset points",
                    zorder=4,
                    arrowprops={"arrowstyle": "-", "linewidth": 0.5, "color": "#444444"},
                )


def _cost(box: Floats, taken: Sequence[Floats], dots: Floats, frame: Floats) -> float:
    """Return how bad a place is: covered points count one each, covered names and space outside the frame much more."""
    covered = ((dots > box[0]) & (dots < box[1])).all(1).sum()
    names = sum(float(_overlap(box, other).prod()) for other in taken)
    outside = (box[1] - box[0]).prod() - _overlap(box, frame).prod()
    area = (box[1] - box[0]).prod()
    return float(covered + 40 * (names + outside) / area)


def _overlap(one: Floats, other: Floats) -> Floats:
    """Return width and height of what two boxes share."""
    shared: Floats = np.clip(np.minimum(one[1], other[1]) - np.maximum(one[0], other[0]), 0, None)
    return shared
