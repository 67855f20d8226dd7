"""What the paper's figures have in common here: many colours that can be told apart, names of a length."""

from __future__ import annotations

from math import gcd

import numpy as np

from hgclr.plot_style import COLOURS

__all__ = ["distinct_colours", "shortened"]

# Okabe and Ito's colours for all kinds of colour vision, black and the too pale yellow replaced, and two more.
FEW = (*COLOURS, "#7a3e9d", "#8c6d31", "#666666", "#b2182b")

LIGHTNESS = (0.62, 0.46, 0.76)


def distinct_colours(count: int) -> list[str]:
    """Return ``count`` colours as far apart as may be, dark enough to be seen on white.

    Above ten they lie on three circles of hues, one per degree of lightness; colours that follow each other differ in
    both.
    """
    if count <= len(FEW):
        return list(FEW[:count])
    around = -(-count // len(LIGHTNESS))  # hues on each circle
    step = next(number for number in range(around // 2, 0, -1) if gcd(number, around) == 1)
    colours = []
    for number in range(count):
        place, circle = divmod(number, len(LIGHTNESS))
        hue = place * step % around / around + circle / len(LIGHTNESS)
        colours.append(_hue_colour(hue, LIGHTNESS[circle]))
    return colours


def _hue_colour(hue: float, lightness: float, chroma: float = 0.13) -> str:
    """Return a colour of the OKLCH space, in which equal lightness looks equal, as a hexadecimal sRGB value."""
    a, b = chroma * np.cos(2 * np.pi * hue), chroma * np.sin(2 * np.pi * hue)
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    middle = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    linear = np.array(
        [
            4.0767416621 * long - 3.3077115913 * middle + 0.2309699292 * short,
            -1.2684380046 * long + 2.6097574011 * middle - 0.3413193965 * short,
            -0.0041960863 * long - 0.7034186147 * middle + 1.7076147010 * short,
        ]
    ).clip(0, 1)
    encoded = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    return "#" + "".join(f"{round(255 * value):02x}" for value in encoded.tolist())


def shortened(name: str, longest: int = 30) -> str:
    """Return a name of at most ``longest`` characters."""
    return name if len(name) <= longest else name[: longest - 1].rstrip() + "…"
